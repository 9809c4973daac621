"""Loops by hand for records, as a good engineer writes them in an afternoon: one library for each step, batch by batch.

    python -m bench.loops.records NAME BOOTSTRAP REQUESTS RESPONSES GROUP MODEL BATCH RATE

    consume(batch) ─▶ read ─▶ NumPy ─▶ ONNX Runtime ─▶ answers ─▶ produce ─▶ flush ─▶ commit

A record that is wrong ends the loop. `polls.py` runs the same work more carefully, and answers it with an error.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import orjson
from confluent_kafka import Message
from PIL import Image
from tokenizers import Tokenizer

from bench.loops import by_hand
from bench.loops.payments import FIELDS, scores
from bench.loops.plain import JSON, Answer, Header, Made
from bench.loops.task import Task, opened
from tests.payments import parsed_schema

STATED: list[Header] = [("content-type", JSON)]
FRAME = b"\0\0\0\0\2"  # Confluent's: a byte 0, and the number of the answers' schema
ANSWER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Score",
        "fields": [{"name": name, "type": "float" if name == "score" else "string"} for name in FIELDS],
    }
)


def read_json(message: Message) -> Any:
    """A JSON object."""
    return orjson.loads(message.value() or b"")


def read_avro(message: Message) -> Any:
    """Avro behind a magic byte and a schema's number. The schema does not change, so nobody asks a registry."""
    return fastavro.schemaless_reader(io.BytesIO((message.value() or b"")[5:]), parsed_schema())


def read_bytes(message: Message) -> bytes:
    """The value as it is."""
    return message.value() or b""


def _answer(fields: Mapping[str, Any]) -> Answer:
    return orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY), STATED


def _avro_answer(fields: Mapping[str, Any]) -> Answer:
    body = io.BytesIO(FRAME)
    body.seek(len(FRAME))
    fastavro.schemaless_writer(body, ANSWER, fields)
    return body.getvalue(), []


def fraud(read: Callable[[Message], Any], write: Callable[[Mapping[str, Any]], Answer]) -> Callable[[Task], Made[Any]]:
    """Payments → a score and a label."""

    def made(task: Task) -> Made[Any]:
        scored = scores(task.model)
        return Made(read, lambda payments: [*map(write, scored(payments))], JSON)

    return made


def documents(task: Task) -> Made[Any]:
    """Texts → the mean of their tokens' vectors, of length 1. The tokenizer is beside the model's folder."""
    session, tokenizer = opened(task.model), Tokenizer.from_file(str(Path(task.model).parents[1] / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()  # to the longest of a batch

    def answers(records: Sequence[Any]) -> list[Answer]:
        encoded = tokenizer.encode_batch([record["body"] for record in records])
        ids = np.array([each.ids for each in encoded], np.int64)
        mask = np.array([each.attention_mask for each in encoded], np.int64)
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (states,) = session.run(None, feeds)
        weights = mask[..., None].astype(np.float32)
        means = (states * weights).sum(1) / weights.sum(1)
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        return [_answer({"id": record["id"], "embedding": mean}) for record, mean in zip(records, means, strict=True)]

    return Made(read_json, answers, JSON)


MEAN, DEVIATION = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
SHORTEST, SIDE = 256, 224


def pixels(value: bytes) -> Any:
    """Returns a picture as FP32 (3, 224, 224): the shortest edge is 256, the centre is cut out, and normalised."""
    picture = Image.open(io.BytesIO(value)).convert("RGB")
    scale = SHORTEST / min(picture.size)
    width, height = (round(edge * scale) for edge in picture.size)
    left, top = (width - SIDE) // 2, (height - SIDE) // 2
    cut = picture.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + SIDE, top + SIDE))
    return ((np.asarray(cut, np.float32) / 255 - MEAN) / DEVIATION).transpose(2, 0, 1)


def pictures(task: Task) -> Made[bytes]:
    """JPEG → the most likely class, and its probability."""
    session = opened(task.model)

    def answers(values: Sequence[bytes]) -> list[Answer]:
        (logits,) = session.run(None, {"x": np.stack([pixels(value) for value in values])})
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        best = shares.argmax(1)
        found = zip(best.tolist(), shares[np.arange(len(best)), best].tolist(), strict=True)
        return [_answer({"label": label, "score": score}) for label, score in found]

    return Made(read_bytes, answers, JSON)


def wide(task: Task) -> Made[Any]:
    """Records of many floats, each an input of the model → a score."""
    session = opened(task.model)
    names = [node.name for node in session.get_inputs()]

    def answers(found: Sequence[Any]) -> list[Answer]:
        columns = {name: np.array([each[name] for each in found], np.float32)[:, None] for name in names}
        (shares,) = session.run(["probabilities"], columns)
        scored = zip(found, shares[:, 1], strict=True)
        return [_answer({"id": each["id"], "score": score}) for each, score in scored]

    return Made(read_json, answers, JSON)


JOBS: Mapping[str, Callable[[Task], Made[Any]]] = {
    "fraud_json": fraud(read_json, _answer),
    "fraud_avro": fraud(read_avro, _avro_answer),
    "documents": documents,
    "pictures": pictures,
    "wide_json": wide,
}
ABOUT = {
    "fraud_json": "payments in JSON: orjson, NumPy, an inference a poll",
    "fraud_avro": "payments in Avro: fastavro with a schema that is known",
    "documents": "texts: Hugging Face's tokenizers, padded to the longest, mean pooling with NumPy",
    "pictures": "pictures: Pillow, one after the other, NumPy",
    "wide_json": "many floats in JSON: orjson, a NumPy array for each column",
}
PREFIX = "hand_"


def in_batches(make: Callable[[Task], Made[Any]], task: Task) -> Made[Any]:
    """Runs the records of a long poll in batches, the documents in the order of their lengths."""
    made = make(task)

    def answers(records: Sequence[Any]) -> list[Answer]:
        order = [*range(len(records))]
        if make is documents:
            order.sort(key=lambda at: len(records[at]["body"]))
        found: dict[int, Answer] = {}
        for start in range(0, len(order), task.batch):
            own = order[start : start + task.batch]
            found |= zip(own, made.answers([records[at] for at in own]), strict=True)
        return [found[at] for at in range(len(records))]

    return made._replace(answers=answers)


def main() -> None:
    """Run a hand loop with one of the jobs until killed."""
    task = Task.from_command_line()
    made = JOBS[sys.argv[1].removeprefix(PREFIX)](task)

    def answers(messages: Sequence[Message]) -> list[bytes]:
        return [value for value, _ in made.answers([*map(made.read, messages)])]

    by_hand.run_loop("hand_loop", task, answers)


if __name__ == "__main__":
    main()
