"""Addresses of brokers and of HTTP services, read as their clients read them: where they lead, and how. Pure."""

from __future__ import annotations

import ipaddress
import re

# The fewest digits that are taken for a port at the end of an IPv6 address without brackets: brokers listen above 1023.
SHORTEST_PORT = 4
# Scheme, login, host and port. Without a scheme a client may take `http`, and a backslash is a slash to some.
_URL = re.compile(r"(https?)://(?:([^\s/?#@\\]*)@)?([^\s/?#@\\]+)(?:[/?#][^\s\\]*)?", re.IGNORECASE | re.ASCII)

_NAME = re.compile(r"[\w.-]+")
# Kept from public DNS by RFC 6761, 6762 and 8375, and by ICANN; `.svc` is Kubernetes's, and no public domain.
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
        """Whether a message to it crosses a network unencrypted."""
        return not self.is_encrypted and not is_loopback(self.host)


def is_loopback(server: str) -> bool:
    """Whether `[protocol://]host[:port]` is this machine."""
    host = host_and_port(server)[0]
    ip = _ip(host)
    return host == "localhost" or (ip is not None and ip.is_loopback)


def can_be_public(host: str) -> bool:
    """Whether anyone could own that name in public DNS: it has a dot, and is no address."""
    host = host.removesuffix(".")
    return "." in host and _ip(host) is None and not host.endswith(_NEVER_PUBLIC)


def is_host(text: str) -> bool:
    """Whether it can be looked up: a name or an address, and no list with something else than commas in it."""
    return _NAME.fullmatch(text) is not None or _ip(text) is not None


def host_and_port(server: str) -> tuple[str, str]:
    """Host and port of `[protocol://]host[:port]`, as librdkafka reads it: IPv6 needs brackets to have a port.

    An IPv6 address without brackets that ends like a port was meant to have one, and is returned with one.
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
