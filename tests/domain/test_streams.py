"""Commit: where a reply ends inside a window, which rows stay, and what gates do to it."""

from collections.abc import Sequence
from dataclasses import FrozenInstanceError

import pytest

from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.gates.gate import Cut, Gate
from tensorfold.domain.gates.stop_strings import StopStrings
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.streams import Committed, Finish, Stream
from tensorfold.domain.verification import Acceptance
from tensorfold.domain.windows import Window, chain, tree


def stream(
    max_tokens: int = 10, stops: Sequence[int] = (), gates: Sequence[Gate] = (), prompt: Sequence[int] = (7, 8)
) -> Stream:
    made = Stream(prompt, max_tokens=max_tokens, sampling=Sampling(), stop_ids=frozenset(stops), gates=gates)
    made.absorb_prompt()
    return made


def whole(*tokens: int) -> tuple[Window, Acceptance]:
    """A window behind token 8 whose drafts all stand, and its last draw."""
    return chain(8, tokens[:-1]), Acceptance(tuple(range(len(tokens))), tokens)


def settled(s: Stream) -> bool:
    """Whether the lane's state is that of every token but the last."""
    return s.absorbed == len(s.tokens) - 1 and s.emitted_count == len(s.emitted)


def test_a_new_stream_waits_for_its_prompt() -> None:
    made = Stream([7, 8, 9], max_tokens=4, sampling=Sampling(3), stop_ids=frozenset({1}), drafts=False)
    assert (made.prompt, made.tokens, made.emitted, made.emitted_count) == ((7, 8, 9), [7, 8, 9], [], 0)
    assert (made.absorbed, made.pending, made.forced, made.room, made.finish) == (0, 9, (), 4, None)
    assert (made.sampling, made.stop_ids, made.drafts, made.max_tokens) == (Sampling(3), frozenset({1}), False, 4)
    made.absorb_prompt()
    assert made.absorbed == made.position == 2


def test_a_prompt_of_one_token_needs_no_absorbing() -> None:
    made = Stream([7], max_tokens=4, sampling=Sampling(), stop_ids=frozenset())
    assert made.drafts
    assert made.commit(chain(7), Acceptance((0,), (5,))).tokens == (5,)


@pytest.mark.parametrize(("prompt", "max_tokens"), [((), 1), ((1,), 0)])
def test_a_stream_needs_a_prompt_and_room(prompt: tuple[int, ...], max_tokens: int) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        Stream(prompt, max_tokens=max_tokens, sampling=Sampling(), stop_ids=frozenset())


def test_a_round_adds_the_accepted_tokens_and_keeps_their_rows() -> None:
    s = stream()
    assert s.commit(*whole(3, 4, 5)) == Committed((3, 4, 5), (0, 1, 2), 2, None, None)
    assert (s.tokens, s.emitted, s.pending, s.position, s.room) == ([7, 8, 3, 4, 5], [3, 4, 5], 5, 4, 7)
    assert settled(s)
    assert s.commit(chain(5), Acceptance((0,), (6,))) == Committed((6,), (0,), 0, None, None)
    assert s.prompt == (7, 8)
    assert settled(s)


def test_the_kept_rows_of_a_tree_are_those_of_its_path() -> None:
    s = stream(stops=[4])
    window = tree(8, [1, 3, 2, 4], [0, 0, 2, 3])
    committed = s.commit(window, Acceptance((0, 2, 3, 4), (3, 2, 4, 5)))
    assert committed == Committed((3, 2, 4), (0, 2, 3), 2, Finish.STOP, None)
    assert settled(s)


@pytest.mark.parametrize("offset", range(5))
def test_an_end_token_ends_the_reply_at_every_offset_of_a_window(offset: int) -> None:
    tokens = [1, 1, 1, 1, 1]
    tokens[offset] = 9
    s = stream(stops=[9, 10])
    landed = tuple(tokens[: offset + 1])
    assert s.commit(*whole(*tokens)) == Committed(landed, tuple(range(offset + 1)), offset, Finish.STOP, None)
    assert s.finish is Finish.STOP
    assert s.emitted == list(landed)
    assert settled(s)


@pytest.mark.parametrize("room", range(1, 7))
def test_the_limit_ends_the_reply_at_every_offset_of_a_window(room: int) -> None:
    s = stream(max_tokens=room)
    committed = s.commit(*whole(1, 2, 3, 4, 5))
    assert committed.tokens == (1, 2, 3, 4, 5)[:room]
    assert committed.kept == (0, 1, 2, 3, 4)[:room]
    assert committed.drafts_kept == min(room, 5) - 1
    assert committed.finish is s.finish
    assert s.finish is (Finish.LENGTH if room <= 5 else None)
    assert settled(s)


def test_an_end_token_at_the_limit_is_a_stop_and_one_behind_it_is_not() -> None:
    assert stream(max_tokens=2, stops=[5]).commit(*whole(4, 5, 6)).finish is Finish.STOP
    assert stream(max_tokens=2, stops=[6]).commit(*whole(4, 5, 6)).finish is Finish.LENGTH


