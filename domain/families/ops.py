"""The operations a layer may hold, as data: one frozen type per op, sizes and constants only.

An op plan says what is computed, never how. Weights are named by slots in the plan's `TensorMap`; a backend has one
builder per op type. Written for all listed families at once, so that serving one adds a file and changes none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Activation = Literal["silu", "gelu_tanh", "relu2"]
RopeForm = Literal["plain", "linear", "llama3", "yarn", "proportional"]


@dataclass(frozen=True, slots=True)
class Norm:
    """RMS norm over the last axis, or over `groups` equal parts of it. `weight` False: no weight.

    The weight is a plain scale here; whether a checkpoint stores it less one is its slot's `centring`. `layer` True is
    a LayerNorm with weight and bias.
    """

    eps: float
    weight: bool = True
    groups: int = 1
    layer: bool = False


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding of the first `dims` of each head: dim j turns with j + dims / 2, or with its neighbour when
    `interleaved`.

    `form` picks how the frequencies theta^(-2j/denominator) are scaled: `plain`, `linear` (divided by `factor`),
    `llama3` (smoothed between `low_factor` and `high_factor` wavelengths of `original`), `yarn` (ramped between
    `beta_fast` and `beta_slow` rotations, output scaled by `attention_factor`), `proportional` (`rotated` of the dims
    turn, the others stand still). `denominator` 0 means `dims`.
    """

    dims: int
    theta: float
    form: RopeForm = "plain"
    factor: float = 1.0
    original: int = 0
    low_factor: float = 1.0
    high_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0
    truncate: bool = True
    interleaved: bool = False
    rotated: int = 0
    denominator: int = 0


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention over cached keys and values.

    `window` W lets position i read p with i - W < p <= i; 0 is full. `output_gate` doubles the q projection ([q | gate]
    in each head) and multiplies the result by sigmoid(gate). `values_from_keys`: values are the raw key projection.
    """

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    rope: Rope | None = None
    window: int = 0
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    v_norm: Norm | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    output_gate: bool = False
    values_from_keys: bool = False
    softcap: float = 0.0


@dataclass(frozen=True, slots=True)
class BlockIndexer:
    """Chooses the keys of a sparse attention: blocks of `ratio` tokens scored by small heads, at most `budget` keys.

    A query's score of a block is the sum over heads of relu(query . block key) * `scale`, in float32, each head
    weighed by a learnt projection of the input when `head_weights`. Complete blocks compete; ties go to the lower
    block. The newest unfinished block is always read. `pooling` "mean" averages raw keys in float32, then norms and
    turns them at the block's first position; "gated" sums normed keys by a softmax, per channel, of a learnt gate
    plus a learnt offset for each place in the block. `query_from` tells what the query heads read: the layer's input
    or the latent query.
    """

    heads: int
    head_dim: int
    ratio: int
    budget: int
    scale: float
    pooling: Literal["mean", "gated"]
    query_from: Literal["input", "latent"]
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    rope: Rope | None = None
    head_weights: bool = False


@dataclass(frozen=True, slots=True)
class IndexedAttention:
    """Attention restricted, for each query, to the blocks its indexer keeps and the unfinished tail."""

    attention: Attention
    indexer: BlockIndexer


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Attention over one cached latent of `kv_rank` a token; keys and values are linear maps of it, one pair a head.

    `rope_dim` more cached values a token turn with their position as `rope` says; 0 leaves positions out.
    """

    heads: int
    q_rank: int
    kv_rank: int
    key_dim: int
    rope_dim: int
    value_dim: int
    scale: float
    q_norm: Norm
    kv_norm: Norm
    indexer: BlockIndexer | None = None
    rope: Rope | None = None


@dataclass(frozen=True, slots=True)
class ShortConv:
    """Depthwise causal convolution over time, `kernel` taps `dilation` apart, then the activation."""

    channels: int
    kernel: int
    dilation: int = 1
    bias: bool = False
    activation: Activation | None = "silu"


