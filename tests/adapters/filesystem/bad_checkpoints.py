"""Folders that no reader may accept, written on demand, and the good folder they are made from.

`CASES` lists (name, writer): a writer fills an empty folder and may put bait beside it (in `FOLDER.outside`). Each
must be refused in one line; `SAYS` gives words that line holds. The good folder is a whole tiny Llama, so that nothing
but the planted fault can be the reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Writer = Callable[[Path], None]
Tensors = dict[str, tuple[str, tuple[int, ...]]]

WIDTH, INNER, HEADS, KV_HEADS, VOCABULARY = 32, 64, 2, 1, 64
HEAD = WIDTH // HEADS
BYTES = {"BF16": 2, "F32": 4, "U8": 1}

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": WIDTH,
    "intermediate_size": INNER, "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD, "max_position_embeddings": 256, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
    "vocab_size": VOCABULARY, "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
    "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16",
}  # fmt: skip

TENSORS: Tensors = {
    "model.embed_tokens.weight": ("BF16", (VOCABULARY, WIDTH)),
    "model.norm.weight": ("BF16", (WIDTH,)),
    "model.layers.0.input_layernorm.weight": ("BF16", (WIDTH,)),
    "model.layers.0.post_attention_layernorm.weight": ("BF16", (WIDTH,)),
    "model.layers.0.self_attn.q_proj.weight": ("BF16", (HEADS * HEAD, WIDTH)),
    "model.layers.0.self_attn.k_proj.weight": ("BF16", (KV_HEADS * HEAD, WIDTH)),
    "model.layers.0.self_attn.v_proj.weight": ("BF16", (KV_HEADS * HEAD, WIDTH)),
    "model.layers.0.self_attn.o_proj.weight": ("BF16", (WIDTH, HEADS * HEAD)),
    "model.layers.0.mlp.gate_proj.weight": ("BF16", (INNER, WIDTH)),
    "model.layers.0.mlp.up_proj.weight": ("BF16", (INNER, WIDTH)),
    "model.layers.0.mlp.down_proj.weight": ("BF16", (WIDTH, INNER)),
}
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
NORM = "model.norm.weight"


def header_of(tensors: Tensors) -> tuple[dict[str, Any], int]:
    """The header object of tensors one behind the other, and the bytes of their data."""
    header: dict[str, Any] = {}
    position = 0
    for name, (dtype, shape) in tensors.items():
        size = BYTES[dtype]
        for part in shape:
            size *= part
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
    return header, position


def write_raw(path: Path, header: bytes, data: int, stated: int | None = None) -> None:
    """A safetensors file of a literal header and `data` bytes that count up."""
    length = len(header) if stated is None else stated
    body = bytes(range(256)) * (data // 256 + 1)
    path.write_bytes(length.to_bytes(8, "little") + header + body[:data])


def write_safetensors(path: Path, tensors: Tensors) -> None:
    """A good file of these tensors."""
    header, data = header_of(tensors)
    write_raw(path, json.dumps({"__metadata__": {"format": "pt"}, **header}).encode(), data)


def write_json(path: Path, value: object) -> None:
    """A JSON file."""
    path.write_text(json.dumps(value), encoding="utf-8")


def write_config(folder: Path, changes: Mapping[str, Any] | None = None) -> None:
    """config.json and generation_config.json."""
    write_json(folder / "config.json", CONFIG | dict(changes or {}))
    write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})


def write_good(folder: Path) -> None:
    """The good folder in one file."""
    write_config(folder)
    write_safetensors(folder / WEIGHTS, TENSORS)


def split() -> tuple[Tensors, Tensors]:
    """The good tensors over two shards."""
    names = list(TENSORS)
    return {n: TENSORS[n] for n in names[:4]}, {n: TENSORS[n] for n in names[4:]}


def weight_map() -> dict[str, str]:
    """The placement that `write_good_shards` writes."""
    return {name: shard for shard, part in zip(SHARDS, split(), strict=True) for name in part}


def write_good_shards(folder: Path, placed: Mapping[str, str] | None = None) -> None:
    """The good folder in two shards, with another weight_map when one is given."""
    write_config(folder)
    for shard, part in zip(SHARDS, split(), strict=True):
        write_safetensors(folder / shard, part)
    write_json(folder / INDEX, {"metadata": {"total_size": 1}, "weight_map": placed or weight_map()})


def config_text(text: bytes) -> Writer:
    """The good folder with a literal config.json."""

    def write(folder: Path) -> None:
        write_good(folder)
        (folder / "config.json").write_bytes(text)

    return write


def header_text(header: bytes, data: int = 0, stated: int | None = None) -> Writer:
    """The good folder with a literal safetensors header."""

    def write(folder: Path) -> None:
        write_config(folder)
        write_raw(folder / WEIGHTS, header, data, stated)

    return write


def entry(changes: Mapping[str, Any], name: str = NORM) -> Writer:
    """The good folder with fields of one tensor's entry changed."""

    def write(folder: Path) -> None:
        write_config(folder)
        header, data = header_of(TENSORS)
        header[name] = header[name] | dict(changes)
        write_raw(folder / WEIGHTS, json.dumps(header).encode(), data)

    return write


