"""Moved: the family's plan is data of the domain."""

from tensorfold.domain.families.gemma4 import *  # noqa: F403