def test_without_end_ids_only_the_limit_ends_a_reply() -> None:
    s = stream(max_tokens=3)
    assert s.commit(*whole(9, 9)).finish is None
    assert s.commit(chain(9), Acceptance((0,), (9,))).finish is Finish.LENGTH


BYTES = TokenBytes([bytes([97 + i]) for i in range(10)])


@pytest.mark.parametrize("offset", range(1, 5))
def test_a_stop_string_ends_the_reply_at_every_offset_of_a_window(offset: int) -> None:
    tokens = [0, 0, 0, 0, 0]
    tokens[offset] = 1
    s = stream(gates=[StopStrings(BYTES, [b"ab"])])
    landed = tuple(tokens[: offset + 1])
    assert s.commit(*whole(*tokens)) == Committed(landed, tuple(range(offset + 1)), offset, Finish.STOP, b"ab")
    assert settled(s)


def test_a_stop_string_may_span_rounds() -> None:
    s = stream(gates=[StopStrings(BYTES, [b"abc"])])
    assert s.commit(*whole(0, 1)).finish is None
    assert s.commit(chain(1, [2]), Acceptance((0, 1), (2, 3))) == Committed((2,), (0,), 0, Finish.STOP, b"abc")


def test_what_ends_a_reply_first_counts() -> None:
    gates = [StopStrings(BYTES, [b"ab"])]
    assert stream(stops=[2], gates=gates).commit(*whole(2, 0, 1)).stop is None
    stopped = stream(stops=[2], gates=[StopStrings(BYTES, [b"ab"])]).commit(*whole(0, 1, 2))
    assert (stopped.tokens, stopped.stop) == ((0, 1), b"ab")
    at_limit = stream(max_tokens=2, gates=[StopStrings(BYTES, [b"ab"])]).commit(*whole(0, 1, 2))
    assert (at_limit.tokens, at_limit.finish, at_limit.stop) == ((0, 1), Finish.STOP, b"ab")
    past_limit = stream(max_tokens=1, gates=[StopStrings(BYTES, [b"ab"])]).commit(*whole(0, 1, 2))
    assert (past_limit.tokens, past_limit.finish, past_limit.stop) == ((0,), Finish.LENGTH, None)


class At:
    """A gate that fixes the `number`th token of the reply (from 1), as a budget does."""

    def __init__(self, number: int, fix: tuple[int, ...]) -> None:
        self.number, self.fix, self.seen = number, fix, list[int]()

    def scan(self, tokens: Sequence[int]) -> Cut | None:
        index = self.number - 1 - len(self.seen)
        if not 0 <= index < len(tokens) or tokens[index] == self.fix[0]:
            return None
        return Cut(index, fix=self.fix)

    def observe(self, tokens: Sequence[int]) -> None:
        self.seen += tokens

    def room(self) -> int | None:
        left = self.number - len(self.seen)
        return left if left > 0 else None


@pytest.mark.parametrize("number", range(1, 6))
def test_a_fix_replaces_a_token_at_every_offset_and_forces_the_rest(number: int) -> None:
    gate = At(number, (50, 51, 52))
    s = stream(max_tokens=20, gates=[gate])
    assert s.room == number
    committed = s.commit(*whole(1, 2, 3, 4, 5))
    landed = (*(1, 2, 3, 4, 5)[: number - 1], 50)
    assert committed == Committed(landed, tuple(range(number)), number - 1, None, None)
    assert (s.forced, s.pending) == ((51, 52), 50)
    assert settled(s)
    window = chain(50, [6], s.forced)
    assert s.commit(window, Acceptance((0, 1, 2, 3), (6, 7))) == Committed((51, 52, 6, 7), (0, 1, 2, 3), 1, None, None)
    assert (s.forced, s.pending) == ((), 7)
    assert settled(s)
    assert gate.seen == s.emitted == [*landed, 51, 52, 6, 7]


def test_a_gate_bounds_the_room_only_below_the_limit() -> None:
    assert stream(max_tokens=4, gates=[At(9, (1,)), At(3, (1,)), At(5, (1,))]).room == 3
    assert stream(max_tokens=4, gates=[At(9, (1,))]).room == 4
    assert stream(max_tokens=4, gates=[StopStrings(BYTES, [b"a"])]).room == 4


def test_the_limit_ends_a_reply_among_forced_tokens() -> None:
    s = stream(max_tokens=3, gates=[At(1, (50, 51, 52, 53))])
    assert s.commit(*whole(1, 2)).tokens == (50,)
    assert s.forced == (51, 52)
    committed = s.commit(chain(50, (), s.forced), Acceptance((0, 1, 2), (9,)))
    assert committed == Committed((51, 52), (0, 1), 0, Finish.LENGTH, None)
    assert s.emitted == [50, 51, 52]
    assert not s.forced
    assert settled(s)


