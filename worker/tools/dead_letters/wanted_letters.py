"""The letters that a command wants: in the topic that the settings or the command line name, those selected."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from worker.codecs.dead_letters import Letter, Position, read
from worker.core.failures import BadConfiguration
from worker.core.records import Partition
from worker.settings.for_commands import ClientKafkaSettings, load_client, unset
from worker.terminal.command_line import with_options
from worker.terminal.terminal import progress
from worker.tools.dead_letters.options import WhereLetters, WhichLetters
from worker.tools.dead_letters.progress import Selection
from worker.tools.kafka.reader import Reader

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Wanted(NamedTuple):
    """Which letters are meant: those selected, in each partition from the first of that time on."""

    selection: Selection
    since_ms: int | None

    def starts(self, reader: Reader) -> Mapping[Partition, int]:
        return reader.beginnings if self.since_ms is None else reader.offsets_at(self.since_ms)


def wanted_of(which: WhichLetters) -> Wanted:
    """Raises `BadConfiguration` for a time that is none."""
    since_ms = None if which.since is None else time_of(which.since, time.time())
    code = None if which.code is None else which.code.upper()
    return Wanted(Selection(code, which.request_topic), since_ms)


def topic_of(where: WhereLetters) -> tuple[ClientKafkaSettings, str]:
    """The connection and the dead-letter topic. Raises `BadConfiguration`."""
    given = with_options(
        os.environ, WORKER_KAFKA__DEAD_LETTER_TOPIC=where.topic, WORKER_KAFKA__BOOTSTRAP_SERVERS=where.bootstrap_servers
    )
    kafka = load_client(where.config, given).kafka
    if kafka.dead_letter_topic is None:
        raise unset("WORKER_KAFKA__DEAD_LETTER_TOPIC: must be set, or the topic named by --topic", where.config)
    return kafka, kafka.dead_letter_topic


def time_of(text: str, now: float) -> int:
    """Milliseconds since the epoch: of so long ago (`90s`, `15m`, `2h`, `3d`), or of a time in ISO 8601, UTC unless it
    says otherwise. 0 for any before: Kafka takes -1 for the end. Raises `BadConfiguration`.
    """
    if ago := re.fullmatch(r"(\d{1,9})([smhd])", text):
        return max(0, int((now - int(ago[1]) * _UNITS[ago[2]]) * 1000))
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadConfiguration(f"--since {text}: give 90s, 15m, 2h, 3d, or a time such as 2026-11-21T09:30") from None
    return max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))


def letters(reader: Reader, wanted: Wanted, topic: str) -> Iterator[Letter]:
    """Those of the letters that the topic holds now which are wanted. Shows how far it is."""
    starts = wanted.starts(reader)
    with progress(f"reading {topic}", sum(reader.ends[at] - start for at, start in starts.items())) as advance:
        for record in reader.up_to_ends(starts, advance):
            letter = read(record)
            if wanted.selection.takes(letter):
                yield letter


def place_of(place: str) -> Position:
    """Raises `BadConfiguration` for what is no place."""
    at = Position.parse(place)
    if at is None:
        raise BadConfiguration(f"{place}: a place is topic/partition/offset, of a dead letter or of its request")
    return at


def letter_at(reader: Reader, at: Position) -> Letter:
    """The letter that lies there. Raises `BadConfiguration` where none does."""
    partition = Partition(at.topic, at.partition)
    if partition not in reader.ends:
        raise BadConfiguration(f"{at}: {at.topic} has {len(reader.ends)} partitions, counted from 0")
    first, end = reader.beginnings[partition], reader.ends[partition]
    if not first <= at.offset < end:
        held = f"offsets {first} to {end - 1}" if first < end else "nothing"
        raise BadConfiguration(f"{at}: partition {at.partition} holds {held} now")
    for record in reader.up_to_ends({partition: at.offset}):
        if record.offset == at.offset:
            return read(record)
        raise BadConfiguration(f"{at}: there is no record at that offset; the next one is at {record.offset}")
    raise BadConfiguration(f"{at}: there is no record at that offset, nor behind it")
