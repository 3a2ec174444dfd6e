"""`POST /v1/chat/completions`, streamed or whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import falcon

from tensorfold.entrypoints.http.chat_request import ChatRequest
from tensorfold.entrypoints.http.desk import Desk, Shape, Start
from tensorfold.entrypoints.http.frames import ChatFrames
from tensorfold.entrypoints.http.refusals import read_request
from tensorfold.entrypoints.http.reply_body import chat_body

CHAT = Shape("chatcmpl-", "chat.completion", "chat.completion.chunk", ChatFrames, chat_body)


def read_chat(body: Mapping[str, Any], label: str, *, as_text: bool = False) -> tuple[ChatRequest, Start]:
    """A chat request and what starts it; `as_text` leaves reasoning and calls in the text, for a shape without them."""
    request = read_request(ChatRequest, body)
    order = request.order(label, as_text=as_text)
    return request, lambda chat: chat.chat(order)


class ChatCompletions:
    """Continues a conversation."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The assistant's next message."""
        self._desk.serve(req, resp, read_chat, CHAT)
