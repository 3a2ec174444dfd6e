"""Moved: the family's plan is data of the domain."""

from tensorfold.domain.families.glm5_next import *  # noqa: F403
