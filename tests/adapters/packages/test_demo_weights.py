"""The real demo, from the cache, the installed package or a download: it must be there, so its absence fails."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.adapters.packages.demo import DemoPackage
from tensorfold.domain.families import binding, llama
from tensorfold.domain.families.storage import Affine, Dense, parse_quantization
from tests.adapters.packages.reference_bpe import ReferenceTokenizer

pytestmark = pytest.mark.demo

TEXTS = (
    "The capital of France is Paris.",
    "def area(r):\n    return 3.14159 * r**2  # x²\n\n\tpass\n",
    "12345 67890; it's, they'll, WE'RE 'S",
    "příliš žluťoučký kůň; naïve façade, straße",
    "数学与科学、日本語テスト。한국어",
    "emoji 😀 👩‍👩‍👧 and café  \n \n  end   ",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "٣٤٥ Ⅷ ½ 2²",
    " leading,  two  and\u3000wide\xa0blanks\r\n",
    "",
)


@pytest.fixture(scope="module")
def folder_of() -> Callable[[str], Path]:
    base = os.environ.get("XDG_CACHE_HOME")
    cache = (Path(base) if base else Path("~/.cache").expanduser()) / "tensorfold"
    return lambda name: DemoPackage(cache).provide(name, print)


def json_of(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text("utf-8"))


@pytest.mark.parametrize(
    ("name", "dtype", "weight_bytes", "matrix", "embedding", "norm"),
    [
        ("demo", "bfloat16", 269_030_016, Dense("BF16"), Dense("BF16"), Dense("BF16")),
        ("demo@4bit", "float16", 98_275_968, Affine(4, 32, "F16"), Affine(8, 32, "F16"), Dense("F16")),
    ],
)
def test_the_demo_is_a_llama_of_its_stated_geometry(
    folder_of: Callable[[str], Path],
    name: str,
    dtype: str,
    weight_bytes: int,
    matrix: object,
    embedding: object,
    norm: object,
) -> None:
    facts = FolderReader().facts(folder_of(name))
    plan = llama.plan(facts.config)
    assert (len(plan.layers), plan.width, plan.context, plan.embedding.vocabulary) == (30, 576, 8192, 49152)
    assert (plan.activation, plan.head.tied, plan.stop_ids) == (dtype, True, frozenset({2}))
    assert facts.weight_bytes == weight_bytes
    bound = binding.resolve(plan, facts.tensors, parse_quantization(facts.config))
    assert bound["embedding"].storage == embedding
    assert bound["readout.norm"].storage == norm
    assert {bound[path].storage for path in bound if path.endswith((".q", ".k", ".v", ".out", ".down"))} == {matrix}


def test_ids_equal_those_of_the_vocabularys_own_rules_and_decode_back(folder_of: Callable[[str], Path]) -> None:
    folder = folder_of("demo")
    stated = json_of(folder, "tokenizer.json")
    vocabulary = sorted(stated["model"]["vocab"], key=stated["model"]["vocab"].__getitem__)
    added = [entry["content"] for entry in stated["added_tokens"]]
    merges = [" ".join(pair) for pair in stated["model"]["merges"]]
    assert (len(vocabulary), len(merges), added[:3]) == (49152, 48900, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    reference = ReferenceTokenizer(vocabulary, merges, added, single_digits=True)
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in TEXTS:
        ids = library.encode(text).ids
        assert ids == reference.encode(text), text
        assert library.decode(ids, skip_special_tokens=False) == text


def test_known_texts_have_known_ids(folder_of: Callable[[str], Path]) -> None:
    library = Tokenizer.from_file(str(folder_of("demo") / "tokenizer.json"))
    assert library.encode("The capital of France is Paris.").ids == [504, 3575, 282, 4649, 314, 7042, 30]
    assert library.encode("<|im_start|>user\n12<|im_end|>").ids[0] == 1
    assert library.encode("<|im_start|>user\n12<|im_end|>").ids[-1] == 2
    assert library.encode("2026").tokens == ["2", "0", "2", "6"]


def test_the_template_is_the_models_own_chat_form(folder_of: Callable[[str], Path]) -> None:
    config = json_of(folder_of("demo"), "tokenizer_config.json")
    assert "<|im_start|>" in config["chat_template"]
    assert (config["bos_token"], config["eos_token"]) == ("<|im_start|>", "<|im_end|>")


@pytest.mark.parametrize("name", ["demo", "demo@4bit"])
def test_what_is_told_of_the_demo_before_it_is_fetched_is_what_its_files_say(
    name: str, folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = folder_of(name)
    files = (json_of(folder, "config.json"), json_of(folder, "generation_config.json"))
    assert DemoPackage(tmp_path).describe(name) == files
