"""Sessions of a coding agent on a project of real source files: tools called, files read, edited, tested and rewritten.

A session is a list of requests. Each prompt is the conversation so far, each reply one message with a tool call; the
tool's answer joins the next prompt. What the agent says around its calls is put together from phrases of our own.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.benchmarks.replay.code_edits import rearranged, renamed
from tests.benchmarks.replay.speech import Speech
from tests.benchmarks.replay.workload import Request, shared

SYSTEM = """You are a careful programmer who works in a project folder through tools.
Call one tool at a time, between <tool_call> and </tool_call>, and wait for its answer.
Tools:
{"name": "list_files", "arguments": {}}
{"name": "read_file", "arguments": {"path": "string"}}
{"name": "write_file", "arguments": {"path": "string", "content": "string"}}
{"name": "replace", "arguments": {"path": "string", "old": "string", "new": "string"}}
{"name": "run_tests", "arguments": {"path": "string"}}
Read a file before you change it. Run the tests after each change. Say in one or two sentences what you do and why."""

_LOOK = (
    "Let me look at the files of the project first.",
    "I'll start by listing the files.",
    "First I need to know what is here.",
)
_READ = (
    "Now I'll read {path} to see how it is done at present.",
    "Let me read {path} before I change anything.",
    "The task touches {path}, so I'll read it.",
)
_WRITE = (
    "I'll write {path} again with the changes that the task asks for.",
    "The changes are spread over the file, so I'll write {path} as a whole.",
)
_REPLACE = (
    "One place in {path} needs a small change.",
    "I'll replace the lines in {path} that the task is about.",
    "This part of {path} can be put right on its own.",
)
_TEST = (
    "Now I'll run the tests for {path}.",
    "Let me check {path} with its tests.",
    "I'll see whether the tests pass.",
)
_TESTS = ("I'll add tests for the functions of {path}.", "There are no tests for {path} yet, so I'll write some.")
_DONE = "Done. I changed {files} and ran the tests after each change; all of them pass. {last}"
_LAST = (
    "The behaviour for existing callers is as it was.",
    "Nothing outside these files needed a change.",
    "You may want to look at the names once more before you merge.",
)


Dialect = Callable[[str, Mapping[str, str]], str]


def as_json(tool: str, arguments: Mapping[str, str]) -> str:
    """A call as one JSON object, line ends in its strings escaped."""
    return json.dumps({"name": tool, "arguments": arguments}, ensure_ascii=False)


def as_marks(tool: str, arguments: Mapping[str, str]) -> str:
    """A call between marks, its arguments as they are."""
    given = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in arguments.items())
    return f"<function={tool}>\n{given}</function>"


class Project:
    """The files of a project as sessions leave them."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = dict(files)
        self.functions = {path: list(_functions(text))[:8] for path, text in files.items()}


class Session:
    """One conversation on a project; `requests` grows with each step.

    `write` is the model's dialect: how a call is written down. Some write arguments as JSON, some as they are.
    """

    def __init__(self, project: Project, speech: Speech, write: Dialect, task: str, rng: random.Random) -> None:
        self._project = project
        self._speech = speech
        self._write = write
        self._rng = rng
        self._ids = [*speech.turn("system", SYSTEM), *speech.turn("user", task)]
        self._before: tuple[int, ...] = ()
        self.requests: list[Request] = []

    def work(self, paths: list[str]) -> list[Request]:
        """The whole session: look around, read, edit, rewrite and test each of `paths`, and say what was done."""
        self._call(_LOOK, "list_files", "\n".join(sorted(self._project.files)))
        for path in paths:
            self._call(_READ, "read_file", self._project.files[path], path=path)
            self._replace(path)
            self._test(path)
            self._rewrite(path)
            self._test(path)
            self._write_tests(path)
            self._test(_test_path(path))
        self._say(_DONE.format(files=", ".join(paths), last=self._rng.choice(_LAST)))
        return self.requests

    def _replace(self, path: str) -> None:
        lines = self._project.files[path].split("\n")
        at = self._rng.randrange(max(1, len(lines) - 8))
        old = "\n".join(lines[at : at + self._rng.randint(3, 8)])
        new = rearranged(renamed(old, 1, self._rng), 8, self._rng)
        self._project.files[path] = self._project.files[path].replace(old, new, 1)
        self._call(_REPLACE, "replace", f"Replaced 1 place in {path}.", path=path, old=old, new=new)

    def _rewrite(self, path: str) -> None:
        content = rearranged(renamed(self._project.files[path], 3, self._rng), 40, self._rng)
        self._project.files[path] = content
        answer = f"Wrote {len(content)} characters to {path}."
        self._call(_WRITE, "write_file", answer, path=path, content=content)

    def _write_tests(self, path: str) -> None:
        content = _tests_of(path, self._project.functions[path], self._rng)
        self._project.files[_test_path(path)] = content
        answer = f"Wrote {len(content)} characters to {_test_path(path)}."
        self._call(_TESTS, "write_file", answer, shown=path, path=_test_path(path), content=content)

    def _test(self, path: str) -> None:
        passed = self._rng.randint(4, 40)
        seconds = self._rng.randint(2, 90) / 10
        answer = f"{path}: {passed} tests were run in {seconds} s.\n" + "." * passed + "\nAll passed."
        self._call(_TEST, "run_tests", answer, path=path)

    def _call(self, phrases: tuple[str, ...], tool: str, answer: str, *, shown: str = "", **arguments: str) -> None:
        said = self._rng.choice(phrases).format(path=shown or arguments.get("path", ""))
        self._say(f"{said}\n<tool_call>\n{self._write(tool, arguments)}\n</tool_call>")
        self._ids += self._speech.turn("tool", answer)

    def _say(self, text: str) -> None:
        prompt = (*self._ids, *self._speech.opening())
        request = Request(prompt, self._speech.reply(text), shared(self._before, prompt))
        self.requests.append(request)
        self._before = (*request.prompt, *request.reply)
        self._ids = [*self._before, *self._speech.encode("\n")]


def _test_path(path: str) -> str:
    return "tests/test_" + path.replace("/", "_")


def _tests_of(path: str, functions: Sequence[tuple[str, list[str]]], rng: random.Random) -> str:
    """A test file for the functions of a source file, of the kind that agents write: alike but for the names."""
    module = path.removesuffix(".py").replace("/", ".")
    lines = ["import unittest", "", f"import {module} as module", "", ""]
    lines += [f"class Test{module.title().replace('.', '').replace('_', '')}(unittest.TestCase):"]
    for name, arguments in functions:
        given = ", ".join(f"{argument}={rng.choice(_VALUES)}" for argument in arguments)
        lines += [
            f"    def test_{name}_is_there(self):",
            f"        self.assertTrue(callable(module.{name}))",
            f'        self.assertEqual(module.{name}.__name__, "{name}")',
            "",
            f"    def test_{name}_takes_its_arguments(self):",
            f"        result = module.{name}({given})",
            "        self.assertIsNotNone(result)",
            "",
        ]
    return "\n".join([*lines, 'if __name__ == "__main__":', "    unittest.main()", ""])


_VALUES = ("None", "0", "1", "''", "'text'", "[]", "{}", "True", "b'bytes'", "3.5")


def _functions(text: str) -> Iterator[tuple[str, list[str]]]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, [argument.arg for argument in node.args.args]
