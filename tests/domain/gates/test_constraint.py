"""Where a grammar begins behind a thought, which drafts it leaves, and how a budget closes a thought."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.domain.conversation.reply_form import CHANNEL, THINK
from tensorfold.domain.conversation.thoughts import ThoughtSplitter
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.drafting.sources import Proposal
from tensorfold.domain.gates.constraint import Constraint, RejectedTokenError
from tensorfold.domain.gates.gate import Cut
from tensorfold.domain.gates.thinking_budget import ThinkingBudget
from tensorfold.domain.gates.thought_end import ThoughtEnd
from tensorfold.domain.windows import chain, tree
from tests.fakes.grammar import FakeGrammarCompiler
from tests.fakes.tokenizer import FakeTokenizer

TOKENIZER = FakeTokenizer(300)
END = TOKENIZER.end_id
STRADDLING = TokenBytes((b"a", b"</think", b">", b">x", b">\n\n", b"</think>", b"</think>{", b"<", b">>", b"k>b"))


def constrained(*choices: str, vocabulary: int = 300, thought: ThoughtEnd | None = None) -> Constraint:
    matcher = FakeGrammarCompiler(TOKENIZER).compile("choices", json.dumps(choices))
    return Constraint(matcher, vocabulary, frozenset({END}), thought)


def allowed(mask: NDArray[np.uint32] | None) -> list[int]:
    assert mask is not None
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


@pytest.mark.parametrize(
    ("tokens", "straddling"),
    [([], [6]), ([0], [6]), ([1], [3, 6, 8]), ([7], [6]), ([1, 0], [6]), ([7, 1], [3, 6, 8])],
)
def test_a_token_in_which_thought_and_answer_meet_is_known(tokens: list[int], straddling: list[int]) -> None:
    end = ThoughtEnd(STRADDLING, THINK)
    tail = end.start
    for token in tokens:
        tail = end.after(tail, token)
    assert end.straddling(tail) == straddling


def test_line_breaks_behind_the_mark_are_layout() -> None:
    end = ThoughtEnd(STRADDLING, THINK)
    assert end.after(end.after(end.start, 1), 4) is None
    assert end.after(end.start, 5) is None and end.after(None, 0) is None and end.straddling(None) == []


def test_masks_follow_the_thought_and_then_the_grammar() -> None:
    held = constrained("yes", thought=ThoughtEnd(TOKENIZER.token_bytes, THINK))
    close = TOKENIZER.encode("</think>")
    masks = held.masks(chain(65, [97, *close, *TOKENIZER.encode("y")]))
    assert all(len(allowed(mask)) == 299 and END not in allowed(mask) for mask in masks[: len(close) + 1])
    assert [allowed(mask) for mask in masks[-2:]] == [TOKENIZER.encode("y"), TOKENIZER.encode("e")]
    assert not held.in_answer and held.advanced(close).in_answer


def test_rows_that_are_not_drawn_or_cannot_be_reached_have_no_mask() -> None:
    held = constrained("yes", "no")
    y, n, x = (TOKENIZER.encode(c)[0] for c in "ynx")
    masks = held.masks(tree(65, [y, x, n], [0, 1, 0]))
    assert [mask is None for mask in masks] == [False, False, True, False]
    fed = held.masks(chain(65, (), TOKENIZER.encode("ye")))
    assert fed[0] is None and fed[1] is None and allowed(fed[2]) == TOKENIZER.encode("s")


def test_drafts_that_could_not_be_drawn_are_left_out_with_what_hangs_below_them() -> None:
    held = constrained("yes", "no")
    y, e, n, x = (TOKENIZER.encode(c)[0] for c in "yenx")
    assert held.fitting((), [y, e, x], None) == (0, 1)
    assert held.fitting((), [x, y, e, n, END], [0, 0, 1, 0, 3]) == (1, 3)
    assert held.fitting((y,), [e], None) == (0,)
    assert constrained("y").fitting((y,), [END], None) == ()
    offer = Proposal("s", (x, y, e, n), (0.5, 0.4, 0.3, 0.2), (0, 0, 2, 2))
    kept = offer.only((1, 2, 3))
    assert kept == Proposal("s", (y, e, n), (0.4, 0.3, 0.2), (0, 1, 1)) and offer.only(()) is None


def test_ids_past_the_models_vocabulary_are_never_allowed() -> None:
    held = constrained("yes", vocabulary=122)
    (mask,) = held.masks(chain(65))
    assert mask is not None and mask.shape == (4,) and allowed(mask) == [121]
    with pytest.raises(ValueError, match="no token"):
        constrained("yes", vocabulary=64).masks(chain(65))


def test_a_token_that_does_not_fit_is_told() -> None:
    with pytest.raises(RejectedTokenError):
        constrained("yes").advanced(TOKENIZER.encode("no"))
    with pytest.raises(RejectedTokenError):
        constrained("yes", thought=ThoughtEnd(TOKENIZER.token_bytes, THINK)).advanced([END])


BYTES = TokenBytes((b"a", b"<think>", b"</think>", b"\n", b"<|channel>thought", b"<channel|>"))


def test_a_budget_closes_the_thought_at_its_own_token_whatever_is_drawn() -> None:
    gate = ThinkingBudget(BYTES, ThoughtSplitter(THINK, True), 3, (3, 2, 3))
    assert gate.room() == 3 and gate.scan([0, 0]) is None
    assert gate.scan([0, 0, 0, 0]) == Cut(2, (3, 2, 3)) and gate.scan([0, 0, 3]) == Cut(2, (3, 2, 3))
    gate.observe([0, 0])
    assert gate.room() == 1
    gate.observe([3])
    assert gate.room() is None and gate.scan([2, 3, 0, 0]) is None
    gate.observe([2, 3, 0])
    assert gate.scan([0] * 9) is None


def test_a_thought_that_ended_in_time_is_left_alone_and_one_that_opens_late_is_closed_at_once() -> None:
    gate = ThinkingBudget(BYTES, ThoughtSplitter(CHANNEL, False), 2, (5,))
    assert gate.scan([0, 0, 4, 0, 0]) == Cut(3, (5,))
    early = ThinkingBudget(BYTES, ThoughtSplitter(THINK, True), 3, (2,))
    assert early.scan([0, 2, 0, 0, 0]) is None


def test_a_budget_of_nothing_is_no_budget() -> None:
    for budget, close in ((0, (1,)), (1, ())):
        with pytest.raises(ValueError):
            ThinkingBudget(BYTES, ThoughtSplitter(THINK, True), budget, close)
