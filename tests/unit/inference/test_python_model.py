"""A model in Python is served as an ONNX file is, and what it raises or returns is judged."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
import pytest

from tests.python_models import hostile
from tests.readme import ROOT, blocks
from tests.unit.inference.loading import arrays
from worker.core.failures import BadConfiguration, Code, Incomplete, RunFailure
from worker.core.tensors.buckets import WantedAxis
from worker.inference import python_model
from worker.inference.model import Model
from worker.inference.model_loading import inspect, load
from worker.inference.row_independence import independence
from worker.settings import ModelSettings
from worker.tools.options import ScoreOrder
from worker.tools.score.command import score

PAGE = ROOT / "docs/models.md"
HOSTILE = Path(hostile.__file__)
ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)
AT_VALUE = "ValueError at model.py:10"
X = '{"x": ("FP32", [None, 4])}'


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded model leaves its folder and its number of threads to its process."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def written(
    folder: Path, predict: str = "return feeds", *, inputs: str = X, outputs: str = X, above: str = "", below: str = ""
) -> Path:
    """A model file in this folder: the body of its `predict`, what it declares, and what stands around that."""
    text = f"""
import numpy as np
{above}

class Model:
    inputs = {inputs}
    outputs = {outputs}
{indent(below, "    ")}
    def predict(self, feeds):
{indent(predict, "        ")}
"""
    path = folder / "model.py"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(path: Path, max_batch_size: int = 8, axes: Sequence[WantedAxis] = (), **settings: Any) -> Model:
    return load(ModelSettings(path=path, **settings), max_batch_size=max_batch_size, wanted_axes=axes)


def refusal(path: Path, **settings: Any) -> str:
    """The refusal, which must be one line that names the file."""
    with pytest.raises(BadConfiguration) as refused:
        loaded(path, **settings)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(f"{path}: ")
    return str(refused.value).removeprefix(f"{path}: ")


def failure(outcome: Sequence[Any] | RunFailure) -> RunFailure:
    assert isinstance(outcome, RunFailure)
    return outcome


# ---- Like an ONNX file ----------------------------------------------------------------------------------------------


def test_a_file_in_python_is_a_model_like_another() -> None:
    """It has a signature, a digest and a device, and its rows are shown to be independent."""
    model = loaded(HOSTILE)

    assert np.array_equal(arrays(model.run({"x": ROWS}))[0], 2 * ROWS)
    assert model.signature.takes == "x FP32[batch, 4]"
    assert [str(spec) for spec in model.signature.outputs] == ["y FP32[batch, 4]"]
    assert model.signature.sha256 == hashlib.sha256(HOSTILE.read_bytes()).hexdigest()
    assert model.device.name == "python"
    assert independence(model, 8) == (None, None)


def test_its_process_imports_no_onnx_runtime() -> None:
    """It would take memory, and threads of its own."""
    program = f"""
