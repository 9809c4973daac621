"""The work of a loop by hand, as fast as we could make it: a poll in columns.

Checks are comparisons with what the model takes. The batches of a poll run one after the other. Texts are sorted by
length first: unsorted, nearly each batch needs the longest bucket, and padding takes 2.6 times as long (measured
2026-11-27). An answer in protobuf or binary data is a head that is written at the start, and the bytes of a row.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from struct import pack
from typing import Any

import numpy as np
import orjson
from confluent_kafka import Message
from onnxruntime import InferenceSession
from tritonclient.grpc import service_pb2

from bench.loops import plain
from bench.loops.plain import DTYPES, JSON, OCTETS, PROTOBUF, SAID, Answer, Array, Feeds, Header, Made, finite
from bench.loops.task import Task, opened
from tests.ragged import BOUNDARIES, bucket

Arrays = Sequence[Array]
Row = Sequence[Any]  # for each input the bytes of a request's only row, or a list of texts
Write = Callable[[Arrays], Sequence[bytes]]

parse_protobuf = service_pb2.ModelInferRequest.FromString
DATATYPES = {"tensor(float)": "FP32", "tensor(int64)": "INT64", "tensor(string)": "BYTES"}
# The fastest way from a list to bytes, for each datatype (measured 2026-11-27): 784 floats take 8 us packed and 38 as
# an array, 40 whole numbers 2.7 and 1.5.
PACKED: Mapping[str, Callable[[list[Any]], Any]] = {
    "FP32": lambda data: pack(f"<{len(data)}f", *data),
    "INT64": lambda data: array("q", data).tobytes(),
    "BYTES": list,
}


class Model:
    """The model, and what requests and answers say of its tensors.

    All inputs of a request are equally long. By the bytes of the first, `sizes` has the bytes of each, `heads` and
    `messages` what JSON and protobuf say of each. `zeros` are the outputs of a row.
    """

    def __init__(self, task: Task) -> None:
        self.session: InferenceSession = opened(task.model)
        self.batch = task.batch
        self.inputs = {given.name: DATATYPES[given.type] for given in self.session.get_inputs()}
        self.packed = [PACKED[datatype] for datatype in self.inputs.values()]
        length = self.session.get_inputs()[0].shape[1]
        self.is_ragged = isinstance(length, str)
        lengths = range(1, BOUNDARIES[-1] + 1) if self.is_ragged else (length,)
        widths = [1 if datatype == "BYTES" else DTYPES[datatype].itemsize for datatype in self.inputs.values()]
        self.sizes = {n * widths[0]: [n * width for width in widths] for n in lengths}
        self.heads = {
            n * widths[0]: [{"name": name, "datatype": kind, "shape": [1, n]} for name, kind in self.inputs.items()]
            for n in lengths
        }
        tensor = service_pb2.ModelInferRequest.InferInputTensor
        self.messages = {size: [tensor(**head) for head in heads] for size, heads in self.heads.items()}
        self.zeros = {
            found.name: np.zeros([1, *found.shape[1:]], DTYPES[DATATYPES[found.type]])
            for found in self.session.get_outputs()
        }

    def checked(self, row: Row, said: Any, heads: Mapping[int, Any]) -> Row:
        """Returns a request's row. Raises if its size, or what is said of its inputs, is not what the model takes."""
        size = len(row[0])
        if said != heads[size] or [*map(len, row)] != self.sizes[size]:
            raise ValueError(f"the inputs are {said}, with {[*map(len, row)]} bytes")
        return row

    def run(self, rows: Sequence[Row]) -> Arrays:
        """Runs the requests of a poll, batch by batch."""
        columns = [*zip(*rows, strict=True)]
        if self.is_ragged:
            lengths = [*map(len, columns[0])]
            order = sorted(range(len(lengths)), key=lengths.__getitem__)
            batches = (order[at : at + self.batch] for at in range(0, len(order), self.batch))
            found = self._joined(self._padded(columns, batch) for batch in batches)
            back = np.argsort(order)
            return [output[back] for output in found]
        whole = [*map(_stacked, columns, self.inputs.values())]
        return self._joined([each[at : at + self.batch] for each in whole] for at in range(0, len(rows), self.batch))

    def _padded(self, columns: Sequence[Sequence[bytes]], rows: Sequence[int]) -> Arrays:
        size = 8 * bucket(len(columns[0][rows[-1]]) // 8)
        stacked = (b"".join([column[row].ljust(size, b"\0") for row in rows]) for column in columns)
        return [np.frombuffer(text, "<i8").reshape(len(rows), -1) for text in stacked]

    def _joined(self, batches: Iterable[Arrays]) -> Arrays:
        """Runs batches, and joins their outputs."""
        found = [self.session.run(None, dict(zip(self.inputs, batch, strict=True))) for batch in batches]
        return finite([np.concatenate(output) for output in zip(*found, strict=True)])


def _stacked(column: Sequence[Any], datatype: str) -> Array:
    if datatype == "BYTES":
        return np.array(column, object)
    (rows,) = finite([np.frombuffer(b"".join(column), DTYPES[datatype]).reshape(len(column), -1)])
    return rows


# ---- Reading: a request's row ----------------------------------------------------------------------------------------


def read_rows(model: Model, message: Message) -> Row:
    """Plain rows."""
    value = message.value() or b""
    if len(value) not in model.sizes:
        raise ValueError(f"{len(value)} bytes, not {model.sizes}")
    return (value,)


def read_json(model: Model, message: Message) -> Row:
    """JSON."""
    tensors = orjson.loads(message.value() or b"")["inputs"]
    row = [packed(each.pop("data")) for each, packed in zip(tensors, model.packed, strict=True)]
    return model.checked(row, tensors, model.heads)


def read_protobuf(model: Model, message: Message) -> Row:
    """Protobuf, with `raw_input_contents`."""
    request = parse_protobuf(message.value() or b"")
    return model.checked(request.raw_input_contents[:], request.inputs, model.messages)


def read_binary(model: Model, message: Message) -> Row:
    """Binary data."""
    tensors, row = plain.parts(message)
    return model.checked(row, tensors, model.heads)


# ---- Writing: the values of all rows, and the headers of each --------------------------------------------------------


def write_rows(_model: Model) -> tuple[Write, list[Header]]:
    """Plain rows of the only output."""
    return partial(_behind, b""), [("content-type", OCTETS)]


def write_json(model: Model) -> tuple[Write, list[Header]]:
    """JSON."""
    heads = [plain.head(*each) for each in model.zeros.items()]

    def write(outputs: Arrays) -> list[bytes]:
        rows = zip(*(output.reshape(len(output), -1) for output in outputs), strict=True)
        return [orjson.dumps(answer(row), option=orjson.OPT_SERIALIZE_NUMPY) for row in rows]

    def answer(row: Arrays) -> dict[str, object]:
        return {**SAID, "outputs": [{**head, "data": data} for head, data in zip(heads, row, strict=True)]}

    return write, [("content-type", JSON)]


def write_bytes(write: Callable[[Feeds], Answer], model: Model) -> tuple[Write, list[Header]]:
    """The plain loop's value for a row of the only output, with other bytes at the end."""
    value, headers = write(model.zeros)
    (row,) = model.zeros.values()
    return partial(_behind, value[: -row.nbytes]), headers


def _behind(head: bytes, outputs: Arrays) -> list[bytes]:
    """Puts the bytes of each row of the only output behind a head."""
    (rows,) = outputs
    data, size = rows.tobytes(), rows[0].nbytes
    return [head + data[at : at + size] for at in range(0, len(data), size)]


# ---- Loops -----------------------------------------------------------------------------------------------------------


def _made(
    read: Callable[[Model, Message], Row], write: Callable[[Model], tuple[Write, list[Header]]], task: Task
) -> Made[Row]:
    model = Model(task)
    written, headers = write(model)

    def answers(rows: Sequence[Row]) -> list[Answer]:
        return [(value, headers) for value in written(model.run(rows))]

    return Made(partial(read, model), answers, PROTOBUF if read is read_protobuf else JSON)


rows = partial(_made, read_rows, write_rows)
json = partial(_made, read_json, write_json)
protobuf = partial(_made, read_protobuf, partial(write_bytes, plain.write_protobuf))
binary = partial(_made, read_binary, partial(write_bytes, plain.write_binary))
