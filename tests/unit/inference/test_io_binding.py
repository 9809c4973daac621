"""Bound runs: they give what plain runs give, in arrays that are the loop's alone, from buffers that are reused."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests import models
from tests.builders import request
from tests.fakes import MODEL
from tests.unit.inference.cuda_runtime import FakeCuda, memory
from worker.core.failures import Code, ModelBroken, RunFailure
from worker.core.records import Array, Batch, ClosedBy
from worker.inference import InferenceLanes, Model
from worker.inference.declared_signature import signature_of
from worker.inference.running.device import CPU, Device, Opened
from worker.settings import ModelSettings

PATIENCE = 10.0  # longer than any machine needs


def opened(model: bytes, cuda: FakeCuda | None, rows: Sequence[int] = (1, 2)) -> Model:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=[CPU])
    signature = signature_of(session, ModelSettings(path=Path("model.onnx")), 65_536)
    return Model(Opened(session, Device("there", "it works"), memory(cuda) if cuda else None), signature, rows)


def both(model: bytes, rows: Sequence[int] = (1, 2)) -> tuple[Model, Model, FakeCuda]:
    """The model bound and plain, and what the former is bound to."""
    cuda = FakeCuda()
    bound = opened(model, cuda, rows)
    assert bound.device.reason == "it works", "it is bound"
    return bound, opened(model, None, rows), cuda


def arrays(result: Sequence[Array] | RunFailure) -> Sequence[Array]:
    assert not isinstance(result, RunFailure), result
    return result


def assert_alike(bound: Model, plain: Model, feeds: Mapping[str, Array]) -> None:
    for got, expected in zip(arrays(bound.run(feeds)), arrays(plain.run(feeds)), strict=True):
        assert got.dtype == expected.dtype
        assert np.array_equal(got, expected)


def numbers(rows: int, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {"a": rng.standard_normal((rows, 3)).astype(np.float32), "b": rng.integers(-9, 9, (rows, 2))}


def test_every_datatype_but_strings_comes_back_as_from_a_plain_run() -> None:
    """Bound memory is bytes; each tensor is read and written as what it is."""
    datatypes = {datatype: datatype for datatype in models.ONNX_TYPES if datatype not in ("BF16", "BYTES")}
    bound, plain, _ = both(models.identities(datatypes))
    feeds = {spec.name: np.array([[0, 1], [2, 3], [250, 127]]).astype(spec.dtype) for spec in bound.signature.inputs}

    assert_alike(bound, plain, feeds)


def test_batches_grow_and_shrink() -> None:
    """Several inputs and outputs of different widths, each batch of another size than the one before."""
    bound, plain, _ = both(models.two_in_two_out())

    for seed, rows in enumerate((1, 5, 3, 3, 64, 2, 100, 1, 100)):
        assert_alike(bound, plain, numbers(rows, seed))


def test_buffers_are_made_once_and_again_only_for_more_rows_than_ever() -> None:
    """Page-locking costs a call into the driver: never one per batch."""
    bound, _, cuda = both(models.two_in_two_out(), rows=(1, 64))
    arrays(bound.run(numbers(1)))
    at_first, held = cuda.allocations, len(cuda.held)

    for rows in (64, 1, 37, 64):
        arrays(bound.run(numbers(rows)))
    meanwhile = cuda.allocations
    arrays(bound.run(numbers(200)))

    assert meanwhile == at_first
    assert cuda.allocations == at_first + held
    assert len(cuda.held) == held, "the smaller ones are given back"


@pytest.mark.parametrize(
    ("model", "feeds"),
    [
        (models.identity("INT64", (4,)), [{"x": np.full((3, 4), n)} for n in (1, 2, 3)]),
        (models.first_columns(4), [{"x": np.full((3, 4), n)} for n in (2, 2, 3)]),
    ],
    ids=["known shape", "shape of the run's own"],
)
def test_no_later_run_writes_to_what_an_earlier_one_gave(model: bytes, feeds: list[dict[str, Array]]) -> None:
    """The loop encodes answers while the lane runs the next batch, also one of as many rows."""
    bound, plain, _ = both(model)

    outputs = [arrays(bound.run(each))[0] for each in feeds]

    for each, output in zip(feeds, outputs, strict=True):
        assert np.array_equal(output, arrays(plain.run(each))[0])


def test_a_feed_may_be_overwritten_once_its_run_is_over() -> None:
    """What a run gave does not look at what went in."""
    bound, _, _ = both(models.identity("INT64", (2,)))
    feed = np.array([[1, 2]])

    output = arrays(bound.run({"x": feed}))[0]
    feed[:] = 9

    assert output.tolist() == [[1, 2]]


def test_an_output_whose_shape_depends_on_the_data() -> None:
    """Its memory is ONNX Runtime's choice for each run."""
    bound, plain, _ = both(models.first_columns(4))

    for most in (1, 4, 2, 2):
        assert_alike(bound, plain, {"x": np.full((3, 4), most)})


def test_an_output_of_unknown_rank_is_bound_as_it_was_seen() -> None:
    """Many a file does not say how many dimensions an output has."""
    silent = onnx.load_from_string(models.mlp())
    silent.graph.output[0].type.tensor_type.ClearField("shape")
    bound, plain, _ = both(silent.SerializeToString())

    assert_alike(bound, plain, {"x": np.ones((5, 4), np.float32)})


def test_inputs_of_other_dimensions_run_one_after_the_other() -> None:
    """Dynamic dimensions change from batch to batch."""
    bound, plain, _ = both(models.sequence_mean())

    for length in (3, 70, 1):
        assert_alike(bound, plain, {"tokens": np.arange(2 * length, dtype=np.float32).reshape(2, length)})


