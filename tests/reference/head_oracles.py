"""Logits of draft heads by transformers: of an MTP head as a small model of its family, of DFlash2 as plain DFlash.

No library has these heads. Their layers are transformers' own all the same; what joins rows and embeddings is written
here, apart from the reference model.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.reference.drafter_case import CONTEXTS, DrafterCase
from tests.reference.oracles import Logits, config_of, load_there, tokens
from tests.reference.other_checkpoints import dense_twin, head_alone
from tests.reference.slot_reader import SlotReader
from tests.synthetic.plan_checkpoints import PLANS
from tests.synthetic.tiny_configs import text_part


def mtp_logits(family: str, folder: Path, fed: Sequence[int] | None = None) -> Logits:
    """Logits [T - 1, V] of the draft head.

    Rows of transformers' main model are joined here with embeddings and go through transformers' layers.
    """
    torch = importlib.import_module("torch")
    ids = tokens() if fed is None else list(fed)
    config = config_of(folder)
    slots = SlotReader.of(folder, PLANS[family](config).tensors)

    def single(path: str) -> Any:
        return torch.tensor(slots[path], dtype=torch.float32)

    with tempfile.TemporaryDirectory() as scratch:
        main = load_there(family, dense_twin(folder, config, Path(scratch) / "twin"))
        head = load_there(family, head_alone(folder, config, Path(scratch) / "head")[0])
    eps = text_part(config).get("rms_norm_eps", text_part(config).get("layer_norm_epsilon"))

    def normed(rows: Any, path: str) -> Any:
        return rows * torch.rsqrt((rows * rows).mean(-1, keepdim=True) + eps) * single(path)

    with torch.no_grad():
        hidden = _tapped(family, main, torch.tensor(ids)[None])[0, :-1]
        embedded = single("embedding")[ids[1:]]
        if family == "glm5_next":
            embedded[0] = 0.0
        embedded, hidden = normed(embedded, "mtp.embedding_norm"), normed(hidden, "mtp.hidden_norm")
        if family == "qwen4_exp":
            parts = hidden.reshape(len(ids) - 1, -1, embedded.shape[-1]) @ single("mtp.join_hidden").T
            streams = (parts + (embedded @ single("mtp.join_embedding").T)[:, None]).flatten(1)
            return _with_streams(head, embedded, streams)
        joined = torch.cat([embedded, hidden], -1) @ single("mtp.join").T
        made: Logits = head(inputs_embeds=joined[None]).logits[0].numpy()
    return made


def dflash_hidden(folder: Path) -> dict[str, Logits]:
    """A drafted block's rows [L, D] by transformers' DFlash, for each context of the drafter's case."""
    torch, library = importlib.import_module("torch"), importlib.import_module("transformers")
    cache_of = importlib.import_module("transformers.cache_utils").DFlashCache
    case = DrafterCase.of(folder)
    config = library.MuseGlimmerAssistantConfig(**case.config_there())
    config._attn_implementation = "eager"
    model = library.MuseGlimmerAssistantModel(config).eval()
    renamed = {"fc": "encoder.fc", "hidden_norm": "encoder.output_norm_enc"}
    state = {}
    for path, slot in case.plan.tensors.slots.items():
        name = slot.sources[0].name
        if "mix." not in path and "selector" not in path:
            state[f"{renamed.get(name, name)}.weight"] = torch.tensor(case.reader[path], dtype=torch.float32)
    model.load_state_dict(state, strict=True)
    made = {}
    for context in (context for context in CONTEXTS if context):
        taps, rows = (torch.tensor(part, dtype=torch.float32)[None] for part in case.rows(context))
        cache = cache_of(config=config)
        cache.set_previous_accepted_tokens(context)
        places = torch.arange(context + rows.shape[1])[None]
        with torch.no_grad():
            found = model(rows, taps, position_ids=places, past_key_values=cache).last_hidden_state
        made[f"context_{context}"] = found[0].numpy()
    return made


def _tapped(family: str, model: Any, ids: Any) -> Any:
    """The rows that a head reads: the head's input, or the streams before the mixer [1, T, D or S * D]."""
    decoder = model.get_decoder()
    if family != "qwen4_exp":
        return decoder(input_ids=ids).last_hidden_state
    seen: list[Any] = []
    hook = decoder.hyper_connection_mixer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    decoder(input_ids=ids)
    hook.remove()
    return seen[0]


def _with_streams(head: Any, rows: Any, streams: Any) -> Logits:
    """The logits of a model whose first layer reads `streams` instead of copies of its input rows."""

    def enter(module: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (streams[None], *inputs[1:]), named

    hook = head.get_decoder().layers[0].register_forward_pre_hook(enter, with_kwargs=True)
    made: Logits = head(inputs_embeds=rows[None]).logits[0].numpy()
    hook.remove()
    return made
