"""Hears everything that is logged, warned or thrown in a thread while inputs are tried."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from typing import Any


class Overheard(logging.Handler):
    """What was heard since the last look, as lines of text."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._heard: list[str] = []
        self._hooks = (threading.excepthook, sys.unraisablehook)
        logging.getLogger().addHandler(self)
        threading.excepthook = self._thrown
        sys.unraisablehook = self._thrown

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += " " + "".join(traceback.format_exception(record.exc_info[1]))
        self._heard.append(f"logged by {record.name}: {text}")

    def take(self) -> list[str]:
        """The lines, once."""
        heard, self._heard = self._heard, []
        return heard

    def close(self) -> None:
        """Stop listening."""
        logging.getLogger().removeHandler(self)
        threading.excepthook, sys.unraisablehook = self._hooks
        super().close()

    def _thrown(self, told: Any) -> None:
        self._heard.append("thrown: " + "".join(traceback.format_exception(told.exc_value)))
