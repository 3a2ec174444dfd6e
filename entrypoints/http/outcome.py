"""How a reply ended and what of it a client asked to see. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensorfold.application.text_replies import ReplyDone

Ending = Literal["done", "failed", "cut", "left"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`done`: whole. `failed`: an error. `cut`: the server ended it. `left`: its client did.

    `reply` is the id that the client was given; empty where no reply was begun.
    """

    ending: Ending
    done: ReplyDone | None = None
    reply: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """What the client asked to see: the usage after the finish, in every chunk, the token ids."""

    engine: str
    usage_last: bool = False
    usage_in_every_chunk: bool = False
    token_ids: bool = False
