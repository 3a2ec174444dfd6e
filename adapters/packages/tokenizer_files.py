"""tokenizer.json and tokenizer_config.json from a GGUF file's vocabulary, as objects.

Only byte-level BPE with a known pre-tokenizer is written, so that ids equal those of the file's own rules: text is
split, each piece spelled in the byte alphabet and merged by rank; a byte without a token is dropped by both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorfold.adapters.packages.gguf_fields import Value
from tensorfold.application.ports.checkpoints import RefusedError

_MODEL = "gpt2"
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_SPECIAL_NAMES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}

# The words, numbers, signs and blanks of GPT-2's pattern; both pre-tokenizers end with it.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SPLIT = {"type": "Split", "pattern": {"Regex": _GPT2}, "behavior": "Isolated", "invert": False}
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [_SPLIT, _BYTES],
    "smollm": [{"type": "Digits", "individual_digits": True}, _SPLIT, _BYTES],
}


class TokenizerSource:
    """The tokenizer of a GGUF file, checked. Raises RefusedError naming what is not converted."""

    def __init__(self, metadata: Mapping[str, Value], vocabulary: int, label: str) -> None:
        self._metadata, self._label = metadata, label
        model, pre = self._get("model"), self._get("pre", "gpt-2")
        if model != _MODEL:
            raise self._refusal(f"has the tokenizer {model!r:.40}; only {_MODEL} (byte-level BPE) is converted")
        if not isinstance(pre, str) or pre not in _PRE_TOKENIZERS:
            known = ", ".join(_PRE_TOKENIZERS)
            raise self._refusal(f"has the pre-tokenizer {pre!r:.40}; only {known} are converted")
        self._pre = pre
        self._tokens = self._texts("tokens")
        self._ids = {token: index for index, token in enumerate(self._tokens)}
        if len(self._tokens) != vocabulary or len(self._ids) != vocabulary:
            raise self._refusal(f"does not have {vocabulary} distinct tokens, one for each row of its embedding")
        self._kinds = self._read_kinds()
        self._merges = [self._merge(merge) for merge in self._texts("merges")]
        self.special = self._read_special()

    def tokenizer_object(self) -> dict[str, Any]:
        """tokenizer.json."""
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [self._added(i) for i, kind in enumerate(self._kinds) if kind in (_CONTROL, _USER_DEFINED)],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[self._pre]},
            "post_processor": self._post_processor(),
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": self._ids,
                "merges": self._merges,
            },
        }

    def config_object(self, context: int) -> dict[str, Any]:
        """tokenizer_config.json, with the chat template."""
        config: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "add_prefix_space": False,
            "model_max_length": context,
        }
        config.update({f"{name}_token": self._tokens[index] for name, index in self.special.items()})
        template = self._metadata.get("tokenizer.chat_template")
        if isinstance(template, str):
            config["chat_template"] = template
        return config

    def _get(self, key: str, default: Value | None = None) -> Value | None:
        return self._metadata.get(f"tokenizer.ggml.{key}", default)

    def _refusal(self, what: str) -> RefusedError:
        return RefusedError(f"{self._label} {what}.")

    def _texts(self, key: str) -> list[str]:
        values = self._get(key)
        if not isinstance(values, list) or not values:
            raise self._refusal(f"has no list tokenizer.ggml.{key}")
        texts = [value for value in values if isinstance(value, str)]
        if len(texts) != len(values) or "" in texts:
            raise self._refusal(f"has an entry in tokenizer.ggml.{key} that is no text")
        return texts

    def _read_kinds(self) -> list[int]:
        values = self._get("token_type", [_NORMAL] * len(self._tokens))
        known = (_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED)
        if not isinstance(values, list) or len(values) != len(self._tokens):
            raise self._refusal("does not have one tokenizer.ggml.token_type for each token")
        kinds = [value for value in values if type(value) is int and value in known]
        if len(kinds) != len(values):
            raise self._refusal("has a token of a type other than normal, control, user-defined or unused")
        return kinds

    def _merge(self, merge: str) -> list[str]:
        pair = merge.split(" ")
        if len(pair) != 2 or any(token not in self._ids for token in (*pair, "".join(pair))):
            raise self._refusal(f"has the merge {merge!r:.80}, which does not join two tokens to a third")
        return pair

    def _read_special(self) -> dict[str, int]:
        special: dict[str, int] = {}
        for name, key in _SPECIAL_NAMES.items():
            index = self._get(f"{key}_token_id")
            if index is None:
                continue
            if type(index) is not int or not 0 <= index < len(self._tokens):
                raise self._refusal(f"has the {key}_token_id {index!r:.40}, which is no token")
            special[name] = index
        return special

    def _added(self, index: int) -> dict[str, Any]:
        return {
            "id": index,
            "content": self._tokens[index],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": self._kinds[index] == _CONTROL,
        }

    def _post_processor(self) -> dict[str, Any] | None:
        """The tokens the file asks to put around a text, when it does."""
        around = {name: self._get(f"add_{name}_token") is True for name in ("bos", "eos")}
        if not any(around.values()):
            return None
        if any(asked and name not in self.special for name, asked in around.items()):
            raise self._refusal("asks for a token around each text and does not say which")
        single = [{"Sequence": {"id": "A", "type_id": 0}}]
        pieces = {
            name: {"SpecialToken": {"id": self._tokens[self.special[name]], "type_id": 0}} for name in self.special
        }
        template = [pieces["bos"]] * around["bos"] + single + [pieces["eos"]] * around["eos"]
        used = {self._tokens[self.special[name]]: self.special[name] for name, asked in around.items() if asked}
        return {
            "type": "TemplateProcessing",
            "single": template,
            "pair": [*template, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {text: {"id": text, "ids": [i], "tokens": [text]} for text, i in used.items()},
        }
