"""Graphs of a row count: which are cut, where, and what a graph in pieces queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from tensorfold.adapters.cuda import passes
from tensorfold.adapters.cuda.decoder import Decoder
from tensorfold.adapters.cuda.passes import CardGraphs, cuts
from tensorfold.application.ports.target_model import LaneWindow, RoundBatch
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import chain
from tests.adapters.cuda.listed_model import expected, listed


@pytest.mark.parametrize(
    ("rows", "layers", "at"),
    [(1, 64, ()), (2, 64, (2, 12)), (64, 52, (1, 9)), (8, 32, (1, 6)), (8, 4, (1,)), (8, 1, ())],
)
def test_graphs_of_several_rows_begin_with_few_layers_and_one_row_has_a_whole_one(
    rows: int, layers: int, at: tuple[int, ...]
) -> None:
    assert cuts(rows, layers) == at


def test_rows_of_a_graph_in_pieces_draw_what_their_history_says() -> None:
    made = listed(graphs=True)
    lane, history = made.model.open(300), list[int]()
    for number, tokens in enumerate(([5], [6, 7], [8], [9, 1, 2], [3, 4])):
        window = LaneWindow(lane, len(history), chain(tokens[0], tokens[1:]), Sampling())
        ticket = made.model.launch(RoundBatch((window,)))
        (drawn,) = made.model.collect(ticket).tokens
        texts = [[*history, *tokens[: row + 1]] for row in range(len(tokens))]
        assert list(drawn) == [expected(text, Sampling()) for text in texts]
        made.model.keep(ticket, [tuple(range(len(tokens)))])
        history += tokens
        assert made.tape.cut == (0, 1, 1, 2, 2)[number]


def test_a_decoder_tells_of_every_layer_before_it_is_queued() -> None:
    told: list[Any] = []
    decoder = Decoder.__new__(Decoder)
    decoder.embedding = SimpleNamespace(decode=lambda ids: "rows")  # type: ignore[assignment]
    sublayer = SimpleNamespace(
        norm=lambda stream, made: (stream, stream), op=SimpleNamespace(decode=lambda rows, at: told.append("layer"))
    )
    decoder.layers = [[sublayer], [sublayer, sublayer]]  # type: ignore[list-item]
    decoder.readout = lambda stream, made: (stream, stream)  # type: ignore[assignment]
    decoder.head = SimpleNamespace(decode=lambda rows: told.append("head"))  # type: ignore[assignment]
    decoder.decode(SimpleNamespace(ids=()), (), told.append)  # type: ignore[arg-type]
    assert told == [0, "layer", 1, "layer", "layer", "head"]


class Card:
    """Graphs that note what is captured and replayed."""

    def __init__(self) -> None:
        self.now: Any = None
        self.captured: list[list[str]] = []
        self.replayed: list[int] = []
        self.compiler = None
        self.cuda = SimpleNamespace(
            synchronize=lambda: None, graph_pool_handle=lambda: "pool", CUDAGraph=self._new, graph=self._capturing
        )

    def _new(self) -> Any:
        number = len(self.captured)
        self.captured.append([])
        return SimpleNamespace(number=number, replay=lambda: self.replayed.append(number))

    @contextmanager
    def _capturing(self, graph: Any, pool: Any) -> Iterator[None]:
        assert pool == "pool" and self.now is None
        self.now = graph.number
        try:
            yield
        finally:
            self.now = None

    def queue(self, work: str) -> None:
        self.captured[self.now].append(work)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    made = Card()
    monkeypatch.setattr(passes, "torch", made)
    return made


def test_a_graph_is_captured_and_replayed_piece_after_piece(card: Card) -> None:
    def queue(cut: Any) -> None:
        for work in "abcd":
            card.queue(work)
            if work in "ac":
                cut()

    graphs = CardGraphs()
    replay, whole = graphs.record(queue), graphs.record(lambda cut: card.queue("e"))
    assert card.captured == [["a"], ["b", "c"], ["d"], ["e"]] and card.replayed == []
    replay()
    whole()
    replay()
    assert card.replayed == [0, 1, 2, 3, 0, 1, 2]


def test_what_fails_while_a_piece_is_captured_ends_the_capture(card: Card) -> None:
    def queue(cut: Any) -> None:
        cut()
        raise RuntimeError("no kernel")

    with pytest.raises(RuntimeError, match="no kernel"):
        CardGraphs().record(queue)
    assert card.now is None
