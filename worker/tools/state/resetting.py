"""`inference-worker state reset`: a key forgotten by a request of its own.

The request goes through the topic and is answered like any other, so it takes its turn behind those of its key that
wait already. Its row is made up. The answer to it is of no use but to say that it is done. Where the model fails on the
state, as on one of which it makes infinity, a request before it begins the key anew.
"""

from __future__ import annotations

import secrets
import time

import numpy as np

from worker.codecs.examples import encode_request, encodings, example_feeds
from worker.core.failures import Incomplete
from worker.core.records import Record
from worker.terminal.terminal import console, print_json, printable, say
from worker.tools.consume.reading import headers_of, read
from worker.tools.kafka.publisher import Publisher
from worker.tools.kafka.reader import READ_FOR, Reader
from worker.tools.state.changelog import Stateful, key_of, last_states, stateful
from worker.tools.state.options import ResetOrder


def reset(order: ResetOrder) -> int:
    """0. Raises `Incomplete` for a key without state, and where no answer came, or an error; `BadConfiguration`."""
    of, key = stateful(order.config), key_of(order.key, is_base64=order.is_base64)
    # Where it lies, whichever partitioner its publishers have.
    partitions = [found.partition for found in last_states(of, only_key=key) if found.keys]
    if not partitions:
        raise Incomplete(f"{printable(order.key)}: {of.changelog} has no state of this key")
    for partition in partitions:
        answer = _asked(of, key, partition, b"delete", order.timeout)
        if not _is_ok(answer) and _is_ok(_asked(of, key, partition, b"reset", order.timeout)):
            answer = _asked(of, key, partition, b"delete", order.timeout)
        said = headers_of(answer.headers)
        if not _is_ok(answer):
            why = printable(read(answer).error or "an error that does not say why")
            raise Incomplete(f"{printable(order.key)}: its state is not forgotten: {why}")
        source = said.get("source", b"").decode(errors="replace")
        if order.as_json:
            print_json({"key": order.key, "partition": partition, "forgotten_by": source})
        else:
            say(console(), f"{printable(order.key)}: forgotten by {printable(source)}; its next request begins anew")
    return 0


def _is_ok(answer: Record) -> bool:
    return headers_of(answer.headers).get("status") == b"ok"


def _asked(of: Stateful, key: bytes, partition: int, use: bytes, timeout: float) -> Record:
    """The answer to a request that uses the key's state so. Raises `Incomplete` when none came in time."""
    kafka, name = of.settings.kafka, secrets.token_hex(8).encode()
    request = _request(of)
    with Reader(kafka, kafka.response_topic) as reader:
        reader.start_at(reader.ends)
        publisher = Publisher(kafka, of.requests)
        headers = (*request[0], ("state", use), ("request-id", name))
        publisher.publish(request[1], key, headers, None, partition)
        publisher.flush(timeout)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for record in reader.read(READ_FOR):
                if headers_of(record.headers).get("request-id") == name:
                    return record
    does = "forgets the key" if use == b"delete" else "begins the key anew, with a row that is made up"
    raise Incomplete(
        f"no answer within {timeout:g} s; the request lies in {of.requests}: a worker that comes to it {does}"
    )


def _request(of: Stateful) -> tuple[tuple[tuple[str, bytes], ...], bytes]:
    feeds = example_feeds(of.signature, 1, np.random.default_rng(0))
    made = encode_request(of.signature, feeds, encodings(of.signature)[0])
    return made.headers, made.value
