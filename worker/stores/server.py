"""A Valkey or Redis server that holds states: the commands sent to it, and the meaning of its errors.

If a server cannot be reached, is slow, is loading, is not the primary now, or has no memory or disk left, it is asked
again later (`StoreAway`). If it refuses our login, our rights or a command, the worker ends (`BadConfiguration`).

A batch takes one round trip. A script writes a value only if its request is later than the request of the stored state.
So a replica that stood still does not overwrite its successor's states. Offsets decide if both are of one partition;
after a topic got partitions, the times of last use decide. A stored value that is not a state is overwritten.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from worker.core.failures import BadConfiguration

SETTING = "WORKER_STATE__STORE"
try:
    import redis
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AuthenticationError,
        AuthorizationError,
        BusyLoadingError,
        ClusterDownError,
        MasterDownError,
        NoPermissionError,
        OutOfMemoryError,
        ReadOnlyError,
        RedisError,
        ResponseError,
        TryAgainError,
    )
    from redis.retry import Retry
except ImportError as missing:
    raise BadConfiguration(
        f"{SETTING}: redis is not installed ({missing}): install this package with its extra, "
        "pip install '.[state-store]'"
    ) from missing
# Keys of one command: the server takes about 2 µs for each, and does nothing else meanwhile.
MOST_KEYS = 512
# A value starts with 8 bytes for the partition, then the format. The layout starts at byte 13, the offset at byte 17,
# the time at byte 25. The whole script is sent each time, because a restarted server has forgotten it.
_WRITE_IF_LATER = """
for at, key in ipairs(KEYS) do
  local new, seconds = ARGV[2 * at - 1], ARGV[2 * at]
  local old = redis.pcall('GETRANGE', key, 0, 31)
  local is_later = type(old) ~= 'string' or #old < 32
    or string.sub(old, 9, 9) ~= string.sub(new, 9, 9) or string.sub(old, 13, 16) ~= string.sub(new, 13, 16)
  if not is_later and string.sub(old, 1, 8) == string.sub(new, 1, 8) then
    is_later = struct.unpack('<i8', old, 17) < struct.unpack('<i8', new, 17)
  elseif not is_later then
    is_later = struct.unpack('<i8', old, 25) <= struct.unpack('<i8', new, 25)
  end
  if is_later and seconds == '0' then redis.call('SET', key, new)
  elseif is_later then redis.call('SET', key, new, 'EX', seconds) end
end
return 0
"""
# Temporary refusals. Some have a class, which drops the reply's first word; the others are known by that word.
_PASSING = (BusyLoadingError, ReadOnlyError, MasterDownError, ClusterDownError, TryAgainError, OutOfMemoryError)
_PASSING_TEXTS = ("MISCONF", "NOREPLICAS", "BUSY ", "OOM ", "READONLY", "LOADING", "MASTERDOWN", "UNBLOCKED")


class StoreAway(Exception):
    """The store cannot do it now, and may later. The message has no secret in it."""


class Write(NamedTuple):
    """One value to be written. `seconds`: the time until the server forgets it; 0: never."""

    key: bytes
    value: bytes
    seconds: int


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The server's address, and how to connect to it; `timeout` in seconds."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: Path | None = None
    timeout: float = 2.0


class StoreServer:
    """Owns the connection, which is made when it is needed. One thread uses it."""

    def __init__(self, address: StoreAddress, prefix: str) -> None:
        self._prefix = prefix.encode()
        self._redis = _client(address)
        where = self._redis.connection_pool.connection_kwargs
        self.name = f"{where.get('host', 'localhost')}:{where.get('port', 6379)}"

    def exchange(self, writes: Sequence[Write], keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Write these values, then read the values of these keys, in one round trip.

        Raises `StoreAway` and `BadConfiguration`; after that, each write may have been done or not.
        """
        with self._speaking():
            pipeline: Any = self._redis.pipeline(transaction=False)
            for some in _portions(writes):
                arguments = [part for write in some for part in (write.value, write.seconds)]
                names = [self._prefix + write.key for write in some]
                pipeline.execute_command("EVAL", _WRITE_IF_LATER, len(names), *names, *arguments)
            reads = list(_portions(keys))
            for asked in reads:
                pipeline.execute_command("MGET", *[self._prefix + key for key in asked])
            # The client's own exceptions quote the command, with keys and values.
            replies = pipeline.execute(raise_on_error=False)
            for reply in replies:
                if isinstance(reply, RedisError):
                    raise reply
            return [value for reply in replies[len(replies) - len(reads) :] for value in reply]

    def about(self) -> dict[str, Any]:
        """Returns the server's facts (`INFO`). Raises as `exchange` does."""
        with self._speaking():
            return dict(self._redis.info())

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            self._redis.connection_pool.disconnect()  # the next connection looks the name up again
            raise _verdict(self.name, error) from error


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The server's kind and version, and warnings for the operator."""

    name: str
    version: str
    warnings: tuple[str, ...]


