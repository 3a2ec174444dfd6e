"""Flags of draft heads: what they set, what is refused, and what the startup report says of heads."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tensorfold.application.ports.backend import DrafterCheckpoint
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.target_model import HeadLimits
from tensorfold.application.settings import PUBLISHED, DraftSettings
from tensorfold.domain.families.catalogue import GEMMA_26B, LLAMA, NEMOTRON, QWEN_27B, Family
from tensorfold.entrypoints.cli.head_lines import head_lines, head_words
from tensorfold.entrypoints.cli.later_flags import refuse_flags
from tensorfold.entrypoints.cli.parser import parse
from tensorfold.entrypoints.settings import head_settings, run_settings
from tests.fakes.hash_head import HashDrafter, HashHead
from tests.fakes.hash_model import HashModel

CHAIN = HeadLimits("chain", 8, 3)
BLOCK = HeadLimits("lattice", 15, 15, title="owner/drafter")


def heads_of(*words: str) -> DraftSettings:
    flags = parse(["serve", "demo", *words])
    refuse_flags(flags)
    return run_settings(flags, {}).engine.heads


def limits(head: HeadLimits | None, tree: int = 16) -> Any:
    return SimpleNamespace(head=head, tree_width=tree)


def lines(
    head: HeadLimits | None, asked: DraftSettings = PUBLISHED, family: Family = QWEN_27B, *, stored: bool = False
) -> list[str]:
    return head_lines(limits(head), asked, family, "mlx", stored=stored)


def test_without_flags_what_is_published_holds() -> None:
    assert heads_of() == PUBLISHED == DraftSettings("auto", 4, None, None)
    assert run_settings(parse(["verify", "demo"]), {}).engine.heads == PUBLISHED


def test_flags_set_what_they_say() -> None:
    given = heads_of("--drafter", "a/b@main", "--drafter-bits", "0", "--mtp-drafts", "2", "--mtp-confidence", "0.7")
    assert given == DraftSettings("a/b@main", 0, 2, 0.7)


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_a_proof_and_a_measurement_take_the_heads_that_a_server_would(command: str) -> None:
    words = ("--drafter", "a/b@main", "--drafter-bits", "0", "--mtp-drafts", "2", "--mtp-confidence", "0.7")
    assert head_settings(parse([command, "demo", *words])) == heads_of(*words)
    with pytest.raises(RefusedError, match="--drafter is empty; give it"):
        head_settings(parse([command, "demo", "--drafter", " "]))


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--drafter-bits", ("1", "7", "16", "-1", "four")),
        ("--mtp-drafts", ("-1", "17", "1.5")),
        ("--mtp-confidence", ("-0.1", "1.1", "nan")),
    ],
)
def test_values_past_their_limits_are_usage_errors(
    option: str, values: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for value in values:
        with pytest.raises(SystemExit) as ended:
            parse(["serve", "demo", f"{option}={value}"])
        told = capsys.readouterr().err
        assert ended.value.code == 2 and told.count("\n") == 1 and option in told


def test_an_empty_drafter_is_refused() -> None:
    with pytest.raises(RefusedError, match="--drafter is empty; give it"):
        heads_of("--drafter", " ")


# -- the report ----------------------------------------------------------------------------------------------------


def test_the_line_of_drafts_names_what_drafts() -> None:
    assert head_words(limits(None), PUBLISHED) == ""
    assert head_words(limits(CHAIN), PUBLISHED) == "up to 3 a round of the model's own head, "
    assert head_words(limits(CHAIN), DraftSettings(mtp_drafts=12)) == "up to 8 a round of the model's own head, "
    assert head_words(limits(BLOCK), DraftSettings(mtp_drafts=1)) == "trees of owner/drafter, "
    assert head_words(limits(BLOCK, tree=1), PUBLISHED) == "chains of owner/drafter, "
    for head in (HashHead(), HashDrafter()):
        assert head.limits.title in head_words(HashModel(head=head).limits, PUBLISHED)


def test_a_head_that_is_missing_is_named_with_the_command_that_brings_it() -> None:
    (line,) = lines(None)
    assert "`tensorfold pull z-lab/Qwen3.8-27B-DFlash2` brings it" in line and not line.endswith(".")
    (line,) = lines(None, family=NEMOTRON)
    assert "`tensorfold pull Vontra/NVIDIA-Nemotron" in line
    assert (
        lines(BLOCK)
        == lines(CHAIN, family=NEMOTRON)
        == lines(None, family=GEMMA_26B)
        == lines(None, family=LLAMA)
        == []
    )


def test_a_head_that_was_left_out_by_flag_is_told_of() -> None:
    asked = DraftSettings(mtp_drafts=0)
    assert lines(None, asked, NEMOTRON, stored=True) == ["the model's own head is left out, as --mtp-drafts 0 asked"]
    assert lines(None, asked, LLAMA) == []


def test_flags_without_effect_are_named_in_one_line() -> None:
    asked = DraftSettings(drafter_bits=8, mtp_drafts=2, mtp_confidence=0.5)
    assert lines(None, asked, LLAMA) == [
        "--drafter-bits, --mtp-drafts, --mtp-confidence have no effect: nothing here drafts but copies"
    ]
    assert lines(CHAIN, asked, NEMOTRON) == ["--drafter-bits has no effect: only a draft model would use it"]
    assert lines(BLOCK, asked) == ["--mtp-drafts, --mtp-confidence have no effect: a draft model drafts"]


def test_more_drafts_than_the_head_makes_are_told_of() -> None:
    assert lines(CHAIN, DraftSettings(mtp_drafts=12), NEMOTRON) == [
        "--mtp-drafts 12 is more than this head makes; it drafts 8"
    ]


# -- opening -------------------------------------------------------------------------------------------------------


def _opened(found: DrafterCheckpoint | None, backend: str, *words: str) -> Any:
    """`_with_drafter` over a model of the 27B whose drafter is `found`."""
    from tensorfold.entrypoints.cli import opening

    asked: list[str] = []

    def find(name: str, *rest: Any) -> DrafterCheckpoint | None:
        asked.append(name)
        return found

    container = SimpleNamespace(drafters=lambda: SimpleNamespace(find=find))
    facts = SimpleNamespace(config={"model_type": "qwen3_5"})
    described = SimpleNamespace(plan=None, bound={})
    checked = opening.Checked("m", Path("m"), backend, cast(Any, facts), cast(Any, described), cast(Any, None))
    settings = run_settings(parse(["serve", "demo", *words]), {})
    made = opening._with_drafter(checked, settings, cast(Any, container), lambda line: None)
    assert asked == [settings.engine.heads.drafter]
    return made


def test_what_was_found_is_loaded_with_the_model() -> None:
    found = cast(DrafterCheckpoint, object())
    assert _opened(found, "mlx", "--drafter", "a/b").drafter is found
    assert _opened(None, "mlx", "--drafter", "none").drafter is None


@pytest.mark.parametrize("words", [(), ("--drafter", "none")])
def test_cuda_does_not_start_without_a_drafter_that_it_needs(words: tuple[str, ...]) -> None:
    with pytest.raises(RefusedError) as refused:
        _opened(None, "cuda", *words)
    assert "tensorfold pull z-lab/Qwen3.8-27B-DFlash2" in refused.value.message
    assert "--no-drafts" in refused.value.message
