"""What can go wrong with a hub, as our own sentences; no word of a library, a server or a token is in them.

A `BrokenOffError` may go away when it is tried again; a `RefusedError` will not. Status codes mean what the hub's
interface gives them; the header `X-Error-Code` tells apart what the code alone does not.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.fields import clipped

_BAD_TOKEN = "Invalid credentials in Authorization header"
_MOST_WAIT_S = 60.0


class UnreachableError(RefusedError):
    """The hub gave no answer; what is on this machine may do instead."""


class BrokenOffError(Exception):
    """A try that failed and may be made again; `reason` is ours, `wait` the seconds the hub asks for.

    `heard`: the hub did answer.
    """

    def __init__(self, reason: str, wait: float | None = None, *, heard: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait = wait
        self.heard = heard


class BadTokenError(Exception):
    """The hub does not take the token; a public repository can be asked for without one."""


class AbsentError(Exception):
    """The revision has no such file."""


def broken_off(error: BaseException) -> BrokenOffError:
    """An exception of the HTTP library, by the names of its kind, which the library's versions share."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "ConnectTimeout" in kinds or "PoolTimeout" in kinds:
        return BrokenOffError("it did not answer in time")
    if "TimeoutException" in kinds:
        return BrokenOffError("it stopped answering")
    if "ProxyError" in kinds:
        return BrokenOffError("the proxy refused")
    if "ConnectError" in kinds:
        return BrokenOffError(_connect_reason(error))
    if kinds & {"UnsupportedProtocol", "InvalidURL"}:
        return BrokenOffError("its address cannot be read")
    if "DecodingError" in kinds:
        return BrokenOffError("its answer cannot be read")
    return BrokenOffError("the connection broke off")


def _connect_reason(error: BaseException) -> str:
    text = str(error).lower()
    if "certificate" in text or "ssl" in text:
        return "no safe connection could be made: its certificate is not trusted here"
    if "refused" in text:
        return "nothing listens there"
    if "name or service" in text or "nodename" in text or "resolution" in text or "resolve" in text:
        return "its name is not known here"
    return "no connection could be made"


def of_status(
    status: int, headers: Mapping[str, str], what: str, *, keyed: bool, token_refused: bool = False
) -> Exception:
    """The error that an answer of the hub's own means. `what` is owner/name@revision, `keyed`: a token was sent.

    `token_refused`: there was one, which the hub did not take.
    """
    code = headers.get("x-error-code", "")
    if status == 401 and keyed and headers.get("x-error-message", "") == _BAD_TOKEN:
        return BadTokenError()
    if code == "EntryNotFound":
        return AbsentError()
    if code == "RevisionNotFound":
        return RefusedError(f"{what}: the hub has the repository but no such revision; name a branch, tag or commit.")
    if token_refused and (code in ("GatedRepo", "RepoNotFound") or status in (401, 403, 404)):
        return RefusedError(
            f"{what}: the hub does not take the token in HF_TOKEN, or the stored one, and shows this repository to "
            "nobody without one; give a valid token, or check the name."
        )
    if code == "GatedRepo":
        return RefusedError(_gated(what, keyed))
    if code == "RepoNotFound" or status in (401, 404):
        return RefusedError(_unseen(what, keyed))
    if status == 403:
        return RefusedError(f"{what}: the hub forbids access (403); give a token in HF_TOKEN that may read it.")
    if status == 429:
        return _limited(headers)
    if status in (408, 500, 502, 503, 504):
        return BrokenOffError(f"it answered {status}", _asked_wait(headers), heard=True)
    return RefusedError(f"{what}: the hub answered with status {status}; try again later, or check HF_ENDPOINT.")


def _gated(what: str, keyed: bool) -> str:
    if keyed:
        return (
            f"{what} is gated, and the account of this token has not been let in; accept its terms on its page of the "
            "hub, or wait for the publisher's answer."
        )
    return f"{what} is gated; accept its terms on its page of the hub, then give that account's token in HF_TOKEN."


def _unseen(what: str, keyed: bool) -> str:
    hint = "a token in HF_TOKEN that may read it" if keyed else "a token in HF_TOKEN"
    return f"{what}: the hub shows no such repository; check the name, or, if it is private, give {hint}."


def _limited(headers: Mapping[str, str]) -> Exception:
    wait = _asked_wait(headers)
    if wait is not None and wait > _MOST_WAIT_S:
        return RefusedError(f"The hub limits how often it is asked; try again in {wait:.0f} seconds.")
    return BrokenOffError("it limits how often it is asked", wait, heard=True)


def _asked_wait(headers: Mapping[str, str]) -> float | None:
    text = headers.get("retry-after", "").strip()
    return float(text) if text.isdecimal() and len(text) < 8 else None


def disk_refusal(place: Path, error: OSError) -> RefusedError:
    """A cache that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason = "the disk is full"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        reason = "this user may not write there"
    else:
        reason = f"system error {errno.errorcode.get(error.errno or 0, 'unknown')}"
    where = clipped(str(place), 400)
    return RefusedError(
        f"The download could not be kept in {where} ({reason}); what is there stays, and HF_HUB_CACHE names another "
        "place."
    )
