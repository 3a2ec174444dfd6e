"""A decoder described once, as data: layers of sublayers over a residual, taps, heads, tensors and what it refuses.

A family file turns a parsed config.json into a `DecoderPlan`; nothing here knows a backend, a file or a request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tensorfold.domain.families.ops import Norm, Op
from tensorfold.domain.families.tensors import TensorMap


@dataclass(frozen=True, slots=True)
class Plain:
    """x + f(x)."""


@dataclass(frozen=True, slots=True)
class HyperConnections:
    """Several residual streams, mixed around each sublayer.

    "lowrank": the input is a learnt gate (through `rank`) over normed streams, the output injected per stream.
    "sinkhorn": pre, post and a doubly stochastic combination from one projection, `iterations` rounds, `eps` added.
    """

    streams: int
    form: Literal["lowrank", "sinkhorn"]
    norm: Norm
    rank: int = 0
    iterations: int = 0
    eps: float = 0.0


Residual = Plain | HyperConnections


@dataclass(frozen=True, slots=True)
class Branch:
    """One of several ops that read the same residual and whose results are added; norms of its own."""

    name: str
    op: Op
    pre_norm: Norm | None = None
    post_norm: Norm | None = None


@dataclass(frozen=True, slots=True)
class Parallel:
    """Branches side by side."""

    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class Sublayer:
    """residual(post_norm(op(pre_norm(x)))), then the whole stream times a learnt scalar when `scale`."""

    name: str
    op: Op | Parallel
    residual: Residual = field(default_factory=Plain)
    pre_norm: Norm | None = None
    post_norm: Norm | None = None
    scale: bool = False


Layer = tuple[Sublayer, ...]


@dataclass(frozen=True, slots=True)
class Embedding:
    """Token rows of `width`, times `multiplier` (rounded to the activation dtype first)."""

    vocabulary: int
    width: int
    multiplier: float = 1.0


@dataclass(frozen=True, slots=True)
class Readout:
    """What turns the residual into the head's input: a norm, the mean of the streams and a norm, or a learnt mixer."""

    form: Literal["norm", "stream_mean_norm", "hyper_mixer"]
    norm: Norm | None


@dataclass(frozen=True, slots=True)
class Head:
    """Logits over the vocabulary; `tied` reads the embedding's rows; `softcap` c maps x to c * tanh(x / c)."""

    vocabulary: int
    tied: bool
    softcap: float = 0.0
    bias: bool = False


@dataclass(frozen=True, slots=True)
class Tap:
    """Rows that a draft head reads: `layer` counts finished layers (0: the embedding); `form` says which rows."""

    layer: int
    form: Literal["residual", "streams", "stream_mean", "final_norm"]


@dataclass(frozen=True, slots=True)
class MtpHead:
    """A next-next-token head chained on itself, made of the same ops.

    `join` tells how the embedding of the next token meets the tapped row: concatenated through one projection
    (embedding half first) or each projected and added per stream. `feedback` is the row the next link reads.
    """

    layers: tuple[Layer, ...]
    tap: Tap
    embedding_norm: Norm
    hidden_norm: Norm
    join: Literal["concatenate", "add_per_stream"]
    output_norm: Norm | None
    feedback: Literal["output_norm", "streams"]
    positions: Literal["entry", "token", "none"]
    zero_first_embedding: bool = False
    max_drafts: int = 3
    draft_vocabulary: int = 0


@dataclass(frozen=True, slots=True)
class DFlashDrafter:
    """A block drafter: one forward proposes `block` - 1 positions from taps of the committed tokens.

    `selector_rank` and `candidates` describe its pairwise scores; each layer has grouped two-tap convolutions around
    attention and MLP.
    """

    layers: tuple[Layer, ...]
    taps: tuple[Tap, ...]
    context_norm: Norm
    output_norm: Norm
    block: int
    mask_token: int
    window: int
    causal: bool
    conv_taps: int
    conv_group: int
    selector_rank: int
    candidates: int
    width: int
    vocabulary: int


DraftHead = MtpHead | DFlashDrafter


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a family writes its replies: thinking markers and the name of its tool-call dialect; empty: none."""

    think_open: str = ""
    think_close: str = ""
    tool_calls: str = ""
    efforts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class License:
    """Terms of the listed weights; `special` is a sentence to print when they restrict use."""

    name: str
    special: str = ""


@dataclass(frozen=True, slots=True)
class MemoryRule:
    """A share of RAM larger than the default and the machines it holds for; 0 leaves the default."""

    share: float = 0.0
    up_to_gib: int = 0


@dataclass(frozen=True, slots=True)
class DecoderPlan:
    """One model of a family. `context` is the metadata window in tokens; `activation` the dtype rows run in.

    `stop_ids` are those of config.json; the server adds generation_config.json's. `prefill_chunks` are the family's
    candidate chunk sizes, largest first.
    """

    family: str
    model_type: str
    width: int
    embedding: Embedding
    layers: tuple[Layer, ...]
    readout: Readout
    head: Head
    context: int
    activation: str
    tensors: TensorMap
    stop_ids: frozenset[int]
    dialect: Dialect = field(default_factory=Dialect)
    taps: tuple[Tap, ...] = ()
    mtp: MtpHead | None = None
    prefill_chunks: tuple[int, ...] = (2048,)
    max_window: int = 16
    tree_window: int = 16
    memory: MemoryRule = field(default_factory=MemoryRule)
    license: License = field(default_factory=lambda: License("unknown"))
