"""Loading a model: what is refused at start and with which cure, what is checked at warm-up, and how a run fails."""

import hashlib
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests import models
from worker.core.failures import BadConfiguration, Code, ModelBroken, RunFailure
from worker.core.tensors.buckets import Spot, WantedAxis
from worker.core.tensors.specs import DTYPES
from worker.inference import Model, load, load_as_set, model_loading
from worker.inference import model as model_module
from worker.inference.onnx_file import reading
from worker.inference.onnx_file.reading import digest_of
from worker.inference.onnxruntime_errors import ORT_ERRORS, lack, readable, run_failure
from worker.inference.running.device import CPU
from worker.settings import BatchingSettings, ModelSettings


def loaded(model: bytes, folder: Path, max_batch_size: int = 8, **settings: Any) -> Model:
    return load(
        ModelSettings(path=models.save(model, folder), **{"device": "cpu", **settings}), max_batch_size=max_batch_size
    )


def refusal(model: bytes, folder: Path, **settings: Any) -> str:
    with pytest.raises(BadConfiguration) as refused:
        loaded(model, folder, **settings)
    return str(refused.value)


def arrays(result: Sequence[np.ndarray[Any, Any]] | RunFailure) -> Sequence[np.ndarray[Any, Any]]:
    assert not isinstance(result, RunFailure), result
    return result


def test_the_signature_says_what_the_model_takes_and_gives(tmp_path: Path) -> None:
    """Names, datatypes and the dimensions after the batch axis are the model's own."""
    signature = loaded(models.two_in_two_out(), tmp_path, name="adder", version="7").signature

    assert (signature.name, signature.version) == ("adder", "7")
    assert signature.takes == "a FP32[batch, 3], b INT64[batch, 2]"
    assert [str(spec) for spec in signature.outputs] == ["total FP32[batch, 1]", "doubled INT64[batch, 2]"]


def test_an_output_that_is_declared_wrongly_is_served_as_it_is(tmp_path: Path) -> None:
    """And it is said. Where inputs differ in their size, such a dimension may differ, too."""
    fixed, dynamic = loaded(models.misdeclared(), tmp_path), loaded(models.misdeclared(None), tmp_path)

    assert [str(spec) for spec in fixed.signature.outputs] == ["y FP32[batch, 2]", "same FP32[batch, 4]"]
    assert [str(spec) for spec in dynamic.signature.outputs] == ["y FP32[batch, ?]", "same FP32[batch, ?]"]
    assert "the model gives y FP32[batch, 2] (declared y FP32[batch, 3]): requesters are told" in str(fixed.misdeclared)
    assert loaded(models.first_columns(), tmp_path).misdeclared is None


@pytest.mark.parametrize(("inputs", "is_told"), [(99, False), (100, True)])
def test_hundreds_of_inputs_are_told_of(inputs: int, *, is_told: bool, tmp_path: Path) -> None:
    """With what they cost, and what one input would."""
    model = loaded(models.identities({str(at): "FP32" for at in range(inputs)}, (1,)), tmp_path)

    assert ("has 100 inputs: to stack and bind them takes 0.8 ms" in str(model.cost_of_inputs)) is is_told
    assert (model.cost_of_inputs is None) is not is_told


@pytest.mark.parametrize("model", [models.tokens(), models.detector("found"), models.chosen_of_each("values")])
def test_an_output_of_found_items_is_refused(model: bytes, tmp_path: Path) -> None:
    """Before it is run: the rows of an example may have one item each."""
    message = refusal(model, tmp_path)

    assert re.search(
        r"has on its first axis what (Compress|NonMaxSuppression|NonZero) finds, and not a row for each", message
    )
    assert "v.type.tensor_type.shape.dim[0].dim_param = 'batch'" in message


@pytest.mark.parametrize(
    "model", [models.scattered_back(), models.sorted_rows(), models.bag_of_grams(), models.chosen_of_each()]
)
def test_what_is_found_inside_and_put_back_into_rows_is_served(model: bytes, tmp_path: Path) -> None:
    """Whatever the file calls the first axis of the output."""
    assert loaded(model, tmp_path).signature.outputs


def test_an_input_that_no_request_can_bring_is_refused(tmp_path: Path) -> None:
    """A tensor without elements, a decoder's empty past, and one of more dimensions than are taken."""
    without = models.identities({"": "FP32"}, dims=(0, 2))
    deep = models.identities({"": "FP32"}, dims=(1,) * 8)

    message = refusal(without, tmp_path)
    assert "input x FP32[batch, 0, 2] has no elements" in message
    assert message.endswith("export the model with another size of that axis, or with a dynamic one")
    assert "has 9 dimensions, and a request's tensor at most 8" in refusal(deep, tmp_path)


def test_an_empty_input_that_is_filled_in_is_served(tmp_path: Path) -> None:
    """Nothing of it has to be brought."""
    model = models.with_empty_past()

    assert "INPUT_DEFAULTS='{\"past\": …}'" in refusal(model, tmp_path)
    assert loaded(model, tmp_path, input_defaults={"past": 0}).signature.raw_input is not None


@pytest.mark.parametrize("name", [b"x", b"batch"])
def test_names_that_are_no_text_are_refused(name: bytes, tmp_path: Path) -> None:
    """Some exporters write those of another encoding; requests and answers could not have them."""
    model = models.identity().replace(name, b"\xc4" * len(name))

    assert rf"is named b'{chr(92)}xc4" in refusal(model, tmp_path)


