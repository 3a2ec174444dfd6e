"""Gated delta steps: forms and how they are shared out, and machine code for cards that are not here."""

from __future__ import annotations

import ctypes
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.cuda.plans import most_steps
from tensorfold.domain.memory.cuda_holding import room
from tensorfold.kernels.cuda import compiler, delta_steps
from tensorfold.kernels.cuda.compiler import CompilerMissingError, Source
from tensorfold.kernels.cuda.delta_steps import DeltaKernels, Form, Shares, Steps, shares
from tensorfold.kernels.cuda.driver import Device

CARDS = [
    Device(108, (8, 0), 166912),
    Device(132, (9, 0), 232448),
    Device(148, (10, 0), 232448),
    Device(188, (12, 0), 101376),
]
QWEN, TINY = Form(48, 16, 128, 128), Form(4, 2, 32, 16)
FORMS = [QWEN, TINY, Form(4, 2, 16, 16, wide=True), Form(6, 3, 64, 32), Form(2, 1, 256, 256)]
WIDTHS = [(keys, values) for keys in (16, 32, 64, 128, 256) for values in (16, 32, 64, 128, 256)]
LANES = (*range(1, 34), 64, 300)
MOST_STEPS = max(most_steps(room(streams, 512)) for streams in (1, 300))
FEW_BYTES = 64
"""Two blocks of a head share a multiprocessor, so their threads have 128 registers, which may lack a few."""


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ((4, 2, 24, 16), "24 keys of a head are no power of two from 16 to 256"),
        ((4, 2, 8, 16), "8 keys"),
        ((4, 2, 16, 512), "512 values of a head"),
        ((4, 3, 16, 16), "4 heads are not shared out evenly among 3 of keys"),
        ((4, 0, 16, 16), "among 0 of keys"),
    ],
)
def test_a_form_that_no_kernel_takes_is_refused(numbers: tuple[int, int, int, int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Form(*numbers)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_warps_share_out_the_values_of_a_head_and_lie_within_it(form: Form) -> None:
    assert form.slices * form.own >= form.values > (form.slices - 1) * form.own
    # Threads of a column hold all of its keys, and no more columns than they are.
    assert 1 <= form.columns <= form.keys // delta_steps.EACH <= 32


@pytest.mark.parametrize("device", CARDS, ids=lambda device: device.architecture)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_warp_is_in_a_block_and_only_one_lane_to_a_multiprocessor_stands_alone(
    form: Form, device: Device
) -> None:
    for lanes in LANES:
        share = shares(form, lanes, device)
        assert form.slices * form.heads % share.warps == 0
        blocks = form.slices * form.heads // share.warps * lanes
        assert not share.alone or blocks <= device.multiprocessors
        assert not share.tile or share.warps == form.slices


@pytest.mark.parametrize("device", CARDS, ids=lambda device: device.architecture)
@pytest.mark.parametrize("heads", [1, 6, 48, 64])
def test_a_block_has_room_for_as_many_steps_as_a_lane_can_have(heads: int, device: Device) -> None:
    for (keys, values), lanes in product(WIDTHS, LANES):
        form = Form(heads, 1, keys, values)
        assert shares(form, lanes, device).shared_bytes(form, MOST_STEPS, device) <= device.shared_bytes


class Launched:
    """Stands in for a loaded kernel: what was launched, as grid, threads, counts behind the addresses, and how."""

    seen: list[tuple[Any, ...]]

    def __init__(self, code: bytes, name: str, shared: int) -> None:
        self.shared = shared

    def launch(self, grid: Any, threads: int, arguments: Any, stream: int, cluster: int, early: bool) -> None:
        values = [argument.value for argument in arguments]
        self.seen.append((grid, threads, values, stream, early, self.shared))


@pytest.mark.parametrize("device", CARDS, ids=lambda device: device.architecture)
def test_what_a_launch_needs_was_expected_and_has_a_warp_for_each_of_its_columns(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[Source] = set()
    monkeypatch.setattr(delta_steps, "Function", Launched)
    monkeypatch.setattr(delta_steps, "compile_source", lambda source, *rest: pytest.fail(f"{source} was not expected"))
    monkeypatch.setattr(Launched, "seen", [], raising=False)
    kernels = DeltaKernels(device, tmp_path, lambda line: None)
    monkeypatch.setattr(kernels._compiling, "ask", asked.add)
    monkeypatch.setattr(kernels._compiling, "finish", lambda: dict.fromkeys(asked, b"code"))
    kernels.expect(QWEN, 3)
    kernels.expect(TINY, 3)
    kernels.make_expected()
    for form in (QWEN, TINY):
        for lanes in (1, 2, 3):
            steps = Steps(16, 32, 48, 64, 80, 96, 112, 128, programs=lanes, by_row=lanes == 2, most=9, ring=131)
            kernels.launch(form, steps, 7, True)
            grid, threads, values, *how, shared = Launched.seen[-1]
            assert grid[0] * threads == 32 * form.slices * form.heads and grid[1:] == (lanes, 1)
            assert values == [*range(16, 128, 16), int(lanes == 2), 128, 9, 131] and how == [7, True]
            assert shared == shares(form, lanes, device).shared_bytes(form, 9, device)
    kernels.close()


def test_steps_that_no_block_has_room_for_are_refused(tmp_path: Path) -> None:
    kernels = DeltaKernels(CARDS[1], tmp_path, lambda line: None)
    steps = Steps(16, 32, 48, 64, 80, 96, 112, 128, programs=1, by_row=False, most=100_000, ring=131)
    with pytest.raises(ValueError, match=r"100000 steps of a lane need \d+ bytes of shared memory of 232448"):
        kernels.launch(QWEN, steps, 0, False)
    kernels.close()


def reported(source: Source) -> str:
    """What the compiler says of a source's machine code; it must not refuse it."""
    nvrtc, program = compiler._nvrtc(), ctypes.c_void_p()
    options = [option.encode() for option in (*source.options, "--ptxas-options=-v")]
    compiler._check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.text(), b"a.cu", 0, None, None))
    try:
        refused = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = compiler._log(program)
        assert not refused, log
        assert compiler._read(program, "CUBIN")[:4] == b"\x7fELF"
        return log
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@pytest.mark.slow
@pytest.mark.parametrize("device", CARDS, ids=lambda device: device.architecture)
@pytest.mark.parametrize("form", [QWEN, TINY, *FORMS[2:]], ids=str)
def test_it_compiles_however_warps_are_shared_out_and_keeps_states_in_registers(form: Form, device: Device) -> None:
    try:
        compiler.version()
    except CompilerMissingError as missing:
        pytest.skip(str(missing))
    ways: set[Shares] = {shares(form, lanes, device) for lanes in LANES}
    for share in ways:
        log = reported(share.source(form, device.architecture))
        spilled = [int(count) for count in re.findall(r"(\d+) bytes spill", log)]
        assert len(spilled) == 2 and max(spilled) <= FEW_BYTES * share.tile, (share, log)
