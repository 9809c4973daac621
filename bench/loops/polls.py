"""Loops by hand that take a whole poll at a time: as fast as we could make them, at least once, in order, with headers.

    python -m bench.loops.polls NAME BOOTSTRAP REQUESTS RESPONSES GROUP MODEL BATCH RATE

    consume a thousand ─▶ read ─▶ an inference for each batch ─▶ write ─▶ produce ─▶ flush ─▶ commit

They trust every request. What is said once for a poll is said once: an answer in protobuf or binary data is a head that
is written at the start, and the bytes of a row.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from struct import pack
from typing import Any, NamedTuple

import numpy as np
import orjson
from confluent_kafka import Consumer, Message, Producer
from numpy.typing import NDArray
from onnxruntime import InferenceSession
from tritonclient.grpc import service_pb2

from bench.loops.by_hand import FAST_FETCH
from bench.loops.task import Task, joined, opened
from tests.ragged import BOUNDARIES

Arrays = Sequence[NDArray[Any]]
Headers = Mapping[str, bytes]
Write = Callable[[Arrays], Sequence[bytes]]

WAIT = 0.1  # seconds
# Records of a poll: the fastest of 512 to 8,192 (measured 2026-11-27). Texts of more than a thousand leave the cache;
# plain rows gain until a flush costs little next to answering them.
POLL, LONG_POLL = 1024, 4096
HEAD_LENGTH = "Inference-Header-Content-Length"
DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(string)": object}
DATATYPES = {"tensor(float)": "FP32", "tensor(int64)": "INT64"}
OCTETS, JSON, PROTOBUF = (f"application/{kind}".encode() for kind in ("octet-stream", "json", "x-protobuf"))


class Model:
    """The model, with the names and types of its inputs and outputs."""

    def __init__(self, task: Task) -> None:
        self.session: InferenceSession = opened(task.model)
        self.batch = task.batch
        self.dtypes = {given.name: DTYPES[given.type] for given in self.session.get_inputs()}
        self.outputs = [
            {"name": found.name, "datatype": DATATYPES[found.type], "shape": [1, *found.shape[1:]]}
            for found in self.session.get_outputs()
        ]

    @property
    def row_bytes(self) -> int:
        """The bytes of one row of the only output, which are floats."""
        return 4 * int(np.prod(self.outputs[0]["shape"]))

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> Arrays:
        """Runs rows of equal shapes, batch by batch."""
        count = len(next(iter(feeds.values())))
        return _joined(
            self.session.run(None, {name: rows[at : at + self.batch] for name, rows in feeds.items()})
            for at in range(0, count, self.batch)
        )

    def run_ragged(self, columns: Sequence[Sequence[bytes]]) -> Arrays:
        """Runs INT64 texts, a column for each input: neighbours by length share a batch, padded to a bucket.

        Unsorted, nearly each batch needs the longest bucket: padding takes 2.6 times as long (measured 2026-11-27).
        """
        lengths = [len(text) for text in columns[0]]
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        found = _joined(
            self._padded(columns, order[at : at + self.batch], lengths) for at in range(0, len(order), self.batch)
        )
        back = np.argsort(order)
        return [output[back] for output in found]

    def _padded(self, columns: Sequence[Sequence[bytes]], rows: Sequence[int], lengths: Sequence[int]) -> Arrays:
        size = next(8 * boundary for boundary in BOUNDARIES if 8 * boundary >= lengths[rows[-1]])
        stacked = (b"".join([column[row].ljust(size, b"\0") for row in rows]) for column in columns)
        feeds = (np.frombuffer(text, "<i8").reshape(len(rows), -1) for text in stacked)
        found: Arrays = self.session.run(None, dict(zip(self.dtypes, feeds, strict=True)))
        return found


def _joined(parts: Iterable[Arrays]) -> Arrays:
    return [np.concatenate(output) for output in zip(*parts, strict=True)]


# ---- Reading: the requests of a poll are run ------------------------------------------------------------------------


def read_rows(model: Model, messages: Sequence[Message]) -> Arrays:
    """Plain rows of the only input."""
    (name,) = model.dtypes
    return model.run({name: joined([message.value() or b"" for message in messages])})


def read_json(model: Model, messages: Sequence[Message]) -> Arrays:
    """JSON of floats for the only input. Each document is packed at once: a thousand of them do not fit the cache."""
    (name,) = model.dtypes
    rows = (orjson.loads(message.value() or b"")["inputs"][0]["data"] for message in messages)
    return model.run({name: joined([pack(f"<{len(row)}f", *row) for row in rows])})


def read_table(model: Model, messages: Sequence[Message]) -> Arrays:
    """JSON of one value for each input."""
    rows = [[tensor["data"] for tensor in orjson.loads(message.value() or b"")["inputs"]] for message in messages]
    columns = zip(model.dtypes.items(), zip(*rows, strict=True), strict=True)
    return model.run({name: np.array(column, dtype) for (name, dtype), column in columns})


def read_json_texts(model: Model, messages: Sequence[Message]) -> Arrays:
    """JSON of ragged INT64."""
    documents = (orjson.loads(message.value() or b"")["inputs"] for message in messages)
    texts = [[pack(f"<{len(tensor['data'])}q", *tensor["data"]) for tensor in tensors] for tensors in documents]
    return model.run_ragged(list(zip(*texts, strict=True)))


def read_protobuf_texts(model: Model, messages: Sequence[Message]) -> Arrays:
    """Protobuf of ragged INT64 in `raw_input_contents`."""
    parse = service_pb2.ModelInferRequest.FromString
    texts = [parse(message.value() or b"").raw_input_contents[:] for message in messages]
    return model.run_ragged(list(zip(*texts, strict=True)))


def read_binary_texts(model: Model, messages: Sequence[Message]) -> Arrays:
    """Binary data of ragged INT64."""
    return model.run_ragged(list(zip(*map(_tails, messages), strict=True)))


def _tails(message: Message) -> Sequence[bytes]:
    value = message.value() or b""
    end = int(dict(message.headers() or ())[HEAD_LENGTH] or 0)
    found = []
    for tensor in orjson.loads(value[:end])["inputs"]:
        at, end = end, end + tensor["parameters"]["binary_data_size"]
        found.append(value[at:end])
    return found


# ---- Writing: a value for each row, and the headers of all ----------------------------------------------------------


def write_json(model: Model) -> tuple[Headers, Write]:
    """JSON, with no more digits than the datatype has."""

    def write(outputs: Arrays) -> list[bytes]:
        rows = zip(*(output.reshape(len(output), -1) for output in outputs), strict=True)
        return [orjson.dumps(answer(row), option=orjson.OPT_SERIALIZE_NUMPY) for row in rows]

    def answer(row: Arrays) -> dict[str, object]:
        outputs = [{**said, "data": data} for said, data in zip(model.outputs, row, strict=True)]
        return {"model_name": "model", "outputs": outputs}

    return {"content-type": JSON}, write


def write_rows(_model: Model) -> tuple[Headers, Write]:
    """Plain rows of the only output."""
    return {"content-type": OCTETS}, partial(_behind, b"")


def write_protobuf(model: Model) -> tuple[Headers, Write]:
    """Protobuf with the only output in `raw_output_contents`."""
    outputs = [service_pb2.ModelInferResponse.InferOutputTensor(**said) for said in model.outputs]
    nothing = bytes(model.row_bytes)
    whole = service_pb2.ModelInferResponse(model_name="model", outputs=outputs, raw_output_contents=[nothing])
    return {"content-type": PROTOBUF}, partial(_behind, whole.SerializeToString()[: -len(nothing)])


def write_binary(model: Model) -> tuple[Headers, Write]:
    """Binary data of the only output."""
    size = {"parameters": {"binary_data_size": model.row_bytes}}
    head = orjson.dumps({"model_name": "model", "outputs": [{**said, **size} for said in model.outputs]})
    return {"content-type": OCTETS, HEAD_LENGTH: b"%d" % len(head)}, partial(_behind, head)


def _behind(head: bytes, outputs: Arrays) -> list[bytes]:
    """Puts the bytes of each row behind a head."""
    (rows,) = outputs
    data, size = rows.tobytes(), rows[0].nbytes
    return [head + data[at : at + size] for at in range(0, len(data), size)]


# ---- The loop --------------------------------------------------------------------------------------------------------


def _run(form: Form, task: Task, consumer: Consumer, producer: Producer) -> None:
    model = Model(task)
    common, write = form.write(model)
    headers = [*common.items(), ("status", b"ok")]
    while True:
        messages = consumer.consume(form.poll, WAIT)
        if not messages:
            continue
        for message, value in zip(messages, write(form.read(model, messages)), strict=True):
            source = f"{message.topic()}/{message.partition()}/{message.offset()}"
            producer.produce(task.responses, value, message.key(), headers=[*headers, ("source", source)])
        producer.poll(0)
        producer.flush()
        consumer.commit(asynchronous=True)


class Form(NamedTuple):
    """How a loop reads and writes, and a description."""

    read: Callable[[Model, Sequence[Message]], Arrays]
    write: Callable[[Model], tuple[Headers, Write]]
    about: str
    poll: int = POLL


FORMS = {
    "floor": Form(read_rows, write_rows, "plain rows", LONG_POLL),
    "json_loop": Form(read_json, write_json, "JSON of floats, with orjson"),
    "table_loop": Form(read_table, write_json, "JSON of one value for each input"),
    "texts_json": Form(read_json_texts, write_json, "JSON of texts; a poll is sorted by length and padded to buckets"),
    "texts_protobuf": Form(read_protobuf_texts, write_protobuf, "`texts_json` for protobuf, with upb"),
    "texts_binary": Form(read_binary_texts, write_binary, "`texts_json` for binary data"),
}
ABOUT = {
    name: f"{form.about}: {form.poll:,} of a poll at a time, answers with headers, flush, commit; no checks"
    for name, form in FORMS.items()
}


def main() -> None:
    """Run one of the loops until killed."""
    form, task = FORMS[sys.argv[1]], Task.from_command_line()
    servers = {"bootstrap.servers": task.bootstrap}
    starts = {"group.id": task.group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer(servers | starts | FAST_FETCH)
    consumer.subscribe([task.requests])
    _run(form, task, consumer, Producer(servers | {"enable.idempotence": True, "partitioner": "murmur2_random"}))


if __name__ == "__main__":
    main()
