"""The parts of the GPU benchmark by name. Each imports what it needs when it runs: no part pays for another.

`qwen`, `nemotron`, `llama`: one stream. `NAME-serving`: many, and HTTP. `memory`: the estimate. `verify`, `proof-tiny`
and `proof-true`: no token differs. `compile` makes the kernels of the three models beforehand. The others measure
kernels.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Found:
    """What a part found: figures for the record, the words of its last line, and whether its least figures are met."""

    figures: dict[str, Any]
    words: str
    met: bool = True


Part = Callable[[Path], Found]
NAMES = ("qwen", "nemotron", "llama")
KERNELS = ("attention", "recurrent", "prompt", "sampler")
LEAST_TINY, LEAST_TRUE = 300_000, 20_000
RECORD_OFF = "off"
_SEED = 20_261_130
_MEASURE_S, _MODEL_S = 150.0, 240.0
"""The most seconds of a model's memory part; and those after which no step of a model's part is begun."""


def say(line: str) -> None:
    """A line of progress."""
    print(f"   {line}", flush=True)


def ceilings(folder: Path) -> Found:
    """What the card can do at most."""
    from tests.benchmarks import gpu_ceilings

    found = gpu_ceilings.measure()
    return Found(
        dict(found),
        f"read {found['read'] / 1e9:.0f} GB/s, copy {found['copy'] / 1e9:.0f} GB/s, "
        f"matmul {found['matmul'] / 1e12:.0f} TFLOP/s, graph node {found['graph_node'] * 1e6:.2f} us, "
        f"launch {found['eager_launch'] * 1e6:.1f} us, round trip {found['round_trip'] * 1e6:.1f} us",
    )


def check(folder: Path) -> Found:
    """Rows equal bit for bit and near float64."""
    from tests.benchmarks import gpu_check

    found, bad = gpu_check.check(folder)
    return Found({"matrices": found}, f"{len(found)} matrices, {bad} with a fault", bad == 0)


MOST_MS = 4.7
MOST_LONGER = {8: 1.03, 16: 1.25, 32: 1.8, 64: 2.2}
"""Milliseconds for all products of a 27B token at one row, and how much longer other row counts may take."""


def matmul(folder: Path) -> Found:
    """Times of the products and what is asked of them."""
    from tests.benchmarks import gpu_ceilings, gpu_matmul

    read = gpu_ceilings.read_rate()
    found = gpu_matmul.measure(folder, read)
    token = found["qwen token"]["ms"]
    longer = {rows: token[rows] / token[1] for rows in MOST_LONGER}
    met = token[1] <= MOST_MS and all(longer[rows] <= most for rows, most in MOST_LONGER.items())
    floor = sum(gpu_matmul.size(matrix) * count for matrix, count in gpu_matmul.QWEN.values()) / read * 1e3
    words = (
        f"27B token {token[1]:.2f} ms ({floor / token[1]:.0%} of {read / 1e9:.0f} GB/s; least {MOST_MS}), rows "
        + ", ".join(f"{rows}: x{longer[rows]:.2f} (least {most})" for rows, most in MOST_LONGER.items())
    )
    return Found({"read": read, "found": found}, words, met)


def experts(folder: Path) -> Found:
    """Rows times the experts they chose, one launch a projection."""
    from tests.benchmarks import gpu_experts

    wrong, found = gpu_experts.run(folder)
    shown = "; ".join(
        f"{name} " + ", ".join(f"{r}: {t * 1e6:.1f} us" for r, t in times.items()) for name, times in found.items()
    )
    return Found({"wrong": wrong, "seconds": found}, f"{len(wrong)} differ {wrong}; {shown}", not wrong)


def between(folder: Path) -> Found:
    """What is between the products: Triton's kernels."""
    from tests.benchmarks import gpu_between

    failed = gpu_between.check()
    found = gpu_between.measure()
    words = f"{len(failed)} checks failed {failed}; one row: " + ", ".join(
        f"{k} {v[1] * 1e6:.1f} us" for k, v in found.items()
    )
    return Found({"failed": failed, "seconds": found}, words, not failed)


