"""What a grammar may cost. Grammars come from clients and are hostile.

A stream's lexer keeps at most `MOST_STATES` states of about 2 KiB, so that one reply's grammar stays near 100 MiB.
"""

from __future__ import annotations

MOST_BYTES = 256 << 10
"""Length of a grammar's text."""

MOST_STATES = 50_000
TRIAL_CPU_S = 4
TRIAL_WALL_S = 30.0
"""A trial's own time counts first; the wall is for a machine that is busy with other things."""

TRIAL_MEMORY = 1 << 30
"""Address space of a trial."""
