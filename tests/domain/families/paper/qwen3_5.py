"""Moved: the family's plan is data of the domain."""

from tensorfold.domain.families.qwen3_5 import *  # noqa: F403
