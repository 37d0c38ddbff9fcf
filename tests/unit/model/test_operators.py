"""One row tells all there is to know of an operator; a name without a row has no traits."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.model import Node, operators
from qdebug.model.operators import Operator, Sums
from qdebug.model.operators.table import ROWS

OPS = [row.name for row in ROWS]
PLAIN_FIELDS = {"name", "plain", "family"}


def node(op, *inputs, **attrs):
    return Node(name="n", op=op, inputs=inputs, outputs=("y",), attrs=attrs)


def test_an_operator_has_one_row():
    assert len(set(OPS)) == len(OPS)
    words = [word for row in ROWS for word in row.words.split()]
    assert len(set(words)) == len(words)


@given(st.text().filter(lambda name: name not in OPS))
def test_a_name_without_a_row_has_no_traits(name):
    row, bare = operators.of(name), Operator(name=name)
    assert row.name == name
    assert all(getattr(row, f.name) == getattr(bare, f.name) for f in fields(Operator) if f.name not in PLAIN_FIELDS)
    assert not any((row.product, row.rounds_nothing, row.clamps, row.goes_into_weights, row.gives_codes))


def test_a_plain_operator_is_its_own_plain_form_and_stands_in_its_family():
    for op in OPS:
        row = operators.of(op)
        bare = operators.plain(node(op))
        assert (bare.name, bare.plain, bare.family) == (row.plain, bare.name, row.family), op


@pytest.mark.parametrize(
    ("op", "plain"),
    [
        *[("QLinearConv", "Conv"), ("FusedConv", "Conv"), ("NhwcMaxPool", "MaxPool"), ("QGemm", "Gemm")],
        *[("MatMulNBits", "MatMul"), ("DynamicQuantizeLSTM", "LSTM"), ("QLinearSoftplus", "Softplus")],
        *[("Conv", "Conv"), ("QuantizeLinear", "QuantizeLinear"), ("NhwcFusedConv", "Conv"), ("FusedOdd", "Odd")],
    ],
)
def test_the_plain_operator_is_without_how_it_is_computed(op, plain):
    assert operators.plain(node(op)).name == plain


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        *[("Gemm", "MatMul", True), ("Relu", "Clip", True), ("LeakyRelu", "PRelu", True), ("Relu", "LeakyRelu", False)],
        *[("QGemm", "MatMulInteger", True), ("Odd", "Odd", True), ("Odd", "Even", False), ("FusedOdd", "Odd", True)],
    ],
)
def test_operators_of_one_family_can_stand_for_each_other(one, other, same):
    assert (operators.plain(node(one)).family == operators.plain(node(other)).family) is same


def test_rows_contradict_nothing():
    for row in ROWS:
        check_row(row)


def check_row(row):
    known = operators.of(row.name)
    if row.real is not None:
        assert row.real.op in OPS
        assert operators.of(row.real.op).unit or known.converts_codes
    assert row.gate is None or row.gate.op in OPS
    assert not row.folds or (row.unit and row.data is not None)
    assert not (row.moves and row.sums)
    assert not (known.product and row.activation)
    assert row.bias is None or operators.of(known.plain).product
    assert not row.title_positions or operators.of(known.plain).titles


def test_traits_are_those_that_their_names_say():
    names = operators.names_where
    assert names(lambda row: row.clamps) == {"Relu", "Clip"}
    assert names(lambda row: row.extreme) == {"Max", "Min"}
    converting = [f"{maker}{name}Linear" for maker in ("", "Extended", "Vitis") for name in ("Quantize", "Dequantize")]
    assert names(lambda row: row.converts_codes) == set(converting)
    assert names(lambda row: row.goes_into_weights) == {"BatchNormalization", "Add", "Sub", "Mul", "Div"}
    assert names(lambda row: row.reshapes) == {"Reshape", "Flatten", "Squeeze", "Unsqueeze"}
    assert names(lambda row: row.product and row.plain == row.name) == {"Conv", "ConvTranspose", "Gemm", "MatMul"}
    assert names(lambda row: row.permutes_dimensions) == {"Transpose", "ReorderInput", "ReorderOutput"}
    assert operators.of("ReduceSum").sums is Sums.AXES


def test_reordering_channels_may_turn_them_too():
    assert operators.plain(node("ReorderInput", channels_last=1)).transposes
    assert not operators.plain(node("ReorderInput", channels_last=0)).transposes
    assert not operators.is_block_transpose(node("ReorderOutput", channels_last=1))


@pytest.mark.parametrize(
    ("op", "read"), [("Slice", ("x",)), ("Concat", ("x", "a", "b")), ("Add", ("x", "a", "b")), ("Odd", ("x", "a", "b"))]
)
def test_what_rules_an_operator_is_no_operand(op, read):
    assert operators.operands(node(op, "x", "a", "b")) == read


def test_bounds_of_a_clamp_are_fixed_or_attributes_or_inputs():
    assert operators.clamp_bounds(node("Relu", "x")) == (0.0, float("inf"))
    assert operators.clamp_bounds(node("Clip", "x", min=-1.0, max=2.0)) == (-1.0, 2.0)
    assert operators.clamp_bounds(node("Clip", "x", "", "top"), {"top": 6}) == (-float("inf"), 6.0)
    assert operators.clamp_bounds(node("Clip", "x", "", "top"), {"top": np.float32([6])}) == (-float("inf"), 6.0)
    assert operators.clamp_bounds(node("Clip", "x", "", "top"), {"top": np.float32([6, 7])}) is None
    assert operators.clamp_bounds(node("Clip", "x", "", "top")) is None
    assert operators.clamp_bounds(node("Sigmoid", "x")) is None


def test_inputs_are_found_by_what_they_are_called():
    assert operators.of("MatMul").titles[2] == "bias"
    assert operators.titled_input(node("MatMulNBits", "x", "w", "s", "z", "", "b"), 2) == "b"
    assert operators.titled_input(node("Conv", "x", "w"), 2) == ""


def test_words_of_other_frameworks_mean_operators_of_onnx():
    assert operators.named("aten::conv2d").product
    assert operators.named("SHAPE").counts is operators.Count.EXTENTS
    assert operators.named("FULLY_CONNECTED").gives_scores
    assert operators.named("Mean") is operators.of("Mean")  # of ONNX, whatever mean is elsewhere
    assert operators.named("odd") is operators.of("odd")


@pytest.mark.parametrize(
    ("op", "where"), [("Conv", "second"), ("Conv2d", "second"), ("MultiHeadAttention", "last"), ("Add", None)]
)
def test_names_tell_where_channels_are(op, where):
    assert operators.channels_of(op) == where