def test_a_failed_run_says_what_a_plain_one_says_and_spoils_nothing() -> None:
    """The next batch runs, of the same size and of another."""
    bound, plain, _ = both(models.lookup(rows=10))

    failures = [model.run({"id": np.array([[3], [99]])}) for model in (bound, plain)]

    assert failures[0] == failures[1]
    assert isinstance(failures[0], RunFailure)
    assert_alike(bound, plain, {"id": np.array([[3], [4]])})
    assert_alike(bound, plain, {"id": np.array([[5]])})


def test_feeds_that_the_model_does_not_take_are_a_failure() -> None:
    """None is read as if it were something else."""
    bound, plain, _ = both(models.two_in_two_out())
    good = numbers(2)
    wrong: list[dict[str, Array]] = [
        {},
        good | {"a": good["a"].astype(np.int32)},
        good | {"a": np.zeros((2, 5), np.float32)},
        good | {"a": np.float32(1)},  # type: ignore[list-item]  # no array at all
    ]

    assert all(isinstance(bound.run(feeds), RunFailure) for feeds in wrong)
    assert_alike(bound, plain, good)


def test_two_lanes_at_once_have_buffers_of_their_own() -> None:
    """Each run gives what went into it, whatever runs beside it."""
    bound, _, cuda = both(models.identity("INT64", (256,)), rows=(1, 64))
    at_start = len(cuda.held)
    gate, rounds = Barrier(2), range(30)
    given: list[list[bool]] = [[], []]
    held: list[int] = []

    def serve(lane: int) -> None:
        for number in rounds:
            feeds = {"x": np.full((1 + (number * 7 + lane * 31) % 64, 256), number * 2 + lane)}
            gate.wait(PATIENCE)
            given[lane].append(np.array_equal(arrays(bound.run(feeds))[0], feeds["x"]))
        gate.wait(PATIENCE)
        held.append(len(cuda.held))
        gate.wait(PATIENCE)

    with ThreadPoolExecutor(2) as lanes:
        list(lanes.map(serve, (0, 1)))

    assert given == [[True] * len(rounds)] * 2
    assert (at_start, held) == (0, [4, 4]), "an input's and an output's for each lane, none for the warm-up's thread"


def test_a_lane_that_ends_gives_its_buffers_back() -> None:
    """Page-locked memory is what no other process can have."""
    bound, _, cuda = both(models.mlp())
    lanes = InferenceLanes({MODEL: bound}, 1)
    lanes.submit(Batch((request(),), {"x": np.ones((1, 4), np.float32)}, 1, ClosedBy.SIZE))
    done = lanes.finished(PATIENCE)
    held = len(cuda.held)

    assert lanes.close(PATIENCE)
    gc.collect()

    assert (held, len(cuda.held)) == (2, 0)
    assert np.isfinite(arrays(done[0].outputs or ())[0]).all()


def test_the_probe_and_the_warm_up_are_bound_too() -> None:
    """They go where the batches will go."""
    bound, plain, cuda = both(models.mlp(), rows=(1, 2, 4, 8))
    at_start = cuda.uploads

    probed = arrays(bound.probe())

    assert at_start == 5, "once to compare with a plain run, then at each row count"
    assert cuda.uploads == at_start + 1
    assert np.array_equal(probed[0], arrays(plain.probe())[0])


def test_a_model_of_strings_runs_plainly_and_says_why() -> None:
    """ONNX Runtime binds none."""
    cuda = FakeCuda()

    model = opened(models.identities({"Text": "BYTES", "Number": "FP32"}), cuda)

    assert model.device.reason == (
        "it works; plain runs without I/O binding: ONNX Runtime binds no strings, and xText, yText are"
    )
    texts, numbers = np.array([["a", "é"]], object), np.ones((1, 2), np.float32)
    assert arrays(model.run({"xText": texts, "xNumber": numbers}))[0].tolist() == [["a", "é"]]
    assert cuda.allocations == 0


def test_without_page_locked_memory_it_runs_plainly_and_says_why() -> None:
    """A system may refuse to lock any."""
    cuda = FakeCuda()
    cuda.fails["cudaHostAlloc"] = 2

    model = opened(models.mlp(), cuda)

    assert model.device.reason.endswith("without I/O binding: CUDA failure 2: out of memory")
    assert arrays(model.run({"x": np.ones((3, 4), np.float32)}))[0].shape == (3, 3)


def test_a_binding_that_computes_something_else_is_found_at_start() -> None:
    """One batch runs both ways before requests come."""
    cuda = FakeCuda()
    cuda.garbles = True

    model = opened(models.identity("INT64"), cuda)

    assert model.device.reason.endswith("output y of a bound run is not what a plain run gives")
    assert arrays(model.run({"x": np.full((1, 4), 7)}))[0].tolist() == [[7, 7, 7, 7]]


def test_cuda_s_failures_are_sorted_as_onnx_runtime_s_own() -> None:
    """No memory is no poison, and a dead context ends the worker."""
    bound, plain, cuda = both(models.mlp())

    cuda.fails["cudaHostAlloc"] = 2
    starved = bound.run({"x": np.ones((500, 4), np.float32)})
    cuda.fails.clear()
    assert_alike(bound, plain, {"x": np.ones((500, 4), np.float32)})
    cuda.fails["cudaMemcpy"] = 700

    assert isinstance(starved, RunFailure)
    assert cuda.last_error == 0, "no later call takes it for its own"
    assert starved.code is Code.RESOURCE_EXHAUSTED
    with pytest.raises(ModelBroken, match="illegal memory access"):
        bound.run({"x": np.ones((1, 4), np.float32)})