def test_a_file_too_large_for_protobuf_is_refused_unread(tmp_path: Path) -> None:
    """With the way to keep its weights beside it."""
    path = models.save(b"", tmp_path)
    with path.open("wb") as file:
        file.truncate(2**31)  # it takes no room on the disk

    with pytest.raises(BadConfiguration, match=r"has 2147483648 bytes, and an ONNX file .*save_as_external_data=True"):
        load(ModelSettings(path=path), max_batch_size=8)


def test_every_datatype_goes_in_and_comes_out(tmp_path: Path) -> None:
    """A model of all thirteen datatypes gives back what it was given, strings and half floats too."""
    model = loaded(models.every_datatype(), tmp_path)
    texts = np.array([["é", ""], ["0", "\n"], ["日本", "x"]], dtype=object)
    feeds = {
        spec.name: texts if spec.is_text else np.arange(6).reshape(3, 2).astype(spec.dtype)
        for spec in model.signature.inputs
    }

    outputs = arrays(model.run(feeds))

    assert [spec.datatype for spec in model.signature.outputs] == list(DTYPES)
    for (name, given), output in zip(feeds.items(), outputs, strict=True):
        assert output.dtype == given.dtype, name
        assert np.array_equal(output, given), name


def test_a_run_gives_what_numpy_computes(tmp_path: Path) -> None:
    """Several inputs and outputs keep their names and rows."""
    model = loaded(models.two_in_two_out(), tmp_path)
    a, b = np.arange(15, dtype=np.float32).reshape(5, 3), np.arange(10).reshape(5, 2)

    total, doubled = arrays(model.run({"b": b, "a": a}))

    assert np.array_equal(total[:, 0], a.sum(1) + b.sum(1))
    assert np.array_equal(doubled, 2 * b)


def test_the_warm_up_runs_one_two_and_the_largest_number_of_rows(tmp_path: Path) -> None:
    """Unless the operator names other row counts."""
    by_default = loaded(models.mlp(), tmp_path, max_batch_size=32)
    smallest = loaded(models.mlp(), tmp_path, max_batch_size=1)
    chosen = loaded(models.mlp(), tmp_path, warm_up_rows="16,4")

    assert by_default.warmed_up_at == (1, 2, 32)
    assert smallest.warmed_up_at == (1, 2)
    assert chosen.warmed_up_at == (4, 16)


@pytest.mark.parametrize("model", [models.sequence_mean(), models.convolution(), models.convolution(kernel=100)])
def test_a_model_with_other_dynamic_dimensions_is_warmed_up_at_a_size_it_can_run(model: bytes, tmp_path: Path) -> None:
    """A kernel of 40 fails on images of 16, one of 100 on 64: larger sizes are tried."""
    assert loaded(model, tmp_path).signature.inputs[0].dims[-1] is None


def test_a_model_of_sound_is_warmed_up_with_a_second_of_it(tmp_path: Path) -> None:
    """Shorter rows than its first layer spans fail."""
    assert loaded(models.speech(), tmp_path).blank(1)["sound"].shape == (1, 16_000)


def test_rows_with_finite_answers_are_preferred(tmp_path: Path) -> None:
    """A mask of zeros divides by none: the device check would look at no number of the answer."""
    model = loaded(models.shares(), tmp_path)

    assert model.blank(1)["x"].tolist() == [[1, 1, 1, 1]]
    assert model.not_finite == []


def test_a_model_without_finite_answers_is_warmed_up_with_the_first_rows_that_run(tmp_path: Path) -> None:
    """Its own rows may have some. Which outputs that are is told."""
    model = loaded(models.spreads(), tmp_path)

    assert model.blank(1)["x"].tolist() == [[0, 0, 0, 0]]
    assert model.not_finite == ["z"]


def test_rows_are_made_as_long_and_of_what_is_asked_for(tmp_path: Path) -> None:
    """Along the axes named; the others stay as the warm-up had them."""
    model = loaded(models.convolution(3), tmp_path)

    image = model.blank(2, {Spot(0, 1): 5}, value=1)["image"]

    assert image.shape == (2, 1, 5, 16)
    assert (image == 1).all()


@pytest.mark.parametrize("model", [models.quotient(), models.parse_number(), models.lookup(rows=1)])
def test_a_model_that_fails_on_some_values_is_warmed_up_on_others(model: bytes, tmp_path: Path) -> None:
    """One divides by its input, one parses text, one has a table of a single row."""
    assert not isinstance(loaded(model, tmp_path).probe(), RunFailure)


def test_a_model_that_runs_on_no_trial_size_is_refused_with_the_cure(tmp_path: Path) -> None:
    """The message names the sizes tried, the node that failed, and how to fix the dimension."""
    message = refusal(models.convolution(kernel=300), tmp_path)

    assert "dynamic dimensions of 16, 64, 224, 1: Conv" in message
    assert "update_model_dims" in message
    assert "no such values or sizes, give it some that it does: WORKER_MODEL__WARM_UP_EXAMPLE" in message
    assert "224, 1, 16000: " in refusal(models.speech(kernel=16_001), tmp_path)


def typed(message: str, path: Path) -> bytes:
    """The model after the line that the message prints: our own words, as an operator would type them."""
    line = message[message.index("model = onnx.load") :]
    exec(line, {"onnx": onnx, "path": path})  # noqa: S102  # what is tested
    return path.read_bytes()


