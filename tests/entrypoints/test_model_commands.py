"""What pull, models and info print: every line, and the JSON beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorfold.domain.families import dflash2, qwen4_exp
from tests.adapters.huggingface.hubs import REPO, config_of
from tests.domain.families.sheet_facts import FACTS
from tests.end_to_end.commands import Ran
from tests.end_to_end.hub_place import FILES, WEIGHT_BYTES, Place, place

NOTE = "it is not on the list of tested checkpoints: it runs, and exactly, but its speed was not measured"
NARROW = (
    "CUDA reads matrices whose inputs are a multiple of 64, but config.json makes model.layers.0.mlp.down_proj 96 "
    "wide: start with `--backend mlx`."
)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Place]:
    with place(tmp_path) as made:
        yield made


def lines(ran: Ran) -> list[str]:
    assert (ran.code, ran.err) == (0, "")
    return ran.out.splitlines()


def parsed(ran: Ran) -> Any:
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)


def folder(here: Place) -> Path:
    return here.cache / "models--org--model" / "snapshots" / here.hub.repositories[REPO].commit()


def test_pull_says_what_is_missing_and_what_is_complete(here: Place) -> None:
    whole = f"{sum(map(len, FILES.values())) / 1e3:.2f} kB"
    missing, *far, complete, note = lines(here.here("pull", REPO))
    assert missing == f"[tensorfold] org/model: 3 of 8 files are not here yet, {WEIGHT_BYTES / 1e6:.2f} MB"
    assert far[-1].startswith(f"[tensorfold] org/model: 100%, {whole} of {whole}, ")
    assert complete == f"[tensorfold] org/model is complete: {whole} in {folder(here)}, Llama"
    assert note == f"[tensorfold] org/model: {NOTE}"


def test_pull_of_what_is_here_says_only_that(here: Place) -> None:
    here.here("pull", REPO)
    said = lines(here.here("pull", REPO, HF_HUB_OFFLINE="1"))
    assert said[0] == "[tensorfold] HF_HUB_OFFLINE is set: taking org/model as it is on this machine"
    assert said[1].startswith("[tensorfold] org/model is complete: ") and len(said) == 3


def test_info_tells_a_repository_line_by_line(here: Place) -> None:
    told = lines(here.here("info", REPO))
    assert told == [
        "org/model",
        "  model type    llama",
        "  family        Llama",
        "  layers        2: 2 attention, 2 gated MLP",
        "  hidden size   64",
        "  experts       none",
        f"  vocabulary    {json.loads(FILES['config.json'])['vocab_size']:,}",
        "  window        512 tokens",
        "  parameters    78,848",
        "  state         512 bytes a token",
        "  quantization  none: plain values",
        "  backends      mlx",
        f"  not cuda      {NARROW}",
        "  sampling      greedy",
        "  drafting      context copies",
        "  weights       about 315.39 kB, estimated from config.json",
        "  here          not on this machine; `tensorfold pull org/model` brings it",
    ]


def test_info_tells_what_is_here_and_where_the_template_is_read(here: Place) -> None:
    here.here("pull", REPO)
    told = lines(here.here("info", REPO, HF_HUB_OFFLINE="1"))
    assert told[-2:] == [
        f"  here          complete in {folder(here)}",
        "  template      tokenizer_config.json, if it holds one",
    ]
    (folder(here) / "chat_template.jinja").write_text("x")
    assert lines(here.here("info", str(folder(here))))[-1] == "  template      chat_template.jinja"
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        (folder(here) / name).unlink()
    assert lines(here.here("info", REPO, HF_HUB_OFFLINE="1"))[-1] == "  template      none"
    (folder(here) / "tokenizer.json").unlink()
    missing = lines(here.here("info", REPO, HF_HUB_OFFLINE="1"))[-1]
    assert missing == f"  here          in part: tokenizer.json missing in {folder(here)}"


def test_info_tells_the_window_that_a_start_here_would_get(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    here.here("pull", REPO)
    monkeypatch.setenv("TENSORFOLD_MEMORY_LIMIT_GB", "4")
    fits = parsed(here.here("info", REPO, "--json"))["fits"]
    assert (fits["backend"], fits["context"], fits["budget_bytes"], fits["refusal"]) == ("mlx", 512, 4 << 30, None)
    assert 78_848 * 4 <= fits["weight_bytes"] < 1 << 20
    told = [line for line in lines(here.here("info", REPO)) if line.startswith("  fits")]
    assert told == [
        "  fits          512 tokens of context on mlx, set by the checkpoint; weights 0.3 MiB of a budget of 4.00 GiB"
    ]
    monkeypatch.setenv("TENSORFOLD_MEMORY_LIMIT_GB", "3")
    small = parsed(here.here("info", REPO, "--json"))["fits"]
    assert small["context"] is None and "The weights take 0.3 MiB of memory" in small["refusal"]
    told = [line for line in lines(here.here("info", REPO)) if line.startswith("  fits")]
    assert told == [f"  fits          not on mlx: {small['refusal']}"]
    monkeypatch.setenv("TENSORFOLD_MEMORY_LIMIT_GB", "none")
    wrong = here.here("info", REPO)
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.err.startswith("tensorfold: TENSORFOLD_MEMORY_LIMIT_GB is 'none'")


def test_info_tells_no_window_where_nothing_can_run_a_model(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    here.here("pull", REPO)
    for backend in ("mlx.backend.MlxBackend", "cuda.backend.CudaBackend"):
        monkeypatch.setattr(f"tensorfold.adapters.{backend}.missing", lambda self: "It is not installed.")
    assert parsed(here.here("info", REPO, "--json"))["fits"] is None
    assert not [one for one in lines(here.here("info", REPO)) if one.startswith("  fits")]


def test_info_tells_how_weights_are_stored_and_replies_sampled(here: Place) -> None:
    block = {"bits": 4, "group_size": 64, "lm_head": False, "model.embed_tokens": {"bits": 8, "group_size": 64}}
    block |= {f"model.layers.{n}.mlp.up_proj": {"bits": 6, "group_size": 64} for n in range(4)}
    generation = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.05}
    config = config_of(FILES, quantization=block)
    here.hub.add(REPO, {**FILES, "config.json": config, "generation_config.json": json.dumps(generation).encode()})
    told = dict(line.strip().split("  ", 1) for line in lines(here.here("info", REPO))[1:] if "not cuda" not in line)
    assert told["quantization"] == (
        "affine, 4-bit in groups of 64; otherwise: lm_head plain, model.embed_tokens 8-bit in groups of 64, "
        "model.layers.0.mlp.up_proj 6-bit in groups of 64, model.layers.1.mlp.up_proj 6-bit in groups of 64 and 2 more"
    )
    assert told["sampling"].strip() == "temperature 0.7, top-p 0.8, top-k 20, min-p 0.05"
    whole = parsed(here.here("info", REPO, "--json"))
    assert whole["quantization"]["modules"]["model.embed_tokens"] == {"bits": 8, "group_size": 64}
    assert whole["quantization"]["modules"]["lm_head"] is None
    assert whole["sampling"] == {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05}


@pytest.mark.slow
def test_info_tells_every_listed_family_by_the_facts_of_its_sheet(here: Place) -> None:
    for told in FACTS:
        here.hub.add(REPO, {"config.json": json.dumps(told.config).encode()})
        said = lines(here.here("info", REPO))
        assert [line for line in told.lines if line not in said] == []
        on_cuda = told.config["model_type"] in ("nemotron_h", "qwen3_5")
        assert f"  backends      {'mlx, cuda' if on_cuda else 'mlx'}" in said
        assert on_cuda or any(line.startswith("  not cuda  ") for line in said)
    assert here.hub.weights_asked() == 0


@pytest.mark.slow
def test_info_tells_a_branch_of_weights_in_exl3_and_asks_for_its_config_alone(here: Place) -> None:
    block = {"quant_method": "exl3", "bits": 3.05, "head_bits": 5, "codebook": "mul1"}
    here.hub.add(REPO, {"config.json": json.dumps(qwen4_exp.CONFIG | {"quantization_config": block}).encode()})
    said = lines(here.here("info", REPO))
    assert "  quantization  EXL3, 3.05 bits a weight on average, head 5, codebook mul1; experimental" in said
    refusal = "Qwen3.8 Flash Next in EXL3 is experimental and not served by this version: use "
    assert f"  not cuda      {refusal}Vontra/Qwen3.8-Flash-Next-MLX-4bit-MTP." in said
    assert parsed(here.here("info", REPO, "--json"))["exl3"] == {"bits": 3.05, "head_bits": 5.0, "codebook": "mul1"}
    for command in ("pull", "serve"):
        ran = here.here(command, REPO)
        assert (ran.refusal_faults() == [] and REPO in ran.err) or "Flash Next" in ran.err
    assert here.hub.weights_asked() == 0


def test_info_tells_a_drafter_by_the_model_it_drafts_for(here: Place) -> None:
    here.hub.add(REPO, {"config.json": json.dumps(dflash2.CONFIG).encode()})
    assert lines(here.here("info", REPO)) == [
        "org/model",
        "  drafter       DFlash2",
        "  drafts for    Qwen3.8-27B",
        "  layers        5",
        "  hidden size   5,120",
        "  vocabulary    248,320",
        "  block         8 positions, 7 of them drafts of 16 candidates",
        "  reads         the model after 6, 20, 34, 48, 62 layers",
        "  parameters    1.92 B",
        "  state         20,480 bytes for each of the last 2,047 tokens",
        "  here          not on this machine; `tensorfold pull org/model` brings it",
    ]
    listed, stranger = "incoai/GLM-5.3-Flash-DFlash2", "org/other"
    here.hub.add(listed, {"config.json": json.dumps(dflash2.GLM_CONFIG).encode()})
    here.hub.add(stranger, {"config.json": json.dumps(dflash2.CONFIG | {"hidden_size": 1024}).encode()})
    assert lines(here.here("info", listed))[-1] == (
        "  licence       CC BY-NC-ND 4.0. The weights may not be used commercially or passed on in changed form."
    )
    unknown = lines(here.here("info", stranger))
    assert "  drafts for    no model listed here" in unknown and not any(line.startswith("  state") for line in unknown)
    told = parsed(here.here("info", REPO, "--json"))
    assert (told["drafter"], told["drafts_for"], told["taps"]) == ("dflash2", "Qwen3.8-27B", [6, 20, 34, 48, 62])


def test_infos_object_holds_every_key_the_page_names(here: Place) -> None:
    told = parsed(here.here("info", REPO, "--json"))
    assert told == {
        "model": REPO,
        "model_type": "llama",
        "family": "Llama",
        "served": True,
        "layers": 2,
        "hidden_size": 64,
        "experts": 0,
        "vocabulary": json.loads(FILES["config.json"])["vocab_size"],
        "window": 512,
        "kinds": {"attention": 2, "gated MLP": 2},
        "parameters": 78_848,
        "table_parameters": 0,
        "head_parameters": 0,
        "state": {"token_bytes": 512, "windowed_token_bytes": 0, "window": 0, "fixed_bytes": 0},
        "head_state": {"token_bytes": 0, "windowed_token_bytes": 0, "window": 0, "fixed_bytes": 0},
        "exl3": None,
        "quantization": None,
        "backends": ["mlx"],
        "refusals": {"cuda": NARROW},
        "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
        "drafting": "context copies",
        "estimated_weight_bytes": 315_392,
        "side_files": [],
        "fits": None,
        "complete": False,
        "folder": None,
        "missing": [],
        "license": None,
        "license_terms": None,
    }


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "bert"}, "tensorfold: config.json's model_type is 'bert', which is no family known here; "),
        ({"quantization_config": {"quant_method": "gptq"}}, "has quant_method 'gptq', which is not read here; use a "),
    ],
)
def test_info_refuses_what_nobody_knows(here: Place, config: dict[str, Any], says: str) -> None:
    here.hub.add(REPO, {**FILES, "config.json": config_of(FILES, **config)})
    ran = here.here("info", REPO)
    assert ran.refusal_faults() == [] and says in ran.err
    assert here.hub.weights_asked() == 0


def test_models_lists_families_checkpoints_drafters_and_terms(here: Place) -> None:
    told = lines(here.here("models", HF_HUB_OFFLINE="1"))
    assert told[:4] == [
        "Llama: MLX and CUDA",
        "  model types  llama, mistral, qwen2",
        "  drafting     context copies",
        "  demo: SmolLM2-135M-Instruct, bf16; licence: Apache-2.0; not on this machine",
    ]
    for line in (
        "Nemotron 3.5 Lightning: MLX and CUDA",
        "  layers       30: 25 sliding attention, 30 gated MLP, 30 experts, 5 attention",
        "  state        65,536 bytes a token and 146.8 MiB a stream; draft head 4,096 bytes a token and 10,240 bytes a "
        "stream",
        "  formats      MLX 4 bits in groups of 32 or 64 with a router in 8 bits",
        "  note         MLX needs a Mac with 256 GB, of which it takes up to 85%; CUDA needs two ranks",
        "  turboderp/Qwen3.8-27B-exl3@3.00bpw: EXL3, experimental and not served yet; licence: see its model card; "
        "not on this machine",
        "  z-lab/Qwen3.8-27B-DFlash2: drafter; licence: see its model card; not on this machine",
        "  incoai/GLM-5.3-Flash-DFlash2: drafter; licence: CC BY-NC-ND 4.0 (The weights may not be used commercially "
        "or passed on in changed form); not on this machine",
    ):
        assert line in told
    assert here.hub.requests == []


def test_models_object_knows_what_is_here(here: Place) -> None:
    snapshot = here.cache / "models--z-lab--Qwen3.8-27B-DFlash2" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"model_type": "dflash"}')
    assert "in part" not in here.here("models").out
    (snapshot / "w-00002-of-00002.safetensors").write_text("")
    told = parsed(here.here("models", "--json"))["families"]
    by_title = {family["title"]: family for family in told}
    (drafter,) = by_title["Qwen3.8-27B"]["drafters"]
    assert drafter == {
        "name": "z-lab/Qwen3.8-27B-DFlash2",
        "optional_on": ["mlx"],
        "license": "see its model card",
        "license_terms": None,
        "complete": False,
        "folder": str(snapshot),
        "missing": ["w-00001-of-00002.safetensors"],
    }
    assert "  z-lab/Qwen3.8-27B-DFlash2: drafter; licence: see its model card; in part on this machine" in lines(
        here.here("models")
    )
    (snapshot / "w-00001-of-00002.safetensors").write_text("")
    told = parsed(here.here("models", "--json"))["families"]
    assert [f["drafters"][0]["complete"] for f in told if f["title"] == "Qwen3.8-27B"] == [True]
    assert by_title["Llama"]["served"] is True and by_title["Gemma 4 26B-A4B"]["backends"] == ["mlx"]
    assert {c["source"] for c in by_title["Llama"]["checkpoints"]} == {"package"}
    assert by_title["Llama"]["facts"] is None
    nemotron = by_title["Nemotron 3.5 Lightning"]["facts"]
    assert nemotron["formats"] == {b: {"bits": [4], "groups": [64]} for b in ("mlx", "cuda")}
    assert (nemotron["state"]["token_bytes"], nemotron["window"], nemotron["layers"]) == (6_144, 262_144, 52)
