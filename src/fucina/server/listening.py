"""The sockets that a server listens at, taken before anything is loaded, so that a wrong address is told at once."""

from __future__ import annotations

import errno
import ipaddress
import socket
from contextlib import ExitStack

from fucina.errors import ConfigError

_BACKLOG = 2048


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen at every address of `host`; port 0 takes a free one. Raises ConfigError where that cannot be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ConfigError("host", got=host, expected="an address of this machine, or a name of one") from None
    listeners: list[socket.socket] = []
    with ExitStack() as undo:
        for family, address in dict.fromkeys((one[0], one[4]) for one in found):
            # whoever has the first address at a free port should have the others at the same one
            taken = listeners[0].getsockname()[1] if listeners else port
            listeners.append(undo.enter_context(_listener(family, (address[0], taken, *address[2:]), host)))
        undo.pop_all()
    return listeners


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_of(listener: socket.socket) -> str:
    """What to call a server that listens there."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _listener(family: int, address: tuple[object, ...], host: str) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _refusal(error, host, address[1]) from None
    return listener


def _refusal(error: OSError, host: str, port: object) -> ConfigError:
    """What to do where an address cannot be had."""
    if error.errno == errno.EADDRINUSE:
        return ConfigError("port", got=port, expected=f"a free one: something listens at {host}:{port} already")
    if error.errno in (errno.EACCES, errno.EPERM):
        return ConfigError("port", got=port, expected="one that this user may listen at, from 1024 on")
    return ConfigError("host", got=host, expected=f"an address of this machine ({error.strerror})")