@dataclass(frozen=True, slots=True)
class GatedDelta:
    """Gated delta net: state [value_heads, key_dim, value_dim] in float32, one decay per value head."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: ShortConv
    norm: Norm
    gate: Literal["silu", "sigmoid"]
    l2_eps: float = 1e-6


@dataclass(frozen=True, slots=True)
class KimiDelta:
    """Kimi delta attention: as the gated delta net, with a decay per key channel bounded below by `lower_bound`.

    Queries, keys and values each pass a convolution of their own with the settings of `conv`. Decay and output gate
    come from projections narrowed to `gate_rank`.
    """

    heads: int
    head_dim: int
    gate_rank: int
    conv: ShortConv
    norm: Norm
    lower_bound: float | None
    l2_eps: float = 1e-6


@dataclass(frozen=True, slots=True)
class Mamba2:
    """Selective state space: state [heads, head_dim, state] in float32, `groups` shared B and C, gate before norm."""

    heads: int
    head_dim: int
    state: int
    groups: int
    conv: ShortConv
    norm: Norm
    projection_bias: bool = False
    step_limit: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class SwiGLU:
    """down(act(gate(x)) * up(x)); `limit` L clamps gate above at L and up to [-L, L]; 0 is off."""

    width: int
    activation: Activation = "silu"
    limit: float = 0.0
    bias: bool = False


@dataclass(frozen=True, slots=True)
class FeedForward:
    """down(act(up(x))), without a gate."""

    width: int
    activation: Activation = "relu2"
    bias: bool = False


@dataclass(frozen=True, slots=True)
class Router:
    """How experts are chosen. Logits in float32; ties go to the lower id.

    `scoring` turns logits into scores; a `correction` bias is added for choosing only; the chosen scores are divided by
    their sum when `normalize`, times `scale`. `over_chosen`: softmax over the chosen logits alone. The router reads the
    experts' input, or the residual before its norm when `from_residual`, through its own `input_norm`, times
    `input_factor`, times a learnt `input_scale`. `expert_scale` multiplies each chosen weight by a learnt value.
    """

    experts: int
    chosen: int
    scoring: Literal["softmax", "sigmoid"]
    normalize: bool = True
    over_chosen: bool = False
    correction: bool = False
    scale: float = 1.0
    from_residual: bool = False
    input_norm: Norm | None = None
    input_factor: float = 1.0
    input_scale: bool = False
    expert_scale: bool = False


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """An expert that every row passes through; `gated` multiplies it by sigmoid of a learnt projection."""

    op: SwiGLU | FeedForward
    gated: bool = False


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """Routed experts, summed in slot order in float32, and a shared one. `latent` > 0 narrows the experts' input."""

    router: Router
    expert: SwiGLU | FeedForward
    shared: SharedExpert | None = None
    latent: int = 0


@dataclass(frozen=True, slots=True)
class HashedNgram:
    """Rows of a hashed n-gram table, gated by the residual and added to each of its `streams`.

    For every length from 2 to `ngram` the ids of the last tokens are multiplied by `multipliers` and xored; each of
    `heads_per_ngram` heads takes the result modulo its own of `table_sizes`, after the rows of the heads before it.
    The table is stored in `shards` parts of `shard_rows`. A segment starts after each `boundary_token`, which also
    stands for tokens before it. The op reads and returns all streams; its convolution runs over all of them.
    """

    streams: int
    ngram: int
    heads_per_ngram: int
    table_sizes: tuple[int, ...]
    multipliers: tuple[int, ...]
    row_width: int
    shards: int
    shard_rows: int
    boundary_token: int
    conv: ShortConv
    norm: Norm


Op = (
    Attention
    | IndexedAttention
    | LatentAttention
    | GatedDelta
    | KimiDelta
    | Mamba2
    | SwiGLU
    | FeedForward
    | MixtureOfExperts
    | HashedNgram
)
