"""What a chat template can take, as facts learned once from probes. A value; knows no template language.

Normalisation bends a conversation only where a fact here says that the template would refuse or lose it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TemplateTraits:
    """Facts about one template; the defaults describe a template that takes everything.

    `takes_tools`: a tool's name reaches the prompt. `late_system`: a system message behind the first user turn reaches
    the prompt. `user_runs`: two user messages in a row render. `null_content`: an assistant turn with tool calls and a
    null content renders without the null being written out. `efforts` are the levels of `reasoning_effort` that the
    template names, in rising order; none where it does not read the variable. `tool_calls` names the dialect in which
    the template writes a call, `thought_close` is the mark with which it closes a thought; empty where it is not known.
    """

    takes_tools: bool = True
    late_system: bool = True
    user_runs: bool = True
    null_content: bool = True
    efforts: tuple[str, ...] = ()
    tool_calls: str = ""
    thought_close: str = ""
