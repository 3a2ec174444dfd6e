"""More requests than lanes and places in the queue: the rest is refused at once and told when to come back."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from tensorfold.application.settings import EngineSettings
from tests.end_to_end.clients import Answer, Client, ask, get
from tests.end_to_end.hash_server import asked, hash_model, hash_server, until
from tests.fakes.faulty_model import Fault, FaultyModel


@dataclass
class Overflow:
    """What a full server did."""

    served: int = 0
    refused: int = 0
    due: int = 0
    wrong: list[str] = field(default_factory=list)

    def misses(self) -> list[str]:
        """What is wrong; empty when it holds."""
        found = list(self.wrong)
        if self.refused != self.due:
            found.append(f"{self.refused} requests were refused by a full queue, {self.due} should")
        return found

    def figures(self) -> str:
        """One line."""
        return f"{self.served} served, {self.refused} of {self.due} beyond the queue refused with 503 and Retry-After"


def overflow(queue: int, beyond: int) -> Overflow:
    """Fill the one lane and the queue while the engine hangs, ask `beyond` times more, let go, and ask once more."""
    gate = threading.Event()
    hang = Fault("launch", nth=1, error=None, block=gate)
    inner = hash_model()
    wanted = asked([{"prompt": [i, i + 1], "max_tokens": 12, "stream": i % 2 == 0} for i in range(1 + queue + beyond)])
    seen = Overflow(due=beyond)
    with hash_server(FaultyModel(inner, [hang]), EngineSettings(parallel=1, queue=queue)) as place:
        inside: list[Client] = []
        try:
            for one in wanted[: 1 + queue]:
                client = Client(place.port)
                client.ask(one)
                inside.append(client)
                until(lambda: sum(place.scheduler.loads()) == len(inside), "a request inside")
            assert hang.entered.wait(60.0), "the first request never ran"
            for one in wanted[1 + queue :]:
                _refused(seen, ask(place.port, one))
            if get(place.port, "/v1/models")[0] != 200:
                seen.wrong.append("a full server does not list its models")
        finally:
            gate.set()
        for one, client in zip(wanted, inside, strict=False):
            answer = client.answer()
            seen.served += answer.equals(one)
            if not answer.equals(one):
                seen.wrong.append(f"one that waited got {answer}")
        again = ask(place.port, wanted[-1])
        if not again.equals(wanted[-1]):
            seen.wrong.append(f"after the rush: {again}")
        place.until_empty()
        if inner.lanes():
            seen.wrong.append(f"lanes {inner.lanes()} are left")
    return seen


def _refused(seen: Overflow, answer: Answer) -> None:
    error = answer.error or {}
    good = answer.status == 503 and error.get("code") == "overloaded" and answer.failed_well
    if good and int(answer.headers.get("retry-after", "0")) > 0:
        seen.refused += 1
    else:
        seen.wrong.append(f"not a refusal with Retry-After: {answer}")
