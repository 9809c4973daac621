"""What only the model's file tells is read from it without `onnx`, and as `onnx` reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from tests import models
from worker.inference.onnx_file.graph import operators, unranked_inputs

QUANTISER = frozenset({"DynamicQuantizeLinear"})


def in_a_function() -> bytes:
    """x FP32 (batch, 4) → y, by a function of the model's own, which quantises."""
    held = onnx.load_from_string(models.quantised_together())
    nodes = list(held.graph.node)
    opsets = list(held.opset_import)
    held.functions.append(helper.make_function("of.mine", "Steps", ["x"], ["y"], nodes, opsets))
    del held.graph.node[:]
    held.graph.node.append(helper.make_node("Steps", ["x"], ["y"], domain="of.mine"))
    held.opset_import.append(helper.make_opsetid("of.mine", 1))
    return bytes(held.SerializeToString())


def in_a_branch() -> bytes:
    """x FP32 (batch, 4) → y, in one branch of an If that is in a branch of another."""
    inner = onnx.load_from_string(models.quantised_together()).graph
    del inner.input[:]
    plain = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "else", [], [models._value("z", "FP32", 4)])
    twice = helper.make_graph(
        [helper.make_node("If", ["go"], ["w"], then_branch=inner, else_branch=plain)],
        "then",
        [],
        [models._value("w", "FP32", 4)],
    )
    outer = helper.make_node("If", ["go"], ["v"], then_branch=twice, else_branch=plain)
    return models._model(
        [outer],
        [models._value("x", "FP32", 4)],
        [models._value("v", "FP32", 4)],
        [models._constant("go", np.array(True))],
    )


@pytest.mark.parametrize("model", [models.quantised_together(), in_a_function(), in_a_branch()])
def test_an_operator_is_found_wherever_it_is(model: bytes) -> None:
    """In the graph, in a function of the model's own, in a branch of a branch."""
    onnx.checker.check_model(onnx.load_from_string(model))

    assert operators(model, QUANTISER) == QUANTISER


def test_an_operator_is_found_by_its_place_and_not_by_its_letters() -> None:
    """Of that name are an input, a node and a string here."""
    held = onnx.load_from_string(models.identity())
    held.graph.input[0].name = held.graph.node[0].input[0] = "DynamicQuantizeLinear"
    held.graph.node[0].name = "DynamicQuantizeLinear"
    held.metadata_props.add(key="made by", value="DynamicQuantizeLinear")

    assert operators(bytes(held.SerializeToString()), QUANTISER) == frozenset()


def test_a_model_with_its_weights_in_another_file_is_read_too(tmp_path: Path) -> None:
    """By its path."""
    path = models.save(models.quantised_together(), tmp_path)

    assert operators(str(path), QUANTISER) == QUANTISER


def test_inputs_without_a_shape_are_told_from_scalars() -> None:
    """A scalar has a shape, of no dimensions."""
    assert unranked_inputs(models.of_unknown_rank()) == {"x"}
    assert unranked_inputs(models.scaled()) == frozenset()


@given(st.binary(max_size=40), st.integers(0, 400))
def test_what_is_no_model_says_nothing_and_ends(rubbish: bytes, cut: int) -> None:
    """Rubbish, and a model that was cut short."""
    for content in (rubbish, models.quantised_together()[:cut] + rubbish):
        assert operators(content, QUANTISER) <= QUANTISER
        assert unranked_inputs(content) is not None
