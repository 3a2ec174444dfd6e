"""A whole server over the hash model, and what is checked of it at every input and after some hundred of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from tensorfold.application.settings import EngineSettings, HttpSettings
from tensorfold.entrypoints.http.access_log import AccessRecord
from tensorfold.entrypoints.http.limits import HttpLimits
from tests.end_to_end.hash_server import LAW, TOKENIZER, Place, hash_model, hash_server
from tests.entrypoints.http.fake_recall import FakeRecall
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import SerialCase, serial_references
from tests.fakes.tokenizer import FakeTemplate
from tests.prove.fuzzing.answers import Answer, FormError
from tests.prove.fuzzing.expected import statuses
from tests.prove.fuzzing.good import Good, due, goods
from tests.prove.fuzzing.inputs import Input
from tests.prove.fuzzing.line import QUIET_S, Line, SlowError
from tests.prove.fuzzing.logs import Overheard
from tests.prove.fuzzing.replies import Reply, read_reply
from tests.prove.fuzzing.requests import Request, read_requests
from tests.prove.fuzzing.verdicts import wrong
from tests.prove.fuzzing.writing import Style, write

CONTEXT, MOST_TOKENS, BODY_LIMIT = 1024, 12, 256 * 1024
KEY = "the key"
PLAIN = Style()
NO_CHANCE = random.Random(0)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong: its kind in a word, and what was seen."""

    kind: str
    detail: str


