"""The sampler's kernels against `domain.sampling`, draw for draw, on a card ("cuda") or in the interpreter ("cpu").

`python -m tests.kernels.triton.sampler_checks NAME...` runs checks in the interpreter and prints those that passed.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

    from tests.kernels.triton.quick import quicken

    quicken()

import sys
from collections.abc import Callable, Sequence

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.adapters.cuda.sampler import DrawRules, RowDraw, Sampler, make_scratch
from tensorfold.domain.sampling import Sampling, derive_seed, draw
from tensorfold.kernels.triton.sampler import draw_rows

Floats = NDArray[np.float32]
KNOWN = np.array([0, 1, 2, 1, -1, 0.5, 2, 0.25], np.float32)
KNOWN_DRAWS = (
    (Sampling(1234, 1.0, 4, 0.95), [2, 2, 3, 2, 2, 6, 1, 6, 6, 6, 2, 1]),
    (Sampling(1234, 0.7, 0, 0.9, 0.05), [2, 2, 3, 2, 2, 6, 1, 6, 6, 6, 2, 1]),
    (Sampling(derive_seed((1, 2, 3)), 1.0), [2, 2, 1, 6, 2, 6, 7, 6, 1, 6, 5, 0]),
)
SETTINGS = (
    Sampling(),
    Sampling(11, 1.0),
    Sampling(2**64 - 3, 0.7, 20, 0.95),
    Sampling(5, 1.0, 0, 0.95),
    Sampling(6, 2.5, 0, 0.9, 0.02),
    Sampling(7, 0.6, 3),
    Sampling(8, 1.0, 0, 1.0, 0.1),
    Sampling(9, 1e-9, 0, 0.5),
    Sampling(10, 1e300, 40, 0.999999),
    Sampling(12, 1.3, 100, 1e-300),
    Sampling(13, 0.8, 1, 0.9),
    Sampling(14, 1.0, 0, 0.9999999999999999, 1.0),
)


def expected(logits: Floats, draws: Sequence[RowDraw | None]) -> list[int]:
    """The domain's draws of rows [R, V]."""
    made = []
    for row, asked in zip(logits, draws, strict=True):
        if asked is None:
            made.append(-1)
            continue
        values = row.copy()
        if asked.mask is not None:
            bits = np.unpackbits(asked.mask.view(np.uint8), bitorder="little")[: len(row)]
            values[bits == 0] = -np.inf
        made.append(draw(values, asked.position, asked.sampling))
    return made


def drawn(device: str, logits: Floats, draws: Sequence[RowDraw | None]) -> list[int]:
    """The kernels' draws of rows [R, V]."""
    return drawn_in_turn(device, [logits], draws)[0]


def drawn_in_turn(device: str, several: Sequence[Floats], draws: Sequence[RowDraw | None]) -> list[list[int]]:
    """The draws of one sampler from one set of rows behind another."""
    sampler = Sampler(len(draws), several[0].shape[1], device)
    sampler.send(draws)
    return [sampler.draw(torch.from_numpy(logits).to(device)).tolist() for logits in several]


