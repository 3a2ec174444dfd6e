"""Routing on the card at Nemotron's geometry: `python -m tests.benchmarks.gpu_routing` prints its times by rows.

A layer's launches follow each other in a graph, each started early as in a round, over weights of its own. Choices are
held against the reference's rule, and lists against the choices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.triton.expert_items import choose_and_list, list_items
from tensorfold.kernels.triton.norms import add_norm
from tensorfold.kernels.triton.prompt_experts import sort_pairs, spread_rows, sum_slots
from tensorfold.kernels.triton.routers import choose_rows, score_rows
from tests.benchmarks.gpu_device import captured, half, seconds
from tests.kernels.triton import prompt_checks

Tensor = Any
Step = Callable[[int], None]
ROWS = (1, 2, 4, 8, 16, 32, 64)
PROMPTS = (2048, 4096)
WIDTH, EXPERTS, CHOSEN, SLOTS, LAYERS = 2688, 128, 6, 8, 23
CHECKS = (
    "check_expert_items", "check_sorted_pairs", "check_prompt_experts", "check_choice_of_experts",
    "check_choosing_and_listing_in_one_launch", "check_rows_of_logits_do_not_know_their_company",
)  # fmt: skip


class Layers:
    """What the routers of all layers read and write for so many rows."""

    def __init__(self, rows: int) -> None:
        self.rows, self.x, self.made = rows, half(rows, WIDTH), half(rows, WIDTH)
        self.weights = [half(EXPERTS, WIDTH) for _ in range(LAYERS)]
        self.norm, self.correction = torch.rand(WIDTH, device="cuda"), torch.rand(EXPERTS, device="cuda")
        self.out, self.total = torch.empty_like(self.x), torch.empty_like(self.x)
        self.logits = torch.randn(rows, EXPERTS, device="cuda")
        self.ids = torch.empty(rows, SLOTS, dtype=torch.int32, device="cuda")
        self.shares = torch.empty(rows, SLOTS, device="cuda")
        whole = torch.empty(2, 2048, dtype=torch.int32, device="cuda")
        self.lists = whole[:, :1024], whole[:, 1024:1536], whole[:, 1536:]

    def add_norm(self, layer: int) -> None:
        """The residual's sum and norm."""
        add_norm(self.made, self.x, self.norm, self.out, self.total, 1e-5)

    def score(self, layer: int) -> None:
        """Logits."""
        score_rows(self.out, self.weights[layer], self.logits)

    def choose(self, layer: int) -> None:
        """The choice, and its lists."""
        told: Any = {"chosen": CHOSEN, "normalize": True, "apart": 2048}
        choose_and_list(self.logits, self.correction, self.ids, self.shares, 2.5, self.lists, **told)

    def choose_apart(self, layer: int) -> None:
        """The same in several launches."""
        choose_rows(self.logits, self.correction, self.ids, self.shares, 2.5, chosen=CHOSEN)
        for group, ids in enumerate(self.ids.split(256 // SLOTS)):
            list_items(ids, *(each[group] for each in self.lists))


def timed(*steps: Step) -> float:
    """Seconds of the steps of one layer."""

    def queue() -> None:
        for layer in range(LAYERS):
            for step in steps:
                step(layer)

    return seconds(captured(queue).replay) / LAYERS


def rounds() -> dict[str, dict[int, float]]:
    """Seconds a layer by what is launched and by rows."""
    found: dict[str, dict[int, float]] = {}
    for rows in ROWS:
        on = Layers(rows)
        ways: dict[str, tuple[Step, ...]] = {
            "norm": (on.add_norm,),
            "logits": (on.score,),
            "choice and lists": (on.choose,),
            "the same apart": (on.choose_apart,),
            "a layer": (on.add_norm, on.score, on.choose),
        }
        for name, steps in ways.items():
            found.setdefault(name, {})[rows] = timed(*steps)
    return found


def prompts() -> dict[str, dict[int, float]]:
    """Seconds a layer of what stands around a prompt's products."""
    found: dict[str, dict[int, float]] = {}
    for rows in PROMPTS:
        chosen = torch.rand(rows, EXPERTS, device="cuda").topk(CHOSEN).indices.int()
        shared = torch.arange(EXPERTS, EXPERTS + 2, dtype=torch.int32, device="cuda").expand(rows, 2)
        ids = torch.cat([chosen, shared], 1).contiguous()
        x, shares = torch.randn(rows, WIDTH, device="cuda").bfloat16(), torch.rand(rows, SLOTS, device="cuda")
        places = sort_pairs(ids, EXPERTS + 2, 128)[1]
        made, out = spread_rows(x, places, SLOTS), torch.empty(rows, WIDTH, device="cuda")
        ways: dict[str, Callable[[], object]] = {
            "sort": partial(sort_pairs, ids, EXPERTS + 2, 128),
            "spread": partial(spread_rows, x, places, SLOTS),
            "sum": partial(sum_slots, made, places, shares, out),
        }
        for name, run in ways.items():
            found.setdefault(name, {})[rows] = timed(partial(_again, run))
    return found


def _again(run: Callable[[], object], layer: int) -> None:
    run()


def main() -> None:
    """Checks, then times."""
    for name in CHECKS:
        getattr(prompt_checks, name)("cuda")
        print(name, "holds", flush=True)
    for table in (rounds(), prompts()):
        for name, times in table.items():
            print(f"{name:20}" + "".join(f"{rows:7}: {t * 1e6:5.2f}" for rows, t in times.items()) + " us", flush=True)


if __name__ == "__main__":
    main()