import sys
from pathlib import Path
from worker.inference.model_loading import load
from worker.inference.row_independence import independence
from worker.settings import ModelSettings
from worker.tools.options import ScoreOrder
from worker.tools.score.command import score
independence(load(ModelSettings(path=Path({str(HOSTILE)!r})), max_batch_size=8), 8)
sys.exit("onnxruntime" in sys.modules)
"""

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0  # noqa: S603  # as above


def test_a_model_in_python_of_a_fixed_number_of_rows_is_padded(tmp_path: Path) -> None:
    """It never sees another number."""
    shape = '{"x": ("FP32", [8, 4])}'
    path = written(tmp_path, "assert len(feeds['x']) == 8\nreturn feeds", inputs=shape, outputs=shape)

    assert "fixed number of rows" in refusal(path)
    assert np.array_equal(arrays(loaded(path, fixed_batch="pad").run({"x": ROWS}))[0], ROWS)


def test_its_axes_are_padded_to_buckets(tmp_path: Path) -> None:
    """A name for a size says that two axes are equally long, as in an ONNX file."""
    shape = '{"x": ("INT64", [None, "tokens"])}'
    model = loaded(written(tmp_path, inputs=shape, outputs=shape), axes=[WantedAxis("x", 1, (4, 8), 0, {})])

    assert [axis.boundaries for axis in model.signature.axes] == [(4, 8)]
    assert str(model.signature.inputs[0]) == "x INT64[batch, tokens]"


def test_it_may_have_constants_and_defaults(tmp_path: Path) -> None:
    """They come from the settings, as for an ONNX file."""
    inputs = '{"x": ("FP32", [None, 4]), "bias": ("FP32", [None]), "scale": ("FP32", [])}'
    path = written(tmp_path, "return {'x': feeds['x'] * feeds['scale'] + feeds['bias'][:, None]}", inputs=inputs)
    model = loaded(path, input_defaults={"scale": 2.0, "bias": 1.0})

    assert model.signature.raw_input is not None
    assert np.array_equal(arrays(model.run({"x": ROWS, "bias": np.ones(3, np.float32)}))[0], 2 * ROWS + 1)


def test_an_example_is_what_it_is_warmed_up_with(tmp_path: Path) -> None:
    """A model that fails on zeros and on ones needs one."""
    path = written(tmp_path, "assert feeds['x'].min() > 1, 'too small'\nreturn feeds")
    np.savez(tmp_path / "example.npz", x=ROWS + 2)

    assert "fails on zeros and on ones: name a file" in (told := refusal(path))
    assert told.endswith("model.py:10: AssertionError: too small")
    assert loaded(path, warm_up_example=tmp_path / "example.npz").example_rows == 3


def test_rows_that_change_each_others_answers_are_found(tmp_path: Path) -> None:
    """A model in Python is refused for it, too."""
    model = loaded(written(tmp_path, "return {'x': feeds['x'] - feeds['x'].mean(axis=0)}"))

    with pytest.raises(BadConfiguration, match="rows that share a batch change one another's answers"):
        independence(model, 8)


def test_rows_that_it_loses_are_found(tmp_path: Path) -> None:
    """At start, as of an ONNX file."""
    assert "2 rows went in and shape [1, 4] came out" in refusal(written(tmp_path, "return {'x': feeds['x'][:1]}"))


def test_a_look_at_the_file_loads_nothing(tmp_path: Path) -> None:
    """So a publisher needs no weights to see what a model takes."""
    path = written(tmp_path, below="def load(self, folder):\n    raise OSError('no weights')\n")

    assert inspect(ModelSettings(path=path)).signature.takes == "x FP32[batch, 4]"


def test_it_loads_from_its_folder_and_imports_from_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its prints meanwhile go to standard error, because commands print JSON on the other."""
    (tmp_path / "beside_the_model.py").write_text("print('imported')\nFACTOR = 3\n")
    np.save(tmp_path / "weights.npy", np.float32(2))
    load = "def load(self, folder):\n    print('loaded')\n    self.weight = np.load(folder / 'weights.npy')\n"
    model = loaded(
        written(tmp_path, "return {'x': feeds['x'] * self.weight * beside_the_model.FACTOR}", below=load,
                above="import beside_the_model")
    )  # fmt: skip

    assert np.array_equal(arrays(model.run({"x": ROWS}))[0], 6 * ROWS)
    assert capfd.readouterr() == ("", "imported\nloaded\n")


def test_the_file_that_runs_is_the_one_pinned(tmp_path: Path) -> None:
    """The bytes that were compared with the digest are executed."""
    path = written(tmp_path)

    loaded(path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())

    with pytest.raises(BadConfiguration, match="WORKER_MODEL__SHA256"):
        loaded(path, sha256="0" * 64)


