"""`tensorfold verify MODEL`: prove on this machine that drafts, neighbours and cancellations change no token."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.services import GrammarCompiler
from tensorfold.application.ports.tokenizer import Tokenizer
from tensorfold.application.proof import Report, Row
from tensorfold.application.proving import Prover
from tensorfold.application.proving_prompts import MakeShelf
from tensorfold.application.proving_record import RecordUnderProof
from tensorfold.application.scheduler import Scheduler
from tensorfold.domain.recall.policy import OfferSettings
from tensorfold.entrypoints.cli.choosing import run_with_backend
from tensorfold.entrypoints.cli.lines import put, say
from tensorfold.entrypoints.cli.opening import Say, check, loading_line, report_lines, schedule
from tensorfold.entrypoints.cli.prompt_keeping import shelves
from tensorfold.entrypoints.cli.record import records_below


def verify(flags: argparse.Namespace) -> int:
    """Run the proof; 0 when everything was equal and enough was seen, else 1."""
    began = time.monotonic()
    quiet = (lambda line: None) if flags.json else say
    settings, container = run_with_backend(flags, os.environ)
    checked = check(settings, container, quiet)
    quiet(loading_line(checked))
    with tempfile.TemporaryDirectory(prefix="tensorfold-verify-") as folder:
        record = RecordUnderProof(records_below(Path(folder), checked, container, quiet, OfferSettings(eager=True)))
        scheduler = schedule(
            checked, settings, container, quiet, force_windows=True, more_sources=(record,), recorder=record
        )
        scheduler.start()
        try:
            scheduler.wait_ready()
            notes = report_lines(checked, scheduler, settings.engine)
            for line in notes:
                quiet(line)
            # States that stay on the device are never on the disk.
            on_disk = scheduler.engine.model.limits.resume == "chunk"
            shelf = shelves(Path(folder) / "states", checked, scheduler, container, quiet) if on_disk else None
            ends = checked.described.stop_ids
            grammars = container.grammars(checked.tokenizer, ends) if ends else None
            report = prove(scheduler, checked.tokenizer, quiet, flags.seed, record, shelf, grammars)
        finally:
            scheduler.stop(10.0)
            record.rest()
    seconds = time.monotonic() - began
    if flags.json:
        put(json.dumps(_object(checked.name, report, seconds, notes)))
    else:
        _show(checked.name, report, seconds)
    return 0 if report.passed else 1


def prove(
    scheduler: Scheduler,
    tokenizer: Tokenizer,
    quiet: Say,
    seed: int,
    record: RecordUnderProof | None = None,
    shelf: MakeShelf | None = None,
    grammars: GrammarCompiler | None = None,
) -> Report:
    """The proof's report. Raises RefusedError when the serial reference itself could not be made."""
    try:
        prover = Prover(scheduler, tokenizer, quiet, seed=seed, record=record, shelf=shelf, grammars=grammars)
        return prover.run()
    except RuntimeError as failure:
        raise RefusedError(f"the serial reference could not be made: {failure}") from None


def _show(name: str, report: Report, seconds: float) -> None:
    put()
    heads = f"{'mode':28} {'tokens':>7} {'differ':>7} {'kept':>6} {'refused':>8} {'stops inside':>13}"
    put(f"{heads}  drafts kept/verified by source")
    for row in report.rows:
        put(_line(row))
    for reason in report.reasons:
        put(f"  - {reason}")
    verdict = "equal" if report.passed else "FAILED"
    put(
        f"{name}: {verdict}, {report.compared} tokens compared, {report.differences} differences, "
        f"{len(report.rows)} modes, {seconds:.0f} s"
    )


def _line(row: Row) -> str:
    sources = ", ".join(f"{name} {kept}/{drafted}" for name, (drafted, kept) in sorted(row.drafts.items())) or "none"
    return (
        f"{row.mode:28} {row.compared:7} {row.differences:7} {row.kept:6} {row.refused:8} "
        f"{row.tally.stops_inside:13}  {sources}"
    )


def _object(name: str, report: Report, seconds: float, notes: Sequence[str]) -> dict[str, Any]:
    return {
        "model": name,
        "passed": report.passed,
        "compared": report.compared,
        "differences": report.differences,
        "seconds": round(seconds, 1),
        "reasons": list(report.reasons),
        "notes": list(notes),
        "modes": [_row_object(row) for row in report.rows],
    }


def _row_object(row: Row) -> dict[str, Any]:
    first = row.first
    return {
        "mode": row.mode,
        "compared": row.compared,
        "differences": row.differences,
        "kept": row.kept,
        "refused": row.refused,
        "partial_keeps": {str(k): n for k, n in sorted(row.tally.partial.items())},
        "stops_inside": row.tally.stops_inside,
        "copied": None if row.copies is None else {"landed": row.copies.landed, "missed": row.copies.missed},
        "resumed": row.resumed,
        "sources": {n: {"drafted": d, "kept": k} for n, (d, k) in sorted(row.drafts.items())},
        "first_difference": None
        if first is None
        else {
            "prompt": first.case,
            "position": first.position,
            "expected": first.expected,
            "got": first.got,
            "bits_only": first.bits,
        },
    }
