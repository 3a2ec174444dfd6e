"""Target models that break one promise each, with the check that must notice: the teeth of the contract suite.

Drifting models and forgetful graphs come from the fakes; the others are here, a few lines each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.target_model import (
    Chain,
    Draws,
    Lane,
    LaneImage,
    Lattice,
    ModelCosts,
    Path,
    ProposeSpec,
    RoundBatch,
    Span,
    TargetModel,
    Ticket,
)
from tensorfold.domain.verification import accept
from tensorfold.domain.windows import Window
from tests.contracts.target_model import (
    head_checks,
    image_checks,
    lane_checks,
    mask_checks,
    misuse_checks,
    row_checks,
    shape_checks,
)
from tests.contracts.target_model.rows import ModelSubject
from tests.fakes.hash_faults import DriftingModel, GraphModel, StreamsDriftingModel
from tests.fakes.hash_head import HashDrafter, HashHead
from tests.fakes.hash_lanes import HashLane, LaneTrail
from tests.fakes.hash_launch import DrawnRows, HashLaunch, PlannedWindow
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import HashModel
from tests.fakes.misuse import MisuseError
from tests.fakes.wrapped_model import WrappedModel

Check = Callable[[ModelSubject], None]


class _UnsortedCosts(HashModel):
    @property
    def costs(self) -> ModelCosts:
        return ModelCosts(rows_ms=((4, 1.0), (1, 1.0)), prefill_row_ms=0.1)


class _ListsClosedLanes(HashModel):
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(range(1, self._next_lane + 1))


class _ForgivesUnknownLanes(HashModel):
    def close(self, lane: Lane) -> None:
        if lane in self._lanes:
            super().close(lane)


class _OpensAnything(HashModel):
    def open(self, capacity: int) -> Lane:
        return super().open(min(capacity, self.limits.context))


class _KnowsItsLanes(HashModel):
    def _add(self, lane: HashLane, trail: LaneTrail) -> Lane:
        lane.state ^= self._next_lane
        return super()._add(lane, trail)


class _OrderBlindLaw(HashLaw):
    def logits(self, states: NDArray[np.uint64], tokens: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float32]:
        return super().logits(np.zeros_like(states) + np.asarray(tokens, dtype=np.uint64), tokens)


class _ForksShare(HashModel):
    shared: tuple[Lane, ...] = ()

    def fork(self, lane: Lane) -> Lane:
        self.shared = (lane, super().fork(lane))
        return self.shared[1]

    def _commit(self, window: PlannedWindow, path: Path) -> None:
        super()._commit(window, path)
        for lane in self.shared if window.lane in self.shared else ():
            if lane in self._lanes:
                self._lanes[lane].state = self._lanes[window.lane].state


class _SlicesDrift(HashModel):
    def prefill(self, lane: Lane, ids: NDArray[np.int64], span: Span) -> Ticket:
        ticket = super().prefill(lane, ids, span)
        self._lanes[lane].state ^= int(span.start > 0)
        return ticket


class _PrefillDraws(HashModel):
    def collect(self, ticket: Ticket) -> Draws:
        return Draws(([0],)) if ticket.id in self._prefills else super().collect(ticket)


class _NeedsAPrefill(HashModel):
    def _draw(self, launch: HashLaunch) -> tuple[Sequence[int], ...]:
        fresh = len(launch.windows[0].tokens) > 1 and launch.windows[0].positions[0] == 0
        draws = super()._draw(launch)
        return tuple([(t + 1) % self.limits.vocabulary for t in part] if fresh else part for part in draws)


class _CommitsAtLaunch(HashModel):
    def launch(self, batch: RoundBatch) -> Ticket:
        ticket = super().launch(batch)
        for window in self._launched[ticket.id].windows:
            self._lanes[window.lane].state = window.states[0]
        return ticket


class _CrossesPaths(HashModel):
    def keep(self, ticket: Ticket, paths: Sequence[Path]) -> None:
        windows = self._launched[ticket.id].windows
        super().keep(ticket, paths)
        if len(windows) > 1:
            self._lanes[windows[0].lane].state = windows[1].states[-1]


class _CommitsACutPathTwice(HashModel):
    """What stayed of a window kept in part is absorbed again by the next launch."""

    def keep(self, ticket: Ticket, paths: Sequence[Path]) -> None:
        windows = self._launched[ticket.id].windows
        super().keep(ticket, paths)
        self.cut = {w.lane for w, path in zip(windows, paths, strict=True) if 0 < len(path) < len(w.states)}

    def launch(self, batch: RoundBatch) -> Ticket:
        for lane in getattr(self, "cut", set()):
            self._lanes[lane].state ^= 1
        self.cut = set[Lane]()
        return super().launch(batch)


class _DrawsForcedRows(HashModel):
    def _draw(self, launch: HashLaunch) -> tuple[Sequence[int], ...]:
        return tuple([max(token, 0) for token in part] for part in super()._draw(launch))


class _PositionsDrift(HashModel):
    def _gathered(self, launch: HashLaunch) -> DrawnRows:
        rows = super()._gathered(launch)
        return replace(rows, draw_positions=[position + 1 for position in rows.draw_positions])


class _FingerprintsLie(HashModel):
    def collect(self, ticket: Ticket) -> Draws:
        draws = super().collect(ticket)
        return replace(draws, prints=tuple([0] * len(part) for part in draws.tokens))


class _HeadAbsorbs(HashModel):
    def propose(self, specs: Sequence[ProposeSpec]) -> Sequence[Chain | Lattice | None]:
        offers = super().propose(specs)
        for spec in specs:
            self._lanes[spec.lane].state ^= 1
        return offers


class _HeadForgets(HashModel):
    """Its head sees what was absorbed before the last `keep` alone, as where only `propose` brings it along."""

    def keep(self, ticket: Ticket, paths: Sequence[Path]) -> None:
        self.stale = {w.lane: (self._lanes[w.lane].state, self._lanes[w.lane].length) for w in self._windows(ticket)}
        super().keep(ticket, paths)

    def _windows(self, ticket: Ticket) -> tuple[PlannedWindow, ...]:
        return self._launched[ticket.id].windows if ticket.id in self._launched else ()

    def _offer(self, spec: ProposeSpec) -> Chain | Lattice | None:
        lane = self._settled(spec.lane, "propose")
        state, length = getattr(self, "stale", {}).get(spec.lane, (lane.state, lane.length))
        assert self.head is not None
        return self.head.propose(self.law, state, spec.pending, length, spec.depth, spec.sampling) if length else None


class _HeadRunsAhead(HashModel):
    """Its head goes on from the rows that the draws let stand, whether they were kept or not."""

    def keep(self, ticket: Ticket, paths: Sequence[Path]) -> None:
        launch = self._launched.get(ticket.id)
        ahead = getattr(self, "ahead", {})
        for window, drawn in zip(launch.windows, launch.draws or (), strict=True) if launch is not None else ():
            path = accept(Window(window.tokens, window.parents), drawn, 1 << 20, frozenset()).path
            ahead[window.lane] = window.states[path[-1]], self._lanes[window.lane].length + len(path)
        self.ahead = ahead
        super().keep(ticket, paths)

    def _offer(self, spec: ProposeSpec) -> Chain | Lattice | None:
        lane = self._settled(spec.lane, "propose")
        state, length = getattr(self, "ahead", {}).get(spec.lane, (lane.state, lane.length))
        assert self.head is not None
        return self.head.propose(self.law, state, spec.pending, length, spec.depth, spec.sampling) if length else None


class _HeadDraftsTooMuch(HashModel):
    def _offer(self, spec: ProposeSpec) -> Chain | Lattice | None:
        return super()._offer(replace(spec, depth=spec.depth + 1))


class _IgnoresMasks(HashModel):
    def _gathered(self, launch: HashLaunch) -> DrawnRows:
        return replace(super()._gathered(launch), masks=[])


class _MasksDrift(HashModel):
    def _logits(self, rows: DrawnRows) -> NDArray[np.float32]:
        logits = super()._logits(rows)
        for row, _ in rows.masks:
            logits[row] = logits[row, ::-1].copy()
        return logits


class _MasksSpread(HashModel):
    def _gathered(self, launch: HashLaunch) -> DrawnRows:
        rows = super()._gathered(launch)
        return replace(rows, masks=[(row, mask) for _, mask in rows.masks for row in range(len(rows.tokens))])


class _ImagesFade(HashModel):
    def restore(self, image: LaneImage, capacity: int) -> Lane:
        lane = super().restore(image, capacity)
        self._lanes[lane].state ^= 1
        return lane


class _ImagesWearOut(HashModel):
    restored = 0

    def restore(self, image: LaneImage, capacity: int) -> Lane:
        lane = super().restore(image, capacity)
        self.restored += 1
        self._lanes[lane].state ^= int(self.restored > 1)
        return lane


class _TrustsImages(HashModel):
    def restore(self, image: LaneImage, capacity: int) -> Lane:
        return super().restore(replace(image, identity=str(self.identity)), capacity)


class _Swallows(WrappedModel):
    """Answers every misuse as if it had gone well."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("prefill", "launch", "collect", "keep", "discard", "fork", "export"):
            return found

        def call(*arguments: Any) -> Any:
            try:
                return found(*arguments)
            except (MisuseError, KeyError):
                return Ticket(-1, 0)

        return call


