"""One renderer process, from the server's side: started, asked under a deadline, killed. Not safe for several threads.

Whatever comes back is hostile: lengths are bounded before they are believed, and only plain JSON is read.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tensorfold.adapters.tokenization.frames import HEADER, body_size, packed, unpacked
from tensorfold.adapters.tokenization.render_faults import RenderFaultError
from tensorfold.adapters.tokenization.render_limits import RenderLimits

# No site module and no environment variable reaches this interpreter; it finds only the packages named here.
_BOOT = """
import json, sys
start = json.loads(sys.argv[1])
sys.path.extend(start["path"])
from tensorfold.adapters.tokenization.render_child import main
from tensorfold.adapters.tokenization.render_limits import RenderLimits
main(RenderLimits(**start["limits"]))
"""
_PACKAGES = ("tensorfold", "jinja2", "markupsafe")
_START_SECONDS = 30.0
_PIECE = 1 << 16
_FAULT_BYTES = 8192
"""Room for a fault's own message, whatever the limit on output."""
_TIMERS = (signal.SIGALRM, signal.SIGXCPU)


class RenderProcess:
    """A process that has compiled `templates`. Raises RenderFaultError when it cannot."""

    def __init__(self, templates: Mapping[str, str], limits: RenderLimits) -> None:
        self._limits = limits
        start = _start(limits)
        ours, theirs = socket.socketpair()
        self._pipe = ours
        with theirs:
            try:
                # A session of its own: an interrupt typed at the server is not the renderer's.
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _BOOT, start],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise RenderFaultError("start") from None
        try:
            self._greet()
            self.ask({"templates": dict(templates)})
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def ask(self, request: Mapping[str, Any]) -> str:
        """The text of one request, empty when it asks for none. Raises RenderFaultError; close after a stopping one."""
        frame = _framed(request, self._limits.request_bytes)
        deadline = time.monotonic() + self._limits.seconds
        try:
            self._pipe.settimeout(_left(deadline))
            self._pipe.sendall(frame)
            reply = self._reply(deadline)
        except TimeoutError:
            raise RenderFaultError("time") from None
        except (OSError, EOFError):
            raise RenderFaultError(self._end()) from None
        except (ValueError, RecursionError):
            raise RenderFaultError("garbled") from None
        return _text(reply)

    def kill(self) -> None:
        """End the process now; a thread that waits for its answer gets a fault."""
        self._process.kill()

    def close(self) -> None:
        """End the process and leave nothing of it."""
        self._pipe.close()
        self._process.kill()
        self._process.wait()

    def _greet(self) -> None:
        """Wait until the interpreter is up: its start is not the template's time, however busy the machine."""
        try:
            self._reply(time.monotonic() + _START_SECONDS)
        except (OSError, EOFError, ValueError):
            raise RenderFaultError("start") from None

    def _reply(self, deadline: float) -> Any:
        header = self._receive(HEADER.size, deadline)
        return unpacked(self._receive(body_size(header, self._limits.output_bytes + _FAULT_BYTES), deadline))

    def _receive(self, size: int, deadline: float) -> bytearray:
        data = bytearray()
        while len(data) < size:
            self._pipe.settimeout(_left(deadline))
            piece = self._pipe.recv(min(_PIECE, size - len(data)))
            if not piece:
                raise EOFError
            data += piece
        return data

    def _end(self) -> str:
        """Which fault the process's end was: its own timer, or anything else."""
        self._process.kill()
        return "time" if -self._process.wait() in _TIMERS else "ended"


def _start(limits: RenderLimits) -> str:
    """What the process is told: its limits, and the folders that hold what it imports."""
    specs = [find_spec(name) for name in _PACKAGES]
    if any(spec is None or spec.origin is None for spec in specs):
        raise RenderFaultError("start")
    folders = dict.fromkeys(str(Path(spec.origin).parent.parent) for spec in specs if spec and spec.origin)
    return json.dumps({"path": list(folders), "limits": asdict(limits)})


def _framed(request: Mapping[str, Any], limit: int) -> bytes:
    try:
        frame = packed(request)
    except RecursionError:
        raise RenderFaultError("nested") from None
    if len(frame) > limit:
        raise RenderFaultError("input")
    return frame


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _text(reply: Any) -> str:
    match reply:
        case {"text": str(text)}:
            return text
        case {"fault": str(kind), "line": int(line), "detail": str(detail)}:
            raise RenderFaultError(kind, line, detail)
        case {} if isinstance(reply, dict) and not reply:
            return ""
    raise RenderFaultError("garbled")
