"""What is said where something lacks that CUDA needs, asked of machines that exist in words alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorfold.adapters.cuda.runtime import Probe, missing

ABLE = Probe(
    platform="linux",
    found=lambda module: True,
    version=lambda module: {"torch": "2.11.0+cu130", "triton": "3.6.0"}[module],
    seen=lambda: 1,
    capability=lambda: (9, 0),
    compiler=lambda: True,
)


def test_a_machine_with_all_of_it_lacks_nothing() -> None:
    assert missing(ABLE) is None


def told(**changes: object) -> str:
    said = missing(replace(ABLE, **changes))  # type: ignore[arg-type]
    assert said is not None and said.endswith(".") and "\n" not in said
    return said


@pytest.mark.parametrize(("module", "title"), [("torch", "PyTorch"), ("triton", "Triton")])
def test_a_package_that_lacks_is_named_with_the_extra_that_brings_it(module: str, title: str) -> None:
    said = told(found=lambda asked: asked != module)
    assert (
        said.startswith(f"{title} is not installed") and "the extra `cuda` (`pip install 'tensorfold[cuda]'`)" in said
    )


def test_a_missing_compiler_is_named() -> None:
    assert told(compiler=lambda: False).startswith("NVRTC is not installed, which compiles the CUDA kernels: install")


def test_no_card_points_to_the_driver() -> None:
    assert told(seen=lambda: 0).startswith("PyTorch sees no NVIDIA card: check the driver")


def test_other_systems_are_pointed_to_mlx() -> None:
    assert told(platform="darwin") == "The CUDA backend runs on Linux alone: start with `--backend mlx`."


@pytest.mark.parametrize(
    ("module", "version", "says"),
    [
        ("torch", "2.10.1", "PyTorch 2.10.1 is older than 2.11"),
        ("torch", "odd", "PyTorch odd is older than 2.11"),
        ("triton", "3.5.1", "Triton 3.5.1 is not from 3.6 to below 3.10"),
        ("triton", "3.10.0", "Triton 3.10.0 is not from 3.6 to below 3.10"),
    ],
)
def test_versions_outside_what_the_kernels_were_written_for_are_refused(module: str, version: str, says: str) -> None:
    known = {"torch": "2.13.0", "triton": "3.9.0"} | {module: version}
    assert told(version=known.__getitem__).startswith(says)


def test_an_old_card_is_refused_by_its_capability() -> None:
    assert told(capability=lambda: (7, 5)) == (
        "The NVIDIA card here has compute capability 7.5; the kernels need 8.0 or newer."
    )
