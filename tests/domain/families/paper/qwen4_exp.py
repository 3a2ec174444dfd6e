"""Moved: the family's plan is data of the domain."""

from tensorfold.domain.families.qwen4_exp import *  # noqa: F403