@pytest.mark.parametrize(("rows", "fixed_batch"), [(4, "refuse"), (0, "refuse"), (0, "pad")])
def test_a_fixed_batch_axis_is_refused_and_the_printed_cure_works(rows: int, fixed_batch: str, tmp_path: Path) -> None:
    """The statement that the message prints makes the same file loadable. Some exporters write 0 for any number."""
    message = refusal(models.fixed_batch(rows), tmp_path, fixed_batch=fixed_batch)
    assert f"x [{rows}, 3]: the first axis must be dynamic" in message
    assert ("FIXED_BATCH=pad" in message) == (rows > 0)

    cured = typed(message, tmp_path / "model.onnx")

    assert loaded(cured, tmp_path).signature.takes == "x FP32[batch, 3]"


def test_an_input_without_a_shape_is_refused_and_the_printed_cure_works(tmp_path: Path) -> None:
    """It is no scalar, and a constant it cannot be: requests bring it."""
    message = refusal(models.of_unknown_rank(), tmp_path)
    assert "does not say which shape input x has, so nothing says which of its axes is the batch" in message
    assert "constant" not in message

    cured = typed(message, tmp_path / "model.onnx")

    assert loaded(cured, tmp_path).signature.takes == "x FP32[batch, 8]"


def test_a_model_without_outputs_is_refused_and_the_printed_cure_works(tmp_path: Path) -> None:
    """What it computes has to be an answer."""
    message = refusal(models.without_outputs(), tmp_path)
    assert "has no outputs, so no request could be answered" in message

    cured = typed(message, tmp_path / "model.onnx")

    assert [spec.name for spec in loaded(cured, tmp_path).signature.outputs] == ["y"]


def test_classes_with_their_chances_are_refused_and_the_printed_cure_works(tmp_path: Path) -> None:
    """What scikit-learn's, LightGBM's and CatBoost's exports give, the last of them always: arrays lie behind it."""
    message = refusal(models.class_map(), tmp_path)
    assert "options={'zipmap': False}" in message

    cured = loaded(typed(message, tmp_path / "model.onnx"), tmp_path)

    assert [str(spec) for spec in cured.signature.outputs] == ["scores FP32[batch, 2]"]


def test_a_model_without_inputs_is_refused_with_the_cure(tmp_path: Path) -> None:
    """It answers all requests alike."""
    assert "has no inputs, so no request could ask it anything: export it so" in refusal(
        models.without_inputs(), tmp_path
    )


@pytest.mark.parametrize("fixed_batch", ["refuse", "pad"])
@pytest.mark.parametrize(
    "shape",
    [
        [16, "batch", 8],
        [16, "N", 8],
        [16, "batch_size", "width"],
        ["time", "batch", 8],
        [None, "batch", 8],
        [16, 4, "B"],
        [1, "batch", 16],
    ],
)
def test_a_batch_that_is_not_first_is_refused(shape: list[int | str | None], fixed_batch: str, tmp_path: Path) -> None:
    """Its time steps would be taken for requests, and padded as such. Under another name it is another axis."""
    message = refusal(models.of_shapes(shape), tmp_path, fixed_batch=fixed_batch)
    assert "would be taken for requests: export the model with the batch first" in message
    assert "FIXED_BATCH" not in message

    cured = typed(message, tmp_path / "model.onnx")

    assert None in loaded(cured, tmp_path, fixed_batch="pad").signature.inputs[0].dims


@pytest.mark.parametrize(
    "shape",
    [
        ["batch", "N", 3],
        ["N", "batch_of_words"],
        ["points", "n"],
        [None, "B"],
        [8, "sequence"],
        ["batch", 1],
        [1, "N", 3],
    ],
)
def test_a_first_axis_that_may_be_the_batch_is_it(shape: list[int | str | None], tmp_path: Path) -> None:
    """A model of N points, of a fixed batch of texts, and one that calls two axes so."""
    assert loaded(models.of_shapes(shape), tmp_path, fixed_batch="pad").signature.inputs[0].name == "x"


def test_padding_is_named_with_care_where_another_axis_is_dynamic(tmp_path: Path) -> None:
    """Of one without a name it is not known whether it is the batch."""
    assert "). If the first axis is the batch and not, say, the time, WORKER_MODEL__FIXED_BATCH=pad" in refusal(
        models.of_shapes([16, None, 8]), tmp_path
    )
    assert "). WORKER_MODEL__FIXED_BATCH=pad" in refusal(models.of_shapes([16, 2]), tmp_path)


def test_a_model_of_exactly_one_row_serves_where_rows_run_alone(tmp_path: Path) -> None:
    """Nothing is ever padded. Where batches are larger, that is the cure which is named."""
    model = models.for_rows(1, models.mlp())

    served = loaded(model, tmp_path, max_batch_size=1)

    assert served.padding is not None
    assert (served.padding.rows, served.warmed_up_at) == (1, (1,))
    assert len(arrays(served.run({"x": np.zeros((1, 4), np.float32)}))[0]) == 1
    message = refusal(model, tmp_path)
    assert "). WORKER_BATCHING__MAX_BATCH_SIZE=1 runs it as it is, each row alone" in message
    assert "pad" not in message


