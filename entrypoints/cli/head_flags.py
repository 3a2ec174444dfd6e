"""Flags of draft heads, for every command that loads a model: a proof or a measurement takes what a server would."""

from __future__ import annotations

import argparse

from tensorfold.entrypoints.settings import DRAFTER_BITS, HEADS, MOST_MTP_DRAFTS, integer, number


def fill(drafting: argparse._ArgumentGroup) -> None:
    """The flags, in a group of a command's own."""
    drafting.add_argument(
        "--drafter", default=HEADS.drafter, metavar="MODEL",
        help="the draft model: auto (the family's own where it was pulled), none, a folder or a repository such as "
        "owner/name or owner/name@revision",
    )  # fmt: skip
    drafting.add_argument(
        "--drafter-bits", type=int, choices=DRAFTER_BITS, default=HEADS.drafter_bits,
        help="bits that a draft model's matrices are rounded to as they are read; 0 leaves them as they are",
    )  # fmt: skip
    drafting.add_argument(
        "--mtp-drafts", type=integer(0, MOST_MTP_DRAFTS), default=None, metavar="N",
        help=f"most drafts a round of the model's own head, 0 to {MOST_MTP_DRAFTS}, 0 leaves it out; without it, what "
        "its family publishes",
    )  # fmt: skip
    drafting.add_argument(
        "--mtp-confidence", type=number(0, 1), default=None, metavar="P",
        help="least probability that the model's own head must give a draft behind its first; without it, what its "
        "family publishes",
    )  # fmt: skip
