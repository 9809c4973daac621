"""`inference-worker publish`: requests to a topic, and, with `--wait`, what became of each of them."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from worker.codecs.examples import Encoding, encodings
from worker.core.failures import BadConfiguration, Incomplete
from worker.core.tensors.signature import Signature
from worker.settings.for_commands import ClientSettings, load_client, load_scoring, unset
from worker.signals import stop_signals
from worker.terminal.command_line import (
    check_idle,
    check_readers,
    signature_and_example,
    signature_if_any,
    with_options,
)
from worker.terminal.terminal import console, count, milliseconds, print_json, say
from worker.tools.kafka.publisher import Publisher
from worker.tools.kafka.reader import Reader
from worker.tools.publish.awaited_answers import Answered, AwaitedAnswers
from worker.tools.publish.options import PublishOrder
from worker.tools.publish.publication import Publication, Published
from worker.tools.publish.requests import LineRequests, MadeUpRequests, Requests, RowRequests, is_archive, is_array

# Seconds without an answer, unless --timeout says others.
_PATIENCE = 30.0


def publish(order: PublishOrder) -> int:
    """0 when all was published and, with `wait`, answered with a result.

    Raises `BadConfiguration` for what cannot be begun, `KafkaFatal` when Kafka takes nothing more, and `Incomplete`
    when a part was not published, not answered, or answered with an error.
    """
    _check_idle(order)
    environ = with_options(
        os.environ, WORKER_KAFKA__BOOTSTRAP_SERVERS=order.bootstrap_servers, WORKER_MODEL__PATH=order.model
    )
    settings = load_client(order.config, environ)
    topic = _topic(order, settings)
    with ExitStack() as stack:
        requests = _requests(order, environ, stack)
        reader = _reader_at_end(order, settings, stack) if order.wait else None
        publisher = Publisher(settings.kafka, topic)
        signals = stack.enter_context(stop_signals())
        awaited = AwaitedAnswers(secrets.token_hex(4))
        publication = Publication(publisher, reader, awaited, signals, key=order.key, rate=order.rate)
        try:
            publication.run(requests)
            if order.wait and publication.is_whole:
                publication.wait(_patience(order))
        finally:
            if publication.published.handed_over or publication.is_whole:
                _report(order, topic, publication)
    _judge(order, requests.total, publication)
    return 0


def _patience(order: PublishOrder) -> float:
    return _PATIENCE if order.timeout is None else order.timeout


def _check_idle(order: PublishOrder) -> None:
    """Raises `BadConfiguration` for options that do nothing without another."""
    if not order.wait:
        check_idle("without --wait", timeout=order.timeout, response_topic=order.response_topic)
    if order.random is None:
        check_idle("without --random", encoding=order.encoding, seed=order.seed)


def _topic(order: PublishOrder, settings: ClientSettings) -> str:
    """Raises `BadConfiguration` for one whose readers would take requests for what they are not."""
    topic = order.topic or _only_request_topic(order, settings)
    check_readers("--topic", topic, settings.kafka, "response_topic", "dead_letter_topic")
    return topic


def _only_request_topic(order: PublishOrder, settings: ClientSettings) -> str:
    topics = settings.kafka.request_topics
    if topics is None:
        raise unset("WORKER_KAFKA__REQUEST_TOPICS: must be set, or name a topic with --topic", order.config)
    if len(topics) != 1:
        raise BadConfiguration(f"WORKER_KAFKA__REQUEST_TOPICS names {', '.join(topics)}; say which one with --topic")
    return topics[0]


def _requests(order: PublishOrder, environ: Mapping[str, str], stack: ExitStack) -> Requests:
    if (order.file is None) == (order.random is None):
        raise BadConfiguration("what is to be published? Name a FILE (- is standard input), or say --random N")
    if order.random is not None:
        return _made_up(order, environ, order.random)
    if order.file == "-":
        if sys.stdin is None:
            raise BadConfiguration("standard input is closed; give it a pipe, or name a FILE")
        _check_lines(order)
        return LineRequests(sys.stdin.buffer, "standard input")
    path = Path(str(order.file))
    try:
        if is_array(path):
            return _rows(order, path, environ)
        if is_archive(path):
            raise BadConfiguration(
                f"{path} is a zip, as .npz are: publish takes the rows of one .npy or, for a model of several inputs, "
                "JSON lines; `inference-worker score` takes .npz"
            )
        _check_lines(order)
        return LineRequests(stack.enter_context(path.open("rb", buffering=0)), path.name)
    except OSError as error:
        raise BadConfiguration(f"{path}: cannot be read: {error.strerror}") from error


def _made_up(order: PublishOrder, environ: Mapping[str, str], total: int) -> MadeUpRequests:
    if order.key is None and load_scoring(order.config, environ).state.tensors:
        raise BadConfiguration(
            "--random: WORKER_STATE__TENSORS is set, and a request without a key is refused then: say "
            "--key 'made-up-{n}', and each has one of its own, whose state is kept"
        )
    signature, given = signature_and_example(order.config, environ)
    encoding = _encoding(order, signature)
    return MadeUpRequests(signature, total, encoding, order.rows_per_request or 1, order.seed or 0, given)


def _check_lines(order: PublishOrder) -> None:
    check_idle(
        "with JSON lines, which are published as they stand", rows_per_request=order.rows_per_request, model=order.model
    )


def _rows(order: PublishOrder, path: Path, environ: Mapping[str, str]) -> RowRequests:
    """What the model cannot be asked is refused here at once, where there is a model, and else by each answer."""
    rows = RowRequests(path, order.rows_per_request or 1)
    signature = signature_if_any(order.config, environ, is_asked_for=order.model is not None)
    if signature is not None:
        rows.check(signature)
    return rows


def _encoding(order: PublishOrder, signature: Signature) -> Encoding:
    possible = encodings(signature)
    if order.encoding is None:
        return possible[0]
    if order.encoding not in possible:
        raise BadConfiguration(
            f"--encoding {order.encoding}: the model takes {signature.takes} and gives "
            f"{', '.join(map(str, signature.outputs))}; choose one of {', '.join(possible)}"
        )
    return Encoding(order.encoding)


def _reader_at_end(order: PublishOrder, settings: ClientSettings, stack: ExitStack) -> Reader:
    topic = order.response_topic or settings.kafka.response_topic
    if topic is None:
        why = "WORKER_KAFKA__RESPONSE_TOPIC: must be set for --wait, or name it with --response-topic"
        raise unset(why, order.config)
    reader = stack.enter_context(Reader(settings.kafka, topic))
    reader.start_at(reader.ends)
    return reader


def _report(order: PublishOrder, topic: str, publication: Publication) -> None:
    published, answered = publication.published, publication.answered if order.wait else None
    if order.as_json:
        print_json(_document(topic, published, answered))
        return
    for name, text in _lines(topic, published, answered):
        say(console(), f"{name:<9}  {text}")


def _lines(topic: str, published: Published, answered: Answered | None) -> Iterator[tuple[str, str]]:
    yield "published", f"{count(published.acknowledged, 'request')} to {topic}"
    yield "", f"in {published.seconds:,.2f} s, {published.rate:,.0f} a second"
    if published.refused:
        yield "refused", f"{published.refused:,}"
    if published.unknown:
        yield "unknown", f"{published.unknown:,} not acknowledged; some of them may have been published"
    if answered is not None:
        yield "answers", ", ".join([f"{answered.ok:,} ok", *(f"{n:,} {code}" for code, n in answered.errors.items())])
        yield "", f"{answered.missing:,} missing, {answered.repeated:,} repeated"
    if answered is not None and answered.latency_ms:
        yield "latency", " · ".join(f"{name} {milliseconds(ms)}" for name, ms in answered.latency_ms.items())


def _document(topic: str, published: Published, answered: Answered | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "topic": topic,
        "published": published.acknowledged,
        "refused": published.refused,
        "unknown": published.unknown,
        "seconds": round(published.seconds, 3),
        "requests_per_second": round(published.rate, 1),
    }
    if answered is not None:
        document["answers"] = {name: held for name, held in answered._asdict().items() if name != "latency_ms"}
        document["latency_ms"] = {name: round(ms, 3) for name, ms in answered.latency_ms.items()}
    return document


def _judge(order: PublishOrder, total: int | None, publication: Publication) -> None:
    """Raises for whatever is short of what was asked for."""
    published, odd = publication.published, publication.odd
    if odd is not None and not published.acknowledged:
        raise odd
    shortfalls = []
    if odd is not None:
        shortfalls.append(f"{odd}; what comes before it is published")
    elif not publication.is_whole:
        shortfalls.append(f"stopped after {published.handed_over:,} of {f'{total:,}' if total else 'the'} requests")
    if published.refused:
        shortfalls.append(f"{count(published.refused, 'request')} refused: {published.refusal}")
    if published.unknown:
        shortfalls.append(f"{count(published.unknown, 'request')} not acknowledged when it was ended")
    if order.wait and publication.is_whole:
        shortfalls += _unsatisfied(order, publication)
    if shortfalls:
        raise Incomplete("\n".join(shortfalls))


def _looking_up(order: PublishOrder, errors: int) -> str:
    """The command that shows so many errors, with what of this one's options leads it there."""
    words = ["inference-worker", "consume", "--errors-only", "--last", str(errors)]
    for option, value in (
        ("--topic", order.response_topic),
        ("--config", order.config),
        ("--bootstrap-servers", order.bootstrap_servers),
    ):
        words += [] if value is None else [option, str(value)]
    return shlex.join(words)


def _unsatisfied(order: PublishOrder, publication: Publication) -> Iterator[str]:
    """Requests that got an error, and those that got nothing."""
    answered = publication.answered
    if answered.errors:
        codes = ", ".join(f"{n:,} {code}" for code, n in answered.errors.items())
        yield (
            f"{answered.failed:,} of {count(publication.published.acknowledged, 'request')} got an error: {codes}; "
            f"`{_looking_up(order, answered.failed)}` shows why"
        )
    if not answered.missing:
        return
    missing = f"{count(answered.missing, 'request')} not answered"
    if publication.is_stop_asked:
        yield f"{missing} when it was ended"
    elif answered.ok or answered.failed:
        yield f"{missing}, and no answer came for {_patience(order):g} s"
    else:
        yield (
            f"{missing}, no answer came for {_patience(order):g} s: is a worker running on this topic? "
            "`inference-worker check` tells what would keep one from it"
        )