def test_a_model_without_room_for_a_single_row_is_told_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other values would help it, and a smaller batch there is none."""

    def out_of_memory(*_: object) -> None:
        raise RuntimeError("Failed to allocate memory for requested buffer of size 4")

    monkeypatch.setattr(Model, "_outputs", out_of_memory)

    dynamic, fixed = refusal(models.mlp(), tmp_path), refusal(models.fixed_batch(4), tmp_path, fixed_batch="pad")

    assert "not enough memory for 1 row: give it more memory, or export the model for smaller inputs" in dynamic
    assert "not enough memory for 4 rows: export the model for fewer rows" in fixed


def test_a_number_of_rows_that_the_file_hides_is_named_as_the_cause(tmp_path: Path) -> None:
    """It runs on one row, says that it takes any, and fails on two."""
    message = refusal(models.reshaped_to_one_row(), tmp_path)

    assert "runs on fewer rows but fails on 2: " in message
    assert message.endswith("a Reshape most often, holds one (torch.onnx.export: dynamo=True)")


_PYTORCH = (
    'torch.onnx.export(model, ({}), "model.onnx", dynamo=True, dynamic_shapes=({{0: torch.export.Dim("batch")}},){}). '
)


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (models.fixed_batch(), _PYTORCH.format("example,", "")),
        (models.fixed_batches(), _PYTORCH.format("example_1, example_2", " * 2")),
    ],
)
def test_a_fixed_batch_axis_is_refused_with_a_whole_line_of_pytorch(model: bytes, line: str, tmp_path: Path) -> None:
    """A shape for each input; both lines were typed into PyTorch 2.15, and what they wrote has a dynamic axis."""
    assert f"From PyTorch: {line}" in refusal(model, tmp_path)


def test_an_output_that_loses_rows_is_refused_by_name(tmp_path: Path) -> None:
    """Sums over the batch look right at two rows of width two; another row count shows them."""
    message = refusal(models.column_sums(width=2), tmp_path)

    assert "output sums: 1 row went in and shape [2] came out" in message
    assert message.endswith("axis 0 of every output is the batch")


def test_an_output_beside_others_can_be_left_out_and_the_printed_cure_works(tmp_path: Path) -> None:
    """As a loss, which a model exported for training gives."""
    message = refusal(models.with_loss(), tmp_path)
    assert "output loss: 1 row went in and shape [] came out" in message

    cured = loaded(typed(message, tmp_path / "model.onnx"), tmp_path)

    assert [spec.name for spec in cured.signature.outputs] == ["y"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (models.identity("BF16"), "tensor(bfloat16): numpy has no such type; convert"),
        (models.pieces(), "output y is of type seq(tensor(float)): export its tensors one by one"),
        (models.optional_input(), "input x is of type optional(tensor(float)): export it as a plain tensor"),
        (models.scaled(), "input scale has no batch axis"),
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"not a model", "no ONNX model, or one that was cut short"),
        (b"\x08\x01", "cannot load the model: No graph was found in the protobuf"),
        (pickle.dumps({"weights": 1}), "a pickle, as scikit-learn's models are saved, and no ONNX model: export it"),
        (b"PK\x03\x04", "a zip archive, as PyTorch and Keras save models, and no ONNX model: export it"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line_with_the_cure(model: bytes, words: str, tmp_path: Path) -> None:
    """Each refusal names the file, what is wrong with it and what to do."""
    message = refusal(model, tmp_path)

    assert words in message
    assert "model.onnx" in message
    assert "\n" not in message


def test_a_model_that_knows_other_values_is_refused_with_the_cure(tmp_path: Path) -> None:
    """What scikit-learn's OneHotEncoder is by default: a category that it has not seen fails the batch."""
    message = refusal(models.categories(), tmp_path)

    assert "Unknown Category and zeros = 0. If it takes no such values, give it some that it does" in message
    assert "WORKER_MODEL__WARM_UP_EXAMPLE, a file of arrays by name (.npz) or a request (JSON); or export it" in message


def test_a_model_that_knows_other_values_is_warmed_up_with_a_default(tmp_path: Path) -> None:
    """Where requests may leave that input out, the warm-up leaves it out too."""
    model = loaded(models.categories("also"), tmp_path, input_defaults={"city": "Rome"})

    (one_hot, _) = arrays(model.probe())
    assert one_hot.tolist() == [[[1.0, 0.0]]]


def of_another_ir_version(held: onnx.ModelProto) -> None:
    held.ir_version = 99


def of_another_opset(held: onnx.ModelProto) -> None:
    held.opset_import[0].version = 99


def of_another_domain(held: onnx.ModelProto) -> None:
    held.graph.node[0].domain = "com.acme"
    held.opset_import.append(onnx.helper.make_opsetid("com.acme", 1))


