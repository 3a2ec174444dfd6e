"""The body of a chat request: a conversation, its tools and how the template renders it.

The messages themselves are read by the application, which knows roles and parts; here they are a list of objects.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from tensorfold.application.orders import ChatOrder
from tensorfold.entrypoints.http.background import is_title_request
from tensorfold.entrypoints.http.fields import Flag, not_supported, only, read, refuse
from tensorfold.entrypoints.http.generation_fields import GenerationFields
from tensorfold.entrypoints.http.thinking import read_effort, read_template_arguments, template_variables
from tensorfold.entrypoints.http.tools import check_tool_choice, chosen_name, read_tool_choice, read_tools


def _messages(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise refuse("must be a list of at least one message")
    for index, message in enumerate(value):
        if not isinstance(message, dict):
            raise refuse("must be an object with a role and content", at=(index,))
    return value


def _legacy(value: Any) -> None:
    if value not in (None, [], "none", "auto"):
        raise not_supported("is the older form of tool calling; send tools and tool_choice")


class ChatRequest(GenerationFields):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[dict[str, Any]], read(_messages), Field(validate_default=True)] = Field(
        default_factory=list
    )
    tools: Annotated[list[dict[str, Any]], read(read_tools)] = Field(default_factory=list)
    tool_choice: Annotated[Any, read(read_tool_choice)] = "auto"
    parallel_tool_calls: Flag = None
    functions: Annotated[None, read(_legacy)] = None
    function_call: Annotated[None, read(_legacy)] = None
    reasoning_effort: Annotated[str | None, read(read_effort)] = None
    chat_template_kwargs: Annotated[dict[str, Any], read(read_template_arguments)] = Field(default_factory=dict)
    echo: Annotated[Flag, only(False, what="the prompt in the reply")] = None

    @model_validator(mode="after")
    def _choice_fits_tools(self) -> ChatRequest:
        check_tool_choice(self.tool_choice, self.tools)
        return self

    @property
    def in_background(self) -> bool:
        """As its priority says, or because it only asks for a title."""
        return super().in_background if self.priority is not None else is_title_request(self.messages, self.tools)

    def order(self, label: str, *, as_text: bool = False) -> ChatOrder:
        """The application's view; `label` names the key that asked, `as_text` wants the reply as it is written."""
        tools = None if self.tool_choice == "none" or not self.tools else self.tools
        return ChatOrder(
            messages=self.messages,
            tools=tools,
            template_variables=template_variables(self.chat_template_kwargs, self.reasoning_effort),
            options=self.options(label=label),
            one_call=self.parallel_tool_calls is False,
            as_text=as_text,
            must_call=self.tool_choice not in ("auto", "none"),
            call_name=chosen_name(self.tool_choice),
        )
