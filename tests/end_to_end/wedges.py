"""An engine that hangs on purpose at one call, and what its health says over HTTP before, during and after."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from tensorfold.application.flight import Call
from tensorfold.application.settings import EngineSettings
from tests.end_to_end.clients import Answer, ask, get
from tests.end_to_end.fault_scenes import COSTS
from tests.end_to_end.hash_server import Place, asked, hash_model, hash_server, until
from tests.fakes.faulty_model import Fault, FaultyModel, Site
from tests.fakes.hash_head import HashHead

SITES: tuple[Site, ...] = ("open", "prefill", "launch", "collect", "keep", "propose", "close")


@dataclass
class Wedge:
    """What was seen. Times are seconds from the beginning of the call that hung."""

    site: Site
    what: str = ""
    cost_s: float = 0.0
    allowed_s: float = 0.0
    red_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    @property
    def past_cost_s(self) -> float:
        """How long after its measured cost had passed the call was told to be stuck."""
        return self.red_s - self.cost_s


def play(site: Site, settings: EngineSettings) -> Wedge:
    """Hang the engine at the third call of `site` (the first of those made once), look at health, let it go on."""
    wedge = Wedge(site)
    gate = threading.Event()
    hang = Fault(site, nth=1 if site in ("open", "close") else 3, error=None, block=gate)
    (wanted,) = asked([{"prompt": list(range(100)), "max_tokens": 40, "ignore_eos": True, "stream": True}])
    inner = hash_model(head=HashHead(), costs=COSTS)
    with hash_server(FaultyModel(inner, [hang]), settings) as place:
        answers: list[Answer] = []
        client = threading.Thread(target=lambda: answers.append(ask(place.port, wanted)))
        _expect(wedge, place, 200, "ok", "at first")
        client.start()
        try:
            assert hang.entered.wait(60.0), "the fault never struck"
            call = place.scheduler.engine.flight._call
            assert call is not None
            _note(wedge, place, call)
            until(lambda: get(place.port, "/health")[0] == 503, "a red light")
            wedge.red_s = time.monotonic() - call.began
            _expect(wedge, place, 503, "stuck", "while it hangs")
        finally:
            gate.set()
        client.join()
        until(lambda: get(place.port, "/health")[0] == 200, "a green light")
        if not answers[0].equals(wanted):
            wedge.wrong.append(f"{site}: the reply that hung is {answers[0]}")
        place.until_empty()
        _expect(wedge, place, 200, "ok", "afterwards")
        wedge.wrong += [f"{site}: lanes {lanes} are left" for lanes in (inner.lanes(),) if lanes]
    return wedge


def _note(wedge: Wedge, place: Place, call: Call) -> None:
    """What the call is and what its measured costs say of it; work of the host itself has no measured cost."""
    wedge.what = call.what
    wedge.allowed_s = call.overdue - call.began
    flight = place.scheduler.engine.flight
    wedge.cost_s = (wedge.allowed_s - flight._grace_s) / flight._factor


def _expect(wedge: Wedge, place: Place, status: int, word: str, when: str) -> None:
    got, body = get(place.port, "/health")
    if (got, body["status"]) != (status, word):
        wedge.wrong.append(f"{wedge.site}: {when} health says {got} {body['status']} in place of {status} {word}")
