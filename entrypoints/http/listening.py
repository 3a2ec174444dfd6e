"""Opens the server's sockets before anything slow happens, or says in one sentence why it cannot.

A loopback server listens on 127.0.0.1 and, where it is free, on [::1], for clients that resolve `localhost` to the
latter first. A port on which somebody answers is refused even where the system would let two servers share it.
"""

from __future__ import annotations

import errno
import socket

PROBE_S = 0.5


class ListenError(Exception):
    """The address cannot be listened on; `message` is one sentence that names it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """Bound sockets for `host` and `port` (0: any free one, the same for all). Raises ListenError."""
    if not 0 <= port <= 65535:
        raise ListenError(f"--port {port} is not a port; ports run from 0 (any free one) to 65535.")
    opened: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            if opened:
                port = opened[0].getsockname()[1]
            opened.append(_bind(family, address, port))
    except BaseException:
        for sock in opened:
            sock.close()
        raise
    _add_loopback_twin(opened, host)
    return opened


def place(host: str, port: int) -> str:
    """`host:port` as it stands in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _addresses(host: str, port: int) -> list[tuple[int, str]]:
    if host in ("", "*"):
        host = "0.0.0.0"
    if host == "localhost":
        host = "127.0.0.1"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ListenError(f"--host {host} cannot be resolved to an address of this machine.") from None
    pairs: list[tuple[int, str]] = []
    for family, _, _, _, address in found:
        pair = (int(family), str(address[0]))
        if family in (socket.AF_INET, socket.AF_INET6) and pair not in pairs:
            pairs.append(pair)
    return pairs


def _bind(family: int, address: str, port: int) -> socket.socket:
    if port and _is_ours(family, address) and _answers(family, address, port):
        raise _in_use(address, port)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address != "::"))
        sock.bind((address, port))
    except OSError as refusal:
        sock.close()
        raise _explained(refusal, address, port) from None
    return sock


def _is_ours(family: int, address: str) -> bool:
    """Whether this machine has the address: another machine is never asked anything."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


def _answers(family: int, address: str, port: int) -> bool:
    """Whether a server already accepts connections there."""
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_S)
        try:
            probe.connect((target, port))
        except OSError:
            return False
        # A probe may be given the very port it asks for and so reach itself.
        return bool(probe.getsockname() != probe.getpeername())


def _add_loopback_twin(opened: list[socket.socket], host: str) -> None:
    if host not in ("localhost", "127.0.0.1") or not socket.has_ipv6:
        return
    try:
        opened.append(_bind(socket.AF_INET6, "::1", opened[0].getsockname()[1]))
    except (ListenError, OSError):
        return


def _explained(refusal: OSError, address: str, port: int) -> ListenError:
    if refusal.errno == errno.EADDRINUSE:
        return _in_use(address, port)
    if refusal.errno == errno.EACCES:
        return ListenError(f"{place(address, port)} needs more rights than this user has; choose a --port above 1023.")
    if refusal.errno == errno.EADDRNOTAVAIL:
        return ListenError(f"--host {address} is not an address of this machine.")
    return ListenError(f"{place(address, port)} cannot be listened on (error {refusal.errno}).")


def _in_use(address: str, port: int) -> ListenError:
    return ListenError(f"{place(address, port)} is in use by another server; stop it or choose another --port.")
