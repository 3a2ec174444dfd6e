"""Loads and renders every bad template in a process of its own, then prints what came of it as one line of JSON.

Apart from pytest's process, so that the largest child it ever had is a renderer.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tensorfold.adapters.tokenization.render_limits import MIB, RenderLimits
from tensorfold.adapters.tokenization.template import load_template
from tensorfold.application.ports.tokenizer import TemplateError
from tests.adapters.tokenization.bad_templates import CASES, ENDLESS
from tests.adapters.tokenization.processes import children

LIMITS = RenderLimits(memory_bytes=128 * MIB, output_bytes=1 * MIB, seconds=20.0)
BRIEF = replace(LIMITS, seconds=2.0)
"""For the cases that take all the time there is; the others must be refused for what they do on a busy machine too."""
MESSAGES = ({"role": "user", "content": "hello"},)


def outcome(source: str, folder: Path, limits: RenderLimits) -> str:
    """The refusal's sentence, or what was rendered after all."""
    (folder / "chat_template.jinja").write_text(source)
    try:
        template = load_template(folder, limits)
    except TemplateError as refusal:
        return f"refused: {refusal.message}"
    try:
        return f"rendered: {template.render(MESSAGES).text[:100]}"
    except TemplateError as refusal:
        return f"refused: {refusal.message}"
    finally:
        template.close()


def main() -> None:
    """Print `{"outcomes": {name: text}, "peak_bytes": largest child, "left": processes left}`."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = {name: outcome(source, Path(folder), BRIEF if name in ENDLESS else LIMITS) for name, source in CASES}
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    print(json.dumps({"outcomes": outcomes, "peak_bytes": peak, "left": sorted(children(os.getpid()))}))


if __name__ == "__main__":
    main()
