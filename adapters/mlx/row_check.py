"""The load check: how wide a window may be, on these weights and this device, before a row's bits change.

A failing probe narrows what is allowed and adds a sentence; it never stops the server. What is left standing becomes
the model's limits. Only weights whose logits are not numbers are refused here, as nothing can be drawn from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from tensorfold.adapters.mlx.forward import Forward
from tensorfold.adapters.mlx.row_probes import Reference, RowProbes, chain_of, same_state, tree_forms
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.plans import DecoderPlan, Parallel
from tensorfold.domain.families.state import lane_bytes, state_spec
from tensorfold.domain.windows import Window
from tensorfold.kernels.cpu.attention import BLOCK

A = TypeVar("A")
PROMPT = 48
_SLICED = 2 * 64 + 21
_LONG = (4 * BLOCK, 1_024, 4_096, 16_384)
_MOST_LANE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for: the widest chain and tree, rows and streams of a launch, rows of a prompt slice, context."""

    chain: int
    tree: int
    batch_rows: int
    streams: int
    slice: int
    context: int


@dataclass(slots=True)
class Allowed:
    """What the probes left standing; `notes` are sentences on everything that was narrowed."""

    chain: int
    tree: int
    shares: bool
    slice: int
    draft_context: int = 0
    notes: list[str] = field(default_factory=list)