def renamed(name: str) -> Writer:
    """The good folder with one tensor under another name."""

    def write(folder: Path) -> None:
        write_config(folder)
        write_safetensors(folder / WEIGHTS, {(name if old == NORM else old): at for old, at in TENSORS.items()})

    return write


def weights_bytes(change: Callable[[bytes], bytes]) -> Writer:
    """The good folder with the bytes of its weight file changed."""

    def write(folder: Path) -> None:
        write_good(folder)
        (folder / WEIGHTS).write_bytes(change((folder / WEIGHTS).read_bytes()))

    return write


def index_text(text: bytes) -> Writer:
    """Good shards with a literal index."""

    def write(folder: Path) -> None:
        write_good_shards(folder)
        (folder / INDEX).write_bytes(text)

    return write


def placed_at(target: str) -> Writer:
    """Good shards whose index sends one tensor to `target`."""
    return lambda folder: write_good_shards(folder, weight_map() | {NORM: target})


def without(*names: str) -> Writer:
    """Good shards of which some files are not there."""

    def write(folder: Path) -> None:
        write_good_shards(folder)
        for name in names:
            (folder / name).unlink()

    return write


def instead_of(name: str, make: Callable[[Path], None]) -> Writer:
    """The good folder in which `make` puts something else in the place of a file."""

    def write(folder: Path) -> None:
        write_good(folder)
        (folder / name).unlink()
        make(folder / name)

    return write


def link_outside(path: Path) -> None:
    """A link to a good file that lies outside the folder."""
    outside = path.parent.with_name(path.parent.name + ".outside")
    outside.mkdir()
    write_good(outside)
    path.symlink_to(outside / path.name)


def _link_past_blobs(folder: Path) -> None:
    """A hub cache whose snapshot links past its own blobs: the folder itself becomes a link to that snapshot."""
    outside = folder.with_name(folder.name + ".outside")
    snapshot = outside / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (outside / "blobs").mkdir()
    write_good(snapshot)
    (snapshot / WEIGHTS).rename(outside / "bait")
    (snapshot / WEIGHTS).symlink_to("../../bait")
    folder.rmdir()
    folder.symlink_to(snapshot)


def _in_two_shards(folder: Path) -> None:
    write_good_shards(folder)
    first, second = split()
    write_safetensors(folder / SHARDS[1], second | {NORM: first[NORM]})


def _in_two_shapes(folder: Path) -> None:
    write_good_shards(folder)
    write_safetensors(folder / WEIGHTS, TENSORS)


def _unnamed_tensor(folder: Path) -> None:
    placed = weight_map()
    del placed[NORM]
    write_good_shards(folder, placed)


def _only(name: str) -> Writer:
    def write(folder: Path) -> None:
        write_config(folder)
        (folder / name).write_bytes(b"\x80\x04cposix\nsystem\n(S'false'\ntR.")

    return write


