"""The forms that tests ask replies of, as users of OpenAI's client write them: pydantic's models, tools, a schema.

The client's server is a hash model steered to end, so that a form is what decides a reply.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import openai
from pydantic import BaseModel, TypeAdapter

from tensorfold.adapters.grammar.compiler import GuidanceCompiler
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.families.plans import Dialect
from tests.end_to_end.hash_server import hash_server
from tests.fakes.chunky_model import ChunkyModel
from tests.fakes.steered import PieceTokenizer, steered
from tests.fakes.tokenizer import SPECIALS

TOKENIZER = PieceTokenizer(specials=SPECIALS[:-1])


class Place(BaseModel):
    """A part of an answer."""

    city: str
    floor: int | None


class Answer(BaseModel):
    """A reply that a schema holds."""

    kind: Literal["file", "folder"]
    found: bool
    places: list[Place]


class FindFiles(BaseModel):
    """Arguments of a tool."""

    pattern: str
    limit: int = 5
    deep: bool | None = None


TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "find_files", "parameters": FindFiles.model_json_schema()}},
    {"type": "function", "function": {"name": "now"}},
]
ARGUMENTS: dict[str, TypeAdapter[Any]] = {"find_files": TypeAdapter(FindFiles), "now": TypeAdapter(dict[str, None])}
NAMED: Any = {"type": "function", "function": {"name": "find_files"}}
SCHEMA: Any = {
    "type": "json_schema",
    "json_schema": {"name": "Answer", "schema": Answer.model_json_schema() | {"additionalProperties": False}},
}


@contextmanager
def client_of(dialect: str = "json", keeps: int = 0) -> Iterator[openai.OpenAI]:
    """OpenAI's client of a server that keeps so many bytes of prompts' states; its model notices where they are cut."""
    model = ChunkyModel(steered(TOKENIZER, 7), prefill_slice=0, max_streams=8, max_lanes=8)
    grammars = GuidanceCompiler(TOKENIZER, frozenset({TOKENIZER.end_id}))
    with (
        hash_server(
            model, EngineSettings(parallel=4), tokenizer=TOKENIZER, context=16_384, max_tokens=1500, grammars=grammars,
            dialect=Dialect(tool_calls=dialect), keeps=keeps,
        ) as place,
        openai.OpenAI(
            base_url=f"http://127.0.0.1:{place.port}/v1", api_key="none", max_retries=0, timeout=60
        ) as client,
    ):  # fmt: skip
        yield client
