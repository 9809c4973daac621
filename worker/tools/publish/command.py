"""`inference-worker publish`: sends requests to a topic, and with `--wait` reports their answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from worker.codecs.records.paths import path_of
from worker.core.failures import BadConfiguration, Incomplete
from worker.kafka.reader import Reader
from worker.settings.for_commands import ClientSettings, load_client, load_scoring, unset
from worker.signals import stop_signals
from worker.terminal.command_line import check_idle, check_readers, signature_and_example, with_options
from worker.terminal.terminal import console, count, milliseconds, print_json, say
from worker.tools.kafka.publisher import Publisher
from worker.tools.lines import content, lines
from worker.tools.options import PublishOrder
from worker.tools.publish.passed_over import PassedOver
from worker.tools.publish.publication import Publication
from worker.tools.publish.requests import Publishable, ReadLine, read_line, read_lines, read_record, read_text

# Seconds without an answer before `--wait` gives up, unless --timeout says otherwise.
_PATIENCE = 30.0


def publish(order: PublishOrder) -> int:
    """Publish requests. Returns 0 if all were published and, with `wait`, answered with a result.

    Raises `BadConfiguration` if it cannot begin, `KafkaFatal` if Kafka takes nothing more, and `Incomplete` if a part
    was not published, not answered, or answered with an error.
    """
    if not order.wait:
        check_idle("without --wait", timeout=order.timeout)
    if order.random is None:
        check_idle("without --random: lines are published as they stand", encoding=order.encoding, model=order.model)
    environ = with_options(
        os.environ, WORKER_KAFKA__BOOTSTRAP_SERVERS=order.bootstrap_servers, WORKER_MODEL__PATH=order.model
    )
    settings, patience = load_client(order.config, environ), order.timeout or _PATIENCE
    topic, read = _topic(order, settings), _reading(order, settings)
    unit = "request" if read is read_line else "record"
    with ExitStack() as stack:
        requests = _requests(order, read, environ, stack)
        reader = _reader_at_end(order, settings, stack) if order.wait else None
        passed_over = PassedOver(settings, topic)
        publisher = Publisher(settings.kafka, topic)
        signals = stack.enter_context(stop_signals())
        publication = Publication(publisher, reader, signals, order.key, order.rate, passed_over.has)
        try:
            publication.run(requests, order.random)
            if order.wait and publication.is_whole:
                publication.wait(patience)
        finally:
            told = {"topic": topic, **publication.summary()}
            if publication.handed_over or publication.is_whole:
                _report(order, told, unit)
    if publication.odd is not None and not told["published"]:
        raise publication.odd
    shortfalls = list(_shortfalls(publication, told, publisher.refusal, patience, unit))
    if told.get("answers", {}).get("missing") and not passed_over.is_sure:
        shortfalls.append("records of kinds that [records] only does not name get no answer: some of these may be such")
    if shortfalls:
        raise Incomplete("\n".join(shortfalls))
    return 0


def _topic(order: PublishOrder, settings: ClientSettings) -> str:
    """Returns the topic. Raises `BadConfiguration` for a topic whose readers expect no requests."""
    topics = (order.topic,) if order.topic is not None else settings.kafka.request_topics
    if topics is None:
        raise unset("WORKER_KAFKA__REQUEST_TOPICS: must be set, or name a topic with --topic", order.config)
    if len(topics) != 1:
        raise BadConfiguration(f"WORKER_KAFKA__REQUEST_TOPICS names {', '.join(topics)}; say which one with --topic")
    [topic] = topics
    check_readers("--topic", topic, settings.kafka, "response_topic", "dead_letter_topic")
    return topic


def _reading(order: PublishOrder, settings: ClientSettings) -> ReadLine:
    """Returns the function that reads a line; `Publishable` if all of a file is one record.

    Raises `BadConfiguration` for records that no line can be.
    """
    is_records = order.records if order.records is not None else settings.records is not None
    encoding = "json" if settings.records is None else settings.records.encoding
    if order.key_field is not None and (not is_records or encoding != "json"):
        raise BadConfiguration(
            "--key-field: only records in JSON have fields; say --records, or give the key with --key"
        )
    if not is_records:
        return read_line
    if order.random is not None:
        raise BadConfiguration("--random: made-up tensors are no records; name a FILE with a record on each line")
    if encoding == "registry":
        raise BadConfiguration(
            "WORKER_RECORDS__ENCODING=registry: no line is such a record; publish with the records' own producer, or "
            'as {"value_base64": "..."} with --no-records'
        )
    if encoding != "json":
        return read_text if encoding == "text" else Publishable
    return partial(read_record, key_field=path_of("--key-field", order.key_field) if order.key_field else None)


def _requests(
    order: PublishOrder, read: ReadLine, environ: Mapping[str, str], stack: ExitStack
) -> Iterator[Publishable | None]:
    if (order.file is None) == (order.random is None):
        raise BadConfiguration("what is to be published? Name a FILE (- is standard input), or say --random N")
    if order.random is not None:
        return _made_up(order, environ, order.random)
    if order.file == "-":
        if sys.stdin is None:  # as `<&-` leaves it
            raise BadConfiguration("standard input is closed; name a FILE")
        return _read(sys.stdin.fileno(), "standard input", read)
    path = Path(str(order.file))
    try:
        file = stack.enter_context(path.open("rb", buffering=0))
    except OSError as error:
        raise BadConfiguration(f"{path}: cannot be read: {error.strerror}") from error
    return _read(file.fileno(), path.name, read)


def _read(file: int, name: str, read: ReadLine) -> Iterator[Publishable | None]:
    if read is Publishable:
        return iter([Publishable(content(file, name))])
    return read_lines(lines(file, name), name, read)


def _made_up(order: PublishOrder, environ: Mapping[str, str], total: int) -> Iterator[Publishable]:
    if order.key is None and load_scoring(order.config, environ).state.tensors:
        raise BadConfiguration("--random: with WORKER_STATE__TENSORS each request needs a key; say --key 'made-up-{n}'")
    from worker.codecs.examples import EncodingName, encode_request, encodings, example_feeds  # noqa: PLC0415 - not for lines

    signature, given = signature_and_example(order.config, environ)
    possible = encodings(signature)
    if order.encoding is not None and order.encoding not in possible:
        raise BadConfiguration(f"--encoding {order.encoding}: this model takes {', '.join(possible)}")
    encoding, rng = EncodingName(order.encoding or possible[0]), np.random.default_rng(0)
    made = (encode_request(signature, example_feeds(signature, 1, rng, given), encoding) for _ in range(total))
    return (Publishable(value, headers=headers) for headers, value in made)


def _reader_at_end(order: PublishOrder, settings: ClientSettings, stack: ExitStack) -> Reader:
    if settings.kafka.response_topic is None:
        raise unset("WORKER_KAFKA__RESPONSE_TOPIC: must be set for --wait", order.config)
    reader = stack.enter_context(Reader(settings.kafka, settings.kafka.response_topic))
    reader.start_at(reader.ends)
    return reader


def _report(order: PublishOrder, told: Mapping[str, Any], unit: str) -> None:
    if order.as_json:
        print_json(told)
        return
    for name, text in _lines(told, unit):
        say(console(), f"{name:<9}  {text}")


def _lines(told: Mapping[str, Any], unit: str) -> Iterator[tuple[str, str]]:
    yield "published", f"{count(told['published'], unit)} to {told['topic']}"
    yield "", f"in {told['seconds']:,.2f} s, {told['requests_per_second']:,.0f} a second"
    if told["refused"]:
        yield "refused", f"{told['refused']:,}"
    if told["unknown"]:
        yield "unknown", f"{told['unknown']:,} not acknowledged; some of them may have been published"
    if answers := told.get("answers"):
        errors = [f"{number:,} {code}" for code, number in answers["errors"].items()]
        yield "answers", ", ".join([f"{answers['ok']:,} ok", *errors])
        passed_over = f", {answers['passed_over']:,} passed over" if answers["passed_over"] else ""
        yield "", f"{answers['missing']:,} missing, {answers['repeated']:,} repeated{passed_over}"
    if latency := told.get("latency_ms"):
        yield "latency", " · ".join(f"{name} {milliseconds(ms)}" for name, ms in latency.items())


def _shortfalls(
    publication: Publication, told: Mapping[str, Any], refusal: str | None, patience: float, unit: str
) -> Iterator[str]:
    """Yields the reasons why the command is incomplete: some were not published, not answered, or got an error."""
    if publication.odd is not None:
        yield f"{publication.odd}; what comes before it is published"
    elif not publication.is_whole:
        yield f"stopped after {count(publication.handed_over, unit)}"
    if told["refused"]:
        yield f"{count(told['refused'], unit)} refused: {refusal}"
    if told["unknown"]:
        yield f"{count(told['unknown'], unit)} not acknowledged when it was ended"
    answers = told.get("answers") if publication.is_whole else None
    if answers and (failed := sum(answers["errors"].values())):
        yield (
            f"{failed:,} of {count(told['published'], unit)} got an error; "
            f"`inference-worker consume --errors-only --last {failed}` shows why"
        )
    if answers and answers["missing"]:
        hint = "" if answers["missing"] < told["published"] else "; `inference-worker check` tells what keeps a worker"
        yield f"{count(answers['missing'], unit)} not answered, none came for {patience:g} s{hint}"