def test_a_fix_at_the_limit_ends_the_reply_with_its_first_token() -> None:
    s = stream(max_tokens=2, gates=[At(2, (50, 51))])
    assert s.commit(*whole(1, 2, 3)) == Committed((1, 50), (0, 1), 1, Finish.LENGTH, None)
    assert s.forced == ()


def test_a_fix_stands_in_for_an_end_token_that_was_drawn() -> None:
    s = stream(stops=[9], gates=[At(2, (50, 51))])
    assert s.commit(*whole(1, 9)) == Committed((1, 50), (0, 1), 1, None, None)
    assert s.forced == (51,)


def test_a_fix_that_is_an_end_token_ends_the_reply() -> None:
    s = stream(max_tokens=2, stops=[50], gates=[At(2, (50, 51))])
    assert s.commit(*whole(1, 2)) == Committed((1, 50), (0, 1), 1, Finish.STOP, None)
    assert s.forced == ()


def test_a_fix_behind_an_end_token_never_comes() -> None:
    s = stream(stops=[9], gates=[At(2, (50, 51))])
    assert s.commit(*whole(9, 1)).tokens == (9,)
    assert (s.finish, s.forced) == (Finish.STOP, ())


def test_a_stop_string_may_end_on_a_fixed_token() -> None:
    s = stream(gates=[At(2, (1, 2)), StopStrings(BYTES, [b"ab"])])
    assert s.commit(*whole(0, 5, 6)) == Committed((0, 1), (0, 1), 1, Finish.STOP, b"ab")
    assert s.forced == ()


def test_a_stop_string_may_end_on_a_forced_token() -> None:
    s = stream(gates=[At(1, (0, 1, 2)), StopStrings(BYTES, [b"ab"])])
    s.commit(*whole(5))
    committed = s.commit(chain(0, (), s.forced), Acceptance((0, 1, 2), (3,)))
    assert committed == Committed((1,), (0,), 0, Finish.STOP, b"ab")
    assert settled(s)


def test_of_two_fixes_at_one_token_the_first_gate_decides() -> None:
    s = stream(gates=[At(1, (50, 51)), At(1, (60, 61))])
    assert s.commit(*whole(5)).tokens == (50,)
    assert s.forced == (51,)


VALUES = [
    Window((1,), (-1,)),
    Acceptance((0,), (1,)),
    Committed((1,), (0,), 0, None, None),
    Cut(0, fix=(1,)),
    Sampling(),
    TokenBytes([b"a"]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_crosses_between_the_rules_cannot_be_changed(value: object) -> None:
    assert not hasattr(value, "__dict__")
    for name in value.__slots__:  # type: ignore[attr-defined]
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, None)


BAD = [
    (chain(9), Acceptance((0,), (1,))),
    (chain(8, forced=[5]), Acceptance((0, 1), (1,))),
    (chain(8), Acceptance((0, 1), (1,))),
    (chain(8), Acceptance((0,), (1, 2))),
]


@pytest.mark.parametrize(("window", "acceptance"), BAD)
def test_a_window_of_another_stream_is_refused_and_changes_nothing(window: Window, acceptance: Acceptance) -> None:
    s = stream()
    with pytest.raises(ValueError, match="does not follow"):
        s.commit(window, acceptance)
    assert (s.emitted, s.emitted_count, s.absorbed, s.finish) == ([], 0, 1, None)


def test_fixed_tokens_may_be_fed_in_several_windows_and_stand_in_for_the_draws_between() -> None:
    s = stream(gates=[At(1, (50, 51, 52, 53))])
    s.commit(*whole(1))
    assert s.forced == (51, 52, 53)
    first = s.commit(chain(50, forced=[51]), Acceptance((0, 1), (9,)))
    assert first == Committed((51, 52), (0, 1), 0, None, None)
    assert list(s.forced) == [53] and s.pending == 52
    second = s.commit(chain(52), Acceptance((0,), (9,)))
    assert second == Committed((53,), (0,), 0, None, None)
    assert not list(s.forced) and s.pending == 53
    assert s.absorbed == len(s.tokens) - 1


def test_a_window_with_other_than_the_forced_tokens_is_refused() -> None:
    s = stream(gates=[At(1, (50, 51))])
    s.commit(*whole(1))
    for window in (chain(50, forced=[52]), chain(50, forced=[51, 52])):
        with pytest.raises(ValueError, match="does not follow"):
            s.commit(window, Acceptance(tuple(range(len(window))), (3,)))


def test_nothing_is_added_before_the_prompt_or_after_the_end() -> None:
    fresh = Stream([7, 8], max_tokens=1, sampling=Sampling(), stop_ids=frozenset())
    with pytest.raises(ValueError, match="takes no window"):
        fresh.commit(*whole(1))
    fresh.absorb_prompt()
    fresh.commit(*whole(1))
    with pytest.raises(ValueError, match="takes no window"):
        fresh.commit(chain(1), Acceptance((0,), (2,)))