@dataclass(frozen=True, slots=True)
class Liar:
    """A model that breaks a promise, and the checks that must fail on it."""

    name: str
    make: Callable[[], TargetModel]
    caught_by: tuple[Check, ...]


def _liar(make: type[HashModel], *checks: Check, **settings: Any) -> Liar:
    return Liar(make.__name__.strip("_"), lambda: make(**settings), checks)


def _forgetful(forget: str, *checks: Check) -> Liar:
    return Liar(f"GraphModel_forgets_{forget}", lambda: GraphModel(forget=(forget,)), checks)  # type: ignore[arg-type]


def _drifting(width: int, *checks: Check, **settings: Any) -> Liar:
    kind = "_".join(settings) or "all"
    return Liar(f"DriftingModel_{width}_{kind}", lambda: DriftingModel(width, **settings), checks)


LIARS: tuple[Liar, ...] = (
    *(_drifting(k, row_checks.chain_rows_equal_serial_rows) for k in (1, 2, 3, 7, 15)),
    *(_drifting(k, row_checks.tree_rows_equal_serial_rows_along_their_own_paths) for k in (2, 5, 15)),
    _drifting(1, row_checks.chain_rows_equal_serial_rows, trees=False),
    _drifting(2, row_checks.tree_rows_equal_serial_rows_along_their_own_paths, chains=False),
    _liar(StreamsDriftingModel, row_checks.shared_rows_equal_solo_rows),
    _forgetful("lane", lane_checks.equal_histories_give_equal_rows),
    _forgetful("masks", mask_checks.a_mask_touches_its_own_row_alone),
    _forgetful("samplings", row_checks.sampled_draws_use_the_noise_of_their_absolute_position),
    _forgetful("positions", row_checks.sampled_draws_use_the_noise_of_their_absolute_position),
    _forgetful(
        "rollback",
        row_checks.a_launch_leaves_the_committed_state_alone,
        row_checks.a_kept_path_equals_absorbing_its_tokens_one_by_one,
        row_checks.a_kept_branch_equals_absorbing_its_tokens_one_by_one,
    ),
    _liar(_UnsortedCosts, lane_checks.limits_costs_and_identity_are_whole),
    _liar(_ListsClosedLanes, lane_checks.lanes_are_listed_until_they_are_closed),
    _liar(_ForgivesUnknownLanes, lane_checks.closing_an_unknown_lane_raises_key_error),
    _liar(_OpensAnything, lane_checks.a_lane_larger_than_the_window_is_refused),
    _liar(_KnowsItsLanes, lane_checks.equal_histories_give_equal_rows),
    _liar(HashModel, lane_checks.different_histories_give_different_rows, law=_OrderBlindLaw()),
    _liar(_ForksShare, lane_checks.a_fork_equals_its_original_and_goes_its_own_way),
    _liar(_SlicesDrift, lane_checks.a_prompt_may_be_absorbed_in_the_slices_that_the_limits_allow),
    _liar(_PrefillDraws, lane_checks.a_prefill_draws_nothing),
    _liar(_NeedsAPrefill, lane_checks.a_prompt_of_one_id_needs_no_prefill),
    _liar(_CommitsAtLaunch, row_checks.a_launch_leaves_the_committed_state_alone),
    _liar(_CrossesPaths, row_checks.lanes_of_one_launch_are_kept_each_by_its_own_path),
    _liar(_CommitsACutPathTwice, row_checks.any_window_behind_a_path_kept_in_part_reads_what_stayed_once),
    _liar(_DrawsForcedRows, row_checks.forced_rows_are_fed_and_not_drawn),
    _liar(_PositionsDrift, row_checks.sampled_draws_use_the_noise_of_their_absolute_position),
    _liar(_FingerprintsLie, row_checks.fingerprints_come_for_the_windows_that_ask),
    _liar(_HeadAbsorbs, head_checks.a_proposal_changes_no_row, head=HashHead()),
    _liar(_HeadForgets, head_checks.a_head_drafts_from_everything_its_lane_absorbed, head=HashHead()),
    _liar(_HeadRunsAhead, head_checks.drafts_follow_the_rows_that_are_kept, head=HashHead()),
    _liar(_HeadRunsAhead, head_checks.drafts_follow_the_rows_that_are_kept, head=HashDrafter()),
    _liar(_HeadDraftsTooMuch, head_checks.a_head_answers_each_lane_within_what_was_asked, head=HashHead()),
    _liar(_HeadDraftsTooMuch, head_checks.a_head_answers_each_lane_within_what_was_asked, head=HashDrafter()),
    _liar(_IgnoresMasks, mask_checks.a_masked_row_draws_from_its_mask_alone),
    _liar(_MasksDrift, mask_checks.a_mask_that_allows_all_changes_nothing),
    _liar(_MasksSpread, mask_checks.a_mask_touches_its_own_row_alone),
    _liar(_ImagesFade, image_checks.a_restored_lane_goes_on_as_the_exported_one),
    _liar(_ImagesWearOut, image_checks.an_image_may_be_restored_more_than_once),
    _liar(_TrustsImages, image_checks.a_foreign_or_malformed_image_is_refused),
    Liar(
        "Swallows",
        lambda: _Swallows(HashModel()),
        (
            misuse_checks.a_wrong_position_raises,
            misuse_checks.a_span_that_does_not_go_on_where_the_lane_stands_raises,
            misuse_checks.ids_outside_the_vocabulary_raise,
            misuse_checks.windows_wider_than_the_limits_raise,
            misuse_checks.a_launch_of_more_rows_than_the_batch_holds_raises,
            misuse_checks.a_lane_twice_in_a_launch_raises,
            misuse_checks.a_closed_lane_takes_no_call,
            misuse_checks.rows_neither_kept_nor_discarded_block_their_lane,
            misuse_checks.a_ticket_is_settled_once,
            misuse_checks.a_path_that_does_not_follow_the_window_raises,
            misuse_checks.rows_past_the_lanes_capacity_raise,
            shape_checks.misshapen_windows_and_masks_raise,
            shape_checks.rows_are_not_kept_before_they_are_collected,
        ),
    ),
    Liar(
        "Swallows_alone",
        lambda: _Swallows(HashModel(shares_rounds=False)),
        (misuse_checks.lanes_that_may_not_share_raise,),
    ),
)
