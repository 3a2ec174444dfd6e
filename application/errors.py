"""Refusals a client can cause, as values an entry point can turn into its own form. Messages are ours alone."""

from __future__ import annotations


class RequestError(Exception):
    """A request that is refused; `param` names the field, `code` is OpenAI's code or None. HTTP 400."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class ContextExceededError(RequestError):
    """The prompt, or prompt and explicit reply limit, do not fit the window.

    `param` names what the prompt came in, whichever of the two is too large, as OpenAI's chat API has it.
    Where a shorter reply would fit, the message says to lower `reply_param`, the field of the reply limit.
    """

    def __init__(
        self, *, prompt: int, reply: int | None, limit: int, param: str, reply_param: str = "max_tokens"
    ) -> None:
        asked = prompt + (reply or 1)
        parts = f"{prompt} in the {param}" + (f", {reply} in the completion" if reply else "")
        largest = limit - prompt
        hint = (
            f"The largest reply that fits this prompt is {largest} tokens; lower `{reply_param}`."
            if largest > 0
            else f"Shorten the {param} to at most {limit - 1} tokens."
        )
        super().__init__(
            f"This model's maximum context length is {limit} tokens. However, you requested {asked} tokens ({parts}). "
            f"{hint} `--context` sets the window at startup.",
            param=param,
            code="context_length_exceeded",
        )
        self.prompt, self.reply, self.limit = prompt, reply, limit


class OverloadedError(Exception):
    """The queue is full or the server is ending; try again after `retry_after` seconds. HTTP 503."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after
