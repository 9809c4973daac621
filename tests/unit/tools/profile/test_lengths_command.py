"""`inference-worker profile` with a sample of lengths: what it measures, advises, prints and refuses."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner, Result

from tests import models
from worker import cli
from worker.core.records import Partition
from worker.inference import load
from worker.settings.for_commands import load_scoring
from worker.tools.profile.lengths_command import newest

LENGTHS = [4, 5, 9, 12, 15, 16, 20, 31, 40, 64] * 60


def embedder(mask_axis: str = "sequence", vocabulary: int = 10) -> bytes:
    """ids, mask INT64 (batch, sequence) → y FP32 (batch, 4): a table's rows under the mask, summed."""
    table = np.ones((vocabulary, 4), np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Cast", ["mask"], ["mask32"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask32", "last"], ["column"]),
        helper.make_node("Mul", ["rows", "column"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "middle"], ["y"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "embedder",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "sequence"]),
            helper.make_tensor_value_info("mask", TensorProto.INT64, ["batch", mask_axis]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [
            numpy_helper.from_array(table, "table"),
            numpy_helper.from_array(np.array([2]), "last"),
            numpy_helper.from_array(np.array([1]), "middle"),
        ],
    )
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small real model of rows of any length."""
    return models.save(embedder(), tmp_path, "ragged")


@pytest.fixture
def lengths(tmp_path: Path) -> Path:
    """One length a line."""
    path = tmp_path / "lengths.txt"
    path.write_text("".join(f"{length}\n" for length in LENGTHS), encoding="utf-8")
    return path


def profile(*arguments: object, columns: int = 80, given: str | None = None) -> Result:
    words = ["profile", *map(str, arguments), "--batch-sizes", "4", "--seconds", "0.02"]
    environ = {"COLUMNS": str(columns), "WORKER_MODEL__DEVICE": "cpu", "WORKER_BATCHING__MAX_BATCH_SIZE": "16"}
    return CliRunner().invoke(cli.app, words, env=environ, input=given)


def found(*arguments: object, given: str | None = None) -> dict[str, Any]:
    """What it prints for machines."""
    result = profile(*arguments, "--json", given=given)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)["lengths"]
    return document


@pytest.mark.parametrize("columns", [80, 160])
def test_the_page_tells_padding_before_and_after_and_each_bucket(model: Path, lengths: Path, columns: int) -> None:
    """In as many columns as there are, but for the line to copy, which stays whole."""
    result = profile(model, "--lengths", lengths, "--buckets", 1, columns=columns)

    lines = result.stdout.splitlines()
    assert result.exit_code == 0, result.output
    assert max(len(line) for line in lines if "BATCHING__BUCKETS=" not in line) <= columns
    text = " ".join(result.stdout.split())
    assert "ids:1 is 64 long, as rows are on average in the buckets below" in text
    assert "Buckets for ids:1" in lines
    assert "600 rows from" in text
    assert "21.6 long on average, the longest 64" in text
    before = next(line for line in lines if "padded to their longest" in line)
    assert before.split()[-3] == "66%"
    assert before.split()[-1] == "1.00"
    assert len([line for line in lines if line.split()[:3] == ["up", "to", "of"]]) == 2
    assert len([line for line in lines if line.split()[:3] == ["64", "100.0%", "66%"]]) == 2


def test_the_line_to_set_can_be_copied_into_a_shell(model: Path, lengths: Path) -> None:
    """One variable, one JSON object."""
    output = profile(model, "--lengths", lengths, "--buckets", 1).stdout

    (line,) = [line for line in output.splitlines() if "WORKER_BATCHING__BUCKETS=" in line]
    (word,) = shlex.split(line)
    name, _, value = word.partition("=")
    assert name == "WORKER_BATCHING__BUCKETS"
    assert json.loads(value) == {"ids": {"axis": 1, "boundaries": [64], "pad": 0}}


@pytest.mark.parametrize("axes", [(), ("--bucket-axis", "ids:1,mask:1")])
def test_a_worker_takes_what_is_advised(tmp_path: Path, lengths: Path, axes: tuple[str, ...]) -> None:
    """All inputs that are equally long are padded, whether or not the model's file says that they are."""
    path = models.save(embedder("mask_length" if axes else "sequence"), tmp_path)
    advised = found(path, "--lengths", lengths, *axes)["settings"]

    environ = {name: str(value) for name, value in advised.items()}
    settings = load_scoring(None, {"WORKER_MODEL__PATH": str(path), "WORKER_MODEL__DEVICE": "cpu", **environ})
    axis, *others = load(settings.model, max_batch_size=4, wanted_axes=settings.batching.wanted_axes).signature.axes

    assert not others
    assert set(axis.inputs) == {(0, 0), (1, 0)}
    assert axis.boundaries[-1] == 64


