"""Streams without a model: the server's own planning of rounds against a target whose reply is known.

A draft is kept exactly where it equals the reply, in chains and in trees. Rounds are planned, proposals weighed and
rows granted by the engine's own code; only the launch is replaced, by the cost of its rows on a machine's curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

from tensorfold.application.counters import Counters
from tensorfold.application.drafts import Drafting
from tensorfold.application.flight import Flight
from tensorfold.application.live import Live
from tensorfold.application.ports.target_model import ModelCosts, ModelLimits, TargetModel
from tensorfold.application.prompt_cache import PromptFill
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.drafting.sources import took_part
from tensorfold.domain.prompts.chunks import ChunkPlan
from tensorfold.domain.prompts.retained import ids_of
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.streams import Stream
from tensorfold.domain.verification import accept
from tensorfold.domain.windows import Window
from tests.benchmarks.replay.costs import Machine
from tests.benchmarks.replay.own_drafts import OwnDrafts
from tests.benchmarks.replay.policy import Policy
from tests.benchmarks.replay.tally import Tally
from tests.benchmarks.replay.timed import TimedFactory
from tests.benchmarks.replay.workload import Request, Workload
from tests.fakes.clock import MachineClock


def replay(workload: Workload, policy: Policy, machine: Machine, vocabulary: int) -> Tally:
    """Every stream of `workload` in turn under `policy`. Raises RuntimeError when a source or the planning failed."""
    for run in workload.foreign:
        policy.remember(run, len(run))
    for request in workload.before:
        policy.remember(request.run, len(request.reply))
    server = Server(policy, machine, vocabulary)
    for seed, request in enumerate(workload.warming, start=len(workload.streams)):
        server.run(request, seed)
    server.forget_counts()
    for seed, request in enumerate(workload.streams):
        server.run(request, seed)
        policy.remember(request.run, len(request.reply))
    return server.tally


class Server:
    """Runs streams one after another and counts."""

    def __init__(self, policy: Policy, machine: Machine, vocabulary: int) -> None:
        self.tally = Tally()
        self._vocabulary = vocabulary
        self._curve = machine.curve
        self._watch = TimedFactory(policy.sources[-1])
        self._counters = Counters()
        limits = _limits(machine, vocabulary)
        self._planning = Drafting(
            cast(TargetModel, SimpleNamespace(limits=limits, costs=ModelCosts(machine.points, 0.0))),
            EngineSettings(overhead_ms=0.0),
            self._curve,
            (*policy.sources[:-1], self._watch),
            self._counters,
            lambda line: None,
            Flight(MachineClock(), 1.0, 1.0),
        )

    def forget_counts(self) -> None:
        """Count from here on."""
        self.tally = Tally()
        self._watch.seconds, self._watch.rounds = 0.0, 0

    def run(self, request: Request, seed: int) -> None:
        """Replay one reply; `seed` decides which of the stream's own drafts land."""
        stream = _stream(request)
        own = OwnDrafts(request.reply, self._vocabulary, seed, len(request.prompt))
        live = Live(seed, stream, 0, PromptFill(ids_of(()), ChunkPlan((), 0)), self._planning.open(stream, own))
        while stream.finish is None:
            ((window, source),) = self._planning.plan([live])
            drawn = draws(window, request.reply, stream.emitted_count)
            committed = stream.commit(window, accept(window, drawn, stream.room, stream.stop_ids))
            self._count(window, source, len(committed.tokens), committed.drafts_kept)
            drafted = len(window.tokens) - 1
            self._planning.observe(live, source if drafted else None, drafted, committed)
        if tuple(stream.emitted) != request.reply:
            raise RuntimeError("a replayed reply differs from the reply of its trace")
        if self._counters.proposer_faults:
            raise RuntimeError("a draft source failed in the replay") from self._watch.fault

    def _count(self, window: Window, source: str | None, tokens: int, kept: int) -> None:
        tally, rows = self.tally, len(window.tokens)
        tally.rounds += 1
        tally.tokens += tokens
        tally.cost += self._curve.ms(rows)
        tally.rows += rows
        tally.wasted_rows += rows - 1 - kept
        if took_part(self._watch.name, source):
            tally.windows += 1
            tally.window_ids += max(window.depths())
            tally.landed_ids += kept
        tally.asked, tally.look_up_s = self._watch.rounds, self._watch.seconds


def draws(window: Window, reply: Sequence[int], emitted: int) -> list[int]:
    """What the target draws at each row: the reply's id at the row's depth, the last one standing for any behind it.

    Rows off the reply draw it too; nothing reads them, as acceptance never follows a draft that differs.
    """
    last = len(reply) - 1
    return [reply[min(emitted + depth, last)] for depth in window.depths()]


def _stream(request: Request) -> Stream:
    if request.reply.index(request.reply[-1]) != len(request.reply) - 1:
        raise ValueError("the id that ends a reply stands inside it")
    stops = frozenset(request.reply[-1:])
    stream = Stream(request.prompt, max_tokens=1 << 20, sampling=Sampling(), stop_ids=stops)
    stream.absorb_prompt()
    return stream


def _limits(machine: Machine, vocabulary: int) -> ModelLimits:
    return ModelLimits(
        vocabulary=vocabulary,
        context=1 << 22,
        chain_width=machine.chain,
        tree_width=machine.tree,
        max_streams=1,
        batch_rows=max(machine.chain, machine.tree),
        shares_rounds=True,
        resume="chunk",
        prefill_slice=0,
        sampler_rule="none",
    )
