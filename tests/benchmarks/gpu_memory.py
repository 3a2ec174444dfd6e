"""The startup estimate against what is really held: per family the windows that follow, at load, and in use.

The estimate is the product's, made from headers; the measure is torch's allocator, the card's own count of what is in
use, and the process's own peak of the machine's memory. Windows are printed against the native one and the estimate;
one that does not fit is refused with the one that does, which is then started (`gpu_memory_start.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tensorfold.application.stored_weights import Matrix
from tensorfold.domain.families.catalogue import find
from tensorfold.domain.memory.budgets import Card
from tensorfold.domain.memory.cuda_budget import CARD_LIMIT, card_budget
from tensorfold.domain.memory.cuda_footprint import cuda_footprint, loaded_part
from tensorfold.domain.memory.cuda_windows import CudaPlan, choose_cuda
from tensorfold.domain.memory.cuda_work import Scratch, scratch_of
from tensorfold.domain.memory.plan import Footprint, MemoryPlan
from tensorfold.domain.memory.windows import MemoryRefusal
from tests.benchmarks.gpu_figures import Bound
from tests.synthetic.true_headers import true_bound
from tests.synthetic.true_models import TrueModel

GIB = 1 << 30
ASKED, LOADED, KEPT = 8192, 32_768, 4
PROMPT, LARGE = 16_384, 1 << 28  # ids, and numbers of a slot whose reading is a line
NEAR = (0.95, 1.05)
Say = Callable[[str], None]

BOUNDS = tuple(
    Bound(f"{where} {when} against the estimate", least=NEAR[0], most=NEAR[1])
    for where in ("card", "host")
    for when in ("at load", "in use")
)


@dataclass(slots=True)
class Windows:
    """What the arithmetic says of one model on one card."""

    native: int
    chosen: dict[str, int] = field(default_factory=dict)
    estimate: dict[str, float] = field(default_factory=dict)
    refused: str = ""
    after_refusal: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes at one line of a load: of tensors now and at most so far, held by torch, of the card, and of the machine.

    `card` is what the card has in use beyond what it had before the load; `host` what the process holds.
    """

    line: str
    tensors: int
    most: int
    reserved: int
    card: int
    host: int


def footprint(model: TrueModel) -> Footprint:
    """What the product's estimate counts of a model."""
    return cuda_footprint(model.plan, true_bound(model.plan), head=model.drafter is None, drafter=model.drafter)


def target(model: TrueModel) -> int:
    """The window that a family aims at on a card where none is asked for; 0 for its own."""
    family = find(model.plan.model_type)
    return 0 if family is None else family.cuda_context


def planned(
    model: TrueModel,
    found: Footprint,
    card: Card,
    asked: int | None,
    *,
    limit: int | None = None,
    reserve: int | None = None,
    streams: int = 1,
    kept: int = 0,
) -> CudaPlan:
    """The window and the pools of a start with these settings. Raises MemoryRefusal."""
    limits = {} if limit is None else {CARD_LIMIT: limit}
    budget = card_budget(card, reserve=reserve, limits=limits)
    plan = MemoryPlan(budget, found)
    return choose_cuda(model.plan, plan, asked, target=target(model), streams=streams, kept=kept)


def estimated(plan: CudaPlan) -> int:
    """Bytes that a start says it will hold."""
    found = plan.memory.footprint
    assert found.pools is not None
    kept = plan.pools.kept * found.pools.page  # counted as work already
    return found.weights + plan.memory.work(plan.window.tokens) + (plan.pools.pages - 1) * found.pools.page - kept


def terms(model: TrueModel, plan: CudaPlan) -> dict[str, int]:
    """The estimate's parts, which add up to it."""
    found, pools = plan.memory.footprint, plan.pools
    assert found.pools is not None
    parts = asdict(_scratch(model))
    row = parts.pop("row")
    return {
        "weights": found.weights,
        "pages": (pools.pages - 1) * found.pools.page,
        "states": found.pools.fixed(pools),
        "chunk": row * found.rows,
        **parts,
    }