def _duplicate_tensor(folder: Path) -> None:
    write_config(folder)
    header, data = header_of(TENSORS)
    text = json.dumps(header)
    write_raw(folder / WEIGHTS, (text[:-1] + f", {json.dumps(NORM)}: {json.dumps(header[NORM])}}}").encode(), data)


def _holed(shift: int) -> Writer:
    """The last tensor moved by some bytes: a hole before it, or an overlap."""

    def write(folder: Path) -> None:
        write_config(folder)
        header, data = header_of(TENSORS)
        last = list(header)[-1]
        begin, end = header[last]["data_offsets"]
        header[last]["data_offsets"] = [begin + shift, end + shift]
        write_raw(folder / WEIGHTS, json.dumps(header).encode(), data + shift)

    return write


def _many_shards(folder: Path) -> None:
    write_config(folder)
    placed = {f"tensor.{i}": f"model-{i:05}-of-01100.safetensors" for i in range(1100)}
    write_json(folder / INDEX, {"weight_map": placed})


def _blank_header(folder: Path) -> None:
    """A header of the largest length, nearly all of it blanks."""
    write_config(folder)
    with (folder / WEIGHTS).open("wb") as file:
        file.write((100_000_000).to_bytes(8, "little") + b"{")
        block = b" " * 1_000_000
        for _ in range(100):
            file.write(block)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


_DEEP = 100_000
_EMPTY = json.dumps(header_of({})[0]).encode()

