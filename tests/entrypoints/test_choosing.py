"""Which backend a command takes, on machines that exist in words alone, and what follows from it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.conversation.efforts import OWN
from tensorfold.entrypoints.cli import choosing
from tensorfold.entrypoints.cli.choosing import choose_backend
from tensorfold.entrypoints.cli.parser import parse
from tensorfold.entrypoints.settings import CUDA_SLOTS, BackendChoice, run_settings

NO_TORCH = (
    "PyTorch is not installed, without which nothing runs on CUDA: install the extra `cuda` "
    "(`pip install 'tensorfold[cuda]'`)."
)
NO_MLX = "MLX is not installed for this machine: run `pip install -U 'mlx[cpu]>=0.32.2'`."
CUDA = BackendChoice("cuda", "a test's")


def machine(cuda: str | None, mlx: str | None) -> Any:
    """A container whose backends lack what is said."""
    lacks = {"cuda": cuda, "mlx": mlx}
    return SimpleNamespace(backend=lambda name: SimpleNamespace(missing=lambda: lacks[name]))


def test_a_card_wins_over_mlx_on_linux_and_mlx_is_taken_on_a_mac() -> None:
    both = machine(None, None)
    assert choose_backend("auto", both, "linux") == BackendChoice("cuda", "auto takes CUDA where there is a card")
    assert choose_backend("auto", both, "darwin") == BackendChoice("mlx", "auto takes MLX on a Mac")


def test_without_a_card_mlx_is_taken_and_the_reason_is_told() -> None:
    assert choose_backend("auto", machine(NO_TORCH, None), "linux") == BackendChoice(
        "mlx", "auto; no CUDA, since PyTorch is not installed"
    )


def test_with_neither_one_line_names_what_to_install_for_each() -> None:
    with pytest.raises(RefusedError) as refused:
        choose_backend("auto", machine(NO_TORCH, NO_MLX), "linux")
    said = refused.value.message
    assert "tensorfold[cuda]" in said and "mlx[cpu]" in said and "\n" not in said


@pytest.mark.parametrize("name", ["mlx", "cuda"])
def test_what_was_named_is_never_replaced(name: str) -> None:
    for platform in ("linux", "darwin"):
        chosen = choose_backend(name, machine(NO_TORCH, NO_MLX), platform)
        assert chosen == BackendChoice(name, "chosen by --backend")  # type: ignore[arg-type]


def test_on_cuda_auto_is_one_stream_and_a_number_is_that_many() -> None:
    assert run_settings(parse(["serve", "demo"]), {}, CUDA).engine == EngineSettings(parallel=1, queue=8)
    assert run_settings(parse(["serve", "demo", "--parallel", "6"]), {}, CUDA).engine.parallel == 6
    assert run_settings(parse(["serve", "demo", "--backend", "cuda"]), {}).engine.parallel == 1
    assert run_settings(parse(["serve", "demo"]), {}, BackendChoice("mlx", "")).engine.parallel == 8


def test_on_cuda_few_prompt_ends_are_kept_and_none_on_the_disk() -> None:
    made = run_settings(parse(["serve", "demo"]), {}, CUDA).prompts
    assert (made.slots, made.budget, made.snapshots) == (CUDA_SLOTS, None, None)
    assert run_settings(parse(["serve", "demo", "--checkpoint-slots", "0"]), {}, CUDA).prompts.slots == 0


def test_on_cuda_the_templates_own_effort_is_the_default() -> None:
    assert run_settings(parse(["serve", "demo"]), {}, CUDA).model.effort == OWN
    assert run_settings(parse(["serve", "demo"]), {}, BackendChoice("mlx", "")).model.effort is None


def test_a_record_is_kept_on_cuda_as_elsewhere() -> None:
    assert run_settings(parse(["serve", "demo", "--recall"]), {}, CUDA).recall is not None


def test_a_command_gets_its_settings_with_the_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(choosing, "Container", lambda cache: machine(NO_TORCH, None))
    settings, _ = choosing.run_with_backend(parse(["serve", "demo"]), {"XDG_CACHE_HOME": str(tmp_path)})
    assert settings.choice is not None and settings.choice.name == "mlx"


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("TENSORFOLD_CUDA_MEMORY_LIMIT_GB", "0", "must be a positive number of GiB"),
        ("TENSORFOLD_CUDA_MEMORY_LIMIT_GB", "much", "must be a positive number of GiB"),
        ("TENSORFOLD_MEMORY_RESERVE_GIB", "1.9", "it must be a number of GiB, at least 2"),
        ("TENSORFOLD_MEMORY_RESERVE_GIB", "inf", "it must be a number of GiB, at least 2"),
        ("TENSORFOLD_MEMORY_RESERVE_GIB", "some", "it must be a number of GiB, at least 2"),
    ],
)
def test_a_variable_of_memory_that_cannot_be_is_refused_by_its_name(variable: str, text: str, says: str) -> None:
    with pytest.raises(RefusedError, match=f"{variable} is '{text}'; .*{says}"):
        run_settings(parse(["serve", "demo"]), {variable: text})


def test_variables_of_memory_reach_their_settings_in_bytes() -> None:
    environment = {"TENSORFOLD_CUDA_MEMORY_LIMIT_GB": "1.5", "TENSORFOLD_MEMORY_RESERVE_GIB": "2"}
    made = run_settings(parse(["serve", "demo"]), environment).memory
    assert (made.card_limit, made.reserve, made.limit) == (3 << 29, 2 << 30, None)
    blank = run_settings(parse(["serve", "demo"]), dict.fromkeys(environment, " ")).memory
    assert blank.card_limit is blank.reserve is None