def of_another_type(held: onnx.ModelProto) -> None:
    held.graph.node[0].op_type = "Relu"
    held.graph.input[0].type.tensor_type.elem_type = held.graph.output[0].type.tensor_type.elem_type = 16  # bfloat16


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            of_another_ir_version,
            r"it is of IR version 99, and \d+ is the last one known: model = onnx.load\(path\); .* = \d+",
        ),
        (of_another_opset, r"it is of opset 99 of ai.onnx, and \d+ is the last one known: export it for that"),
        (
            of_another_domain,
            "the operator com.acme:Identity, which ONNX Runtime has not, .*: export the model without it",
        ),
        (of_another_type, r"no Relu \(node ''\) for the datatypes that it has there.*: export the model in FP32"),
    ],
)
def test_what_onnx_runtime_does_not_know_is_refused_with_the_cure(
    change: Callable[[onnx.ModelProto], None], words: str, tmp_path: Path
) -> None:
    """Its own words name no cure, and end in the middle where they are cut to a line."""
    held = onnx.load_from_string(models.identity())
    change(held)

    assert re.search(words, refusal(bytes(held.SerializeToString()), tmp_path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """And the variable that points to it."""
    with pytest.raises(
        BadConfiguration, match=r"nowhere\.onnx: the model cannot be read: No such file.*WORKER_MODEL__PATH"
    ):
        load(ModelSettings(path=tmp_path / "nowhere.onnx"), max_batch_size=4)


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    """The file in it is wanted."""
    with pytest.raises(BadConfiguration, match=r"a folder; name the ONNX file, such as .*/model\.onnx$"):
        load(ModelSettings(path=tmp_path), max_batch_size=4)


def test_a_pinned_model_loads_and_another_is_refused(tmp_path: Path) -> None:
    """The pin is the SHA-256 of the bytes that are loaded."""
    model = models.mlp()
    pin = hashlib.sha256(model).hexdigest()

    assert loaded(model, tmp_path, sha256=pin.upper()).signature.name == "model"
    assert "another model than the one pinned" in refusal(models.mlp(seed=1), tmp_path, sha256=pin)


def test_a_model_too_large_for_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file cannot be read, or not be loaded: as what Python and C++ say of it."""
    assert lack(RuntimeError("std::bad_alloc")).startswith("there is not enough memory for it (std::bad_alloc): give")

    def too_large(_: Path) -> bytes:
        raise MemoryError

    monkeypatch.setattr(Path, "read_bytes", too_large)

    assert "bytes, and there is not enough memory to read it: give it more" in refusal(models.mlp(), tmp_path)


@pytest.mark.parametrize("pin", [None, hashlib.sha256(models.mlp()).hexdigest()])
def test_the_file_is_not_kept_beside_the_model(pin: str | None, tmp_path: Path) -> None:
    """ONNX Runtime has weights of its own by then."""
    model = loaded(models.mlp(), tmp_path, sha256=pin)

    assert not any(isinstance(held, bytes) for held in vars(model._session).values())


@pytest.mark.parametrize("name", ["model.onnx", "model.ort", "model", "mod\udcffl.onnx"])
@pytest.mark.parametrize("kind", ["onnx", "ort"])
def test_a_model_is_known_by_what_it_is_and_not_by_its_name(kind: str, name: str, tmp_path: Path) -> None:
    """ONNX Runtime's own format too, and a name that is no UTF-8."""
    path = tmp_path / name
    path.write_bytes(models.mlp() if kind == "onnx" else models.as_ort(models.mlp(), tmp_path))

    assert load(ModelSettings(path=path, device="cpu"), max_batch_size=2).signature.takes == "x FP32[batch, 4]"


def test_weights_in_other_files_load_but_cannot_be_pinned(tmp_path: Path) -> None:
    """A pin that covers only the graph would promise what it does not hold."""
    path = models.with_external_data(tmp_path)
    pin = hashlib.sha256(path.read_bytes()).hexdigest()

    model = load(ModelSettings(path=path, device="cpu"), max_batch_size=2)

    assert arrays(model.probe())[0].shape == (1, 3)
    with pytest.raises(BadConfiguration, match="its weights lie in other files"):
        load(ModelSettings(path=path, device="cpu", sha256=pin), max_batch_size=2)


def test_a_model_knows_which_file_it_is_of(tmp_path: Path) -> None:
    """By the SHA-256 that `sha256sum` says; a pin is another way to say it."""
    digest = hashlib.sha256(models.mlp()).hexdigest()

    for pin in (None, digest.upper()):
        assert loaded(models.mlp(), tmp_path, sha256=pin).signature.sha256 == digest


def test_a_file_that_is_written_in_the_place_of_another_is_another(tmp_path: Path) -> None:
    """Also by the same process, and where weights of equal size are new and the graph is as it was."""
    path = models.with_external_data(tmp_path)
    (weights,) = tmp_path.glob("*.bin")
    first = load(ModelSettings(path=path, device="cpu"), max_batch_size=2).signature.sha256
    alone = hashlib.sha256(path.read_bytes()).hexdigest()

    assert digest_of(path) == first
    weights.write_bytes(bytes(reversed(weights.read_bytes())))
    assert digest_of(path) not in {first, alone, ""}
    path.write_bytes(models.mlp())
    assert digest_of(path) == hashlib.sha256(models.mlp()).hexdigest()


def test_what_cannot_be_read_has_no_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loading tells why. Weights that are missing, or a device, are passed over."""
    path = models.with_external_data(tmp_path)
    (weights,) = tmp_path.glob("*.bin")
    weights.unlink()
    without = digest_of(path)
    weights.symlink_to("/dev/zero")

    assert digest_of(tmp_path / "none.onnx") == ""
    assert digest_of(path) == without != ""
    monkeypatch.setattr(reading, "LARGEST_FILE", 100)
    assert digest_of(path) == ""


@pytest.mark.parametrize("symbol", ["batch", "b" * 200])
def test_an_input_named_location_is_no_weight_in_another_file(symbol: str, tmp_path: Path) -> None:
    """In the file it looks nearly like one, also where it stands again as a value, or is a key of the metadata."""
    held = onnx.load_from_string(models.identity())
    held.graph.input[0].name = held.graph.node[0].input[0] = "location"
    held.graph.value_info.append(onnx.helper.make_tensor_value_info("location", onnx.TensorProto.FLOAT, [symbol, 4]))
    held.metadata_props.add(key="location", value="Berlin")
    model = bytes(held.SerializeToString())

    signature = loaded(model, tmp_path, sha256=hashlib.sha256(model).hexdigest()).signature

    assert signature.takes == "location FP32[batch, 4]"


def test_weights_that_were_cut_short_are_told_of_with_the_cure(tmp_path: Path) -> None:
    """The model itself is whole."""
    path = models.with_external_data(tmp_path)
    (weights,) = tmp_path.glob("*.bin")
    weights.write_bytes(weights.read_bytes()[:100])

    with pytest.raises(BadConfiguration, match=r"is shorter than the model says: .*copy both anew"):
        load(ModelSettings(path=path, device="cpu"), max_batch_size=2)


def test_weights_of_another_folder_are_refused_with_the_cure(tmp_path: Path) -> None:
    """A link to a model with weights beside it leads out of the link's folder."""
    (tmp_path / "model").mkdir()
    link = tmp_path / "link.onnx"
    link.symlink_to(models.with_external_data(tmp_path / "model"))

    with pytest.raises(BadConfiguration, match=r"in a file of another folder.*: put both into one folder"):
        load(ModelSettings(path=link, device="cpu"), max_batch_size=2)


def test_missing_weights_are_named_with_the_cure(tmp_path: Path) -> None:
    """A model copied without the file beside it is refused by that file's name."""
    path = models.with_external_data(tmp_path)
    (tmp_path / "external.bin").unlink()

    with pytest.raises(BadConfiguration) as refused:
        load(ModelSettings(path=path, device="cpu"), max_batch_size=2)

    assert f"{tmp_path}/external.bin is missing: copy it there, beside the model" in str(refused.value)


@pytest.mark.parametrize("settings", [{}, {"providers": (CPU,)}])
def test_a_locale_that_is_not_installed_is_named_and_the_printed_cure_works(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """One for the machine, one for the export, one for the file; whole, however long ONNX Runtime's own message is."""
    message = refusal(models.lower_case("xx_XX.UTF-8"), tmp_path, **settings)

    assert "the locale xx_XX.UTF-8, which this machine has not" in message
    assert "apt-get install locales && localedef -i xx_XX -f UTF-8 xx_XX.UTF-8" in message
    assert 'options={TfidfVectorizer: {"locale": "C.UTF-8"}, LogisticRegression: {"zipmap": False}}' in message

    cured = loaded(typed(message, tmp_path / "model.onnx"), tmp_path, **settings)

    assert arrays(cured.run({"text": np.array(["Ä", "B"], dtype=object)}))[0].tolist() == ["ä", "b"]


def test_an_output_of_unknown_rank_gets_the_rank_it_has(tmp_path: Path) -> None:
    """Many a file does not say how many dimensions an output has."""
    model = onnx.load_from_string(models.mlp())
    model.graph.output[0].type.tensor_type.ClearField("shape")

    signature = loaded(model.SerializeToString(), tmp_path).signature

    assert len(signature.outputs[0].dims) == 1


def test_a_value_that_the_model_fails_on_is_a_failure_and_no_exception(tmp_path: Path) -> None:
    """The message names the node and the complaint in one line, without ONNX Runtime's wrapping."""
    model = loaded(models.lookup(rows=10), tmp_path)

    failure = model.run({"id": np.array([[3], [99]])})

    assert isinstance(failure, RunFailure)
    assert failure.code is Code.INVALID_ARGUMENT
    assert failure.message.startswith("Gather: indices element out of data bounds, idx=99 ")
    assert failure.for_log.startswith("Gather: indices element out of data bounds, idx=… ")
    assert "99" not in failure.for_log
    assert arrays(model.run({"id": np.array([[3]])}))[0].tolist() == [[[6.0, 7.0]]]


@pytest.mark.parametrize(
    ("model", "feeds", "says"),
    [
        (models.categories(), {"city": np.array([["Bergen"]], object)}, "OneHotEncoder: Unknown Category"),
        (models.quotient(), {"a": np.array([[1]]), "b": np.array([[0]])}, "Div: Compute Integer division by zero"),
        (models.parse_number(), {"text": np.array([["ten"]], object)}, "Cast: stod"),
    ],
)
def test_a_value_that_an_operator_does_not_take_is_the_requests_fault(
    model: bytes, feeds: Mapping[str, Any], says: str
) -> None:
    """And the code of the answer says so. What else a run fails on is the model's matter, or the device's."""
    session = ort.InferenceSession(model, providers=[CPU])

    with pytest.raises(ORT_ERRORS) as raised:
        session.run(None, feeds)

    assert run_failure(raised.value).code is Code.INVALID_ARGUMENT
    assert says in run_failure(raised.value).message


def test_feeds_that_the_model_does_not_take_are_a_failure_too(tmp_path: Path) -> None:
    """Whatever reaches the session, its exceptions are returned as values."""
    model = loaded(models.mlp(), tmp_path)

    failures = [model.run({}), model.run({"x": np.zeros((1, 9), np.float32)}), model.run({"x": np.zeros((1, 4))})]

    assert all(isinstance(failure, RunFailure) for failure in failures)


def test_a_lone_surrogate_is_a_failure(tmp_path: Path) -> None:
    """Text that is no Unicode fails in the binding, before the model."""
    failure = loaded(models.identity("BYTES", (1,)), tmp_path).run({"x": np.array([["\ud800"]], dtype=object)})

    assert isinstance(failure, RunFailure)


def test_the_probe_runs_the_warm_up_batch(tmp_path: Path) -> None:
    """It passes as long as it gives what it gave at start."""
    model = loaded(models.mlp(), tmp_path)

    assert arrays(model.probe())[0].shape == (1, 3)


def test_the_probe_fails_when_finite_outputs_turned_into_nan(tmp_path: Path) -> None:
    """A device that computes nonsense without raising is broken all the same."""
    model = loaded(models.mlp(), tmp_path)
    other = loaded(models.square_root(), tmp_path)
    model._session = other._session
    negative = np.full((1, 4), -1, np.float32)
    model.blank = lambda *_: {"x": negative}  # type: ignore[method-assign]

    failure = model.probe()

    assert isinstance(failure, RunFailure)
    assert "NaN or infinity, where it was finite at start" in failure.message


def test_the_probe_fails_when_rows_get_lost(tmp_path: Path) -> None:
    """Then no answer can be given back to its request any more."""
    model = loaded(models.mlp(), tmp_path)
    model._session = loaded(models.mlp(), tmp_path)._session
    whole = model.run
    model.run = lambda feeds: [output[:-1] for output in arrays(whole(feeds))]  # type: ignore[method-assign]

    failure = model.probe()

    assert isinstance(failure, RunFailure)
    assert "1 row went in, shape (0, 3) came out" in failure.message


def test_a_model_is_warmed_as_batches_will_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever limits them was set for both."""
    batching = BatchingSettings.model_validate(
        {
            "max_batch_size": 48,
            "max_request_rows": 77,
            "max_batch_tokens": 300,
            "max_batch_bytes": 500_000,
            "buckets": {"x": {"axis": 1, "boundaries": [2, 4]}},
        }
    )
    asked: dict[str, object] = {}
    monkeypatch.setattr(model_loading, "load", lambda _, **wanted: asked.update(wanted))

    load_as_set(ModelSettings(path=Path("m.onnx"), name="m"), batching)

    expected = {
        "max_batch_size": 48,
        "max_request_rows": 77,
        "wanted_axes": batching.wanted_axes,
        "max_batch_tokens": 300,
        "max_batch_bytes": 500_000,
    }
    assert {name: asked[name] for name in expected} == expected
    assert batching.wanted_axes


NO_MEMORY_ON_CPU = (
    "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Expand node. Name:'' "
    "Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:360 void* onnxruntime::BFCArena::"
    "AllocateRawInternal(size_t, bool, onnxruntime::Stream*) Failed to allocate memory for requested buffer of size 4\n"
)
AT_ITS_LIMIT = (
    "Error in execution: Non-zero status code returned while running Identity node. Name:'' Status Message: "
    "/onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:360 void* onnxruntime::BFCArena::AllocateRawInternal("
    "size_t, bool, onnxruntime::Stream*) Available memory of 3145728 is smaller than requested bytes of 33554432\n"
)


@pytest.mark.parametrize(
    "text",
    [
        NO_MEMORY_ON_CPU,
        AT_ITS_LIMIT,
        "CUDA failure 2: out of memory ; GPU=0 ; hostname=gpu-7 ; file=/src/x.cc ; line=12 ; expr=cudaMalloc(&p, n)",
        "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; hostname=gpu-7",
        "CUDNN failure 4004: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ; GPU=0 ; hostname=gpu-7",
    ],
)
def test_no_memory_is_told_apart_from_poison(text: str) -> None:
    """Smaller batches may still run; the message is free of C++ and host names."""
    failure = run_failure(RuntimeError(text))

    assert failure.code is Code.RESOURCE_EXHAUSTED
    assert "::" not in failure.message
    assert "gpu-7" not in failure.message


@pytest.mark.parametrize("code", [700, 719, 810, 911, 999])
def test_a_dead_cuda_context_ends_the_worker(code: int) -> None:
    """No later run in this process can succeed, so no request is answered with an error for it."""
    text = f"CUDA failure {code}: an illegal memory access was encountered ; GPU=0 ; hostname=gpu-7"

    with pytest.raises(ModelBroken, match="the device is lost: CUDA failure") as broken:
        run_failure(RuntimeError(text))

    assert "gpu-7" not in str(broken.value)


OLD_DRIVER = (
    "[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/include/onnxruntime/core/framework/provider_options_utils.h:187 "
    'Parse Failed to parse provider option "device_id": CUDA failure 35: CUDA driver version is insufficient for CUDA '
    "runtime version ; GPU=0 ; hostname=gpu-7 ; file=/x/cuda_call.cc ; line=70 ; expr=cudaGetDeviceCount(&n); "
)
THROWN = (
    "[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:133 "
    "std::conditional_t<THRW, void, common::Status> onnxruntime::CudaCall(ERRTYPE, const char*, int) [with ERRTYPE = "
    "cudaError; bool THRW = true] CUDA failure 804: forward compatibility was attempted on non supported HW ; GPU=0 ; "
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (OLD_DRIVER, "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version"),
        (THROWN, "CUDA failure 804: forward compatibility was attempted on non supported HW"),
    ],
)
def test_a_device_s_failure_is_told_without_the_c_around_it(text: str, told: str) -> None:
    """Somewhere among signatures, options and expressions stands what an operator can look up."""
    assert readable(RuntimeError(text)) == told


def test_a_failure_quotes_no_payload_and_stays_one_line() -> None:
    """What stands in quotation marks may be a piece of a request."""
    text = (
        "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Cast node. "
        "Name:'to_number' Status Message: cannot read 'my secret' or \"another\"\n" + "x" * 500
    )

    message = run_failure(RuntimeError(text)).message

    assert message.startswith("Cast 'to_number': cannot read '…' or '…' xxx")
    assert len(message) == 200


SEQUENCE = WantedAxis("ids", 1, (2, 4, 8))


def bucketed(model: bytes, folder: Path, *axes: WantedAxis, warm_up_rows: tuple[int, ...] = (), **limits: Any) -> Model:
    settings = ModelSettings(path=models.save(model, folder), device="cpu", warm_up_rows=warm_up_rows)
    return load(settings, max_batch_size=8, wanted_axes=axes, **limits)


def test_the_warm_up_sees_which_outputs_have_a_padded_axis(tmp_path: Path) -> None:
    """Whatever their dimensions are called in the file."""
    (axis,) = bucketed(models.bag_of_words(), tmp_path, SEQUENCE).signature.axes

    assert set(axis.inputs) == {Spot(0, 0), Spot(1, 0)}
    assert list(axis.outputs) == [Spot(0, 0)]


def test_every_bucket_is_run_before_requests_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of each on the CPU; on an accelerator as many as its batches may have, too."""
    ran: list[tuple[int, ...]] = []
    outputs_of = Model._outputs

    def noted(model: Model, feeds: Any) -> Any:
        ran.append(feeds["ids"].shape)
        return outputs_of(model, feeds)

    monkeypatch.setattr(Model, "_outputs", noted)
    bucketed(models.bag_of_words(), tmp_path, SEQUENCE)
    assert ran[-3:] == [(1, 2), (1, 4), (1, 8)]

    monkeypatch.setattr(model_module, "is_accelerated", lambda _: True)
    monkeypatch.setattr(model_loading, "is_accelerated", lambda _: True)
    bucketed(models.bag_of_words(), tmp_path, SEQUENCE, max_batch_tokens=20)
    assert ran[-8:] == [(1, 2), (2, 2), (4, 2), (8, 2), (1, 4), (2, 4), (4, 4), (1, 8), (2, 8)][-8:]

    bucketed(models.bag_of_words(), tmp_path, SEQUENCE, max_batch_bytes=128)
    assert ran[-6:] == [(1, 2), (2, 2), (4, 2), (1, 4), (2, 4), (1, 8)]


def test_a_model_that_fails_in_a_bucket_is_refused(tmp_path: Path) -> None:
    """Here because what is padded with has no place in its table."""
    with pytest.raises(BadConfiguration, match="fails in the bucket 3 of WORKER_BATCHING__BUCKETS"):
        bucketed(models.up_to_two(), tmp_path, WantedAxis("x", 1, (1, 3)))


def test_an_output_that_cannot_be_cut_back_is_refused_at_start(tmp_path: Path) -> None:
    """It is half as long as what is padded."""
    with pytest.raises(BadConfiguration, match="output y is 2 and 4 long where input x axis 1 is 4 and 8"):
        bucketed(models.every_second(), tmp_path, WantedAxis("x", 1, (4, 8)))


@pytest.mark.parametrize("boundaries", [(2,), (4, 8), (16, 32)])
def test_one_axis_under_two_names_must_be_named_for_both_inputs(boundaries: tuple[int, ...], tmp_path: Path) -> None:
    """Some exporters make up a name for each: padded in one input only, no request would run."""
    ids = WantedAxis("ids", 1, boundaries)

    with pytest.raises(
        BadConfiguration, match=r"runs only where axis 1 of mask is as long, though .* name it in shared"
    ):
        bucketed(models.bag_of_words(symbols=("ids_1", "mask_1")), tmp_path, ids)

    (axis,) = bucketed(
        models.bag_of_words(symbols=("ids_1", "mask_1")), tmp_path, ids._replace(shared_by={"mask": 0})
    ).signature.axes
    assert len(axis.inputs) == 2


def test_an_axis_that_may_have_any_length_of_its_own_is_left_alone(tmp_path: Path) -> None:
    """Not every axis in the same place is the same."""
    (axis,) = bucketed(models.text_with_lone_axis(), tmp_path, WantedAxis("ids", 1, (4, 8))).signature.axes

    assert list(axis.inputs) == [Spot(0, 0)]


def test_an_output_that_fits_some_buckets_only_is_refused_at_start(tmp_path: Path) -> None:
    """Not request by request: at 16 and 64 it is as long as what is padded, at 40 it is 48."""
    with pytest.raises(BadConfiguration, match=r"the bucket 40 of WORKER_BATCHING__BUCKETS: .* shape \(1, 48\): leave"):
        bucketed(models.rounded_up(16), tmp_path, WantedAxis("x", 1, (16, 40, 64)))


def test_an_output_of_other_dimensions_in_another_bucket_is_refused_at_start(tmp_path: Path) -> None:
    """As one that is squeezed where the bucket is 1."""
    with pytest.raises(
        BadConfiguration, match=r"y has shape \[4\] where input x axis 1 is 1 and \[4, 8\] where it is 8"
    ):
        bucketed(models.squeezed(), tmp_path, WantedAxis("x", 1, (1, 8)), warm_up_rows=(4, 8))


def test_a_bucket_larger_than_any_request_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    """Of 10⁹ INT64 it would have been 16 GB."""
    with pytest.raises(BadConfiguration, match="one row of the largest bucket would take 16000000000 bytes"):
        bucketed(models.bag_of_words(), tmp_path, SEQUENCE._replace(boundaries=(2, 10**9)))


@pytest.mark.parametrize("only", [8, 2])
def test_a_single_bucket_may_be_of_a_length_whose_neighbours_fail(only: int, tmp_path: Path) -> None:
    """Its double is tried too, for a model that takes multiples."""
    (axis,) = bucketed(models.groups(of=2), tmp_path, WantedAxis("x", 1, (only,))).signature.axes

    assert not axis.outputs


def test_a_single_bucket_at_whose_length_alone_the_model_runs_needs_a_second(tmp_path: Path) -> None:
    """It cannot be seen which outputs have the axis."""
    with pytest.raises(BadConfiguration, match="runs where input x axis 1 is 8 long, and at none of 7, 16, 4, so"):
        bucketed(models.groups(of=4, count=2), tmp_path, WantedAxis("x", 1, (8,)))


def test_a_single_bucket_of_one_element_is_never_padded(tmp_path: Path) -> None:
    """There is no second length to learn from, and no need to."""
    (axis,) = bucketed(models.bag_of_words(), tmp_path, SEQUENCE._replace(boundaries=(1,))).signature.axes

    assert not axis.outputs
