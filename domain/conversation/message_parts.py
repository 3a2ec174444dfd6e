"""The text of a message's content, and the error that names a field. Pure; the served models read text alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXT_PARTS = ("text", "input_text", "output_text")
MEDIA_PARTS = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "input_audio": "audio",
    "audio_url": "audio",
    "video": "video",
    "video_url": "video",
    "input_video": "video",
    "file": "file",
    "input_file": "file",
}


class MessageError(Exception):
    """A message that cannot be rendered; `path` is its field such as `messages[1].content`, `message` one sentence."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


def text_of(content: Any, path: str) -> str:
    """Text of a content that is a string, null (empty) or a list of text parts, joined in order.

    Raises MessageError naming the part that is not text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise MessageError(path, f"{path} must be a string, null or a list of content parts.")
    return "".join(_part_text(part, f"{path}[{index}]") for index, part in enumerate(content))


def _part_text(part: Any, path: str) -> str:
    if not isinstance(part, Mapping):
        raise MessageError(path, f"{path} must be an object with a type.")
    kind = part.get("type")
    if isinstance(kind, str) and kind in MEDIA_PARTS:
        raise MessageError(path, f"{path} is {_article(MEDIA_PARTS[kind])} part, but this model reads text only.")
    if not isinstance(kind, str) or kind not in TEXT_PARTS:
        raise MessageError(path, f"{path}.type must be one of {', '.join(TEXT_PARTS)}.")
    text = part.get("text")
    if not isinstance(text, str):
        raise MessageError(f"{path}.text", f"{path}.text must be a string.")
    return text


def _article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aei" else f"a {noun}"
