"""The workloads, made from text that packages ship and conversations of our own; the same ids on every run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from tests.benchmarks.replay.agent import Dialect, Project, Session, as_json, as_marks
from tests.benchmarks.replay.dialogues import Dialogue, dialogues
from tests.benchmarks.replay.edits import edited
from tests.benchmarks.replay.hostile import hostile
from tests.benchmarks.replay.speech import Speech
from tests.benchmarks.replay.texts import docstrings, documents, package, source_files
from tests.benchmarks.replay.workload import Request, Workload, shared

EDIT_GAPS = (40, 80, 200, 400)
EDITED_IDS = 2500
AGENT_FILE_CHARACTERS = 9000
PROJECTS: tuple[tuple[tuple[str, ...], Dialect], ...] = (
    (("json", "wsgiref"), as_json),
    (("email", "concurrent"), as_marks),
    (("sqlite3", "xml"), as_json),
    (("asyncio",), as_marks),
)
"""Packages of the library that make a project, and how the model that works on it writes calls."""
SYSTEM = "You are a helpful assistant who answers briefly and exactly."


def repeat(speech: Speech) -> Workload:
    """Questions about packages, answered with their documents; each is sent again."""
    asked = [_asked(speech, f"What does the package {name} do?", text) for name, text in islice(_manuals(), 12)]
    again = tuple(Request(request.prompt, request.reply, len(request.prompt)) for request in asked)
    return Workload("repeat", "12 questions about installed packages, each sent again", tuple(asked), again)


def regenerate(speech: Speech) -> Workload:
    """The last reply of a longer conversation, made again from the same prompt."""
    talks = [_talk(speech, dialogue) for dialogue in dialogues()]
    last = tuple(Request(talk[-1].prompt, talk[-1].reply, len(talk[-1].prompt)) for talk in talks)
    before = tuple(request for talk in talks for request in talk)
    files = [_asked(speech, f"Write the module {name}.", text) for name, text in islice(source_files(6000, 9000), 6)]
    again = tuple(Request(request.prompt, request.reply, len(request.prompt)) for request in files)
    return Workload(
        "regenerate", "18 last turns and 6 written modules, each made again", (*before, *files), last + again
    )


def file_edit(speech: Speech, every: int) -> Workload:
    """Modules written again with an edit every `every` ids on average; the old text is in the record alone."""
    rng = random.Random(every)
    old, new = [], []
    for name, text in islice(source_files(11000, 16000), 8):
        ids = speech.encode(text)[:EDITED_IDS]
        old.append(Request(_question(speech, f"Write the module {name}."), (*ids, speech.end)))
        asked = _question(speech, f"Change {name} as we said in the meeting.")
        new.append(Request(asked, (*edited(ids, every, rng), speech.end)))
    about = f"8 modules written again, 1 to 4 ids replaced, inserted or deleted every {every} ids on average"
    return Workload(f"edit {every}", about, tuple(old), tuple(new))


def agent_loop(speech: Speech) -> Workload:
    """A second session on each project, after the first was recorded."""
    sessions = [_sessions(speech, files, write, random.Random(seed)) for seed, (files, write) in enumerate(PROJECTS)]
    before = tuple(request for first, _ in sessions for request in first)
    streams = tuple(request for _, second in sessions for request in second)
    about = f"second sessions on {len(PROJECTS)} projects, {len(streams)} steps; half the models write calls as JSON"
    return Workload("agent", about, before, streams)


def chat(speech: Speech) -> Workload:
    """New conversations against a record of others, and new documents against others."""
    talks = [_talk(speech, dialogue) for dialogue in dialogues()]
    before = [request for talk in talks[::2] for request in talk]
    streams = [request for talk in talks[1::2] for request in talk]
    manuals = [_asked(speech, f"What does {name} do?", text) for name, text in islice(docstrings(400), 80)]
    streams += manuals[::4]
    before += manuals[1::4] + manuals[2::4] + manuals[3::4]
    about = f"{len(streams)} new replies against {len(before)} recorded ones of other conversations and documents"
    return Workload("chat", about, tuple(before), tuple(streams))


def noise(speech: Speech) -> Workload:
    """Ids drawn at random, against a record of others."""
    rng = random.Random(7)

    def drawn(count: int) -> tuple[int, ...]:
        return (*(rng.randrange(1, speech.vocabulary) for _ in range(count)), speech.end)

    def request() -> Request:
        reply = tuple(token for token in drawn(600)[:-1] if token != speech.end)
        return Request(drawn(200), (*reply, speech.end))

    before = tuple(request() for _ in range(100))
    return Workload(
        "random", "12 replies of 600 random ids, 80,000 in the record", before, tuple(request() for _ in range(12))
    )


Maker = Callable[[Speech], Sequence[Workload]]
MAKERS: dict[str, Maker] = {
    "repeat": lambda speech: (repeat(speech),),
    "regenerate": lambda speech: (regenerate(speech),),
    "edit": lambda speech: tuple(file_edit(speech, every) for every in EDIT_GAPS),
    "agent": lambda speech: (agent_loop(speech),),
    "chat": lambda speech: (chat(speech),),
    "random": lambda speech: (noise(speech),),
    "hostile": hostile,
}
"""What makes the workloads of each name that `--trace` takes."""


def _sessions(
    speech: Speech, packages: tuple[str, ...], write: Dialect, rng: random.Random
) -> tuple[list[Request], list[Request]]:
    """Two sessions on a project of some of the library's packages, in one dialect of calls."""
    files = {path: text for name in packages for path, text in package(name).items()}
    sized = {path: text for path, text in files.items() if 1500 <= len(text) <= AGENT_FILE_CHARACTERS}
    project = Project(sized)
    paths = sorted(sized)
    rng.shuffle(paths)
    task = "Make the names in this project easier to tell apart, and see that everything is tested. Begin with {}."
    sessions = []
    for chosen in (paths[:4], [paths[1], paths[4 % len(paths)], paths[2]]):
        session = Session(project, speech, write, task.format(chosen[0]), rng)
        sessions.append(session.work(chosen))
    return sessions[0], sessions[1]


def _manuals() -> Iterator[tuple[str, str]]:
    for name, text in documents(1500):
        yield name, text[:4000]


def _asked(speech: Speech, question: str, text: str) -> Request:
    return Request(_question(speech, question), speech.reply(text))


def _question(speech: Speech, question: str) -> tuple[int, ...]:
    return (*speech.turn("system", SYSTEM), *speech.turn("user", question), *speech.opening())


def _talk(speech: Speech, dialogue: Dialogue) -> list[Request]:
    """A request for each of the assistant's messages."""
    ids = speech.turn("system", SYSTEM)
    read: tuple[int, ...] = ()
    requests = []
    for asked, answered in zip(dialogue.messages[::2], dialogue.messages[1::2], strict=True):
        prompt = (*ids, *speech.turn("user", asked), *speech.opening())
        request = Request(prompt, speech.reply(answered), shared(read, prompt))
        requests.append(request)
        read = (*request.prompt, *request.reply)
        ids = [*read, *speech.encode("\n")]
    return requests