_TABLE: list[tuple[str, Writer, str]] = [
    # name, writer, words of the refusal
    ("no_config", instead_of("config.json", lambda path: None), "config.json cannot be opened (it is not there)"),
    ("config_not_json", config_text(b"<!DOCTYPE html><html>"), "config.json is not valid JSON (line 1"),
    ("config_empty", config_text(b""), "config.json is not valid JSON"),
    ("config_cut", config_text(json.dumps(CONFIG).encode()[:-40]), "config.json is not valid JSON"),
    ("config_array", config_text(b"[1, 2]"), "holds a JSON array"),
    ("config_not_utf8", config_text(b'{"model_type": "\xff\xfe"}'), "is not UTF-8"),
    ("config_deep", config_text(b'{"a":' * _DEEP + b"1" + b"}" * _DEEP), "nested deeper than the 32"),
    ("config_deep_unclosed", config_text(b"[" * _DEEP), "nested deeper than the 32"),
    ("config_many_values", config_text(b'{"a":[' + b"0," * 300_000 + b"0]}"), "more than the 200000"),
    ("config_huge", config_text(b'{"a":"' + b"a" * (5 << 20) + b'"}'), "more than the 4194304"),
    ("config_duplicate_key", config_text(b'{"model_type":"llama","model_type":"other"}'), "'model_type' twice"),
    ("config_nan", config_text(b'{"rms_norm_eps": NaN}'), "holds NaN"),
    ("config_infinity", config_text(b'{"rms_norm_eps": -Infinity}'), "holds -Infinity"),
    ("config_overflowing_float", config_text(b'{"rope_theta": 1e999}'), "1e999"),
    ("config_long_number", config_text(b'{"hidden_size": ' + b"9" * 5000 + b"}"), "5000 digits"),
    ("config_folder", instead_of("config.json", lambda path: path.mkdir()), "config.json is a folder"),
    ("config_pipe", instead_of("config.json", os.mkfifo), "config.json is a pipe"),
    ("config_link_out", instead_of("config.json", link_outside), "config.json is a link that leads outside"),
    ("config_device", instead_of("config.json", lambda path: path.symlink_to("/dev/zero")), "leads outside"),
    ("config_link_circle", instead_of("config.json", _loop), "go in a circle"),
    (
        "generation_not_object",
        instead_of("generation_config.json", lambda path: write_json(path, "x")),
        "a JSON string",
    ),
    ("no_weights", instead_of(WEIGHTS, lambda path: None), "model.safetensors is not there"),
    ("only_a_pickle", _only("pytorch_model.bin"), "pytorch_model.bin is not read"),
    ("only_a_gguf", _only("model.Q4_K.gguf"), "model.Q4_K.gguf is not read"),
    ("shards_without_index", without(INDEX), "model.safetensors.index.json is not there"),
    ("weights_folder", instead_of(WEIGHTS, lambda path: path.mkdir()), "model.safetensors is a folder"),
    ("weights_pipe", instead_of(WEIGHTS, os.mkfifo), "model.safetensors is a pipe"),
    ("weights_device", instead_of(WEIGHTS, lambda path: path.symlink_to("/dev/zero")), "leads outside"),
    ("weights_link_out", instead_of(WEIGHTS, link_outside), "leads outside"),
    ("hub_link_past_blobs", _link_past_blobs, "leads outside"),
    ("weights_empty", weights_bytes(lambda data: b""), "has 0 bytes"),
    ("weights_seven_bytes", weights_bytes(lambda data: data[:7]), "has 7 bytes"),
    ("weights_cut_in_half", weights_bytes(lambda data: data[: len(data) // 2]), "download the checkpoint again"),
    ("weights_cut_by_one", weights_bytes(lambda data: data[:-1]), "download the checkpoint again"),
    ("weights_with_a_rest", weights_bytes(lambda data: data + b"\0"), "places tensors up to byte"),
    ("weights_page", weights_bytes(lambda data: b"<!DOCTYPE html><html></html>"), "no safetensors file"),
    ("header_2_to_60", header_text(b"{}", stated=1 << 60), "states a header of 1152921504606846976 bytes"),
    ("header_2_to_64", header_text(b"{}", stated=(1 << 64) - 1), "states a header of 18446744073709551615 bytes"),
    ("header_over_limit", header_text(b"{}", stated=100_000_001), "more than the 100000000"),
    ("header_past_file", header_text(_EMPTY, stated=4000), "states a header of 4000 bytes"),
    ("header_length_zero", header_text(b"", data=64, stated=0), "does not begin with '{'"),
    ("header_not_object", header_text(b"[[], []]"), "does not begin with '{'"),
    ("header_unclosed", header_text(b'{"a": {"dtype": "BF16"'), "not a valid JSON object"),
    ("header_blanks", _blank_header, "not a valid JSON object"),
    ("header_not_utf8", header_text(b'{"\xff\xfe": 1}'), "is not UTF-8"),
    ("header_two_objects", header_text(b"{} {}"), "behind its JSON object"),
    ("header_no_tensor", header_text(b"{}"), "holds no tensor"),
    ("header_deep", header_text(b'{"a":' * _DEEP + b"1" + b"}" * _DEEP), "not a valid JSON object"),
    ("header_deep_shape", header_text(b'{"a":{"shape":' + b"[" * 900 + b"]" * 900 + b"}}"), "not a valid JSON object"),
    ("header_long_entry", header_text(b'{"a":{"shape":[' + b"1," * 500_000 + b"1]}}"), "more than 4096 characters"),
    ("header_long_name", renamed("n" * 10_000), "more than 4096 characters"),
    ("header_metadata_number", header_text(b'{"__metadata__": {"format": 1}}'), "not a valid JSON object"),
    ("header_metadata_list", header_text(b'{"__metadata__": [[[[]]]]}'), "not a valid JSON object"),
    ("tensor_duplicate", _duplicate_tensor, "'model.norm.weight' twice"),
    ("tensor_duplicate_field", header_text(b'{"a":{"dtype":"U8","dtype":"U8"}}'), "'dtype' twice"),
    ("tensor_field_missing", header_text(b'{"a":{"dtype":"U8","shape":[0]}}'), "exactly dtype, shape and data_offsets"),
    ("tensor_field_more", entry({"stride": [1]}), "exactly dtype, shape and data_offsets"),
    ("tensor_not_object", header_text(b'{"a": 7}'), "exactly dtype, shape and data_offsets"),
    ("tensor_dtype_unknown", entry({"dtype": "F13"}), "has the dtype 'F13'"),
    ("tensor_dtype_number", entry({"dtype": 16}), "has the dtype '16'"),
    ("tensor_shape_negative", entry({"shape": [-1, -32]}), "whole numbers"),
    ("tensor_shape_boolean", entry({"shape": [True]}), "whole numbers"),
    ("tensor_shape_float", entry({"shape": [32.0]}), "whole numbers"),
    ("tensor_shape_text", entry({"shape": "32"}), "whole numbers"),
    ("tensor_shape_rank", entry({"shape": [1] * 9}), "at most 8"),
    ("tensor_shape_dimension", entry({"shape": [1 << 31]}), "2147483647"),
    ("tensor_shape_overflow", entry({"shape": [1 << 30] * 8}), "takes"),
    ("tensor_shape_past_file", entry({"shape": [1 << 20, 1 << 20]}), "takes 2199023255552"),
    ("tensor_shape_small", entry({"shape": [31]}), "takes 62"),
    ("tensor_offsets_backward", entry({"data_offsets": [64, 0]}), "a begin and an end"),
    ("tensor_offsets_negative", entry({"data_offsets": [-64, 0]}), "a begin and an end"),
    ("tensor_offsets_three", entry({"data_offsets": [0, 1, 2]}), "a begin and an end"),
    (
        "tensor_offsets_past_file",
        entry({"data_offsets": [1 << 40, (1 << 40) + 64]}),
        "places tensors up to byte 1099511",
    ),
    ("tensor_overlaps", entry({"data_offsets": [0, 64]}), "they overlap"),
    ("tensor_leaves_hole", _holed(8), "belong to none"),
    ("tensor_name_control", renamed("a\nb\x1b[31m"), "printable"),
    ("tensor_name_surrogate", renamed("a\ud800"), "printable"),
    ("tensor_name_empty", renamed(""), "printable"),
    ("tensor_name_long", renamed("n" * 300), "printable"),
    ("tensor_in_two_shards", _in_two_shards, "and so does model-00002-of-00002.safetensors"),
    ("tensor_not_in_index", _unnamed_tensor, "does not name"),
    ("weights_beside_index", _in_two_shapes, "beside an index that does not name it"),
    ("index_not_json", index_text(b"{"), "not a valid JSON object"),
    ("index_cut", index_text(b'{"weight_map": {"model.norm.weight": "model-0'), "not a valid JSON object"),
    ("index_without_map", index_text(b'{"metadata": {}}'), "no weight_map"),
    ("index_map_list", index_text(b'{"weight_map": []}'), "not a valid JSON object"),
    ("index_map_number", index_text(b'{"weight_map": {"a": 1}}'), "not a valid JSON object"),
    ("index_map_twice", index_text(b'{"weight_map": {}, "weight_map": {}}'), "'weight_map' twice"),
    ("index_tensor_twice", index_text(b'{"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}}'), "'a' twice"),
    ("index_deep", index_text(b'{"metadata": ' + b"[" * _DEEP), "not a valid JSON object"),
    ("index_traversal", placed_at("../outside.safetensors"), "a plain file name"),
    ("index_traversal_inner", placed_at("a/../../outside.safetensors"), "a plain file name"),
    ("index_absolute", placed_at("/etc/passwd"), "a plain file name"),
    ("index_backslash", placed_at("..\\outside.safetensors"), "a plain file name"),
    ("index_control", placed_at("a\0b.safetensors"), "a plain file name"),
    ("index_pickle", placed_at("pytorch_model.bin"), "a plain file name"),
    ("index_wrong_shard", placed_at(SHARDS[1]), "which does not hold it"),
    ("index_many_shards", _many_shards, "more files than the 1024"),
    ("one_shard_missing", without(SHARDS[1]), "1 of them are not there: model-00002-of-00002.safetensors"),
    ("all_shards_missing", without(*SHARDS), ", ".join(SHARDS)),
]

CASES: list[tuple[str, Writer]] = [(name, writer) for name, writer, _ in _TABLE]
SAYS: dict[str, str] = {name: words for name, _, words in _TABLE}
