"""From a bound plan to a checked model: which arithmetic rows get, the decoder, the load check, limits and costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tensorfold.adapters.mlx.check_cache import CheckCache, sources_digest
from tensorfold.adapters.mlx.decoder import Decoder
from tensorfold.adapters.mlx.forward import Forward
from tensorfold.adapters.mlx.heads.dflash import BlockDrafts
from tensorfold.adapters.mlx.heads.drafter_weights import DrafterWeights
from tensorfold.adapters.mlx.heads.head import Head
from tensorfold.adapters.mlx.heads.mtp import MtpDrafts
from tensorfold.adapters.mlx.memory import fits_unpacked
from tensorfold.adapters.mlx.model import MlxModel
from tensorfold.adapters.mlx.row_check import Allowed, RowCheck, Wanted
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.adapters.mlx.rows_metal import MetalRows
from tensorfold.adapters.mlx.runtime import Runtime
from tensorfold.adapters.mlx.timings import measure
from tensorfold.adapters.mlx.weights import WeightReader
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.application.ports.target_model import HeadLimits, ModelIdentity, ModelLimits
from tensorfold.domain.families.device_limits import most_rows
from tensorfold.domain.sampling import RULE

A = TypeVar("A")
BATCH_ROWS = 64
SLICE = 64


class Loading:
    """One model being loaded. Nothing is read before `decoder` or `model` is called."""

    def __init__(self, checkpoint: ModelCheckpoint, runtime: Runtime, say: Callable[[str], None]) -> None:
        self._plan, self._bound, self._facts = checkpoint.plan, checkpoint.bound, checkpoint.facts
        self._drafts, self._drafter = checkpoint.drafts, checkpoint.drafter
        self._runtime, self._say = runtime, say

    def model(self, checks: Path, *, name: str, context: int, max_streams: int) -> MlxModel[Any]:
        """The model, its rows checked now or by an earlier start whose finding lies in `checks`."""
        if self._runtime.cpu:
            return self.checked(
                CpuRows(unpack=fits_unpacked(self._bound, self._runtime.memory)), checks, name, context, max_streams
            )
        if not self._runtime.metal:
            return self.checked(LibraryRows(self._plan.activation), checks, name, context, max_streams)
        ops = MetalRows(self._plan.activation)
        model = self.checked(ops, checks, name, context, max_streams)
        for line in ops.trust.lines():
            self._say(line)
        return model

    def decoder(self, ops: RowOps[A]) -> Decoder[A]:
        """The decoder over some device's operations, all weights read."""
        return Decoder(ops, self._plan, self._weights())

    def head(self, decoder: Decoder[A]) -> Head[A] | None:
        """The draft head: the drafter where there is one, else the model's own where it is stored and wanted."""
        drafter, weights = self._drafter, self._weights()
        if drafter is not None:
            own = DrafterWeights(drafter.bound, drafter.facts, self._say, bits=self._drafts.drafter_bits)
            return BlockDrafts(decoder, drafter.plan, own, weights, drafter.name)
        if self._plan.mtp is None or self._drafts.mtp_drafts == 0 or not weights.has_below("mtp."):
            return None
        return MtpDrafts(decoder, self._plan, weights)

    def _weights(self) -> WeightReader:
        return WeightReader(self._bound, self._facts, self._say, self._plan.tensors.probes)

    def checked(self, ops: RowOps[A], checks: Path, name: str, context: int, max_streams: int) -> MlxModel[A]:
        """The model over one device's operations, its rows checked."""
        decoder, plan = self.decoder(ops), self._plan
        forward = Forward(decoder, self.head(decoder))
        widest = most_rows(plan, self._runtime.apple_generation)
        wanted = Wanted(widest, plan.tree_window, max(BATCH_ROWS, widest), max_streams, SLICE, context)
        identity = self._identity(ops, name)
        allowed = self._allowed(forward, wanted, identity, checks)
        self._say("measuring launches")
        costs = measure(forward, wanted, allowed)
        limits = self._limits(wanted, allowed, None if forward.head is None else forward.head.limits)
        return MlxModel(forward, identity, limits, costs, most_lanes=max(64, 2 * max_streams))

    def _identity(self, ops: RowOps[A], name: str) -> ModelIdentity:
        return ModelIdentity(
            name=name,
            weights=self._facts.digest,
            runtime=self._runtime.version,
            device=self._runtime.device,
            kernels=sources_digest(),
            sampler_rule=RULE,
            extra=(("rows", ops.dtype), ("arithmetic", ops.detail)),
        )

    def _allowed(self, forward: Forward[A], wanted: Wanted, identity: ModelIdentity, checks: Path) -> Allowed:
        key = {
            "weights": identity.weights,
            "runtime": identity.runtime,
            "device": identity.device,
            "kernels": identity.kernels,
            "extra": [list(pair) for pair in identity.extra],
            "head": [] if forward.head is None else [forward.head.limits.title, forward.head.limits.most],
            "wanted": [wanted.chain, wanted.tree, wanted.batch_rows, wanted.streams, wanted.slice, wanted.context],
        }
        cache = CheckCache(checks)
        known = cache.read(key)
        if known is not None:
            self._say("rows were checked on this machine before")
            return known
        allowed = RowCheck(forward, wanted, self._runtime.place, self._say).run()
        cache.write(key, allowed)
        return allowed

    def _limits(self, wanted: Wanted, allowed: Allowed, head: HeadLimits | None) -> ModelLimits:
        return ModelLimits(
            vocabulary=self._plan.head.vocabulary,
            context=wanted.context,
            chain_width=allowed.chain,
            tree_width=allowed.tree,
            max_streams=wanted.streams,
            batch_rows=wanted.batch_rows,
            shares_rounds=allowed.shares,
            resume="chunk",
            prefill_slice=allowed.slice,
            sampler_rule=RULE,
            draft_context=allowed.draft_context,
            notes=tuple(allowed.notes),
            head=head,
        )