def exactness(folder: Path) -> Found:
    """What exactness costs: our products against the best of many that may break it."""
    from tests.benchmarks import gpu_exactness
    from tests.benchmarks.gpu_figures import judged

    found, values, right = gpu_exactness.measure(folder, say)
    words, met = judged(values, gpu_exactness.BOUNDS)
    met = met and right and found["rivals"] >= gpu_exactness.LEAST_RIVALS
    words = f"{words}; {found['rivals']} rivals a shape{'' if right else ', which are WRONG'}"
    return Found(found | {"values": values}, words, met)


def kernels(name: str, folder: Path) -> Found:
    """One module of kernels: what its checks found, and its times, in the form and the unit that the module states."""
    module = import_module(f"tests.benchmarks.gpu_{name}")
    failed, found = (_called(call, folder) for call in (module.check, module.measure))
    unit = (module.measure.__doc__ or "").strip().splitlines()[0]
    words = f"{len(failed)} checks failed {failed}; {_count(found)} times: {unit}"
    return Found({"failed": failed, "times": _plain(found), "unit": unit}, words, not failed)


def _plain(found: Any) -> Any:
    """Figures whose keys are texts."""
    return {str(key): _plain(one) for key, one in found.items()} if isinstance(found, Mapping) else found


def _count(found: Any) -> int:
    return sum(map(_count, found.values())) if isinstance(found, Mapping) else 1


def _called(call: Callable[..., Any], folder: Path) -> Any:
    return call(folder) if signature(call).parameters else call()


def model(name: str, folder: Path) -> Found:
    """One model of true geometry, one stream."""
    from tests.benchmarks import gpu_compile, gpu_model, gpu_profile
    from tests.benchmarks.gpu_planting import Wanted, headless, timed, true

    until = time.monotonic() + _MODEL_S
    gpu_compile.compile_all(folder, say, [name])
    wanted = Wanted(context=max(gpu_model.PROMPTS) + 1024)
    with true(name, wanted, folder, say) as loaded:
        say(f"-- loaded: {_MODEL_S + time.monotonic() - until:.1f} s")
        profile = partial(gpu_profile.profile, loaded, say)
        plain = headless(loaded) if loaded.limits.head is not None else None
        made = gpu_model.measure(loaded, name, timed, say, until=until, profile=profile, plain=plain)
        return _measured(made, loaded, gpu_model.BOUNDS[name])


def serving(name: str, folder: Path) -> Found:
    """One model of true geometry, many streams, and over HTTP."""
    from tests.benchmarks import gpu_compile, gpu_serving
    from tests.benchmarks.gpu_planting import Wanted, true

    until = time.monotonic() + _MODEL_S
    gpu_compile.compile_all(folder, say, [name])
    wanted = Wanted(streams=max(gpu_serving.STREAMS), context=2048, head=False)
    with true(name, wanted, folder, say) as loaded:
        say(f"-- loaded: {_MODEL_S + time.monotonic() - until:.1f} s")
        made = gpu_serving.measure(loaded, say, until=until)
        return _measured(made, loaded, gpu_serving.BOUNDS[name])


def _measured(made: Any, loaded: Any, bounds: Any) -> Found:
    """What was measured of a loaded model, against what is asked of it; a step that failed misses."""
    from tests.benchmarks.gpu_figures import judged

    title, notes = loaded.identity.name, loaded.limits.notes
    words, met = judged(made.values, bounds)
    figures = made.parts | {"values": made.values, "model": title, "notes": list(notes), "compared": made.compared}
    failed = f"; FAILED: {', '.join(made.failed)}" if made.failed else ""
    noted = f"; {' '.join(notes)}" if notes else ""
    return Found(
        figures | {"failed": made.failed},
        f"{title}: {words}; {made.compared} tokens compared{noted}{failed}",
        met and not made.differences and not made.failed,
    )


def compiled(folder: Path) -> Found:
    """Kernels of the three models, so that what is timed afterwards loads fast."""
    from tests.benchmarks import gpu_compile

    found = gpu_compile.compile_all(folder, say)
    words = ", ".join(f"{name} {took if isinstance(took, str) else f'{took:.0f} s'}" for name, took in found.items())
    failed = any(isinstance(took, str) for took in found.values())
    return Found({"seconds": found}, f"compiled side by side: {words or 'nothing was left to compile'}", not failed)


