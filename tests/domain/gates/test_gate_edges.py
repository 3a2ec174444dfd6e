"""Gates at their edges: masks of every width, copies that share nothing, small budgets, thoughts that open again."""

from __future__ import annotations

import pytest

from tensorfold.domain.conversation.reply_form import CHANNEL, THINK
from tensorfold.domain.conversation.thoughts import ThoughtSplitter
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.gates.constraint import Constraint
from tensorfold.domain.gates.gate import Cut
from tensorfold.domain.gates.thinking_budget import ThinkingBudget
from tensorfold.domain.gates.thought_end import ThoughtEnd
from tensorfold.domain.windows import chain
from tests.domain.gates.test_constraint import BYTES, END, STRADDLING, TOKENIZER, allowed, constrained

BEYOND = TokenBytes((b"a", b"></think>\n"))


@pytest.mark.parametrize("vocabulary", [320, 321, 330, 341, 352, 1056, 1100])
def test_a_mask_has_a_bit_for_every_id_of_the_model_and_none_behind(vocabulary: int) -> None:
    matcher = constrained("yes")._state.matcher
    ends = frozenset({vocabulary - 40, vocabulary})
    thought = ThoughtEnd(TOKENIZER.token_bytes, THINK)
    (open_,) = Constraint(matcher, vocabulary, ends, thought).masks(chain(65))
    assert open_ is not None and open_.shape == (-(-vocabulary // 32),)
    assert allowed(open_) == [token for token in range(vocabulary) if token != vocabulary - 40]
    # The grammar knows fewer ids than the model has.
    (held,) = Constraint(matcher, vocabulary, ends).masks(chain(65))
    assert held is not None and held.shape == open_.shape and allowed(held) == TOKENIZER.encode("y")


def test_what_one_row_may_not_draw_takes_nothing_from_another() -> None:
    vocabulary = len(STRADDLING.table)
    held = Constraint(constrained("yes")._state.matcher, vocabulary, frozenset(), ThoughtEnd(STRADDLING, THINK))
    begun = [mask for mask in held.masks(chain(0, [1, 0])) if mask is not None]
    assert [allowed(mask) for mask in begun] == [
        [token for token in range(vocabulary) if token not in taken] for taken in ([6], [3, 6, 8], [6])
    ]


def test_behind_a_thought_and_some_of_its_answer_the_grammar_goes_on_from_there() -> None:
    held = constrained("yes", thought=ThoughtEnd(TOKENIZER.token_bytes, THINK))
    behind = held.advanced([*TOKENIZER.encode("</think>ye")])
    (mask,) = behind.masks(chain(65))
    assert allowed(mask) == TOKENIZER.encode("s") and behind.in_answer
    assert not held.advanced([97]).in_answer and not held.in_answer
    done = behind.advanced(TOKENIZER.encode("s")).copy()
    assert [allowed(mask) for mask in done.masks(chain(65))] == [[END]]


def test_a_budget_of_one_token_closes_a_thought_at_once_with_all_of_its_tokens() -> None:
    gate = ThinkingBudget(BYTES, ThoughtSplitter(THINK, True), 1, (0, 0, 2))
    assert gate.room() == 1 and gate.scan([3]) == Cut(0, (0, 0, 2))
    gate.observe([0])
    assert gate.scan([0, 2, 0, 0]) is None and gate.room() is None
    gate.observe([0, 2])
    assert gate.scan([0, 0]) is None


def test_a_look_ahead_moves_nothing() -> None:
    gate = ThinkingBudget(BYTES, ThoughtSplitter(THINK, True), 3, (2,))
    assert gate.scan([0, 2, 0, 0]) is None and gate.room() == 3
    assert gate.scan([0, 0, 0]) == Cut(2, (2,))


def test_a_thought_that_opens_again_beyond_its_budget_is_closed_again() -> None:
    gate = ThinkingBudget(BYTES, ThoughtSplitter(CHANNEL, False), 2, (0, 5))
    gate.observe([4])
    assert gate.scan([0]) == Cut(0, (0, 5))
    gate.observe([0, 5, 4])
    assert gate.room() == 1 and gate.scan([0]) == Cut(0, (0, 5))


def test_of_an_open_thought_fewer_bytes_are_kept_than_its_mark_has() -> None:
    end = ThoughtEnd(STRADDLING, THINK)
    tail = end.start
    for token in (0, 0, 1, 0, 7, 7, 7):
        tail = end.after(tail, token)
        assert tail is not None and len(tail) < len("</think>")


def test_a_token_that_could_meet_the_answer_elsewhere_is_allowed_where_it_does_not() -> None:
    assert ThoughtEnd(BEYOND, THINK).straddling(b"") == []
    assert ThoughtEnd(BEYOND, THINK).straddling(b"</think") == [1]