def test_it_gets_as_many_threads_as_an_inference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch and scikit-learn would take all cores of the machine, in a container that has two of them."""
    above = "import os\nassert os.environ['OMP_NUM_THREADS'] == '3'"
    monkeypatch.delenv("OMP_NUM_THREADS")

    loaded(written(tmp_path, above=above), intra_op_num_threads=3)

    assert os.environ["OMP_NUM_THREADS"] == "3"


def test_its_annotations_are_not_strings_because_of_us(tmp_path: Path) -> None:
    """A library may read the types that the file gives to its names."""
    loaded(written(tmp_path, above="kept: int = 1\nassert __annotations__ == {'kept': int}"))


def test_one_that_has_loaded_the_driver_runs_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is warmed up at more numbers of rows, and no index is made up, which could break the device."""
    maps = tmp_path / "maps"
    monkeypatch.setattr(python_model, "_LOADED", maps)
    above = f"from pathlib import Path\nPath({str(maps)!r}).write_text('7f0a-7f0b r-xp /usr/lib/libcuda.so.1\\n')"

    path = written(tmp_path, above=above)

    assert loaded(path).is_accelerated
    assert loaded(path).warmed_up_at == (1, 2, 4, 8)
    assert loaded(path).left_to_cpu == {}
    maps.unlink()
    assert not loaded(HOSTILE).is_accelerated


# ---- What it takes and gives ----------------------------------------------------------------------------------------


def test_its_arrays_are_its_own(tmp_path: Path) -> None:
    """It may write to what it gets, which runs again if the batch fails, and may return one array again and again."""
    load = "def load(self, folder):\n    self.kept = np.empty((8, 4))\n"
    body = "feeds['x'] += 1\nself.kept[: len(feeds['x'])] = feeds['x']\nreturn {'x': self.kept[: len(feeds['x'])]}"
    model, rows = loaded(written(tmp_path, body, below=load)), ROWS.copy()

    first = arrays(model.run({"x": rows}))[0]
    second = arrays(model.run({"x": rows * 2}))[0]

    assert np.array_equal(rows, ROWS)
    assert np.array_equal(first, ROWS + 1)
    assert np.array_equal(second, 2 * ROWS + 1)


@pytest.mark.parametrize(
    ("datatype", "given", "becomes"),
    [
        ("FP32", "np.full(n, 0.1)", np.float32(0.1)),
        ("FP32", "[0.5] * n", np.float32(0.5)),
        ("FP32", "np.full(n, 1e300)", np.float32(np.inf)),
        ("FP16", "np.full(n, 7)", np.float16(7)),
        ("FP32", "np.full(n, 2**24 + 1)", np.float32(2**24)),
        ("FP64", "np.full(n, 7, '>f4')", 7.0),
        ("INT64", "np.full(n, 3, 'u1')", 3),
        ("INT32", "np.full(n, 3)", np.int32(3)),
        ("INT64", "np.full(n, 3.0)", 3),
        ("BOOL", "np.ones(n, int)", True),
        ("INT8", "np.ones(n, bool)", np.int8(1)),
        ("BYTES", "np.full(n, 'Rome')", "Rome"),
        ("BYTES", "['Rome'] * n", "Rome"),
        ("BYTES", "np.full(n, 'Rome', object)", "Rome"),
    ],
)
def test_an_output_is_cast_as_declared(datatype: str, given: str, becomes: Any, tmp_path: Path) -> None:
    """A number that becomes a float is rounded, and others keep their values."""
    outputs = f'{{"y": ("{datatype}", [None])}}'
    model = loaded(written(tmp_path, f"n = len(feeds['x'])\nreturn {{'y': {given}}}", outputs=outputs))

    (output,) = arrays(model.run({"x": ROWS}))

    assert output.dtype == model.signature.outputs[0].dtype
    assert output.tolist() == [np.asarray(becomes).item()] * 3


