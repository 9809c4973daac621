"""Models of all kinds, each a real ONNX file, from Kafka to Kafka: each answer equals ONNX Runtime's own result."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from tests import models
from tests.kafka.checker import Answer
from tests.kafka.cluster import TIMEOUT, Cluster, Sent
from tests.kafka.replica import Replica
from tests.kafka.scene import RAW_HEADER, Scene
from tests.python_models import strict_pipeline
from worker.codecs.encodings import protobuf_writer
from worker.codecs.encodings.columns import column_of
from worker.core.records import Partition, Record
from worker.core.tensors.specs import TensorSpec
from worker.tools.consume.reading import read

JSON_HEADER = ("content-type", b"application/json")
PROTOBUF_HEADER = ("content-type", b"application/x-protobuf")
DATATYPES = {"float32": "FP32", "int64": "INT64"}
Values = dict[str, Any]


def alone(model: bytes, feeds: Mapping[str, np.ndarray]) -> Values:
    """ONNX Runtime's own outputs for one request, by name."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def as_json(feeds: Mapping[str, np.ndarray], **more: Any) -> Sent:
    """A JSON request of these tensors."""
    inputs = [
        {"name": name, "shape": x.shape, "datatype": DATATYPES[x.dtype.name], "data": x.reshape(-1).tolist()}
        for name, x in feeds.items()
    ]
    return Sent(b"k", json.dumps({"inputs": inputs, **more}).encode(), [JSON_HEADER])


def as_binary(feeds: Mapping[str, np.ndarray], **more: Any) -> Sent:
    """A JSON request of these tensors in the binary-data form."""
    inputs = [
        {
            "name": name,
            "shape": x.shape,
            "datatype": DATATYPES[x.dtype.name],
            "parameters": {"binary_data_size": x.nbytes},
        }
        for name, x in feeds.items()
    ]
    head = json.dumps({"inputs": inputs, **more}).encode()
    length = ("Inference-Header-Content-Length", b"%d" % len(head))
    return Sent(b"k", head + b"".join(x.tobytes() for x in feeds.values()), [RAW_HEADER, length])


def as_protobuf(feeds: Mapping[str, np.ndarray]) -> Sent:
    """A protobuf request of these tensors."""
    inputs = [
        column_of(TensorSpec(name, DATATYPES[x.dtype.name], x.shape[1:]), x, binary=True) for name, x in feeds.items()
    ]
    return Sent(b"k", protobuf_writer.values(None, inputs, 1)[0], [PROTOBUF_HEADER])


def values(found: Answer) -> Values:
    """The tensors of an answer in any encoding except plain rows."""
    assert not found.is_error, found.value
    headers = [(name, value.encode()) for name, value in found.headers.items()]
    reading = read(Record(Partition("answers", 0), 0, None, found.value, headers, None))
    return {one["name"]: np.array(one["data"]).reshape(one["shape"] or ()) for one in reading["outputs"]}


def expect(got: Values, expected: Values) -> None:
    """Fail the test unless both have equal outputs in equal order, with equal shapes and values."""
    assert list(got) == list(expected)
    for name, array in expected.items():
        assert got[name].shape == array.shape, name
        if array.dtype == object:
            assert got[name].tolist() == array.tolist(), name
        else:
            np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


def answered(scene: Scene, requests: Sequence[Sent]) -> list[Answer]:
    """Publish requests to one partition and return their answers in the requests' order."""
    offsets = {id(sent): position.offset for position, sent in scene.publish(requests).items()}
    scene.verdict().expect_clean()
    found = {answer.source.offset: answer for answer in scene.answers() if answer.source}
    return [found[offsets[id(sent)]] for sent in requests]


def wait_for_rows(replica: Replica, rows: int) -> None:
    """Wait until its metrics, which it publishes now and then, count `rows`."""
    deadline = time.monotonic() + TIMEOUT
    while replica.metric("inference_worker_batch_rows_total") < rows:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_scalar_a_row_and_the_outputs_that_a_request_chooses(kafka: Cluster, tmp_path: Path) -> None:
    """Outputs of shape [batch], numbers and strings, in every encoding; only the chosen ones, in the chosen order."""
    model = models.scalars_per_row()
    x = np.random.default_rng(1).standard_normal((3, 4), dtype=np.float32)
    whole = alone(model, {"x": x})
    chosen = {"outputs": [{"name": "label"}, {"name": "sum"}]}
    mixed = {"outputs": [{"name": "best"}, {"name": "label", "parameters": {"binary_data": True}}]}
    with Scene(kafka, tmp_path, model=model, partitions=1) as scene:
        scene.replica()

        rows, text, proto, binary, some, some_binary, some_mixed = answered(
            scene,
            [
                Sent(b"k", x.tobytes(), [RAW_HEADER]),
                as_json({"x": x}),
                as_protobuf({"x": x}),
                as_binary({"x": x}),
                as_json({"x": x}, **chosen),
                as_binary({"x": x}, **chosen),
                as_json({"x": x}, **mixed),
            ],
        )

        for found in (rows, text, proto, binary):
            expect(values(found), whole)
        for found in (some, some_binary):
            expect(values(found), {"label": whole["label"], "sum": whole["sum"]})
        expect(values(some_mixed), {"best": whole["best"], "label": whole["label"]})


