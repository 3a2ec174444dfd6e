"""Products on the CPU in float32, one row at a time: what blocks are tested with where there is no card.

The interface is that of `adapters/cuda/products.py`. A row's bits hang on that row alone by construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.application.stored_weights import Matrix, Stack, Values, as_float32
from tensorfold.domain.families.ops import MixtureOfExperts, SwiGLU

Floats = NDArray[np.float32]
Tensor = Any


@dataclass(frozen=True, slots=True)
class HeldWeights:
    """Weights by slot path, as a reader of a checkpoint hands them out; `biases` are those beside a module."""

    values: Mapping[str, Floats]
    biases: Mapping[str, Floats] = field(default_factory=dict)

    def has(self, path: str) -> bool:
        return path in self.values

    def matrix(self, path: str) -> Matrix:
        values = self.values[path]
        return Matrix(Values(values, "F32"), (values.shape[0], values.shape[1]), self.biases.get(path))

    def stack(self, path: str) -> Stack:
        values = self.values[path]
        return Stack(Values(values, "F32"), (values.shape[0], values.shape[1], values.shape[2]), self.biases.get(path))

    def entries(self, path: str) -> Iterator[Matrix]:
        for entry in self.values[path]:
            yield Matrix(Values(entry, "F32"), (entry.shape[0], entry.shape[1]))

    def floats(self, path: str) -> Floats:
        return self.values[path]

    def bias(self, path: str) -> Floats | None:
        return self.biases.get(path)


class HostProducts:
    """Makes products of the slots that `weights` reads: `HeldWeights`, or a checkpoint's reader."""

    early = False

    def __init__(self, weights: Any) -> None:
        self._weights = weights

    def stream(self) -> int:
        """Nothing is queued here."""
        return 0

    def launched_with(self, counts: Iterable[int]) -> None:
        """Nothing is compiled here."""

    def beside(self, weights: Any) -> HostProducts:
        """Products of another reader's slots."""
        return HostProducts(weights)

    def linear(self, *paths: str, wide: bool = False, prompts: bool = True) -> HostLinear:
        """The matrices at `paths`, which share their input, outputs side by side."""
        return HostLinear([self._weights.matrix(path) for path in paths])

    def gated(self, gate: str, up: str) -> HostGated:
        """silu of the product with `gate` times that with `up`."""
        return HostGated(self.linear(gate), self.linear(up))

    def embedding(self, path: str) -> HostLookup:
        """The rows of a table."""
        return HostLookup(_tensor(as_float32(self._weights.matrix(path).stored)))

    def plain(self, path: str) -> Tensor:
        """A slot's values as they are, for kernels that read them whole."""
        return _tensor(self._weights.floats(path))

    def multiply_plain(self, x: Tensor, w: Tensor) -> Tensor:
        """Float32 [T, N] of rows times `w` [N, K]."""
        return torch.stack([torch.mv(w.float(), row) for row in x.float()])

    def experts(self, plan: MixtureOfExperts, path: str) -> HostExperts:
        """The experts below `path`, with the shared one among them where it is so many experts wide."""
        return HostExperts(self._weights, plan, path)


class HostLinear:
    """Rows [R, K] to [R, sum of outputs]; `wide` makes no difference here: all is float32."""

    def __init__(self, matrices: list[Matrix]) -> None:
        self.outputs = tuple(matrix.shape[0] for matrix in matrices)
        self._weight = _tensor(np.concatenate([as_float32(matrix.stored) for matrix in matrices]))
        biases = [np.zeros(m.shape[0], np.float32) if m.bias is None else m.bias for m in matrices]
        self._bias = _tensor(np.concatenate(biases))

    def among(self, spans: Sequence[tuple[int, int]]) -> HostLinear:
        """The outputs of half-open `spans` alone, side by side."""
        made = copy(self)
        made.outputs = tuple(stop - start for start, stop in spans)
        made._weight = torch.cat([self._weight[start:stop] for start, stop in spans])
        made._bias = torch.cat([self._bias[start:stop] for start, stop in spans])
        return made

    def decode(self, x: Tensor) -> Tensor:
        """[R, K] to [R, N]."""
        return torch.stack([torch.mv(self._weight, row.float()) + self._bias for row in x]).to(x.dtype)

    def prompt(self, x: Tensor) -> Tensor:
        """[T, K] to [T, N]."""
        return self.decode(x)


class HostGated:
    """Rows [R, K] to silu(gate) * up [R, F]."""

    def __init__(self, gate: HostLinear, up: HostLinear) -> None:
        self._gate, self._up = gate, up

    def decode(self, x: Tensor) -> Tensor:
        """[R, K] to [R, F]."""
        pairs = zip(self._gate.decode(x), self._up.decode(x), strict=True)
        # Row by row: how a tensor's numbers are shared out among a processor's lanes hangs on how many there are.
        return torch.stack([torch.nn.functional.silu(gate) * up for gate, up in pairs])

    def prompt(self, x: Tensor) -> Tensor:
        """[T, K] to [T, F]."""
        return self.decode(x)


class HostLookup:
    """Ids [R] to rows [R, K]."""

    def __init__(self, table: Tensor) -> None:
        self._table = table

    def __call__(self, ids: Tensor, dtype: Any = torch.float32) -> Tensor:
        """Rows of the table."""
        return self._table[ids.long()].to(dtype)


class HostExperts:
    """Experts of rows, summed in slot order in float32.

    `folded` says how many slots behind the chosen ones the shared expert takes: its parts are the entries behind the
    experts', in order.
    """

    def __init__(self, weights: Any, plan: MixtureOfExperts, path: str) -> None:
        self._plan = plan.expert
        names = ("gate", "up", "down") if isinstance(plan.expert, SwiGLU) else ("up", "down")
        stacks = {name: as_float32(weights.stack(f"{path}.experts.{name}").stored) for name in names}
        shared = plan.shared
        foldable = shared is not None and not shared.gated and not plan.latent and type(shared.op) is type(plan.expert)
        self.folded = shared.op.width // plan.expert.width if shared is not None and foldable else 0
        if self.folded:
            for name in names:
                whole = as_float32(weights.matrix(f"{path}.shared.{name}").stored)
                parts = np.split(whole, self.folded, axis=1 if name == "down" else 0)
                stacks[name] = np.concatenate([stacks[name], np.stack(parts)])
        self._stacks = {name: _tensor(stack) for name, stack in stacks.items()}

    def decode(self, x: Tensor, choice: Any, dtype: Any = torch.float32) -> Tensor:
        """[R, N] in `dtype` of rows [R, K] and their `Choice`: ids int32 [R, k], weights float32 [R, k], lists."""
        ids, weights, _ = choice
        made = [self._row(*parts) for parts in zip(x.float(), ids.tolist(), weights, strict=True)]
        return torch.stack(made).to(dtype)

    def prompt(self, x: Tensor, choice: Any, dtype: Any = torch.float32) -> Tensor:
        """The same."""
        return self.decode(x, choice, dtype)

    def _row(self, row: Tensor, ids: list[int], weights: Tensor) -> Tensor:
        total = torch.zeros(self._stacks["down"].shape[1])
        for expert, weight in zip(ids, weights, strict=True):
            up = torch.mv(self._stacks["up"][expert], row)
            if "gate" in self._stacks:
                hidden = torch.nn.functional.silu(torch.mv(self._stacks["gate"][expert], row)) * up
            else:
                hidden = torch.relu(up) ** 2
            total += weight * torch.mv(self._stacks["down"][expert], hidden)
        return total


def _tensor(values: Floats) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))