def same(device: str, logits: Floats, draws: Sequence[RowDraw | None]) -> None:
    ours, theirs = drawn(device, logits, draws), expected(logits, draws)
    wrong = [(at, draws[at], a, b) for at, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
    assert not wrong, wrong[:3]


def shaped(chance: np.random.Generator, form: str, size: int) -> Floats:
    """A row of logits: bell-shaped, peaked as a trained model's, in steps that tie, flat, or with what is no number."""
    row = chance.standard_normal(size).astype(np.float32)
    if form == "peaked":
        row = (2.5 * row - 3).astype(np.float32)
        row[chance.integers(0, size, min(size, 30))] += np.float32(14) * chance.random(min(size, 30), np.float32)
    elif form == "ties":
        row = np.round(row * 2) / np.float32(2)
    elif form == "flat":
        row[:] = np.float32(-0.0)
        row[:: 1 + size // 7] = 0.0
    elif form == "broken":
        row[chance.integers(0, size, size // 3)] = -np.inf
        row[chance.integers(0, size, size // 4)] = np.nan
    elif form == "wide":
        row = (row * np.float32(1e30)).astype(np.float32)
    return row


CARD_ROUNDS = 1600
FORMS = ("bell", "peaked", "ties", "flat", "broken", "wide")


def check_known_draws(device: str) -> None:
    for sampling, tokens in KNOWN_DRAWS:
        draws = [RowDraw(position, sampling) for position in range(12)]
        assert drawn(device, np.tile(KNOWN, (12, 1)), draws) == tokens


def check_every_setting_on_every_form_of_row(device: str) -> None:
    chance = np.random.default_rng(3)
    forms = FORMS if device == "cuda" else ("bell", "broken")
    for size in (5, 3000) if device == "cuda" else (1100,):
        rows = [shaped(chance, form, size) for form in forms for _ in SETTINGS]
        draws = [RowDraw(int(chance.integers(0, 2**40)), s) for _ in forms for s in SETTINGS]
        same(device, np.stack(rows), draws)


def check_rows_of_nothing_and_of_infinities(device: str) -> None:
    rows = np.full((6, 40), -np.inf, np.float32)
    rows[1] = np.nan
    rows[2, [7, 30]] = np.inf
    rows[3, 39] = -1e38
    rows[4, :] = np.inf
    rows[5, [3, 4]] = [np.float32(3e38), np.float32(-3e38)]
    for sampling in SETTINGS if device == "cuda" else SETTINGS[3:4]:
        same(device, rows, [RowDraw(4, sampling)] * 6)


def check_masks_and_forced_rows(device: str) -> None:
    chance = np.random.default_rng(4)
    settings = SETTINGS if device == "cuda" else SETTINGS[:5]
    rows = np.stack([shaped(chance, "bell", 1000) for _ in range(2 * len(settings))])
    draws: list[RowDraw | None] = []
    for at, sampling in enumerate(settings):
        mask = chance.integers(0, 2**32, 32, np.uint32) & chance.integers(0, 2**32, 32, np.uint32)
        draws += [RowDraw(9, sampling, mask if at % 3 else None), None if at % 2 else RowDraw(10, sampling, mask)]
    same(device, rows, draws)


def check_a_row_alone_draws_what_it_draws_in_company(device: str) -> None:
    chance = np.random.default_rng(5)
    settings = SETTINGS if device == "cuda" else SETTINGS[:5]
    rows = np.stack([shaped(chance, "bell", 5000) for _ in range(len(settings))])
    draws = [RowDraw(77 + at, sampling) for at, sampling in enumerate(settings)]
    together = drawn(device, rows, draws)
    assert together[::-1] == drawn(device, rows[::-1].copy(), draws[::-1])
    assert together[3:5] == [drawn(device, rows[at : at + 1], draws[at : at + 1])[0] for at in (3, 4)]
    if device == "cuda":  # so many that a program takes several blocks of a row, which alone has one for each
        many = [RowDraw(at, settings[at % len(settings)]) for at in range(48)]
        rows = np.stack([shaped(chance, FORMS[at % 2], 131_072) for at in range(len(many))])
        together = drawn(device, rows, many)
        assert together == [drawn(device, rows[at : at + 1], many[at : at + 1])[0] for at in range(len(many))]


def check_a_draw_leaves_nothing_to_the_next(device: str) -> None:
    chance = np.random.default_rng(10)
    settings = SETTINGS if device == "cuda" else SETTINGS[1:5]
    draws = [RowDraw(3 + at, sampling) for at, sampling in enumerate(settings)]
    several = [
        np.stack([shaped(chance, form, 2500) for _ in settings]) + np.float32(shift)
        for form, shift in (("peaked", 60), ("bell", -5), ("flat", 0))
    ]
    for rows, tokens in zip(several, drawn_in_turn(device, several, draws), strict=True):
        assert tokens == expected(rows, draws)


def check_whole_vocabularies(device: str) -> None:
    if device != "cuda":
        return  # a row takes the interpreter half a minute; `test_sampler_draws` has them
    chance = np.random.default_rng(6)
    for size in (32_000, 248_320, 262_144):
        for form in FORMS:
            rows = np.stack([shaped(chance, form, size) for _ in SETTINGS])
            same(device, rows, [RowDraw(int(chance.integers(0, 2**40)), s) for s in SETTINGS])


def check_a_crowd_of_ties_is_settled_by_reading_the_row_again(device: str) -> None:
    chance = np.random.default_rng(7)
    settings = [Sampling(4, 1.0, 5990, 0.5, 0.3)]
    if device == "cuda":
        settings += [SETTINGS[3], Sampling(3, 1.0, 6000), Sampling(4, 1.0, 6000, 0.9)]
    for form in ("flat", "ties"):
        row = shaped(chance, form, 12_000)
        same(device, np.stack([row] * len(settings)), [RowDraw(int(chance.integers(0, 2**40)), s) for s in settings])


def check_random_settings(device: str) -> None:
    chance = np.random.default_rng(8)
    count = 64 if device == "cuda" else 8
    for at in range(CARD_ROUNDS if device == "cuda" else 1):
        size = int(chance.integers(5, 60_000 if device == "cuda" else 600))
        rows = np.stack([shaped(chance, FORMS[(at + n) % len(FORMS)], size) for n in range(count)])
        draws = [RowDraw(int(chance.integers(0, 2**40)), random_settings(chance)) for _ in range(count)]
        same(device, rows, draws)


def random_settings(chance: np.random.Generator) -> Sampling:
    """Settings as requests have them, and stranger ones."""
    return Sampling(
        int(chance.integers(0, 2**63)),
        float(chance.choice([0.0, 0.3, 0.7, 1.0, 1.0, 1.0, 1.7, 5.0])),
        int(chance.choice([0, 0, 1, 2, 5, 20, 40, 700])),
        float(chance.choice([1.0, 0.95, 0.9, 0.5, 0.05, 0.999])),
        float(chance.choice([0.0, 0.0, 0.05, 0.3])),
    )


def check_draws_among_named_ids_and_their_shares(device: str) -> None:
    chance = np.random.default_rng(9)
    ids = np.sort(chance.choice(50_000, 700, replace=False))
    names = torch.from_numpy(ids.astype(np.int32)).to(device)
    rows = np.stack([shaped(chance, "bell", 700) for _ in SETTINGS])
    rules = DrawRules(len(SETTINGS), device)
    rules.send([RowDraw(31, sampling) for sampling in SETTINGS])
    tokens = torch.zeros(len(SETTINGS), dtype=torch.int32, device=device)
    shares = torch.zeros(len(SETTINGS), device=device)
    logits = torch.from_numpy(rows).to(device)
    draw_rows(logits, rules.rules, make_scratch(len(SETTINGS), device), tokens, ids=names, shares=shares)
    for at, sampling in enumerate(SETTINGS):
        token = draw(rows[at], 31, sampling, ids)
        assert int(tokens[at]) == token, sampling
        scaled = rows[at].astype(np.float64) / (
            min(1e200, max(1e-6, sampling.temperature)) if sampling.temperature else 1.0
        )
        weight = np.exp(scaled - scaled.max())
        np.testing.assert_allclose(float(shares[at]), weight[ids == token][0] / weight.sum(), rtol=1e-5)


CHECKS: dict[str, Callable[[str], None]] = {
    name[len("check_") :]: check for name, check in list(vars().items()) if name.startswith("check_")
}

if __name__ == "__main__":
    for named in sys.argv[1:] or CHECKS:
        CHECKS[named]("cpu")
        print(named, flush=True)