@pytest.mark.parametrize(
    ("datatype", "given", "says"),
    [
        ("INT64", "{'y': np.full((n, 2), 0.5)}", "output y INT64[batch, 2]: predict gave float64 of shape [1, 2]"),
        ("INT64", "{'y': np.full((n, 2), np.nan)}", "(its values do not fit)"),
        ("INT8", "{'y': np.full((n, 2), 300)}", "predict gave int64 of shape [1, 2] (its values do not fit)"),
        ("UINT64", "{'y': np.full((n, 2), -1)}", "(its values do not fit)"),
        ("FP32", "{'y': np.full((n, 2), 'a')}", "predict gave <U1 of shape [1, 2]"),
        ("FP32", "{'y': np.full((n, 2), 1j)}", "predict gave complex128"),
        ("FP32", "{'y': np.ones((n, 3))}", "output y FP32[batch, 2]: predict gave float64 of shape [1, 3]"),
        ("FP32", "{'y': np.ones(n)}", "predict gave float64 of shape [1]"),
        ("FP32", "{'y': 0.5}", "predict gave float64 of shape []"),
        ("FP32", "{'y': None}", "predict gave object of shape []"),
        ("FP32", "{'y': [[1], [1, 2]]}", "output y FP32[batch, 2]: predict gave no array: "),
        ("BYTES", "{'y': np.ones((n, 2))}", "predict gave float64"),
        ("BYTES", "{'y': np.full((n, 2), b'a')}", "predict gave |S1"),
        (
            "BYTES",
            "{'y': np.full((n, 2), b'a', object)}",
            "predict gave object of shape [1, 2] (its values do not fit)",
        ),
        ("BYTES", "{'y': np.full((n, 2), chr(0xD800))}", "predict gave <U1"),
        ("FP32", "{'z': 1, 'why': 2}", "predict gave no output y; it gave z, why"),
        ("FP32", "{}", "predict gave no output y; it gave none"),
        ("FP32", "np.ones((n, 2))", "predict gave ndarray, and a dict of arrays is needed"),
        ("FP32", "None", "predict gave NoneType, and a dict of arrays is needed"),
    ],
)
def test_an_output_that_is_not_as_declared_is_refused_at_start(
    datatype: str, given: str, says: str, tmp_path: Path
) -> None:
    """The message names the output, what was declared and what came. No other example would help."""
    outputs = f'{{"y": ("{datatype}", [None, 2])}}'

    told = refusal(written(tmp_path, f"n = len(feeds['x'])\nreturn {given}", outputs=outputs))

    assert says in told
    assert "WARM_UP_EXAMPLE" not in told


def test_a_later_output_that_is_not_as_declared_is_a_failure_of_its_run(tmp_path: Path) -> None:
    """It is the model's fault, and no values are in the message."""
    model = loaded(written(tmp_path, "return {'x': feeds['x'].astype(object) if feeds['x'].max() > 5 else feeds['x']}"))

    failed = failure(model.run({"x": ROWS}))

    assert failed == RunFailure("output x FP32[batch, 4]: predict gave object of shape [3, 4] (its values do not fit)")
    assert not isinstance(model.run({"x": ROWS[:1]}), RunFailure)


# ---- What it raises -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (
            "ValueError('no such\\ncity: 7')",
            RunFailure("no such city: 7", Code.INVALID_ARGUMENT, AT_VALUE),
        ),
        (
            "ValueError('out of memory')",
            RunFailure("out of memory", Code.INVALID_ARGUMENT, AT_VALUE),
        ),
        ("KeyError('Oslo')", RunFailure("KeyError: 'Oslo'", logged="KeyError at model.py:10")),
        ("AssertionError", RunFailure("AssertionError", logged="AssertionError at model.py:10")),
        ("MemoryError('7')", RunFailure("the device has not enough memory: 7", Code.RESOURCE_EXHAUSTED)),
        (
            "RuntimeError('CUDA out of memory.')",
            RunFailure("the device has not enough memory: CUDA out of memory.", Code.RESOURCE_EXHAUSTED),
        ),
        (
            "RuntimeError('CUDA failure 700: an illegal memory access')",
            RunFailure(
                "RuntimeError: CUDA failure 700: an illegal memory access", logged="RuntimeError at model.py:10"
            ),
        ),
    ],
)
def test_what_predict_raises_is_a_failure_of_its_run(raised: str, expected: RunFailure, tmp_path: Path) -> None:
    """A `ValueError` is the request's fault. The log has type and line, and no message: it may quote a request."""
    model = loaded(written(tmp_path, f"if feeds['x'].max() > 5: raise {raised}\nreturn feeds"))

    assert failure(model.run({"x": ROWS})) == expected
    assert not isinstance(model.run({"x": ROWS[:1]}), RunFailure)


