"""What the routes call, as Protocols, and the place where a server that is still loading will find it.

The socket is open before the model is loaded, so the services arrive later than the routes: until then every route
that needs one answers 503.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tensorfold.application.health import Health
from tensorfold.application.measures import Measures
from tensorfold.application.orders import ChatOrder, CompletionOrder
from tensorfold.application.recall import RecallReport
from tensorfold.application.text_replies import ReplyEvent
from tensorfold.entrypoints.http.errors import ApiError, overloaded

LOADING_RETRY_S = 5


class Reply(Protocol):
    """A running reply, pulled by one reader."""

    @property
    def id(self) -> str:
        """Hex digits that name the reply."""
        ...

    @property
    def created(self) -> int:
        """Unix seconds of its start."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Ids of the prompt."""
        ...

    @property
    def greedy(self) -> bool:
        """Whether every token is the plain argmax."""
        ...

    @property
    def drafts(self) -> bool:
        """Whether the request allowed drafts."""
        ...

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Ids landed so far."""
        ...

    def next(self, timeout: float) -> ReplyEvent | None:
        """The next event, or None when `timeout` seconds brought none."""
        ...

    def listen(self, heard: Callable[[], None]) -> None:
        """Call `heard` after every event from now on, and once now, on whatever thread makes events."""
        ...

    def cancel(self) -> None:
        """End the request; harmless at any time, any number of times."""
        ...


class ChatService(Protocol):
    """Starts replies of one served model."""

    @property
    def model_names(self) -> tuple[str, ...]:
        """The served name, then its aliases."""
        ...

    @property
    def context(self) -> int:
        """Tokens that prompt and reply may take together."""
        ...

    def chat(self, order: ChatOrder) -> Reply:
        """Start a chat reply. Raises RequestError or OverloadedError before anything runs."""
        ...

    def complete(self, order: CompletionOrder) -> Reply:
        """Start a raw completion. Raises RequestError or OverloadedError before anything runs."""
        ...


class HealthService(Protocol):
    """Reports on the engine without waiting for it."""

    def report(self) -> Health:
        """Status and figures."""
        ...


class MeasureService(Protocol):
    """What is measured of the engine and its replies."""

    def read(self) -> Measures:
        """One reading; waits for nobody."""
        ...


class RecallService(Protocol):
    """The record of ids: how it stands, and how it is emptied."""

    def report(self) -> RecallReport:
        """Figures; waits for nobody."""
        ...

    def delete(self) -> RecallReport:
        """Empty it, waiting for its writer. Raises RecallConflictError or RecallDeleteError."""
        ...


class Services:
    """Filled as the server starts, each service once; read by every request. `recall` says whether to expect one."""

    def __init__(self, version: str, *, recall: bool = False) -> None:
        self._version = version
        self._expects_recall = recall
        self._recall: RecallService | None = None
        self._chat: ChatService | None = None
        self._facts: ModelFacts | None = None
        self.health: HealthService | None = None
        self.measures: MeasureService | None = None

    def install_recall(self, recall: RecallService) -> None:
        """From here on the record is shown; it is opened before the model is loaded."""
        self._recall = recall

    def install(
        self, chat: ChatService, health: HealthService, engine: str, measures: MeasureService | None = None
    ) -> None:
        """From here on requests are served. `engine` names what computes the replies."""
        self._facts = ModelFacts(tuple(chat.model_names), engine, self._version)
        self._chat = chat
        self.health = health
        self.measures = measures

    @property
    def recall(self) -> RecallService | None:
        """The record's service, None without one. Raises ApiError (503) while a record is asked for and not open."""
        if self._recall is None and self._expects_recall:
            raise _loading("The record is not open yet; it is before the model's weights are read.")
        return self._recall

    @property
    def opened_recall(self) -> RecallService | None:
        """The record's service once there is one."""
        return self._recall

    @property
    def chat(self) -> ChatService:
        """The chat service. Raises ApiError (503) while the model is loading."""
        if self._chat is None:
            raise _loading()
        return self._chat

    @property
    def facts(self) -> ModelFacts:
        """What is served. Raises ApiError (503) while the model is loading."""
        if self._facts is None:
            raise _loading()
        return self._facts


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Names the served model answers to, the served one first, and what computes its replies."""

    names: tuple[str, ...]
    engine: str
    version: str

    def shown(self, asked: str | None) -> str:
        """The name a reply shows: the one asked for when it is served, else the served name."""
        return asked if asked is not None and asked in self.names else self.names[0]

    @property
    def fingerprint(self) -> str:
        """Changes whenever replies may: model, engine and version."""
        text = "\n".join((self.names[0], self.engine, self.version))
        return "fp_" + hashlib.sha256(text.encode()).hexdigest()[:12]


def _loading(message: str = "The model is still loading; `/health` turns 200 when it is ready.") -> ApiError:
    return overloaded(message, LOADING_RETRY_S)