def test_inputs_left_out_are_filled_in(kafka: Cluster, tmp_path: Path) -> None:
    """Ragged ids alone are answered as with the default mask and types; given inputs are used as given."""
    model = models.text_scores()
    settings = {
        "MODEL__INPUT_DEFAULTS": '{"attention_mask": 1, "token_type_ids": 0}',
        "BATCHING__LINGER_MS": "20",
    }
    rng = np.random.default_rng(4)
    texts = [rng.integers(0, 100, (int(rng.integers(1, 3)), int(rng.integers(1, 9)))) for _ in range(40)]
    whole = [{"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0} for ids in texts]
    masked = {"input_ids": texts[0], "attention_mask": texts[0] * 0, "token_type_ids": texts[0] * 0}
    with Scene(kafka, tmp_path, settings, model=model, partitions=1) as scene:
        scene.replica()

        short = [form({"input_ids": ids}) for ids in texts for form in (as_json, as_protobuf, as_binary)]
        long = [as_json(feeds) for feeds in whole]
        partly = as_json({"input_ids": texts[0], "attention_mask": masked["attention_mask"]})
        untold = as_json({"attention_mask": texts[0]})
        found = answered(scene, [*short, *long, partly, untold])

        expected = [alone(model, feeds) for feeds in whole]
        for at, wanted in enumerate(expected):
            for answer in (*found[3 * at : 3 * at + 3], found[len(short) + at]):
                expect(values(answer), wanted)
        expect(values(found[-2]), alone(model, masked))
        assert found[-1].is_error
        assert b"missing input input_ids; the model takes" in (found[-1].value or b"")


def test_a_model_for_a_fixed_number_of_rows_answers_any(kafka: Cluster, tmp_path: Path) -> None:
    """Batches are padded up to that number and larger requests cut; no answer holds another request's rows."""
    model = models.mlp()
    x = np.random.default_rng(6).standard_normal((200, 4), dtype=np.float32)
    pieces = np.split(x, [1, 2, 5, 9, 17, 40, 41, 64, 70, 150])
    with Scene(kafka, tmp_path, {"MODEL__FIXED_BATCH": "pad"}, model=models.for_rows(8, model), partitions=1) as scene:
        replica = scene.replica()

        found = answered(scene, [Sent(b"k", piece.tobytes(), [RAW_HEADER]) for piece in pieces])

        for piece, answer in zip(pieces, found, strict=True):
            got = np.frombuffer(answer.value or b"", "<f4").reshape(len(piece), 3)
            np.testing.assert_allclose(got, alone(model, {"x": piece})["y"], rtol=1e-4, atol=1e-5)
        wait_for_rows(replica, len(x))
        assert replica.metric("inference_worker_batches_total") >= len(x) / 8


def test_a_pipeline_of_scikit_learn_refuses_one_record_of_a_batch(kafka: Cluster, tmp_path: Path) -> None:
    """Its own `ValueError` is the answer to the text that it does not know; the others get what it predicts."""
    pipeline = strict_pipeline.train(tmp_path)
    settings = {
        "MODEL__PATH": str(shutil.copy(strict_pipeline.__file__, tmp_path)),
        "MODEL__DEVICE": "auto",  # it chooses its own
        "MODEL__WARM_UP_EXAMPLE": str(tmp_path / "example.npz"),
        "BATCHING__LINGER_MS": "50",
    }
    rows = [("Bern" if n == 20 else ("Rome", "Oslo")[n % 2], float(n)) for n in range(40)]
    requests = [Sent(b"k", json.dumps({"inputs": _city_and_age(*row)}).encode(), [JSON_HEADER]) for row in rows]
    with Scene(kafka, tmp_path, settings, partitions=1) as scene:
        replica = scene.replica()

        found = answered(scene, requests)

        refused = found.pop(20)
        assert refused.headers["error-code"] == "INVALID_ARGUMENT"
        assert b"Found unknown categories ['Bern'] in column 0" in (refused.value or b"")
        del rows[20]
        for row, answer in zip(rows, found, strict=True):
            asked = np.array([row], object)
            label, probabilities = pipeline.predict(asked), pipeline.predict_proba(asked)
            expect(values(answer), {"label": label.astype(object), "probabilities": probabilities})
        assert "Bern" not in replica.log
        wait_for_rows(replica, 40)
        assert replica.metric("inference_worker_batches_total") < 20


def _city_and_age(city: str, age: float) -> list[Values]:
    return [
        {"name": "city", "shape": [1], "datatype": "BYTES", "data": [city]},
        {"name": "age", "shape": [1], "datatype": "FP32", "data": [age]},
    ]
