"""Tasks side by side, each in a process of its own: what one of them raises, or dies of, costs its own result alone.

A card's context cannot be inherited, so processes are started anew. Knows no card: what runs is handed in by name.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class FailedError(Exception):
    """Why a task has no result: the traceback of what it raised, or how its process ended."""


def beside(
    work: Callable[[Task], Result], tasks: Sequence[Task], seconds: float
) -> Iterator[tuple[Task, Result | FailedError]]:
    """Every task with its result, as each ends; those that have none `seconds` from now are ended."""
    started = multiprocessing.get_context("spawn")
    until = time.monotonic() + seconds
    running: dict[Connection, tuple[Task, BaseProcess]] = {}
    process: BaseProcess
    try:
        for task in tasks:
            receiver, sender = started.Pipe(duplex=False)
            process = started.Process(target=_run, args=(work, task, sender), daemon=True)
            process.start()
            sender.close()  # so that the end of the process is seen as the end of the pipe
            running[receiver] = (task, process)
        while running:
            for ready in wait(list(running), max(0.0, until - time.monotonic())) or list(running):
                assert isinstance(ready, Connection)
                task, process = running.pop(ready)
                yield task, _result(ready, process)
    finally:
        for _, process in running.values():
            process.terminate()


def _run(work: Callable[[Task], Result], task: Task, sender: Connection) -> None:
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    try:
        sender.send(work(task))
    except BaseException:
        sender.send(FailedError(traceback.format_exc()))


def _end_with_the_parent() -> None:
    """A process whose parent was killed would keep the card."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _result(receiver: Connection, process: BaseProcess) -> Result | FailedError:
    """What lies in the pipe; a process that has put nothing there is ended."""
    try:
        result: Result | FailedError = receiver.recv() if receiver.poll() else FailedError("it took too long")
    except EOFError:
        process.join(10)
        result = FailedError(f"its process ended with {process.exitcode}")
    process.join(0 if isinstance(result, FailedError) else 60)
    if process.is_alive():
        process.terminate()
    return result