def _scratch(model: TrueModel) -> Scratch:
    plan, bound = loaded_part(model.plan, true_bound(model.plan), head=model.drafter is None)
    return scratch_of(plan, bound, drafts=plan.mtp is not None, drafter=model.drafter)


def windows(model: TrueModel, card: Card, say: Say) -> Windows:
    """The default, `0` and explicit windows, a refusal and the window it names, and what the two variables do."""
    found, made = footprint(model), Windows(model.plan.context)
    for name, asked in (("default", None), ("0", 0), (str(ASKED), ASKED)):
        plan = planned(model, found, card, asked)
        made.chosen[name], made.estimate[name] = plan.window.tokens, estimated(plan) / GIB
        say(f"--context {name}: {plan.window.tokens} of {made.native} tokens, {made.estimate[name]:.2f} GiB estimated")
    least = planned(model, found, card, 2)
    tight = estimated(least) + 64 * (1 << 20)  # room for little more than the smallest window
    try:
        planned(model, found, card, made.native, limit=tight)
    except MemoryRefusal as refusal:
        made.refused = refusal.message
        fitting = int(refusal.message.rpartition("--context ")[2].split(" fits")[0])
        made.after_refusal = planned(model, found, card, fitting, limit=tight).window.tokens
        say(f"with {CARD_LIMIT} of {tight / GIB:.2f} GiB: {refusal.message}")
    for reserve in (2 * GIB, 16 * GIB):
        room = card_budget(card, reserve=reserve, limits={}).allocator
        made.chosen[f"0, {reserve // GIB} GiB left"] = planned(model, found, card, 0, reserve=reserve).window.tokens
        say(f"with a reserve of {reserve / GIB:.0f} GiB: {room / GIB:.2f} GiB for the model")
    return made


def host_now(field_: str = "VmRSS", status: Path = Path("/proc/self/status")) -> int:
    """Bytes of the machine's memory that this process holds; `VmHWM`: the most it has held."""
    line = next(line for line in status.read_text().splitlines() if line.startswith(f"{field_}:"))
    return int(line.split()[1]) << 10


class Watch:
    """Says a load's lines, and takes down what was held at each of them."""

    def __init__(self, cuda: Any, say: Say) -> None:
        self._cuda, self._say = cuda, say
        self.base = self._used()
        self.moments: list[Moment] = []

    def __call__(self, line: str) -> None:
        self._say(line)
        cuda = self._cuda
        self.moments.append(
            Moment(
                line, cuda.memory_allocated(), cuda.max_memory_allocated(), cuda.memory_reserved(),
                self._used() - self.base, host_now(),
            )
        )  # fmt: skip

    def held(self) -> int:
        """The most bytes of the card that were needed at a time since the peak was reset.

        What is there at rest, once torch has handed back what it only kept, and what tensors took beyond that.
        """
        cuda = self._cuda
        cuda.synchronize()
        most = cuda.max_memory_allocated()
        cuda.empty_cache()
        return int(self._used() - self.base + most - cuda.memory_allocated())

    def _used(self) -> int:
        free, total = self._cuda.mem_get_info()
        return int(total - free)


class Reads:
    """A model's weights, each of whose large slots makes a line of the load when it has been read."""

    def __init__(self, weights: Any, say: Say) -> None:
        self._weights, self._say = weights, say

    def __getattr__(self, name: str) -> Any:
        return getattr(self._weights, name)

    def matrix(self, path: str) -> Matrix:
        """The matrix of a slot."""
        made: Matrix = self._weights.matrix(path)
        if math.prod(made.shape) >= LARGE:
            self._say(f"read {path}")
        return made


