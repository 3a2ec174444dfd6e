"""The machine's class: what decides speed, on one line, without the machine's name."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.system import machine


def test_the_class_is_one_line_that_stays_the_same_and_names_no_host() -> None:
    text = machine.machine_class()
    assert text == machine.machine_class()
    assert text.startswith(f"{platform.system()} {platform.machine()}, ") and " core" in text and text.isprintable()
    assert platform.node() == "" or platform.node() not in text.split()


def test_the_processor_is_named_as_the_kernel_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "cpuinfo"
    info.write_bytes(b"processor\t: 0\nmodel name\t: Some   Processor \x1b[31m3000 @ 2GHz\xff\nmodel name\t: Other\n")
    monkeypatch.setattr(machine, "_CPU_INFO", info)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    assert machine._processor() == "Some Processor [31m3000 @ 2GHz\ufffd"
    info.write_text("Features: neon\n")
    assert machine._processor() == ""
    monkeypatch.setattr(machine, "_CPU_INFO", tmp_path / "none")
    assert machine._processor() == ""


def test_on_a_mac_the_processor_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def run(words: Any, **named: Any) -> subprocess.CompletedProcess[str]:
        asked.append(words)
        return subprocess.CompletedProcess(words, 0, "Apple M9\n", "")

    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(subprocess, "run", run)
    assert machine._processor() == "Apple M9"
    assert asked == [("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string")]
    monkeypatch.setattr(subprocess, "run", _missing)
    assert machine._processor() == ""


def _missing(words: Any, **named: Any) -> Any:
    raise FileNotFoundError(2, "none")


def test_what_a_system_does_not_say_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*words: Any) -> Any:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", unknown)
    assert machine.load_average() is None
    monkeypatch.setattr(os, "sysconf", unknown)
    assert machine._memory() == ""
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine._cores() == 1 and "1 core" in machine.machine_class()