def test_json_has_all_of_it(model: Path, lengths: Path) -> None:
    """The members are a contract."""
    document = found(model, "--lengths", lengths, "--buckets", 2)

    assert set(document) == {"axis", "sample", "ways", "gain", "buckets", "mean_padded", "settings"}
    assert document["axis"] == "ids:1"
    assert document["sample"] | {"source": ""} == {
        "source": "", "requests": 600, "rows": 600, "mean": 21.6, "longest": 64, "refused": 0, "why": None,
    }  # fmt: skip
    assert [way["name"] for way in document["ways"]][:4] == [
        "one_by_one", "to_longest_boundary", "to_longest_of_batch", "buckets",
    ]  # fmt: skip
    assert set(document["ways"][0]) == {"name", "waste", "rows_per_s"}
    boundaries = [bucket["boundary"] for bucket in document["buckets"]]
    assert (len(boundaries), boundaries[-1]) == (2, 64)
    assert set(document["buckets"][0]) == {"boundary", "share", "waste", "mean_rows", "sizes", "too_large"}
    assert [size["rows"] for size in document["buckets"][0]["sizes"]] == [1, 4, 16]
    assert json.loads(document["settings"]["WORKER_BATCHING__BUCKETS"])["ids"]["boundaries"] == boundaries


def test_lengths_may_come_through_a_pipe(model: Path) -> None:
    """One for each request, whatever rows it has."""
    document = found(model, "--lengths", "-", "--rows-per-request", 2, given="8\n24\n")

    assert (document["sample"]["requests"], document["sample"]["rows"]) == (2, 4)
    assert [size["rows"] for size in document["buckets"][0]["sizes"]] == [2, 4, 16]


def test_a_rate_says_how_buckets_fill(model: Path, lengths: Path) -> None:
    """A tenth of a second's company is not a whole batch."""
    result = profile(
        model, "--lengths", lengths, "--rate", 100, "--latency-budget-ms", 1000, "--transport-ms", 800, "--buckets", 1
    )

    text = " ".join(result.stdout.split())
    assert result.exit_code == 0, result.output
    assert "if a replica gets 100 rows/s and a request waits 100 ms for company" in text
    assert "Simulated as one bucket of rows 64 long; several fill more slowly." in text


def test_axes_that_the_file_tells_apart_are_asked_about(tmp_path: Path, lengths: Path) -> None:
    """And padded as one when the operator says that they are."""
    apart = models.save(embedder("mask_length"), tmp_path)

    refused = profile(apart, "--lengths", lengths)
    document = found(apart, "--lengths", lengths, "--bucket-axis", "ids:1,mask:1", "--buckets", 1)

    assert refused.exit_code == 2
    assert "say by --bucket-axis which one --lengths is about, ids:1 or mask:1" in refused.stderr
    assert json.loads(document["settings"]["WORKER_BATCHING__BUCKETS"]) == {
        "ids": {"axis": 1, "boundaries": [64], "pad": 0, "shared_by": {"mask": 0}}
    }


def test_the_last_bucket_has_room_for_what_is_to_come(model: Path, lengths: Path) -> None:
    """Exactly so much: it may be all that the model takes."""
    assert found(model, "--lengths", lengths, "--longest", 100)["buckets"][-1]["boundary"] == 100


def test_buckets_that_are_there_already_are_measured(model: Path, lengths: Path) -> None:
    """To see what they waste, and what they come to."""
    document = found(model, "--lengths", lengths, "--boundaries", "32,100")

    assert [bucket["boundary"] for bucket in document["buckets"]] == [32, 100]
    assert [bucket["share"] for bucket in document["buckets"]] == [0.8, 0.2]


def test_a_plot_shows_the_lengths_and_where_buckets_end(model: Path, lengths: Path, tmp_path: Path) -> None:
    """Beside the rates and latencies."""
    picture = tmp_path / "a.svg"

    assert profile(model, "--lengths", lengths, "--plot", picture).exit_code == 0
    assert "length (ids:1)" in picture.read_text(encoding="utf-8")
    assert "buckets end" in picture.read_text(encoding="utf-8")


