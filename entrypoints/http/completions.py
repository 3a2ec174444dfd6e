"""`POST /v1/completions`: a raw prompt, or a conversation answered in the same shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import falcon

from tensorfold.entrypoints.http.chat_completions import read_chat
from tensorfold.entrypoints.http.completion_request import CompletionRequest
from tensorfold.entrypoints.http.desk import Desk, Shape, Start
from tensorfold.entrypoints.http.frames import TextFrames
from tensorfold.entrypoints.http.generation_fields import GenerationFields
from tensorfold.entrypoints.http.refusals import read_request
from tensorfold.entrypoints.http.reply_body import text_body

TEXT = Shape("cmpl-", "text_completion", "text_completion", TextFrames, text_body)


def read_completion(body: Mapping[str, Any], label: str) -> tuple[GenerationFields, Start]:
    """A text completion and what starts it; with a non-empty `messages` the conversation is continued."""
    if body.get("messages"):
        return read_chat(body, label, as_text=True)
    request = read_request(CompletionRequest, body)
    order = request.order(label)
    return request, lambda chat: chat.complete(order)


class Completions:
    """Continues a text."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The text that follows the prompt."""
        self._desk.serve(req, resp, read_completion, TEXT)
