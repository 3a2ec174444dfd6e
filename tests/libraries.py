"""Libraries that tests stand on: a test whose library is not installed is skipped, and says so."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(*names: str) -> pytest.MarkDecorator:
    """Skip where one of these libraries, all of them dependencies of the product or its tests, is not installed."""
    absent = [name for name in names if find_spec(name) is None]
    return pytest.mark.skipif(bool(absent), reason=f"{', '.join(absent)} should be installed here and is not")