def memory(folder: Path) -> Found:
    """The startup estimate against what is held, each model in a process of its own; refusals and starts."""
    from tests.benchmarks import gpu_compile, gpu_memory, gpu_memory_start
    from tests.benchmarks.gpu_beside import FailedError, beside
    from tests.benchmarks.gpu_figures import judged

    gpu_compile.compile_all(folder, say)
    found: dict[str, Any] = {"record": RECORD_OFF}
    words, met = [], True
    for name in NAMES:
        for _, one in beside(gpu_memory.measure, [(name, str(folder))], _MEASURE_S):
            if isinstance(one, FailedError):
                say(f"{name} failed: {one}")
                words.append(f"{name} FAILED: {str(one).strip().splitlines()[-1]}")
                met = False
                continue
            found[name] = one
            judgement, enough = judged(one["values"], gpu_memory.BOUNDS)
            words.append(f"{name}: {judgement}, default {_default(one)}")
            met = met and enough
    with tempfile.TemporaryDirectory(prefix="tensorfold-gpu-") as home:
        started = gpu_memory_start.starts(Path(home), "cuda")
    found["starts"] = asdict(started)
    say(f"starts: {asdict(started)}")
    words.append(
        f"a refused window names {started.fits}, which {'serves' if started.replied else 'does NOT serve'}"
        + "".join(f"; {lack}" for lack in started.lacks)
    )
    return Found(found, "; ".join(words), met and started.replied and not started.lacks)


def _default(found: Mapping[str, Any]) -> str:
    return f"{found['windows']['default']} of {found['native']} tokens, 0 {found['windows']['0']}"


def verify(folder: Path) -> Found:
    """`tensorfold verify` and `tensorfold serve` on tiny checkpoints of the three families."""
    from tests.benchmarks import gpu_verify

    with tempfile.TemporaryDirectory(prefix="tensorfold-gpu-") as home:
        found = gpu_verify.verify_all(Path(home), "cuda")
    for family, one in found.items():
        say(f"{family}: {asdict(one)}")
    words = "; ".join(
        f"{family} {'passes' if one.holds else 'FAILED'}: {one.compared} tokens, {one.differences} differences, "
        f"{one.replies} replies over HTTP, {one.unequal} unequal"
        for family, one in found.items()
    )
    state = {"record": "on while proving, off while serving, temporary folders"}
    figures: dict[str, Any] = {name: asdict(one) for name, one in found.items()} | state
    return Found(figures, words, all(one.holds for one in found.values()))


def proof_tiny(folder: Path) -> Found:
    """Tiny checkpoints of the three families, planted faults, and rounds without graphs."""
    from tests.benchmarks import gpu_proof_runs

    return _proof(gpu_proof_runs.tiny(folder, _SEED, LEAST_TINY, say), LEAST_TINY)


def proof_true(folder: Path) -> Found:
    """The models of true geometry."""
    from tests.benchmarks import gpu_compile, gpu_proof_runs

    gpu_compile.compile_all(folder, say)
    return _proof(gpu_proof_runs.true_geometry(folder, _SEED, LEAST_TRUE, say), LEAST_TRUE)


def _proof(outcome: Any, least: int) -> Found:
    return Found(outcome.figures(), outcome.words(least), outcome.passed(least))


TOGETHER = (("check", "compile", "verify"), ("proof-tiny", "proof-true"))
"""Parts none of whose figures is a time: they run side by side where all are run."""
PARTS: dict[str, Part] = {
    "ceilings": ceilings,
    "check": check,
    "compile": compiled,
    "verify": verify,
    "matmul": matmul,
    "experts": experts,
    "exactness": exactness,
    "between": between,
    **{name: partial(kernels, name) for name in KERNELS},
    **{name: partial(model, name) for name in NAMES},
    **{f"{name}-serving": partial(serving, name) for name in NAMES},
    "memory": memory,
    "proof-tiny": proof_tiny,
    "proof-true": proof_true,
}