def test_a_batch_that_would_close_by_bytes_is_left_out(
    model: Path, lengths: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of 64 has 1,024 bytes, in two inputs."""
    monkeypatch.setenv("WORKER_BATCHING__MAX_BATCH_BYTES", "4096")

    (bucket,) = found(model, "--lengths", lengths, "--buckets", 1)["buckets"]

    assert [size["rows"] for size in bucket["sizes"]] == [1, 4]


def test_a_sample_that_is_small_is_told(model: Path) -> None:
    """Its longest says nothing of the longest to come."""
    output = profile(model, "--lengths", "-", given="8\n24\n").stdout

    assert "So few tell little: give thousands." in " ".join(output.split())


def test_a_model_without_such_an_axis_is_refused(tmp_path: Path, lengths: Path) -> None:
    """There is nothing to pad."""
    result = profile(models.save(models.mlp(), tmp_path, "small"), "--lengths", lengths)

    assert result.exit_code == 2
    assert "there is nothing to pad: no axis of small is dynamic but the batch's" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--buckets", 3], "--bucket-axis, --buckets, --longest and --boundaries need a sample of lengths: --len"),
        (["--lengths", "a", "--lengths-from", "b"], "--lengths and --lengths-from are two samples: give one"),
        (["--lengths", "no-such-file"], "--lengths no-such-file: cannot be read: No such file or directory"),
        (["--lengths", "-", "--longest", 3], "--longest 3: the sample has rows of length 24"),
        (["--lengths", "-", "--bucket-axis", "ids:0"], "--bucket-axis ids:0: expected a dynamic axis, ids:1 (the ba"),
        (["--lengths", "-", "--boundaries", "8,16"], "--boundaries 8,16: the sample has rows of length 24"),
        (
            ["--lengths", "-", "--boundaries", "32", "--longest", 64],
            "--boundaries says all that --buckets and --longest",
        ),
        (
            ["--lengths", "-", "--boundaries", "32,8"],
            "--boundaries 32,8: expected ascending lengths, comma-separated, s",
        ),
        (
            ["--lengths", "-", "--boundaries", "8,x"],
            "--boundaries 8,x: expected ascending lengths, comma-separated, su",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_sentence(model: Path, arguments: list[object], told: str) -> None:
    """Before anything is measured."""
    result = profile(model, *arguments, given="8\n24\n")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"inference-worker: {told}")
    assert len(result.stderr.splitlines()) == 1


def test_a_topic_without_brokers_is_refused(model: Path) -> None:
    """Before anything is measured."""
    refused = profile(model, "--lengths-from", "t")

    assert refused.exit_code == 2
    assert refused.stderr.startswith("inference-worker: WORKER_KAFKA__BOOTSTRAP_SERVERS: must be set.")


def test_a_file_that_is_no_text_is_refused(model: Path, tmp_path: Path) -> None:
    """An array of numpy's, say."""
    path = tmp_path / "lengths.npy"
    np.save(path, np.array([200, 300]))

    assert "cannot be read: it is not UTF-8 text" in profile(model, "--lengths", path).stderr


def test_a_row_that_the_model_does_not_take_is_told(tmp_path: Path, lengths: Path) -> None:
    """A table of positions may end before the longest row."""
    broken = onnx.load_from_string(embedder())
    broken.graph.node.append(helper.make_node("Add", ["mask32", "positions"], ["y2"]))
    broken.graph.initializer.append(numpy_helper.from_array(np.zeros(16, np.float32), "positions"))
    broken.graph.output.append(helper.make_tensor_value_info("y2", TensorProto.FLOAT, ["batch", "sequence"]))

    result = profile(models.save(broken.SerializeToString(), tmp_path), "--lengths", lengths)

    assert result.exit_code == 2
    assert "the model does not run on 1 row of length 4: " in result.stderr


def test_each_partition_gives_by_what_it_holds() -> None:
    """All of them together as much as was asked for, or what there is."""
    one, two, none = (Partition("requests", number) for number in range(3))
    beginnings, ends = {one: 100, two: 0, none: 7}, {one: 400, two: 100, none: 7}

    assert newest(beginnings, ends, 40) == {one: 370, two: 90, none: 7}
    assert newest(beginnings, ends, 5000) == beginnings
    assert newest({none: 7}, {none: 7}, 40) == {none: 7}
