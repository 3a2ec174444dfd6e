"""What a config.json tells before a weight is there: who runs it, how large it is, what must lie beside it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.domain.families import catalogue, gemma4, listing, nemotron_h, qwen3_5, qwen4_exp
from tensorfold.domain.families.catalogue import FAMILIES, plan_for
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.plan_weights import plan_weights
from tensorfold.domain.families.storage import parse_quantization
from tensorfold.domain.families.weights import parameters
from tests.fakes.families import family_to_come, family_with_a_side_file
from tests.synthetic.llama_checkpoints import Layout, TinyLlama
from tests.tree import ROOT

PLAIN = TinyLlama()
SHAPES = {
    "plain": PLAIN,
    "half, own head, biases": replace(PLAIN, dtype="BF16", tied=False, qkv_bias=True, out_bias=True, mlp_bias=True),
    "affine": replace(PLAIN, quantization=Layout(4, 64), dtype="F16"),
    "affine, one module otherwise": replace(
        PLAIN,
        quantization=Layout(4, 32),
        dtype="BF16",
        overrides={"model.embed_tokens": Layout(8, 64), "model.layers.0.mlp.up_proj": None},
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_estimate_is_what_the_checkpoints_headers_add_up_to(name: str, tmp_path: Path) -> None:
    SHAPES[name].write(tmp_path)
    facts = FolderReader().facts(tmp_path)
    plan = plan_for(facts.config, "mlx")
    assert listing.estimated_bytes(plan, parse_quantization(facts.config)) == facts.weight_bytes


def test_backends_say_what_they_can_run() -> None:
    mlx, cuda = listing.runs(PLAIN.config())
    assert (mlx.backend, mlx.refusal, cuda.backend, cuda.refusal) == ("mlx", "", "cuda", "")
    assert listing.runs({}) == listing.runs({"model_type": 7}) == ()
    broken, _ = listing.runs(PLAIN.config() | {"hidden_size": 0})
    assert "hidden_size" in broken.refusal


def test_a_family_that_mlx_alone_serves_is_refused_on_cuda_by_name() -> None:
    mlx, cuda = listing.runs(qwen4_exp.CONFIG | {"quantization": {"bits": 4, "group_size": 32}})
    assert mlx.refusal == ""
    assert cuda.refusal == "Qwen3.8 Flash Next is not served on CUDA by this version: start with `--backend mlx`."


def test_a_family_to_come_tells_what_it_will_refuse_and_else_that_it_is_not_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family_to_come(monkeypatch, catalogue.NEMOTRON)
    block = {"quantization": {"bits": 4, "group_size": 64}}
    whole, cuda = listing.runs(nemotron_h.CONFIG | block)
    assert (
        whole.refusal.startswith("Nemotron 3.5 Lightning is not served by this version")
        and whole.refusal == cuda.refusal
    )
    plain, _ = listing.runs(nemotron_h.CONFIG)
    assert plain.refusal.startswith("Nemotron 3.5 Lightning is read by MLX in 4 bits in groups of 64, but config.json ")


def test_what_this_version_cannot_serve_is_refused_with_the_repositorys_name(monkeypatch: pytest.MonkeyPatch) -> None:
    family_to_come(monkeypatch, catalogue.GEMMA_26B)
    listing.check_served("o/n", PLAIN.config())
    said = {
        "hidden_size": PLAIN.config() | {"hidden_size": 0},
        "o/n is a Gemma 4 26B-A4B checkpoint, which is not part of this version": gemma4.CONFIG,
        "in EXL3 is experimental": qwen3_5.CONFIG | {"quantization_config": {"quant_method": "exl3", "bits": 3.0}},
        "lacks model_type": {},
    }
    for words, config in said.items():
        with pytest.raises(ConfigError) as refusal:
            listing.check_served("o/n", config)
        assert words in refusal.value.message


def test_files_beside_the_shards_are_the_familys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert listing.side_files(PLAIN.config()) == listing.side_files({}) == listing.side_files({"model_type": "x"}) == ()
    family_with_a_side_file(monkeypatch, "mtp.safetensors")
    assert listing.side_files(PLAIN.config()) == ("mtp.safetensors",)
    assert listing.side_files(PLAIN.config() | {"hidden_size": 0}) == ()


def test_plain_weights_of_a_large_model_take_two_bytes_a_parameter_and_a_little() -> None:
    plan = qwen3_5.plan(qwen3_5.CONFIG)
    stated = listing.estimated_bytes(plan, None) / parameters(plan_weights(plan))
    assert 2.0 <= stated < 2.001
    affine = parse_quantization({"quantization": {"bits": 4, "group_size": 64}})
    assert 0.5 < listing.estimated_bytes(plan, affine) / parameters(plan_weights(plan)) < 0.6


def test_the_terms_of_every_listed_checkpoint_and_drafter_are_in_the_notices() -> None:
    page = (ROOT / "THIRD_PARTY_NOTICES.md").read_text(encoding="utf-8")
    rows: dict[str, str] = {}
    for line in page.splitlines():
        if line.startswith("| `"):
            rows |= dict.fromkeys(re.findall(r"`([^`]+)`", line.split("|")[1]), line)
    listed = {c.name: c.license for f in FAMILIES for c in f.checkpoints}
    listed |= {d.repo: d.license for f in FAMILIES for d in f.drafters}
    assert set(rows) == set(listed)
    assert [n for n, terms in listed.items() if terms.name.replace("-", " ") not in rows[n].replace("-", " ")] == []
    assert [n for n, terms in listed.items() if terms.special and "commercially" not in rows[n]] == []