def examine_store(server: StoreServer) -> StoreFacts:
    """Returns the facts of a server. Raises `BadConfiguration` if it cannot keep states, or cannot be reached now."""
    try:
        about = server.about()
        server.exchange([], [b"examined"])
    except StoreAway as away:
        raise BadConfiguration(f"{SETTING}: {away}; see that the server runs and can be reached from here") from None
    if about.get("cluster_enabled") or about.get("role") not in {None, "master"}:
        kind = "a cluster" if about.get("cluster_enabled") else "a replica"
        raise BadConfiguration(f"{SETTING}: {server.name} is {kind}; name one primary, with replicas if you like")
    kind = "Valkey" if "valkey_version" in about else "Redis"
    version = f"{kind} {about.get('valkey_version') or about.get('redis_version')}"
    return StoreFacts(server.name, version, tuple(_warnings(server.name, about)))


def _warnings(name: str, about: dict[str, object]) -> Iterator[str]:
    if about.get("maxmemory") and (policy := about.get("maxmemory_policy")) not in {None, "noeviction"}:
        yield (
            f"{SETTING}: {name} has maxmemory-policy={policy}: when its memory is full it drops states, and "
            "their keys begin anew; set it to noeviction"
        )
    if not about.get("aof_enabled"):
        yield f"{SETTING}: {name} may lose states when it restarts; set appendonly yes"


def _portions(whole: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (whole[start : start + MOST_KEYS] for start in range(0, len(whole), MOST_KEYS))


def _client(address: StoreAddress) -> redis.Redis:
    """Makes the client. Raises `BadConfiguration` for an invalid address, and for a file without certificates."""
    login = {"username": address.username, "password": address.password}
    more = {name: value for name, value in login.items() if value is not None}
    if address.ca is not None:
        more["ssl_ca_certs"] = str(address.ca)
    try:
        return redis.Redis.from_url(
            address.url,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=address.timeout,
            socket_connect_timeout=address.timeout,
            socket_keepalive=True,
            max_connections=1,
            **more,
        )
    except (ValueError, TypeError):
        raise BadConfiguration(f"{SETTING}: is no address; write redis://host:6379/0, or rediss:// for TLS") from None


def _verdict(name: str, error: Exception) -> Exception:
    """Returns the exception that an error of the client stands for. The client's text has no login in it."""
    said = str(error)
    if isinstance(error, AuthenticationError | AuthorizationError) or said.startswith("NOAUTH"):
        return BadConfiguration(
            f"{SETTING}: {name} refuses the login: {said}; set WORKER_STATE__STORE_USERNAME and "
            "WORKER_STATE__STORE_PASSWORD"
        )
    if isinstance(error, NoPermissionError):
        return BadConfiguration(
            f"{SETTING}: {name} does not let this user do it: {said}; grant EVAL, MGET, GETRANGE and SET on the keys "
            "of WORKER_STATE__KEY_PREFIX, and INFO"
        )
    if isinstance(error.__cause__ or error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in said:
        return BadConfiguration(
            f"{SETTING}: the certificate of {name} is not trusted: {said}; name its authority in "
            "WORKER_STATE__STORE_CA_LOCATION"
        )
    if not isinstance(error, ResponseError) or isinstance(error, _PASSING) or said.startswith(_PASSING_TEXTS):
        return StoreAway(f"{name}: {said}")
    return BadConfiguration(f"{SETTING}: {name} refuses what is asked: {said}; it must be one primary, no cluster")