def measure(task: tuple[str, str]) -> dict[str, Any]:
    """One model, by name, in a process of its own: its windows, then loaded with pools and used.

    The second part of the task is the folder of compiled kernels. The window fills pools without
    filling the card, so that the model's own parts weigh what they weigh.
    """
    import torch

    from tensorfold.adapters.cuda.memory import machine
    from tests.benchmarks.gpu_planting import Wanted, loaded, of
    from tests.synthetic.planted_weights import prepare
    from tests.synthetic.true_models import true_model

    name, folder = task
    model = true_model(name)
    card = machine().card
    assert card is not None

    def say(line: str) -> None:
        print(f"   {name}: {line}", flush=True)

    made = windows(model, card, say)
    plan = planned(model, footprint(model), card, min(LOADED, made.chosen["0"]), kept=KEPT)
    prepare()
    before = host_now()
    watch = Watch(torch.cuda, say)
    torch.cuda.reset_peak_memory_stats()
    wanted = Wanted(streams=1, context=plan.window.tokens, pools=plan.pools)
    seen: Any = Reads(model.weights, watch)
    with loaded(of(replace(model, weights=seen), wanted), model.title, wanted, Path(folder), watch) as running_model:
        watch("loaded")
        at_load, host_load = watch.held(), host_now("VmHWM")
        torch.cuda.reset_peak_memory_stats()
        use(running_model, plan.memory.footprint.rows)
        watch("used")
        in_use, host_use = watch.held(), host_now("VmHWM")
    estimate, host = estimated(plan), before + plan.memory.footprint.host
    parts = terms(model, plan)
    say(f"estimate {estimate / GIB:.3f} GiB: {_gib(parts)}")
    for moment in (max(watch.moments, key=lambda moment: moment.host), *watch.moments[-8:]):
        say(f"  {_gib({key: value for key, value in asdict(moment).items() if key != 'line'})} at {moment.line!r}")
    say(f"card at load {at_load / GIB:.3f}, in use {in_use / GIB:.3f} of {estimate / GIB:.3f} GiB")
    say(
        f"host {before / GIB:.3f} before, at load at most {host_load / GIB:.3f}, in use {host_use / GIB:.3f} of "
        f"{host / GIB:.3f} GiB"
    )
    return {
        "windows": made.chosen,
        "estimates GiB": made.estimate,
        "native": made.native,
        "refused": made.refused,
        "after the refusal": made.after_refusal,
        "estimate": parts,
        "moments": [asdict(moment) for moment in watch.moments],
        "card": {"estimate": estimate, "at load": at_load, "in use": in_use},
        "host": {"before": before, "estimate": host, "at load": host_load, "in use": host_use},
        "record": "off",
        "values": {
            "card at load against the estimate": at_load / estimate,
            "card in use against the estimate": in_use / estimate,
            "host at load against the estimate": host_load / host,
            "host in use against the estimate": host_use / host,
        },
    }


def use(model: Any, rows: int) -> None:
    """A long prompt, drafted rounds, and a launch of every row count that has a graph."""
    import numpy as np

    from tensorfold.application.ports.target_model import LaneWindow, RoundBatch, Span
    from tensorfold.domain.sampling import Sampling
    from tensorfold.domain.windows import chain
    from tests.benchmarks.gpu_engine import ask, prompt_ids, request, running

    limits = model.limits
    length = min(PROMPT, limits.context - 128)
    ids = prompt_ids(limits.vocabulary, length, 1)
    with running(model, chunk=rows) as scheduler:
        ask(scheduler, request(ids, 32, draft=True))
    lane = model.open(limits.chain_width + 64)
    model.collect(model.prefill(lane, np.array(ids[:32], np.int64), Span(0, 32)))
    for width in range(1, min(limits.chain_width, limits.batch_rows) + 1):
        window = LaneWindow(lane, 32, chain(ids[32], ids[33 : 32 + width]), Sampling())
        ticket = model.launch(RoundBatch((window,)))
        model.collect(ticket)
        model.keep(ticket, [()])
    model.close(lane)


def _gib(parts: dict[str, int]) -> str:
    return ", ".join(f"{name} {value / GIB:.3f}" for name, value in parts.items())
