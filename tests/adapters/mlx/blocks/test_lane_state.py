"""Ops with state, over both devices: rows of any window have the bits of one-row steps, and so has what they leave.

Twelve tokens pass every boundary of the tiny configs: a budget of two blocks of four keys, four taps, three dilations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.domain.windows import Window, chain, tree
from tests.adapters.mlx.blocks.one_op import DEVICES, OneOp, Rows, comb, some_tokens

OPS = {
    "kimi_delta": ("glm", "layers.0.delta"),
    "latent_attention": ("glm", "layers.1.attention"),
    "indexed_attention": ("qwen", "layers.3.attention"),
    "ngram": ("qwen", "layers.1.ngram"),
}
PARTS = {
    "kimi_delta": ("conv", "recurrent"),
    "latent_attention": ("latent", "index_keys", "index_gates", "pooled_keys"),
    "indexed_attention": ("keys", "values", "index_keys", "pooled_keys"),
    "ngram": ("tokens", "conv"),
}
PROMPTS = (0, 1, 6, 11, 12, 29)
LONG = 48


@pytest.fixture(scope="module", params=[f"{op}-{device}" for op in OPS for device in DEVICES])
def one(request: Any) -> Iterator[OneOp]:
    op, device = request.param.split("-")
    family, path = OPS[op]
    made = OneOp.of(request.getfixturevalue(family), DEVICES[device](), path)
    yield made
    made.ops.close()


def after(one: OneOp, count: int) -> Any:
    """A lane behind `count` tokens, taken one by one."""
    if count not in one.lanes:
        state = after(one, count - 1) if count else one.open()
        if count:
            one.absorb(state, one.rows(1, LONG)[count - 1 : count], some_tokens(1, LONG)[count - 1 : count])
        one.lanes[count] = state
    return one.lanes[count].fork()


def same_as_serial(one: OneOp, state: Any, serial: Any) -> bool:
    """Whether two lanes hold the same bytes and make the same of what follows, far enough to read all they hold."""
    rows, tokens = one.rows(9, 12), some_tokens(9, 12)
    same = state.length == serial.length and state.export() == serial.export()
    made = [one.run(lane.fork(), rows, chain(tokens[0], tokens[1:])) for lane in (state, serial)]
    return same and np.array_equal(made[0], made[1])


def test_values_are_those_of_the_reference(one: OneOp) -> None:
    rows, tokens = one.rows(2, LONG), some_tokens(2, LONG)
    expected = one.expected(rows, tokens)
    made = one.run(one.open(), rows, chain(tokens[0], tokens[1:]))
    assert np.abs(made - expected).max() <= 2e-5 * np.abs(expected).max()


def test_rows_of_a_tree_are_those_of_the_reference(one: OneOp) -> None:
    prompt = 10
    window, _ = comb(some_tokens(4, 9))
    rows, tokens = one.rows(3, prompt + len(window)), [*some_tokens(1, prompt), *window.tokens]
    parents = [*range(-1, prompt - 1), *(prompt + parent if parent >= 0 else prompt - 1 for parent in window.parents)]
    expected = one.expected(rows, tokens, parents)
    state = one.open()
    one.absorb(state, rows[:prompt], tokens[:prompt])
    made = one.run(state, rows[prompt:], window)
    assert np.abs(made - expected[prompt:]).max() <= 2e-5 * np.abs(expected).max()


@pytest.mark.slow
def test_a_row_has_the_same_bits_in_a_window_of_every_width(one: OneOp) -> None:
    rows, tokens = one.rows(5, 17), some_tokens(5, 17)
    for prompt in PROMPTS:
        state = after(one, prompt)
        expected = one.absorb(state.fork(), rows, tokens)
        for width in range(1, 18):
            made = one.run(state, rows[:width], chain(tokens[0], tokens[1:width]))
            state.discard()
            assert np.array_equal(made, expected[:width]), (prompt, width)


@pytest.mark.slow
def test_a_node_of_a_tree_has_the_bits_of_steps_along_its_path(one: OneOp) -> None:
    generator = np.random.default_rng(7)
    for prompt in PROMPTS:
        state = after(one, prompt)
        for size in (5, 16):
            tokens, rows = some_tokens(size, size), one.rows(size, size)
            window = tree(tokens[0], tokens[1:], [int(generator.integers(max(0, r - 3), r)) for r in range(1, size)])
            made = one.run(state, rows, window)
            state.discard()
            for leaf in set(range(size)) - set(window.parents):
                path = list(window.path_to(leaf))
                expected = one.absorb(state.fork(), rows[path], [tokens[row] for row in path])
                assert np.array_equal(made[path], expected), (prompt, window.parents, path)


@pytest.mark.slow
def test_every_length_that_is_kept_leaves_what_steps_leave(one: OneOp) -> None:
    rows, tokens = one.rows(6, 9), some_tokens(6, 9)
    for prompt in (0, 6, 11):
        serial = after(one, prompt)
        for kept in range(10):
            state = after(one, prompt)
            one.run(state, rows, chain(tokens[0], tokens[1:]))
            state.keep(tuple(range(kept)))
            assert same_as_serial(one, state, serial), (prompt, kept)
            if kept < len(rows):
                one.absorb(serial, rows[kept : kept + 1], tokens[kept : kept + 1])


@pytest.mark.slow
def test_every_length_of_a_tree_path_that_is_kept_leaves_what_steps_leave(one: OneOp) -> None:
    window, path = comb(some_tokens(8, 13))
    rows = one.rows(8, len(window))
    for prompt in (0, 5, 11):
        serial = after(one, prompt)
        for kept in range(len(path) + 1):
            state = after(one, prompt)
            one.run(state, rows, window)
            state.keep(path[:kept])
            assert same_as_serial(one, state, serial), (prompt, kept)
            for row in path[kept : kept + 1]:
                one.absorb(serial, rows[row : row + 1], [window.tokens[row]])


def test_an_abandoned_window_leaves_no_trace(one: OneOp) -> None:
    for window in (chain(5, [6, 7, 8, 9, 10]), comb([5, 6, 7, 8, 9, 10, 11])[0]):
        state = after(one, 11)
        before = state.export()
        one.run(state, 100.0 * one.rows(3, len(window)), window)
        state.discard()
        assert state.export() == before
        assert same_as_serial(one, state, after(one, 11))


def test_a_state_that_is_exported_and_loaded_goes_on_as_the_first(one: OneOp) -> None:
    for prompt in PROMPTS:
        state, loaded = after(one, prompt), one.open()
        loaded.load(state.export(), state.length)
        assert same_as_serial(one, loaded, state), prompt


def test_bytes_of_another_size_are_refused(one: OneOp) -> None:
    parts = after(one, 12).export()
    for index, part in enumerate(parts):
        with pytest.raises(ValueError):
            one.open().load([*parts[:index], part[:-8], *parts[index + 1 :]], 12)


def test_a_fork_and_its_origin_do_not_see_each_other(one: OneOp) -> None:
    state = after(one, 11)
    twin = state.fork()
    one.absorb(twin, one.rows(20, 14), some_tokens(20, 14))
    assert same_as_serial(one, state, after(one, 11))
    again = after(one, 11)
    one.absorb(again, one.rows(20, 14), some_tokens(20, 14))
    one.absorb(state, one.rows(21, 14), some_tokens(21, 14))
    assert same_as_serial(one, twin, again)


def test_lanes_that_share_a_pass_make_what_each_makes_alone(one: OneOp) -> None:
    parts: list[tuple[Any, Rows, Window]] = []
    for seed, prompt in enumerate((0, 3, 12, 29)):
        window = comb(some_tokens(seed, 7))[0] if seed % 2 else chain(4, some_tokens(seed, seed + 2))
        parts.append((after(one, prompt), one.rows(seed, len(window)), window))
    together = one.run_together(parts)
    for (state, rows, window), made in zip(parts, together, strict=True):
        state.discard()
        assert np.array_equal(one.run(state, rows, window), made)


def test_what_a_state_holds_in_bytes_grows_with_its_buffers(one: OneOp) -> None:
    assert after(one, 12).held_bytes() >= sum(map(len, after(one, 12).export()))


@pytest.mark.parametrize("kind", sorted({(op, kind) for op, kinds in PARTS.items() for kind in kinds}), ids="-".join)
def test_a_part_of_the_state_that_keeps_a_sibling_is_found(kind: tuple[str, str], request: Any) -> None:
    family, path = OPS[kind[0]]
    one = OneOp.of(request.getfixturevalue(family), DEVICES["cpu"](), path)
    window, path_kept = comb(some_tokens(8, 13))
    rows = one.rows(8, len(window))
    serial = after(one, 5)
    one.absorb(serial, rows[list(path_kept)], [window.tokens[row] for row in path_kept])
    for planted in (False, True):
        state = after(one, 5)
        one.run(state, rows, window)
        part = state.parts[PARTS[kind[0]].index(kind[1])]
        if planted:
            keep = part.keep
            # The last row's place goes to its sibling, whose values are others.
            part.keep = lambda path, keep=keep: keep(tuple(row + 1 if row else row for row in path))
        state.keep(path_kept)
        assert same_as_serial(one, state, serial) != planted
    one.ops.close()


@pytest.mark.parametrize("op", sorted(OPS))
def test_rows_in_half_precision_are_near_the_reference_and_exact_among_themselves(op: str, request: Any) -> None:
    family, path = OPS[op]
    one = OneOp.of(request.getfixturevalue(family), LibraryRows("bfloat16"), path)
    tokens = some_tokens(2, LONG)
    # Rows that bfloat16 holds exactly, so that only what the op itself rounds is told apart.
    rows = (one.rows(2, LONG).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    steps = one.absorb(one.open(), rows, tokens)
    # Past the budget a rounded score may choose another block, which is no matter of rounding any more.
    expected = one.expected(rows[:11], tokens[:11])
    assert np.abs(steps[:11] - expected).max() <= 0.03 * np.abs(expected).max()
    state = one.open()
    made = one.run(state, rows[:16], chain(tokens[0], tokens[1:16]))
    state.keep(tuple(range(16)))
    assert np.array_equal(np.concatenate([made, one.run(state, rows[16:], chain(tokens[16], tokens[17:]))]), steps)
    loaded = one.open()
    loaded.load(state.export(), 16)
    assert loaded.export() == state.export()
