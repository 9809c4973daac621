"""Finds the dead letters that a command wants, and rebuilds their requests."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from worker.codecs.dead_letters import Letter, Position, read
from worker.codecs.request_headers import DEADLINE, REQUEST_ID, TIMEOUT, Envelopes
from worker.core.failures import BadConfiguration
from worker.core.records import Message, Partition
from worker.kafka.reader import Reader
from worker.settings.for_commands import ClientKafkaSettings, load_client, unset
from worker.terminal.command_line import with_options
from worker.terminal.terminal import progress
from worker.tools.dead_letters.options import WhereLetters, WhichLetters

REPLAY_OF = "replay-of"

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class LetterFilter(NamedTuple):
    """A filter of letters; None stands for any."""

    code: str | None = None
    request_topic: str | None = None
    since_ms: int | None = None

    def takes(self, letter: Letter) -> bool:
        """True if code and request topic fit. The time is no part of this: it decides where reading begins."""
        return self.code in (None, letter.code) and self.request_topic in (None, request_topic(letter))

    def starts(self, reader: Reader) -> Mapping[Partition, int]:
        return reader.beginnings if self.since_ms is None else reader.offsets_at(self.since_ms)


def filter_of(which: WhichLetters) -> LetterFilter:
    """Makes the filter. Raises `BadConfiguration` if `--since` is not a time."""
    since_ms = None if which.since is None else time_of(which.since, time.time())
    return LetterFilter(None if which.code is None else which.code.upper(), which.request_topic, since_ms)


def topic_of(where: WhereLetters) -> tuple[ClientKafkaSettings, str]:
    """Returns the connection and the dead-letter topic. Raises `BadConfiguration`."""
    given = with_options(
        os.environ, WORKER_KAFKA__DEAD_LETTER_TOPIC=where.topic, WORKER_KAFKA__BOOTSTRAP_SERVERS=where.bootstrap_servers
    )
    kafka = load_client(where.config, given).kafka
    if kafka.dead_letter_topic is None:
        raise unset("WORKER_KAFKA__DEAD_LETTER_TOPIC: must be set, or the topic named by --topic", where.config)
    return kafka, kafka.dead_letter_topic


def request_topic(letter: Letter) -> str:
    """Returns the topic of the request; empty if the letter does not say it."""
    return letter.origin.topic if letter.origin is not None else ""


def time_of(text: str, now: float) -> int:
    """Returns milliseconds since the epoch, at least 0, because Kafka takes -1 for the end. Raises `BadConfiguration`.

    The text is an age (`90s`, `15m`, `2h`, `3d`), or a time in ISO 8601, in UTC unless it names a zone.
    """
    if ago := re.fullmatch(r"(\d{1,9})([smhd])", text):
        return max(0, int((now - int(ago[1]) * _UNITS[ago[2]]) * 1000))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadConfiguration(f"--since {text}: give 90s, 15m, 2h, 3d, or a time such as 2026-11-21T09:30") from None
    return max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))


def letters(reader: Reader, starts: Mapping[Partition, int], topic: str) -> Iterator[Letter]:
    """Yields all letters from the starts to the ends of the topic, and shows the progress."""
    with progress(f"reading {topic}", sum(reader.ends[at] - start for at, start in starts.items())) as advance:
        yield from map(read, reader.up_to_ends(starts, advance))


def letter_at(reader: Reader, at: Position) -> Letter:
    """Returns the letter at this place. Raises `BadConfiguration` if there is none."""
    partition = Partition(at.topic, at.partition)
    first, end = reader.beginnings.get(partition, 0), reader.ends.get(partition, 0)
    record = next(reader.up_to_ends({partition: at.offset}), None) if first <= at.offset < end else None
    if record is None or record.offset != at.offset:
        raise BadConfiguration(
            f"{at}: there is no record; partition {at.partition} goes from offset {first} below {end}"
        )
    return read(record)


def original(letter: Letter, topic: str, envelopes: Envelopes) -> Message:
    """Rebuilds the request, for `topic`: key, value and headers. Only for letters that have no `loss`.

    It drops timeout and deadline, because the publisher no longer waits. A request without an id gets its old place as
    its id, because its publisher knows that. The header `replay-of` has that place too; a request that was a replay
    already keeps its first place there. `envelopes` reads headers as the workers do.
    """
    record, origin = letter.record, letter.origin
    headers = [header for header in letter.headers if header[0].lower() not in (TIMEOUT, DEADLINE)]
    if origin is not None:
        place = str(origin).encode()
        if not _has_id(letter, envelopes):
            headers.append((REQUEST_ID, place))
        if all(name != REPLAY_OF for name, _ in headers):
            headers.append((REPLAY_OF, place))
    return Message(topic, record.key, record.value, headers, origin.partition if origin else record.partition.number)


def _has_id(letter: Letter, envelopes: Envelopes) -> bool:
    """True if a worker finds an id, in the header or in the body."""
    from worker.codecs.encodings.table import without_a_model  # noqa: PLC0415 - only a replay needs the codecs

    envelope = envelopes.read(letter.headers)
    if envelope.ids.request_id is not None:
        return True
    return bool(without_a_model().body_id(envelope.form, letter.record.value))
