"""Every implementation of every port, fakes and adapters alike: the one list that the contract suites run over.

A new adapter is one more `Candidate` here. Heavy libraries are imported when a candidate is built.
"""

from __future__ import annotations

from pathlib import Path

from tensorfold.application.ports.target_model import TargetModel
from tests.contracts.candidates import Candidate
from tests.contracts.target_model.rows import ModelSubject
from tests.fakes.faulty_model import FaultyModel
from tests.fakes.hash_faults import GraphModel
from tests.fakes.hash_head import HashDrafter, HashHead
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import HashModel
from tests.fakes.paced_model import PacedModel


def _hash(name: str, model: TargetModel) -> Candidate[ModelSubject]:
    def build(folder: Path) -> ModelSubject:
        return ModelSubject(model, strict=True, pedantic=True)

    return Candidate(name, build)


def _tiny(name: str) -> Candidate[ModelSubject]:
    """A two-layer Llama of seeded weights, loaded and checked as any checkpoint is."""

    def build(folder: Path) -> ModelSubject:
        from tensorfold.adapters.filesystem.checkpoints import FolderReader
        from tensorfold.adapters.mlx.backend import MlxBackend
        from tensorfold.application.loading import describe
        from tensorfold.application.ports.backend import ModelCheckpoint
        from tests.contracts.registry_world import tiny_package

        facts = FolderReader().facts(tiny_package(folder).provide(name, lambda line: None))
        told = describe(facts, "mlx", None)
        checkpoint = ModelCheckpoint(told.plan, told.bound, facts)
        model = MlxBackend(folder).load(
            checkpoint, name=name, context=told.context, max_streams=4, on_progress=lambda line: None
        )
        return ModelSubject(model, strict=True, pedantic=True)

    return Candidate(f"mlx_{name}", build)


TARGET_MODELS: tuple[Candidate[ModelSubject], ...] = (
    _hash("hash", HashModel(batch_rows=32)),
    _hash("hash_habits", HashModel(HashLaw(vocabulary=512, habit_share=0.9), chain_width=7, tree_width=12, audit=True)),
    _hash("hash_serial", HashModel(HashLaw(vocabulary=96), chain_width=1, tree_width=1, prefill_slice=0)),
    _hash("hash_alone", HashModel(chain_width=4, tree_width=1, shares_rounds=False, prefill_slice=5)),
    _hash("hash_head", HashModel(head=HashHead(), batch_rows=40)),
    _hash("hash_drafter", HashModel(head=HashDrafter(), batch_rows=40)),
    _hash("graph", GraphModel(HashLaw(vocabulary=128), batch_rows=24, chain_width=8, tree_width=8)),
    _hash("faulty_without_faults", FaultyModel(HashModel(chain_width=3, tree_width=4))),
    _hash("paced", PacedModel(HashModel(chain_width=2, tree_width=6), sleep=lambda seconds: None)),
    _tiny("demo"),
    _tiny("demo@4bit"),
)
