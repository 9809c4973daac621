"""Reads addresses of brokers and HTTP services as their clients do: which host, and whether encrypted. Pure."""

from __future__ import annotations

import ipaddress
import re

# The fewest digits at the end of an IPv6 address without brackets that count as a port. Brokers listen above 1023.
SHORTEST_PORT = 4
# Scheme, login, host and port. Without a scheme a client may take `http`, and some clients read a backslash as a slash.
_URL = re.compile(r"(https?)://(?:([^\s/?#@\\]*)@)?([^\s/?#@\\]+)(?:[/?#][^\s\\]*)?", re.IGNORECASE | re.ASCII)

_NAME = re.compile(r"[\w.-]+")
# Names that are never in public DNS, by RFC 6761, 6762 and 8375, and by ICANN; `.svc` is Kubernetes's own.
_NEVER_PUBLIC = (".localhost", ".local", ".internal", ".svc", ".home.arpa", ".test")


class Url:
    """An address of an HTTP service. Raises `ValueError` for any other text."""

    def __init__(self, text: str) -> None:
        found = _URL.fullmatch(text)
        host, port = ("", "") if found is None else host_and_port(found[3])
        if found is None or not host or (port and not port.isdecimal()):
            raise ValueError("no address")
        self.host = found[3]
        self.has_login = found[2] is not None
        self.is_encrypted = found[1].lower() == "https"

    @property
    def is_in_clear(self) -> bool:
        """True if a message to it crosses a network unencrypted."""
        return not self.is_encrypted and not is_loopback(self.host)


def is_loopback(server: str) -> bool:
    """True if `[protocol://]host[:port]` is this machine."""
    host = host_and_port(server)[0]
    ip = _ip(host)
    return host == "localhost" or (ip is not None and ip.is_loopback)


def can_be_public(host: str) -> bool:
    """True if anyone could own this name in public DNS: it has a dot, and is no address."""
    host = host.removesuffix(".")
    return "." in host and _ip(host) is None and not host.endswith(_NEVER_PUBLIC)


def is_host(text: str) -> bool:
    """True if the text can be looked up: it is one name or one address, and no list without commas."""
    return _NAME.fullmatch(text) is not None or _ip(text) is not None


def host_and_port(server: str) -> tuple[str, str]:
    """Host and port of `[protocol://]host[:port]`, as librdkafka reads it: IPv6 needs brackets to have a port.

    If an IPv6 address without brackets ends like a port, its author meant one, and it is returned as the port.
    """
    head, scheme, rest = server.partition("://")
    address = rest if scheme else head
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        return host, rest.removeprefix(":")
    if address.count(":") > 1:
        host, _, port = address.rpartition(":")
        return (host, port) if _ip(host) and port.isdecimal() and len(port) >= SHORTEST_PORT else (address, "")
    host, _, port = address.partition(":")
    return host, port


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
