"""Moved: the family's plan is data of the domain."""

from tensorfold.domain.families.nemotron_h import *  # noqa: F403
