"""Turns a llama-architecture GGUF file into a checkpoint folder of the usual layout.

The folder gets config.json, generation_config.json, tokenizer.json, tokenizer_config.json and model.safetensors. The
caller gives an empty folder of its own and puts the result in place; nothing is fetched or executed.
"""

from __future__ import annotations

import json
from pathlib import Path

from tensorfold.adapters.packages.config_files import config_object, generation_object
from tensorfold.adapters.packages.gguf_reader import GgufFile
from tensorfold.adapters.packages.llama_shape import read_shape
from tensorfold.adapters.packages.llama_tensors import EMBEDDING, lay_out
from tensorfold.adapters.packages.safetensors_writer import write_safetensors
from tensorfold.adapters.packages.tokenizer_files import TokenizerSource
from tensorfold.adapters.packages.weight_conversion import Form, affine_widths, plan_weights
from tensorfold.application.ports.checkpoints import RefusedError

CONVERTER_VERSION = 1


def convert(source: Path, folder: Path, form: Form) -> None:
    """Write the checkpoint of `source` into the empty `folder`. Raises RefusedError and OSError.

    Another file for the same input is a new CONVERTER_VERSION.
    """
    with GgufFile(source) as file:
        if EMBEDDING not in file.tensors:
            raise RefusedError(f"{file.label} lacks {EMBEDDING}.")
        vocabulary = file.tensors[EMBEDDING].rows
        shape = read_shape(file.metadata, vocabulary, file.label)
        layout = lay_out(shape, file.tensors, file.label)
        tokenizer = TokenizerSource(file.metadata, vocabulary, file.label)
        widths = affine_widths(file, layout) if form is Form.REPACKED else {}
        write_safetensors(folder / "model.safetensors", plan_weights(file, layout, form))
        files = {
            "config.json": config_object(shape, layout, tokenizer.special, widths),
            "generation_config.json": generation_object(tokenizer.special),
            "tokenizer.json": tokenizer.tokenizer_object(),
            "tokenizer_config.json": tokenizer.config_object(shape.context),
        }
    for name, value in files.items():
        text = json.dumps(value, ensure_ascii=False, indent=None if name == "tokenizer.json" else 2)
        (folder / name).write_text(text + "\n", encoding="utf-8")