class Arena:
    """Takes inputs one at a time. `key` is what the server asks for; None is an open one."""

    def __init__(
        self, place: Place, model: HashModel, template: FakeTemplate, records: list[AccessRecord], key: str | None
    ) -> None:
        self._place = place
        self._model = model
        self._template = template
        self._records = records
        self._key = key
        self._headers = () if key is None else (("Authorization", f"Bearer {key}"),)
        self._goods = goods()
        self._overheard = Overheard()
        self._line = Line(place.port)
        self._turn = 0
        self.compared = 0
        self._replies: list[tuple[Input, Reply]] = []

    def play(self, tried: Input) -> Problem | None:
        """One input, and the good request after it."""
        try:
            found = self._on_its_route(tried) if tried.route else self._on_its_own(tried)
        except (SlowError, FormError) as broken:
            # What comes late must not be taken for the next answer.
            self._renew()
            found = Problem("slow" if isinstance(broken, SlowError) else "form", str(broken))
        return found or self._next() or self._told()

    def settle(self) -> Problem | None:
        """Wait until nothing runs, then look at what is left and whether every reply was right for what was read."""
        try:
            self._place.until_empty()
        except AssertionError as left:
            return Problem("left", str(left))
        # The fake keeps what it was asked.
        self._template.calls.clear()
        lanes, faults = self._model.lanes(), self._place.counters.integrity_faults
        if lanes or faults:
            return Problem("left", f"lanes {lanes}, {faults} integrity faults")
        return self._unmatched() or self._told()

    def close(self) -> None:
        """Hang up and listen no more."""
        self._line.leave("close")
        self._overheard.close()

    # -- one input -----------------------------------------------------------------------------------------------

    def _on_its_route(self, tried: Input) -> Problem | None:
        answer = self._on_the_line(replace(tried, headers=(*tried.headers, *self._headers)))
        if answer is None:
            # What lies far beyond the limit may be hung up on while it is sent.
            return None if len(tried.data) > BODY_LIMIT else Problem("form", "hung up without an answer")
        if answer.status not in (200, 400, 413):
            return Problem("status", f"{answer.status}: {answer.body[:300]!r}")
        return self._judged(tried, answer)

    def _on_its_own(self, tried: Input) -> Problem | None:
        line = Line(self._place.port)
        line.send(tried.pieces())
        if tried.manner != "read":
            line.leave(tried.manner)
            return None
        reading = read_requests(tried.data)
        try:
            for request in reading.requests:
                answer = line.answer(request.method)
                if answer is None:
                    return Problem("form", f"no answer to {request.method} {request.target}")
                found = self._due(request, answer) or self._judged(tried, answer, request)
                if found is not None or answer.closes:
                    return found
            if reading.rest == "none" and not (reading.requests and reading.requests[-1].last):
                return None
            quiet_s = QUIET_S if reading.rest == "doubtful" else 0.0 if reading.rest == "part" else 1.0
            return self._rest(tried, line.to_the_end(quiet_s))
        finally:
            line.leave("close")

    def _rest(self, tried: Input, answers: list[Answer]) -> Problem | None:
        found = (self._judged(tried, answer) for answer in answers)
        return next((problem for problem in found if problem is not None), None)

    def _due(self, request: Request, answer: Answer) -> Problem | None:
        allowed = statuses(request, self._key)
        if answer.status in allowed or (answer.status == 400 and request.body and request.method != "POST"):
            return None
        return Problem("status", f"{answer.status} to {request.method} {request.target}, {sorted(allowed)} is due")

    def _judged(self, tried: Input, answer: Answer, request: Request | None = None) -> Problem | None:
        if found := wrong(answer):
            return Problem("answer", found)
        asked = bool(tried.route) or (request is not None and request.method == "POST")
        if answer.status != 200 or not asked or answer.cut:
            missing = Problem("reply", f"no reply: {answer.status} {answer.body[:300]!r}")
            return None if tried.wanted is None else missing
        try:
            reply = read_reply(answer)
        except (KeyError, TypeError, ValueError, AttributeError) as broken:
            return Problem("form", f"a reply out of form, {broken!r}: {answer.body[:300]!r}")
        if tried.wanted is not None and not reply.equals(self._goods[tried.wanted].due):
            return Problem("reply", f"{reply} in place of {self._goods[tried.wanted].due}")
        self._replies.append((tried, reply))
        return None

    # -- what stands around it -----------------------------------------------------------------------------------

    def _next(self) -> Problem | None:
        """The next good request, on the connection that is kept."""
        self._turn = (self._turn + 1) % len(self._goods)
        good = self._goods[self._turn]
        try:
            answer = self._ask(good)
            if answer is None or answer.status != 200:
                return Problem("next", f"the next request got {answer}")
            reply = read_reply(answer)
        except (SlowError, FormError, KeyError, TypeError, ValueError) as broken:
            self._renew()
            return Problem("slow" if isinstance(broken, SlowError) else "next", f"the next request got {broken!r}")
        if not reply.equals(good.due):
            return Problem("next", f"the next reply is {reply} in place of {good.due}")
        self._replies.append((Input(b""), reply))
        return None

    def _ask(self, good: Good) -> Answer | None:
        data = write(good.body, NO_CHANCE, PLAIN).encode()
        return self._on_the_line(Input(data, good.path, self._headers))

    def _on_the_line(self, tried: Input) -> Answer | None:
        """Over the connection that is kept as long as the server keeps it."""
        self._line.send(tried.pieces())
        answer = self._line.answer("POST")
        if answer is None or answer.closes:
            self._renew()
        return answer

    def _renew(self) -> None:
        self._line.leave("close")
        self._line = Line(self._place.port)

    def _told(self) -> Problem | None:
        """Anything a log, a hook or the server's own book of faults was told."""
        heard = [*self._overheard.take(), *(f"a fault in {where}: {fault!r}" for where, fault in self._place.faults)]
        heard += [f"the engine: {line}" for line in self._place.lines]
        heard += [f"no line of text: {line!r}" for line in map(_line_of, self._records) if not line.isprintable()]
        for told in (self._place.faults, self._place.lines, self._records):
            told.clear()
        return Problem("log", "; ".join(heard)[:2000]) if heard else None

    def _unmatched(self) -> Problem | None:
        """The first reply that is not the serial one of any request that the engine was given."""
        ended = [(generation.request, stats) for generation, stats, _ in self._place.ended if stats is not None]
        self._place.ended.clear()
        cases = [
            SerialCase(
                request.prompt,
                min(MOST_TOKENS, CONTEXT - len(request.prompt)) if request.max_tokens is None else request.max_tokens,
                request.sampling,
                frozenset() if request.ignore_eos else frozenset({TOKENIZER.end_id}),
                request.stops,
            )
            for request, _ in ended
        ]
        references = serial_references(LAW, cases, TOKENIZER.shown_bytes) if cases else []
        dues = [due(case, reply) for case, reply in zip(cases, references, strict=True)]
        replies, self._replies = self._replies, []
        shas = {each.sha: each for each in dues}
        for tried, reply in replies:
            self.compared += 1
            if reply.sha not in shas or not any(reply.equals(each) for each in dues if each.sha == reply.sha):
                return Problem("reply", f"{reply} is nobody's serial reply; input {tried.as_text()[:300]}")
        return None


def _line_of(record: AccessRecord) -> str:
    return record.line()


@contextmanager
def arena(key: str | None = None) -> Iterator[Arena]:
    """A server for inputs, stopped in the end."""
    records: list[AccessRecord] = []
    model, template = hash_model(), FakeTemplate()
    limits = HttpLimits(threads=24, spare_threads=4, body_bytes=BODY_LIMIT)
    listening = HttpSettings(port=0, keys=() if key is None else (("k", key),), origins=("http://page.example",))
    with ExitStack() as stack:
        place = stack.enter_context(
            hash_server(
                model, EngineSettings(parallel=2, queue=16), log=records.append, listening=listening, limits=limits,
                context=CONTEXT, max_tokens=MOST_TOKENS, template=template,
            )
        )  # fmt: skip
        place.http.keep(FakeRecall())
        here = Arena(place, model, template, records, key)
        stack.callback(here.close)
        yield here
