"""A checkpoint's chat template behind the ChatTemplate port, rendered in a process that can be stopped.

Templates see what their authors' host gives them: messages, tools, `add_generation_prompt`, the checkpoint's special
tokens by name, and a request's own variables, which may replace those tokens but nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorfold.adapters.tokenization.render_faults import RenderFaultError, sentence
from tensorfold.adapters.tokenization.render_limits import RenderLimits
from tensorfold.adapters.tokenization.renderer import Renderer
from tensorfold.adapters.tokenization.template_probes import learn_traits
from tensorfold.adapters.tokenization.tokenizer_config import (
    CONFIG_NAME,
    DEFAULT,
    TEMPLATE_NAME,
    WITH_TOOLS,
    TokenizerConfig,
    read_tokenizer_config,
)
from tensorfold.adapters.tokenization.well_formed import well_formed
from tensorfold.application.ports.tokenizer import ChatTemplate, RenderedChat, TemplateError
from tensorfold.domain.conversation.template_traits import TemplateTraits


class SandboxedTemplate:
    """The ChatTemplate port over a template that compiled and answered its probes. Safe to call from several threads.

    Raises TemplateError when the template does not compile, or is stopped at a limit by a probe; nothing is then left.
    """

    def __init__(self, config: TokenizerConfig, limits: RenderLimits) -> None:
        self._config = config
        self._limits = limits
        self._renderer = Renderer(config.templates, limits)
        try:
            self._renderer.start()
            self._traits = learn_traits(
                lambda messages, tools, variables: self._text(messages, tools, True, variables),
                tuple(config.templates.values()),
            )
        except RenderFaultError as fault:
            self._renderer.close()
            raise TemplateError(sentence(fault, config.source, limits)) from None

    @property
    def source(self) -> str:
        """The file the template came from."""
        return self._config.source

    @property
    def traits(self) -> TemplateTraits:
        """What the template takes, learned when it was loaded."""
        return self._traits

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> RenderedChat:
        """Text of a conversation, well formed. Raises TemplateError."""
        try:
            text = self._text(messages, tools, add_generation_prompt, variables or {})
        except RenderFaultError as fault:
            raise TemplateError(sentence(fault, self.source, self._limits)) from None
        return RenderedChat(well_formed(text))

    def close(self) -> None:
        """End the renderer's process; renderings after this fail."""
        self._renderer.close()

    def _text(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
    ) -> str:
        name = WITH_TOOLS if tools and WITH_TOOLS in self._config.templates else DEFAULT
        return self._renderer.render(
            name,
            {
                **self._config.variables,
                **variables,
                "messages": list(messages),
                "tools": list(tools) if tools else None,
                "documents": None,
                "add_generation_prompt": add_generation_prompt,
            },
        )


class AbsentTemplate:
    """The ChatTemplate port of a checkpoint without a template: it can only say so."""

    source = "none"
    traits = TemplateTraits(takes_tools=False)

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> RenderedChat:
        """Raises TemplateError."""
        raise TemplateError(
            f"{self._folder.name} has no chat template: neither {TEMPLATE_NAME} nor a chat_template in {CONFIG_NAME}; "
            "add one, or send a text to /v1/completions."
        )

    def close(self) -> None:
        """Nothing to end."""


def load_template(folder: Path, limits: RenderLimits | None = None) -> ChatTemplate:
    """The chat template of a checkpoint folder, compiled and probed.

    Raises RefusedError when a file cannot be read, TemplateError when the template cannot be used; one sentence both.
    """
    config = read_tokenizer_config(folder)
    if not config.templates:
        return AbsentTemplate(folder)
    return SandboxedTemplate(config, limits or RenderLimits())
