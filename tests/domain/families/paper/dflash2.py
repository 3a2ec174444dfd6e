"""Moved: the family's plan is data of the domain."""

from tensorfold.domain.families.dflash2 import *  # noqa: F403
