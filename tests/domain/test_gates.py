"""Stop strings on bytes, token by token, and which gate's cut counts."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tensorfold.domain.conversation.reply_form import THINK
from tensorfold.domain.conversation.thoughts import ThoughtSplitter
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.gates.gate import Cut, Finish, earliest_cut
from tensorfold.domain.gates.stop_strings import Match, StopMatcher, StopStrings


def spelled(*pieces: bytes, special: frozenset[int] = frozenset(), rule: str = "concat") -> TokenBytes:
    return TokenBytes(pieces, special, rule)  # type: ignore[arg-type]


def stop_of(gate: StopStrings, tokens: Sequence[int]) -> tuple[int, bytes] | None:
    cut = gate.scan(tokens)
    if cut is None:
        return None
    assert cut.finish is Finish.STOP
    assert cut.fix == ()
    assert cut.stop is not None
    return cut.index, cut.stop


def test_a_stop_is_found_across_token_borders_at_the_token_that_completes_it() -> None:
    letters = spelled(b"L", b" M", b" N", b" O", b" P", b" Q", b" R")
    gate = StopStrings(letters, [b"O P Q"])
    assert stop_of(gate, range(7)) == (5, b"O P Q")
    assert stop_of(gate, range(5)) is None


def test_a_stop_inside_one_token_is_found() -> None:
    assert stop_of(StopStrings(spelled(b"L M N O P Q R"), [b"O P Q"]), [0]) == (0, b"O P Q")


def test_a_character_split_over_tokens_matches_as_bytes() -> None:
    emoji = spelled(b"ok", b"\xf0\x9f", b"\x98", b"\x80", b"!")
    assert stop_of(StopStrings(emoji, ["😀".encode()]), range(5)) == (3, "😀".encode())
    assert stop_of(StopStrings(emoji, ["😁".encode()]), range(5)) is None


def test_a_scan_changes_nothing_and_an_observation_moves_on() -> None:
    gate = StopStrings(spelled(b"a", b"b"), [b"ab"])
    assert stop_of(gate, [0]) is None
    assert stop_of(gate, [1]) is None
    gate.observe([0])
    assert stop_of(gate, [1]) == (0, b"ab")
    assert stop_of(gate, [0, 1]) == (1, b"ab")
    gate.observe([0, 0])
    assert stop_of(gate, [1]) == (0, b"ab")
    assert gate.room() is None


def test_the_stop_that_an_earlier_token_completes_counts() -> None:
    gate = StopStrings(spelled(b"a", b"b", b"c", b"d"), [b"abcd", b"bc"])
    assert stop_of(gate, [0, 1, 2, 3]) == (2, b"bc")


@pytest.mark.parametrize(
    ("stops", "winner", "back"),
    [
        ([b"cd", b"abcd"], b"abcd", 5),
        ([b"bcde", b"abc"], b"abc", 5),
        ([b"ab", b"abc"], b"abc", 5),
        ([b"abc", b"ab"], b"abc", 5),
        ([b"de", b"e", b"cde"], b"cde", 3),
        ([b"e", b"d"], b"d", 2),
    ],
)
def test_of_stops_completed_by_one_token_the_earliest_then_the_longest_counts(
    stops: list[bytes], winner: bytes, back: int
) -> None:
    assert StopMatcher(stops).step(0, b"abcde")[1] == Match(winner, back)


def test_a_stop_inside_another_is_found_when_the_longer_one_fails() -> None:
    gate = StopStrings(spelled(*(bytes([b]) for b in range(256))), [b"abcx", b"bcd", b"c!"])
    assert stop_of(gate, list(b"abcd")) == (3, b"bcd")
    assert stop_of(gate, list(b"abc!")) == (3, b"c!")
    assert stop_of(gate, list(b"abcabcx")) == (6, b"abcx")


def test_a_stop_that_repeats_itself_is_found_at_its_first_end() -> None:
    gate = StopStrings(spelled(*(bytes([b]) for b in range(256))), [b"aabaaa"])
    assert stop_of(gate, list(b"aabaabaaa")) == (8, b"aabaaa")


@pytest.mark.parametrize("stops", [[], [b""], [b"", b""]])
def test_empty_stops_never_end_a_reply(stops: list[bytes]) -> None:
    gate = StopStrings(spelled(b"", b"a", b"\x00"), stops)
    gate.observe([0])
    assert gate.scan([0, 1, 2]) is None
    assert not StopMatcher(stops)


def test_more_than_four_stops_and_a_zero_byte_are_ordinary_stops() -> None:
    table = spelled(b"x", b"\x00", b"e")
    assert StopMatcher([b"\x00"])
    assert stop_of(StopStrings(table, [b"a", b"b", b"c", b"d", b"e"]), [0, 1, 2]) == (2, b"e")
    assert stop_of(StopStrings(table, [b"\x00"]), [0, 1, 2]) == (1, b"\x00")


def test_special_ids_and_ids_past_the_table_add_no_bytes() -> None:
    gate = StopStrings(spelled(b"a", b"b", b"STOP", special=frozenset({2})), [b"ab", b"STOP"])
    assert stop_of(gate, [0, 2, 99, -1, 1]) == (4, b"ab")


def test_the_space_that_a_text_loses_at_its_start_is_not_matched() -> None:
    table = spelled(b" a", b" b", b"", b" ", rule="strip_first_space")
    assert stop_of(StopStrings(table, [b" a"]), [0, 1]) is None
    assert stop_of(StopStrings(table, [b" a"]), [2, 0, 0]) == (2, b" a")
    assert stop_of(StopStrings(table, [b" a"]), [3, 0]) == (1, b" a")
    gate = StopStrings(table, [b" a"])
    gate.observe([2])
    assert stop_of(gate, [0]) is None
    gate.observe([0])
    assert stop_of(gate, [0]) == (0, b" a")
    assert stop_of(StopStrings(spelled(b" a"), [b" a"]), [0]) == (0, b" a")


THOUGHT = (b"so ", b"STOP", b" on", b"</thi", b"nk>", b"\n\n", b"an ST", b"OP", b" swer")


@pytest.mark.parametrize("width", range(1, 10))
def test_a_stop_in_a_thought_ends_nothing_however_its_tokens_arrive(width: int) -> None:
    gate = StopStrings(spelled(*THOUGHT), [b"STOP", b"\n\n"], ThoughtSplitter(THINK, inside=True))
    for at in range(0, 9, width):
        window = range(at, min(at + width, 9))
        found = stop_of(gate, window)
        assert found == ((7 - at, b"STOP") if 7 in window else None)
        assert stop_of(gate, window) == found
        if found is not None:
            return
        gate.observe(window)


def test_what_may_open_a_thought_is_searched_once_it_did_not() -> None:
    opened = (b"<th", b"ink>", b"<th", b"</think>", b"a<th")
    gate = StopStrings(spelled(*opened), [b"<th"], ThoughtSplitter(THINK, inside=False))
    assert stop_of(gate, range(5)) == (4, b"<th")
    gate = StopStrings(spelled(b"<th", b"ing>"), [b"<th"], ThoughtSplitter(THINK, inside=False))
    assert stop_of(gate, [0]) is None
    assert stop_of(gate, [0, 1]) == (1, b"<th")


def naive(pieces: Sequence[bytes], stops: Sequence[bytes]) -> tuple[int, bytes] | None:
    text = b""
    for index, piece in enumerate(pieces):
        before, text = len(text), text + piece
        found = [
            (end - len(stop), -len(stop), stop)
            for end in range(before + 1, len(text) + 1)
            for stop in stops
            if stop and text[:end].endswith(stop)
        ]
        if found:
            return index, min(found)[2]
    return None


def longest_held(text: bytes, stops: Sequence[bytes]) -> int:
    return max((n for stop in stops for n in range(len(stop) + 1) if text.endswith(stop[:n])), default=0)


PIECES = st.lists(st.binary(max_size=4).map(lambda b: bytes(x % 2 + 97 for x in b)), max_size=12)
STOPS = st.lists(st.binary(min_size=1, max_size=6).map(lambda b: bytes(x % 2 + 97 for x in b)), max_size=4)


@settings(derandomize=True, deadline=None, max_examples=250)
@given(PIECES, STOPS, st.integers(0, 12))
@example([b"ab", b"aab"], [b"aab", b"abaab", b"b"], 1)
@pytest.mark.slow
def test_any_text_and_stops_match_as_a_plain_search_does(
    pieces: list[bytes], stops: list[bytes], observed: int
) -> None:
    expected = naive(pieces, stops)
    gate = StopStrings(spelled(*pieces), stops)
    seen = min(observed, len(pieces) if expected is None else expected[0])
    gate.observe(range(seen))
    found = stop_of(gate, range(seen, len(pieces)))
    assert found == (None if expected is None else (expected[0] - seen, expected[1]))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(PIECES, STOPS)
@pytest.mark.slow
def test_what_is_held_back_is_the_longest_suffix_that_begins_a_stop(pieces: list[bytes], stops: list[bytes]) -> None:
    matcher, state, text = StopMatcher(stops), 0, b""
    for piece in pieces:
        text += piece
        state, _ = matcher.step(state, piece)
        assert matcher.held(state) == longest_held(text, stops)


class Fixed:
    """A gate that always answers one cut."""

    def __init__(self, cut: Cut | None) -> None:
        self.cut = cut

    def scan(self, tokens: Sequence[int]) -> Cut | None:
        return self.cut

    def observe(self, tokens: Sequence[int]) -> None:
        raise AssertionError("a scan must not observe")

    def room(self) -> int | None:
        return None


END, OTHER_END = Cut(2, finish=Finish.STOP, stop=b"x"), Cut(2, finish=Finish.STOP, stop=b"y")
FIX, OTHER_FIX, EARLY_FIX, LATE_END = Cut(2, fix=(1,)), Cut(2, fix=(2,)), Cut(1, fix=(1,)), Cut(3, finish=Finish.STOP)


@pytest.mark.parametrize(
    ("cuts", "first"),
    [
        ([], None),
        ([None, None], None),
        ([None, FIX], FIX),
        ([END, EARLY_FIX], EARLY_FIX),
        ([FIX, END], END),
        ([END, FIX], END),
        ([FIX, LATE_END], FIX),
        ([LATE_END, FIX], FIX),
        ([FIX, OTHER_FIX], FIX),
        ([END, OTHER_END, FIX], END),
    ],
)
def test_the_earliest_cut_counts_and_an_end_before_a_fix(cuts: list[Cut | None], first: Cut | None) -> None:
    assert earliest_cut([Fixed(cut) for cut in cuts], [0, 0, 0, 0]) is first
