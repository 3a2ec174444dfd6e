"""Special tokens and chat templates that a checkpoint states, and which of its files the template comes from.

`chat_template.jinja` wins over the `chat_template` of tokenizer_config.json, which is one template or a list of named
ones. Nothing here compiles or renders: the sources are hostile text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorfold.adapters.tokenization.checkpoint_files import MIB, read_object, read_text
from tensorfold.application.ports.checkpoints import RefusedError

CONFIG_NAME = "tokenizer_config.json"
TEMPLATE_NAME = "chat_template.jinja"
CONFIG_LIMIT = 16 * MIB
TEMPLATE_LIMIT = 1 * MIB
DEFAULT = "default"
WITH_TOOLS = "tool_use"


@dataclass(frozen=True, slots=True)
class TokenizerConfig:
    """What the files say. `source` names the file of the templates, or is `none`.

    `variables` are the special tokens by name (`bos_token`, `eos_token`, ...), as templates read them. `templates` maps
    a name to a source: "default", and "tool_use" when the checkpoint has another template for requests with tools.
    """

    variables: Mapping[str, Any]
    templates: Mapping[str, str]
    source: str


def read_tokenizer_config(folder: Path) -> TokenizerConfig:
    """The configuration of a checkpoint folder; absent files say nothing. Raises RefusedError."""
    path = folder / CONFIG_NAME
    config = read_object(path, CONFIG_LIMIT) or {}
    variables = _special_tokens(config)
    jinja = read_text(folder / TEMPLATE_NAME, TEMPLATE_LIMIT)
    if jinja is not None:
        return TokenizerConfig(variables, {DEFAULT: jinja}, TEMPLATE_NAME)
    templates = _templates(config.get("chat_template"), path)
    return TokenizerConfig(variables, templates, CONFIG_NAME if templates else "none")


def _special_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    """Every `*_token` that is a text, or an object with its text as `content`, and the list of additional ones."""
    tokens = {key: _token_text(value) for key, value in config.items() if key.endswith("_token")}
    named: dict[str, Any] = {key: text for key, text in tokens.items() if text is not None}
    additional = config.get("additional_special_tokens")
    if isinstance(additional, list):
        named["additional_special_tokens"] = [text for value in additional if (text := _token_text(value)) is not None]
    return named


def _token_text(value: Any) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _templates(stated: Any, path: Path) -> dict[str, str]:
    if stated is None:
        return {}
    if isinstance(stated, str):
        return {DEFAULT: _bounded(stated, path)}
    named: dict[str, str] = {}
    for entry in stated if isinstance(stated, list) else [None]:
        match entry:
            case {"name": str(name), "template": str(template)}:
                named[name] = _bounded(template, path)
            case _:
                raise RefusedError(f"chat_template in {path} is neither a text nor a list of named templates.")
    if len(named) == 1:
        return {DEFAULT: next(iter(named.values()))}
    if named and DEFAULT not in named:
        raise RefusedError(f"chat_template in {path} names {len(named)} templates, but none of them {DEFAULT!r}.")
    return {name: template for name, template in named.items() if name in (DEFAULT, WITH_TOOLS)}


def _bounded(template: str, path: Path) -> str:
    if len(template) > TEMPLATE_LIMIT:
        raise RefusedError(f"chat_template in {path} is longer than {TEMPLATE_LIMIT // MIB} Mi characters.")
    return template
