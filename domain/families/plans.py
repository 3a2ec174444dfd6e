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
    """Several residual streams, mixed around each sublayer; all start as copies of the embedding.

    "lowrank": the input is the mean over streams of the normed streams times a sigmoid gate (through `rank`); the
    output is added to each stream times a learnt injection. "sinkhorn": one projection of the normed streams gives
    the weights of the input, of the output and a combination of streams made doubly stochastic in `iterations`, `eps`
    added.
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
    """What turns the residual into the head's input: a norm, the mean of the streams and a norm, or a learnt mixer.

    `mixer` gives the streams of a "hyper_mixer", which is a low-rank connection's input side.
    """

    form: Literal["norm", "stream_mean_norm", "hyper_mixer"]
    norm: Norm | None = None
    mixer: HyperConnections | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """Logits over the vocabulary; `tied` reads the embedding's rows; `softcap` c maps x to c * tanh(x / c)."""

    vocabulary: int
    tied: bool
    softcap: float = 0.0
    bias: bool = False


@dataclass(frozen=True, slots=True)
class Tap:
    """Rows that a draft head reads after `layer` finished layers (0: the embedding).

    `form`: the residual, all its streams side by side, their mean, or the head's own input ("readout").
    """

    layer: int
    form: Literal["residual", "streams", "stream_mean", "readout"]


@dataclass(frozen=True, slots=True)
class MtpHead:
    """A next-next-token head chained on itself, made of the same ops.

    `join` tells how the embedding of the next token meets the tapped row: concatenated through one projection
    (embedding half first) or each projected and added per stream. `feedback` is the row the next link reads: what its
    own readout gave, or its streams. `positions`: rotary positions count the head's own entries, the tokens, or do not
    exist. `zero_first_embedding` feeds zeros for the embedding of its first entry. Drafts are proposed from ids in
    `draft_ids` (half-open spans; empty: all). It shares embedding and head with its model; its slots start with `mtp.`
    and are all there or all absent. It drafts `max_drafts` by default, and its chain ends before a draft whose
    probability, or with `whole_run` whose chain's, is below `min_confidence`.
    """

    layers: tuple[Layer, ...]
    tap: Tap
    embedding_norm: Norm
    hidden_norm: Norm
    join: Literal["concatenate", "add_per_stream"]
    readout: Readout
    feedback: Literal["readout", "streams"]
    positions: Literal["entry", "token", "none"]
    zero_first_embedding: bool = False
    max_drafts: int = 3
    min_confidence: float = 0.0
    whole_run: bool = False
    draft_ids: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class DFlashDrafter:
    """A block drafter: one forward proposes `block` - 1 positions from taps of the committed tokens.

    Each layer has `conv_taps`-tap convolutions before and after attention and MLP, whose kernels are a base plus a
    projection of the row in groups of `conv_group` channels. The selector scores pairs of the `candidates` best ids of
    neighbouring positions through `selector_rank`. Attention inside a block is causal only when `causal`; context keys
    are read at distances below `window`. Embedding and head are the target's. A checkpoint of its own fills `tensors`.
    """

    family: str

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
    draft_ids: tuple[tuple[int, int], ...] = ()
    tensors: TensorMap = field(default_factory=lambda: TensorMap({}))


DraftHead = MtpHead | DFlashDrafter


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a family writes its replies; empty strings: it does not.

    `think_open` and `think_close` mark reasoning; `opened_by_prompt` says that the template already wrote the opening
    one. `thinking_flag` is the template's variable that turns reasoning on or off (empty: it has none), `thinks` its
    default. `efforts` are the values the template's `reasoning_effort` takes. `tool_calls` names the call dialect.
    """

    think_open: str = ""
    think_close: str = ""
    opened_by_prompt: bool = False
    thinking_flag: str = ""
    thinks: bool = False
    efforts: tuple[str, ...] = ()
    tool_calls: str = ""


@dataclass(frozen=True, slots=True)
class License:
    """Terms of the listed weights; `special` is a sentence to print when they restrict use."""

    name: str
    special: str = ""


MODEL_CARD = License("see its model card")


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

    @property
    def streams(self) -> int:
        """Residual streams: 1 around plain residuals."""
        residuals = (sublayer.residual for layer in self.layers for sublayer in layer)
        return next((r.streams for r in residuals if isinstance(r, HyperConnections)), 1)
