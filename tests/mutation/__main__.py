"""`make mutate`: how many planted faults the tests notice, in the modules that decide tokens.

Each mutant runs in a forked child that imports the mutated module in place of the real one and then runs that module's
own tests, quick ones first, until the first failure. A child that takes far more processor time than the tests do is
ended by the system, which counts as noticed. Survivors are listed; those with a reason in survivors.txt are accepted
but still counted as survivors.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tests.mutation.mutants import Mutant, functions, mutants

ROOT = Path(__file__).resolve().parents[2]
LEAST_MUTANTS = 500
LEAST_KILLED = 0.95
TESTS = "tests/domain"
PYTEST = ("-x", "-q", "-p", "no:xdist", "-p", "no:cov", "-p", "no:hypothesispytest", "--no-header", "--assert=plain")
GATES = (f"{TESTS}/gates/test_constraint.py", f"{TESTS}/gates/test_gate_edges.py")
TARGETS: dict[str, tuple[str, ...]] = {
    "domain/windows.py": (f"{TESTS}/test_windows.py", f"{TESTS}/test_streams.py"),
    "domain/verification.py": (f"{TESTS}/test_verification.py", f"{TESTS}/test_streams_exactness.py"),
    "domain/streams.py": (f"{TESTS}/test_streams.py", f"{TESTS}/test_streams_exactness.py"),
    "domain/sampling.py": (
        f"{TESTS}/test_sampling_vectors.py",
        f"{TESTS}/test_sampling_rules.py",
        f"{TESTS}/test_sampling_shards.py",
        f"{TESTS}/test_sampling_statistics.py",
    ),
    "domain/shards.py": (f"{TESTS}/test_sampling_shards.py",),
    "domain/drafting/copy_index.py": (f"{TESTS}/drafting/test_copy_index.py", f"{TESTS}/drafting/test_copies.py"),
    "domain/drafting/copies.py": (f"{TESTS}/drafting/test_copies.py",),
    "domain/drafting/landing.py": (f"{TESTS}/drafting/test_landing.py", f"{TESTS}/drafting/test_copies.py"),
    "domain/prompts/chunks.py": (f"{TESTS}/prompts/test_chunks.py", f"{TESTS}/prompts/test_plans.py"),
    "domain/prompts/checkpoints.py": (f"{TESTS}/prompts/test_plans.py",),
    "domain/prompts/family_chunk.py": (f"{TESTS}/prompts/test_family_chunk.py",),
    "domain/gates/constraint.py": GATES,
    "domain/gates/thinking_budget.py": GATES,
    "domain/gates/thought_end.py": GATES,
    "domain/memory/gate.py": (f"{TESTS}/memory/test_gate_edges.py", f"{TESTS}/memory/test_gate.py"),
    "domain/scheduling/credit.py": (f"{TESTS}/scheduling/test_credit.py",),
    "domain/scheduling/fills.py": (f"{TESTS}/scheduling/test_fills.py",),
    "domain/scheduling/queue.py": (f"{TESTS}/scheduling/test_queue.py",),
}


@dataclass(frozen=True, slots=True)
class Job:
    """A mutant with the tests that should notice it."""

    mutant: Mutant
    tests: tuple[str, ...]
    limit_s: int


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from a mutated source."""

    def __init__(self, name: str, source: str, origin: Path) -> None:
        self.name, self.source, self.origin = name, source, origin

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=str(self.origin))

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.source, str(self.origin), "exec"), module.__dict__)


def import_name(path: str) -> str:
    """`domain/windows.py` as it is imported."""
    return "tensorfold." + path.removesuffix(".py").replace("/", ".")


def run_tests(tests: Sequence[str], mutant: Mutant | None) -> int:
    """In a child: pytest's exit code with the mutant in place; 0 means that nothing was noticed."""
    import pytest
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        "mutation",
        phases=(Phase.explicit, Phase.generate),  # a failure is enough: nobody reads the smallest example of it
        suppress_health_check=[HealthCheck.too_slow],  # a busy machine must not pass for a noticed fault
        report_multiple_bugs=False,
        database=None,
    )
    settings.load_profile("mutation")
    if mutant is not None:
        sys.meta_path.insert(0, _Mutated(import_name(mutant.module), mutant.source, ROOT / mutant.module))
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        return int(pytest.main([*PYTEST, *tests]))


