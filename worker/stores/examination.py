"""What a server that is to keep states says of itself, and what an operator should change there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.core.failures import BadConfiguration

if TYPE_CHECKING:
    from worker.stores.server import StoreServer


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What it is, and what an operator should know."""

    name: str
    version: str
    warnings: tuple[str, ...]


def examine_store(server: StoreServer) -> StoreFacts:
    """Raises `BadConfiguration` for a server that cannot keep states, or cannot be reached now."""
    from worker.stores.server import SETTING, StoreAway  # noqa: PLC0415 - few have a store, and redis takes 0.2 s

    try:
        about = server.about()
        server.exchange([], [b"examined"])
        warnings = tuple(f"{SETTING}: {warning}" for warning in _warnings(server, about))
    except StoreAway as away:
        raise BadConfiguration(f"{SETTING}: {away}; see that the server runs and can be reached from here") from None
    if about.get("cluster_enabled"):
        raise BadConfiguration(
            f"{SETTING}: {server.name} is a cluster, and a batch of keys would lie on several of its servers; use one "
            "primary, with replicas if you like"
        )
    if about.get("role") not in {None, "master"}:
        raise BadConfiguration(f"{SETTING}: {server.name} is a replica, which takes no writes; name the primary")
    kind = "Valkey" if "valkey_version" in about else "Redis"
    return StoreFacts(server.name, f"{kind} {about.get('valkey_version') or about.get('redis_version')}", warnings)


def _warnings(server: StoreServer, about: dict[str, object]) -> Iterator[str]:
    policy = about.get("maxmemory_policy") or server.config("maxmemory-policy")
    if about.get("maxmemory") and policy not in {None, "noeviction"}:
        yield (
            f"{server.name} has maxmemory-policy={policy}: when its memory is full it drops states, and "
            "their keys begin anew; set it to noeviction"
        )
    if not about.get("aof_enabled") and server.config("save") == "":
        yield f"{server.name} keeps nothing on disk: states are gone when it restarts; set appendonly yes"
    elif not about.get("aof_enabled"):
        yield (
            f"{server.name} writes snapshots alone: what came behind the last one is gone when it is "
            "killed; set appendonly yes"
        )