def test_the_line_that_is_told_is_one_of_the_file(tmp_path: Path) -> None:
    """It is the innermost one; the libraries below it say less to the operator."""
    body = "if feeds['x'].max() > 5:\n    helper()\nreturn feeds"
    model = loaded(written(tmp_path, body, above="def helper(): np.linalg.inv(np.zeros((2, 2)))"))

    assert failure(model.run({"x": ROWS})).for_log == "LinAlgError at model.py:3"


def test_a_request_that_it_does_not_take_is_answered_alone(tmp_path: Path) -> None:
    """The neighbours in its batch get their answers."""
    first = [1, 671, 2, 672, 3]
    np.save(tmp_path / "rows.npy", np.repeat(np.array(first, np.float32)[:, None], 4, axis=1))
    out = tmp_path / "out.jsonl"

    with pytest.raises(Incomplete, match=r"2 of 5 rows refused: 1 INVALID_ARGUMENT .*, 1 INTERNAL"):
        score(ScoreOrder(model=HOSTILE, file=tmp_path / "rows.npy", output=out))

    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert [answer.get("code", "ok") for answer in answers] == ["ok", "INVALID_ARGUMENT", "ok", "INTERNAL", "ok"]
    assert answers[1]["error"].endswith("record: 671.0 is no value that this model takes")
    assert answers[3]["error"].endswith("record: RuntimeError: it does not work for 672.0")


# ---- What is refused at start ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def", "it cannot be imported: model.py: SyntaxError: invalid syntax (model.py, line 1)"),
        ("\nimport none", "model.py:2: ModuleNotFoundError: No module named 'none'; install it where the worker runs"),
        ("1 / 0", "it cannot be imported: model.py:1: ZeroDivisionError: division by zero"),
        ("raise SystemExit('used wrongly')", "it cannot be imported: model.py:1: SystemExit: used wrongly"),
        ("\0", "it cannot be imported: model.py: SyntaxError: source code string cannot contain null bytes"),
        ("raise MemoryError", "model.py:1: MemoryError; it needs more memory (WORKER_MODEL__MEMORY_LIMIT, or"),
        ("x = 1", "it has no class Model, by which a file in Python is served"),
        ("Model = 1", "it has no Model.predict(self, feeds)"),
        ("class Model: ...", "it has no Model.predict(self, feeds)"),
    ],
)
def test_a_file_that_is_no_model_is_refused(text: str, says: str, tmp_path: Path) -> None:
    """The line names the place in the file."""
    path = tmp_path / "model.py"
    path.write_text(text)

    assert says in refusal(path)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (
            "None",
            "Model.inputs must name each with its datatype and its shape, None for any size, the rows first, such",
        ),
        ("{}", "Model.inputs must name each"),
        ("[1]", "Model.inputs must name each"),
        ('{"x": "FP32"}', "Model.inputs must name each"),
        ('{"x": ("FP32", 4)}', "Model.inputs must name each"),
        ('{"x": ("FP32", [-1, 4])}', "Model.inputs must name each"),
        ('{"x": (np.float32, [None, 4])}', "Model.inputs must name each"),
        ('{1: ("FP32", [None, 4])}', "Model.inputs must name each"),
        ('{"x": ("float32", [None, 4])}', "input x is of type float32, and a tensor of one of BOOL, "),
        ('{"x": ("FP32", [])}', "input x has no batch axis"),
    ],
)
def test_inputs_that_are_declared_wrongly_are_refused(inputs: str, says: str, tmp_path: Path) -> None:
    """The message shows how it is done."""
    assert says in refusal(written(tmp_path, inputs=inputs))