def in_child(tests: Sequence[str], mutant: Mutant | None, limit_s: int) -> tuple[int, float]:
    """Fork, run, wait: (exit code, processor seconds); the code is negative when the child went past its limit."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
            code = run_tests(tests, mutant)
        finally:
            os._exit(code if 0 <= code < 256 else 99)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def work(job: Job) -> tuple[Mutant, bool]:
    """Whether a mutant was noticed."""
    code, _ = in_child(job.tests, job.mutant, job.limit_s)
    return job.mutant, code != 0


def jobs(paths: Sequence[str]) -> list[Job]:
    """Every mutant of the targets. Raises when the tests fail without a mutant, or a function has no mutant."""
    made = []
    for path in paths:
        tests = TARGETS[path]
        code, seconds = in_child(tests, None, 300)
        if code != 0:
            raise SystemExit(f"{path}: its tests fail (exit {code}) before anything is mutated")
        source = (ROOT / path).read_text()
        found = list(mutants(path, source))
        every = functions(source)
        bare = sorted(set(every) - {m.function for m in found})
        if bare:
            raise SystemExit(f"{path}: nothing to mutate in {bare}")
        print(f"{path}: {len(found)} mutants of {len(every)} functions, tests take {seconds:.1f} s", flush=True)
        made += [Job(mutant, tests, 3 + int(4 * seconds)) for mutant in found]
    return made


def share(killed: int, of: int) -> str:
    """`97 of 100 killed (97.0%)`."""
    return f"{killed} of {of} killed ({100 * killed / max(of, 1):.1f}%)"


def reasons() -> dict[str, str]:
    """Accepted survivors by name."""
    listed = {}
    for line in (ROOT / "tests/mutation/survivors.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, reason = line.partition(" | ")
            listed[name.strip()] = reason.strip()
    return listed


def preload() -> None:
    """Import what every child needs, but nothing of the product, so that children start from warm modules."""
    for name in ("numpy", "pytest", "hypothesis", "hypothesis.strategies", "hypothesis.extra.numpy", "fractions"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    parser.add_argument("--processes", type=int, default=2)
    flags = parser.parse_args()
    os.chdir(ROOT)
    began = time.monotonic()
    preload()
    todo = jobs(flags.target or list(TARGETS))
    survivors: list[Mutant] = []
    with multiprocessing.get_context("fork").Pool(flags.processes) as pool:
        for number, (mutant, noticed) in enumerate(pool.imap_unordered(work, todo), start=1):
            if not noticed:
                survivors.append(mutant)
            if number % 100 == 0:
                print(
                    f"  {number} of {len(todo)}, {len(survivors)} survive, {time.monotonic() - began:.0f} s", flush=True
                )
    known = reasons()
    print()
    for path in flags.target or TARGETS:
        alive = sorted((m for m in survivors if m.module == path), key=lambda m: m.line)
        total = sum(job.mutant.module == path for job in todo)
        print(f"{path}: {share(total - len(alive), total)}")
        for mutant in alive:
            print(f"  survives: {mutant.name} (line {mutant.line}) | {known.get(mutant.name, 'NO REASON GIVEN')}")
    unexplained = [m for m in survivors if m.name not in known]
    planted = {job.mutant.module for job in todo}
    needless = [name for name in known if name.split(":")[0] in planted and name not in {m.name for m in survivors}]
    for name in needless:
        print(f"needs no reason any more: {name}")
    killed = 1.0 - len(survivors) / max(len(todo), 1)
    enough = len(todo) >= LEAST_MUTANTS or bool(flags.target)
    print(
        f"mutate: {len(todo)} mutants (at least {LEAST_MUTANTS}), {100 * killed:.1f}% killed (at least "
        f"{100 * LEAST_KILLED:.0f}%), {len(survivors)} survive, {len(unexplained)} of them without a reason, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 0 if enough and killed >= LEAST_KILLED and not unexplained else 1


if __name__ == "__main__":
    sys.exit(main())
