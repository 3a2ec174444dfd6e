"""Flags of parts that are not there: what asks for nothing passes, all else is refused and told what to do instead."""

from __future__ import annotations

import pytest

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.entrypoints.cli.later_flags import LATER, LEARN, MLX_ONLY, LaterFlag, refuse_flags
from tensorfold.entrypoints.cli.parser import parse
from tensorfold.entrypoints.settings import run_settings
from tests.end_to_end.options import ASKING

NO_NUMBERS = {
    "--thinking-budget": "-1", "--prompt-cache-gib": "nan", "--checkpoint-slots": "some", "--mlx-cache-gib": "-1",
    "--tp": "3", "--rank": "2", "--master-port": "0",
}  # fmt: skip


def refuse(*words: str) -> None:
    refuse_flags(parse(["serve", "demo", *words]))


def refusal(*words: str) -> str:
    with pytest.raises(RefusedError) as refused:
        refuse(*words)
    return refused.value.message


def test_every_later_flag_has_a_value_to_try() -> None:
    assert ASKING.keys() == {flag.option for flag in LATER}


@pytest.mark.parametrize("flag", LATER, ids=lambda flag: flag.option)
def test_what_asks_for_a_part_that_is_not_there_is_refused_in_one_line_that_says_what_to_do(flag: LaterFlag) -> None:
    said = refusal(flag.option, ASKING[flag.option])
    assert said.startswith(f"{flag.option} asks for {flag.asks}, which is not part of this version: ")
    assert said.endswith(".") and "\n" not in said and "leave it out" in said
    assert all(f"`{value}`" in said for value in flag.passes if value != "")


@pytest.mark.parametrize("flag", LATER, ids=lambda flag: flag.option)
def test_what_asks_for_nothing_passes_and_so_does_no_flag(flag: LaterFlag) -> None:
    for value in flag.passes:
        refuse(flag.option, str(value))
    refuse()


@pytest.mark.parametrize("flag", [flag for flag in LATER if flag.default is not None], ids=lambda flag: flag.option)
def test_a_default_asks_for_nothing(flag: LaterFlag) -> None:
    assert flag.default in flag.passes


@pytest.mark.parametrize(("option", "value"), NO_NUMBERS.items())
def test_a_value_that_no_version_takes_is_a_usage_error(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["serve", "demo", f"{option}={value}"])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and told.count("\n") == 1 and option in told


@pytest.mark.parametrize("option", MLX_ONLY)
def test_a_flag_of_mlx_alone_is_refused_by_name_on_cuda(option: str) -> None:
    taken = {
        "--alias": "a", "--reasoning-effort": "medium", "--mlx-cache-gib": "8", "--thinking-budget": "0",
        "--prompt-cache-gib": "0", "--snapshot-dir": "none",
    }  # fmt: skip
    values = [taken[option], *([ASKING[option]] if option in ASKING else [])]
    for each in values:
        assert refusal("--backend", "cuda", option, each) == (
            f"{option} is for MLX alone; leave it out with --backend cuda."
        )


@pytest.mark.parametrize("option", MLX_ONLY)
def test_it_is_refused_too_where_auto_took_cuda_and_not_where_it_took_mlx(option: str) -> None:
    value = "a" if option in ("--alias", "--snapshot-dir") else "medium" if option == "--reasoning-effort" else "1"
    flags = parse(["serve", "demo", option, value])
    refuse_flags(flags, "mlx")
    with pytest.raises(RefusedError, match=f"{option} is for MLX alone"):
        refuse_flags(flags, "cuda")


def test_other_flags_pass_on_cuda() -> None:
    refuse("--backend", "cuda", "--tp", "1", "--drafter", "none", "--decode-share", "0.5", "--no-thinking")
    refuse("--backend", "cuda", "--checkpoint-slots", "4", "--recall", "--recall-gib", "1/16", "--mtp-drafts", "2")


def test_learn_is_no_flag_and_points_to_the_prompt_cache() -> None:
    assert refusal("--learn") == LEARN
    assert "--prompt-cache-gib" in LEARN and "--recall" in LEARN


def test_an_effort_is_the_servers_only_where_it_was_given() -> None:
    assert run_settings(parse(["serve", "demo"]), {}).model.effort is None
    for effort in ("low", "medium", "high", "xhigh"):
        made = run_settings(parse(["serve", "demo", "--reasoning-effort", effort]), {})
        assert made.model.effort == effort


@pytest.mark.parametrize("command", ["verify", "bench"])
@pytest.mark.parametrize("option", [*ASKING, "--learn", "--reasoning-effort"])
def test_other_commands_do_not_know_them(command: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([command, "demo", option])
    assert "unrecognized arguments" in capsys.readouterr().err