def test_outputs_that_are_declared_wrongly_are_refused(tmp_path: Path) -> None:
    """In the same words, before anything is loaded."""
    assert "Model.outputs must name each" in refusal(written(tmp_path, outputs="None"))
    assert "output x is of type text, and a tensor" in refusal(written(tmp_path, outputs='{"x": ("text", [None])}'))


def test_a_model_that_cannot_load_is_refused(tmp_path: Path) -> None:
    """The line is that of its own file, also where a library raised."""
    missing = "def load(self, folder):\n    np.load(folder / 'none.npy')\n"
    wanting = "def __init__(self, wanted): ...\n"
    lacks = "Model.load fails: model.py: TypeError: Model.__init__() missing"

    assert refusal(written(tmp_path, below=missing)).startswith("Model.load fails: model.py:9: FileNotFoundError: ")
    assert lacks in refusal(written(tmp_path, below=wanting))


@pytest.mark.parametrize(
    "settings", [{"device": "cuda"}, {"providers": ("CPUExecutionProvider",)}, {"gpu_mem_limit": 2**30}]
)
def test_settings_of_a_device_are_refused(settings: Mapping[str, Any], tmp_path: Path) -> None:
    """They would have no effect."""
    name = f"WORKER_MODEL__{min(settings).upper()}"

    assert f"{name} has no effect" in refusal(written(tmp_path), **settings)


# ---- The page's examples --------------------------------------------------------------------------------------------


def from_page(name: str, folder: Path) -> Path:
    """The page's example of this name, as a file in this folder."""
    (text,) = [block.text for block in blocks(PAGE) if block.name == name]
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_pages_function_is_served(tmp_path: Path) -> None:
    """It is that of a tutorial on batching."""
    (scores,) = arrays(loaded(from_page("model-of-a-function", tmp_path)).run({"x": ROWS}))

    assert np.allclose(scores, np.tanh(ROWS).mean(axis=1))


def test_the_pages_pipeline_of_scikit_learn_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes missing values and texts that it has not seen, and answers as the pipeline itself does."""
    monkeypatch.chdir(tmp_path)
    trained: dict[str, Any] = {}
    exec(from_page("scikit-learn-training", tmp_path).read_text(), trained)  # noqa: S102  # the page's own words
    model = loaded(from_page("scikit-learn-model", tmp_path), non_finite_input="allow")
    cities, numbers = ["Oslo", "Rome", "", "Bern"], np.array([[25, 9], [np.nan, 1], [30, np.nan], [7, 7]], np.float32)

    label, probabilities = arrays(model.run({"city": np.array(cities, object), "numbers": numbers}))

    rows = np.array([[city, *row] for city, row in zip(cities, numbers, strict=True)], object)
    assert label.tolist() == trained["pipeline"].predict(rows).tolist()
    assert label.tolist()[:2] == ["leaves", "stays"]
    assert np.allclose(probabilities, trained["pipeline"].predict_proba(rows), atol=1e-6)
    assert independence(model, 8).why is None


def test_the_pages_net_of_pytorch_is_served(tmp_path: Path) -> None:
    """It answers as the net itself does, also on a GPU."""
    torch = pytest.importorskip("torch", reason="PyTorch is too large for the lock: `pip install torch` has it tried")
    net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    torch.save(net.state_dict(), tmp_path / "net.pt")
    model = loaded(from_page("pytorch-model", tmp_path))
    rows = np.random.default_rng(0).standard_normal((5, 64), np.float32)

    (scores,) = arrays(model.run({"x": rows}))

    assert np.allclose(scores, net(torch.from_numpy(rows)).detach().numpy(), atol=1e-3)
    assert independence(model, 8) == (None, None)
