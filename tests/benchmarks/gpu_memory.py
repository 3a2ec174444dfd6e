"""The startup estimate against what is really held: per family the windows that follow, at load, and in use.

The estimate is the product's, made from headers; the measure is torch's allocator and the card's own count of what is
in use. Windows are printed against the native one and the estimate; one that does not fit is refused with the one that
does, which is then taken.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorfold.domain.families.catalogue import find
from tensorfold.domain.memory.budgets import Card
from tensorfold.domain.memory.cuda_budget import CARD_LIMIT, card_budget
from tensorfold.domain.memory.cuda_footprint import cuda_footprint
from tensorfold.domain.memory.cuda_windows import CudaPlan, choose_cuda
from tensorfold.domain.memory.plan import Footprint, MemoryPlan
from tensorfold.domain.memory.windows import MemoryRefusal
from tests.benchmarks.gpu_figures import Bound
from tests.synthetic.true_headers import true_bound
from tests.synthetic.true_models import TrueModel

GIB = 1 << 30
ASKED = 8192
NEAR = (0.95, 1.05)
Say = Callable[[str], None]

BOUNDS = tuple(
    Bound(f"{when} against the estimate", least=NEAR[0], most=NEAR[1]) for when in ("held at load", "held in use")
)


@dataclass(slots=True)
class Windows:
    """What the arithmetic says of one model on one card."""

    native: int
    chosen: dict[str, int] = field(default_factory=dict)
    estimate: dict[str, float] = field(default_factory=dict)
    refused: str = ""
    after_refusal: int = 0


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


def host_peak() -> int:
    """Most bytes of RAM that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def measure(name: str, folder: Path, say: Say) -> dict[str, Any]:
    """One model: its windows, then loaded with the pools of its default and used, against the estimate."""
    import torch

    from tensorfold.adapters.cuda.memory import machine
    from tests.benchmarks.gpu_engine import ask, prompt_ids, request, running
    from tests.benchmarks.gpu_planting import Wanted, loaded, of
    from tests.synthetic.true_models import true_model

    model = true_model(name)
    card = machine().card
    assert card is not None
    made = windows(model, card, say)
    # A window that fills the pools without filling the card, so that the model's own parts weigh what they weigh.
    plan = planned(model, footprint(model), card, min(32768, made.chosen["0"]), kept=4)
    base = torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0]
    host = host_peak()
    torch.cuda.reset_peak_memory_stats()
    wanted = Wanted(streams=1, context=plan.window.tokens, pools=plan.pools)
    with loaded(of(model, wanted), model.title, wanted, folder, say) as running_model:
        at_load = held(torch, base)
        most = torch.cuda.max_memory_allocated()
        with running(running_model, chunk=plan.memory.footprint.rows) as scheduler:
            length = min(16384, plan.window.tokens - 64)
            ask(scheduler, request(prompt_ids(model.plan.head.vocabulary, length, 1), 32))
        in_use = held(torch, base)
    estimate = estimated(plan)
    say(
        f"{name}: estimate {estimate / GIB:.2f} GiB; held at load {at_load / GIB:.2f}, in use {in_use / GIB:.2f}, "
        f"tensors at most {most / GIB:.2f} while loading; host {(host_peak() - host) / GIB:.2f} GiB more than before"
    )
    return {
        "windows": made.chosen,
        "estimates GiB": made.estimate,
        "native": made.native,
        "refused": made.refused,
        "after the refusal": made.after_refusal,
        "estimate GiB": estimate / GIB,
        "at load GiB": at_load / GIB,
        "in use GiB": in_use / GIB,
        "host GiB": (host_peak() - host) / GIB,
        "staging GiB": plan.memory.footprint.staging / GIB,
        "values": {
            "held at load against the estimate": at_load / estimate,
            "held in use against the estimate": in_use / estimate,
        },
    }


def held(torch: Any, base: int) -> int:
    """Bytes of the card in use beyond what was before, without blocks that the allocator only keeps."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    spare = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    peak = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
    return int(total - free - base - spare + peak)
