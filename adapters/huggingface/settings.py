"""What the hub's library read from its environment variables: address, cache, token, offline, patience.

The library reads them when it is first imported, which happens here and not before a hub is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorfold.application.ports.checkpoints import RefusedError

_TOKEN = re.compile(r"[!-~]{1,2000}")


@dataclass(frozen=True, slots=True)
class HubSettings:
    """`endpoint` is the hub's address, `timeout` the seconds a connection or an answer's next part may take.

    `token` gives the access token when it is needed, `session` the HTTP client. `waits` are the seconds between tries
    of what broke off.
    """

    endpoint: str
    cache: Path
    offline: bool
    timeout: float
    session: Callable[[], Any]
    token: Callable[[], str | None] = field(repr=False)
    agent: str = "tensorfold"
    waits: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 8.0)
    streams: int = 4


def library_settings(version: str) -> HubSettings:
    """As the library has them. `version` is named to the hub as the asking program's."""
    from huggingface_hub import constants, get_session

    return HubSettings(
        endpoint=constants.ENDPOINT,
        cache=Path(constants.HF_HUB_CACHE).expanduser(),
        offline=bool(constants.HF_HUB_OFFLINE),
        timeout=float(constants.HF_HUB_DOWNLOAD_TIMEOUT),
        session=get_session,
        token=_library_token,
        agent=f"tensorfold/{version}",
    )


def _library_token() -> str | None:
    """HF_TOKEN, or the token that a login stored. Raises RefusedError when it cannot be sent; never shows it."""
    from huggingface_hub import constants, get_token

    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    if token is not None and not _TOKEN.fullmatch(token):
        raise RefusedError("The token in HF_TOKEN, or the stored one, holds characters that no token has; mend it.")
    return token