class RowCheck(Generic[A]):
    """Runs the probes of one decoder, narrowing as it goes; `place` names the device in sentences."""

    def __init__(self, forward: Forward[A], wanted: Wanted, place: str, say: Callable[[str], None]) -> None:
        self._wanted, self._place, self._say = wanted, place, say
        self._plan = forward.decoder.plan
        self._probes = RowProbes(forward, wanted.context)
        self._allowed = Allowed(max(1, wanted.chain), max(1, wanted.tree), wanted.streams > 1, wanted.slice)
        self._tree: tuple[Reference[A], Window] | None = None

    def run(self) -> Allowed:
        """Probe everything; what no row can be placed for in a short context is left out. Raises RefusedError."""
        allowed, room = self._allowed, self._wanted.context
        allowed.chain = min(allowed.chain, max(1, room // 4))
        allowed.tree = min(allowed.tree, max(1, room // 4))
        references = self._references()
        self._say(f"checking rows: windows of up to {allowed.chain}")
        self._chains(references)
        if allowed.chain > 1:
            if allowed.tree < 3:
                allowed.tree = 1  # so short a context has no room for a branch, which is no fault of its rows
            else:
                self._say(f"checking rows: trees of up to {allowed.tree}")
                self._trees()
            self._long()
        else:
            allowed.tree = 1
        if allowed.shares:
            self._say("checking rows: streams side by side")
            self._shared(references)
        if allowed.slice:
            self._say("checking rows: prompt slices")
            self._slices()
        return allowed

    def _references(self) -> list[Reference[A]]:
        """One-row steps at three places: a plain prompt, one that straddles a block of keys, and filled lanes."""
        probes, width, room = self._probes, self._allowed.chain, self._wanted.context
        lanes = [probes.prompted(min(PROMPT, room // 2)), probes.filled(min(BLOCK - 6, room // 2))]
        tokens = [probes.steady(width), probes.scattered(width)]
        references = [probes.reference(lane, row) for lane, row in zip(lanes, tokens, strict=True)]
        if not all(np.isfinite(reference.logits).all() for reference in references):
            raise RefusedError(
                "The weights give logits that are not finite numbers, so no reply can be drawn from them; "
                "fetch or convert the checkpoint again."
            )
        return references

    def _chains(self, references: Sequence[Reference[A]]) -> None:
        allowed = self._allowed
        for reference in references:
            widths = chain_widths(allowed.chain)
            failed = self._probes.widths_equal(reference, widths)
            if failed is not None:
                allowed.chain = max((width for width in widths if width < failed), default=1)
        if allowed.chain > 1 and not self._probes.kept_equal(references[0].lane, references[0].tokens[: allowed.chain]):
            allowed.chain = 1
        if allowed.chain < min(self._wanted.chain, self._wanted.context // 4):
            self._note_width()

    def _note_width(self) -> None:
        width = self._allowed.chain
        if width == 1:
            self._allowed.notes.append(
                f"Drafts are off: on {self._place} a window of two rows does not keep the bits of one-row steps, since "
                "MLX picks its kernels by the number of rows; replies are decoded serially."
            )
        else:
            self._allowed.notes.append(
                f"Windows are at most {width} rows: on {self._place} wider ones do not keep the bits of one-row steps."
            )

    def _trees(self) -> None:
        allowed, probes = self._allowed, self._probes
        lane = probes.prompted(min(BLOCK - 5, self._wanted.context // 2))
        before = allowed.tree
        for form in tree_forms(probes.scattered(allowed.tree, salt=1)):
            if allowed.tree < 3:
                break
            reference = probes.tree_reference(lane, form.truncated(allowed.tree))
            widths = [w for w in (3, 4, 6, 8, 12, 16, *range(24, allowed.tree, 8)) if w < allowed.tree]
            passed = 2
            for width in (*widths, allowed.tree):
                if not probes.window_equal(reference, form.truncated(width)):
                    break
                passed = width
            allowed.tree = passed
            self._tree = (reference, form.truncated(passed))
        # A tree of two rows is a chain, so fewer than three rows is no tree at all.
        if allowed.tree < 3:
            allowed.tree = 1
        if allowed.tree < before:
            self._allowed.notes.append(
                f"Drafts with branches are at most {allowed.tree} rows on {self._place}: wider trees do not keep the "
                "bits of one-row steps."
                if allowed.tree > 1
                else f"Drafts have no branches: on {self._place} trees do not keep the bits of one-row steps."
            )

    def _long(self) -> None:
        allowed, probes, width = self._allowed, self._probes, self._allowed.chain
        safe = PROMPT + width
        lengths = long_lengths(self._plan, self._wanted.context, width)
        for length in lengths:
            # The widest window once, at the end; narrower ones cross the same edges at half the cost.
            most = width if length == lengths[-1] else (width + 1) // 2
            reference = probes.reference(probes.filled(length), probes.scattered(most, salt=length))
            widths = sorted({min(2, most), most})
            if probes.widths_equal(reference, widths) is not None:
                allowed.draft_context = safe
                allowed.notes.append(
                    f"Drafts stop at position {safe:,}: with {length:,} tokens before it a window does not keep the "
                    f"bits of one-row steps on {self._place}."
                )
                return
            safe = length + width

    def _shared(self, references: Sequence[Reference[A]]) -> None:
        wanted = self._wanted
        for streams, rows in company(self._allowed.chain, wanted.batch_rows, wanted.streams):
            cast = [references[i % len(references)] for i in range(streams)]
            # Unequal windows beside each other, so that no row of a lane has the place it had alone.
            windows = [chain_of(one.tokens[: max(1, rows - i % 2)]) for i, one in enumerate(cast)]
            if self._tree is not None and len(self._tree[1]) <= rows:
                cast[-1], windows[-1] = self._tree
            if not self._probes.shared_equal(cast, windows):
                self._allowed.shares = False
                self._allowed.notes.append(
                    f"Streams do not share launches: on {self._place} the rows of {streams} streams in one do not "
                    "keep the bits they have alone."
                )
                return

    def _slices(self) -> None:
        probes, allowed = self._probes, self._allowed
        ids = probes.prompt(min(_SLICED, self._wanted.context))
        whole = probes.absorbed(ids, 0)
        if not all(same_state(whole, probes.absorbed(ids, rows)) for rows in (allowed.slice, 17)):
            allowed.slice = 0
            allowed.notes.append(
                f"Prompts are read in whole chunks: on {self._place} slices do not keep the bits of the chunk."
            )


def long_lengths(plan: DecoderPlan, context: int, width: int) -> list[int]:
    """Tokens before a probe, ascending: at every edge the family has, at key counts where kernels switch, and at the
    context's end; lengths whose state would not fit in 256 MiB are left out.
    """
    edges = {edge - width // 2 for edge in key_edges(plan)}
    lengths = {*edges, *(length - 7 for length in _LONG), context - width - 1}
    state = state_spec(plan)
    return sorted(n for n in lengths if PROMPT < n <= context - width and lane_bytes(state, n) <= _MOST_LANE_BYTES)


def chain_widths(most: int) -> list[int]:
    """The widths probed up to `most`: every one up to 16 rows, then those around which products are cut."""
    edges = (17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127)
    return [*range(2, min(most, 16) + 1), *(w for w in edges if w < most), *([most] if most > 16 else [])]


def key_edges(plan: DecoderPlan) -> set[int]:
    """Token counts at which a layer begins to read otherwise: a full window, the last dense row of a sparse layer."""
    edges: set[int] = set()
    for sublayer in (sublayer for layer in plan.layers for sublayer in layer):
        ops = [branch.op for branch in sublayer.op.branches] if isinstance(sublayer.op, Parallel) else [sublayer.op]
        for op in ops:
            window = getattr(getattr(op, "attention", op), "window", 0)
            edges |= {window, window + BLOCK} if window else set()
            indexer = getattr(op, "indexer", None)
            edges |= {indexer.budget + indexer.ratio - 1} if indexer is not None else set()
    return edges


def company(width: int, batch_rows: int, streams: int) -> list[tuple[int, int]]:
    """Launches to probe as (streams, rows of each): few and many streams, narrow and wide, up to a full launch."""
    full = min(streams, batch_rows)
    pairs = [(2, 1), (2, width), (3, (width + 1) // 2), (4, min(width, batch_rows // 4)), (full, 1)]
    pairs.append((min(streams, max(1, batch_rows // width)), width))
    return list(dict.fromkeys((s, max(1, r)) for s, r in pairs if 2 <= s <= streams and s * max(1, r) <= batch_rows))
