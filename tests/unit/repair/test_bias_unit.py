"""A bias whose codes have another unit than the sums: repaired by its codes, and by nothing that has no part in it."""

import numpy as np
import pytest

import qdebug
from qdebug.repair.edits import KINDS
from qdebug.repair.find import RepairOptions, find_repair, prepare_search
from qdebug.repair.search import EditCost
from qdebug.session import DiffSession

RNG = np.random.default_rng(3)
X = RNG.normal(size=(1, 3, 12, 12)).astype(np.float32)
W = (RNG.normal(size=(8, 3, 1, 1)) * 0.4).astype(np.float32)
B = (RNG.normal(size=8) * 0.6).astype(np.float32)
SX, SW, SY, SB = np.float32(8 / 255), np.float32(np.abs(W).max() / 127), np.float32(6 / 255), np.float32(2.0**-18)


def conv(x, w):
    return np.einsum("nchw,kc->nkhw", x.astype(np.float64), w[:, :, 0, 0].astype(np.float64))


def float_run():
    with qdebug.Recorder(None, backend="float") as rec:
        rec.constant("w", W)
        rec.constant("b", B)
        rec.put("x", X)
        y = (conv(X, W) + B.reshape(1, -1, 1, 1)).astype(np.float32)
        rec.put("y", y, node="conv", op="Conv", inputs=("x", "w", "b"))
        rec.outputs("y")
    return rec.recording


def device(unit):
    """Run the convolution on codes; its sums take the codes of the bias as they are."""
    xq = np.clip(np.rint(X / SX), -128, 127).astype(np.int8)
    wq, bq = np.rint(W / SW).astype(np.int8), np.rint(B / unit).astype(np.int32)
    y = np.clip(np.rint((conv(xq, wq) + bq.reshape(1, -1, 1, 1)) * np.float64(SX) * SW / SY), -128, 127)
    facts = {"sx": SX, "sw": SW, "sy": SY, "zero": np.int8(0)}
    with qdebug.Recorder(None, backend="npu") as rec:
        for name, value in facts.items():
            rec.constant(name, value)
        rec.constant("w", wq, scale=SW, zero_point=0)
        rec.constant("b", bq, scale=unit, zero_point=0)
        rec.put("x", X)
        rec.put("xq", xq, node="q", op="QuantizeLinear", inputs=("x", "sx", "zero"), scale=SX, zero_point=0)
        read = ("xq", "sx", "zero", "w", "sw", "zero", "sy", "zero", "b")
        rec.put("y", y.astype(np.int8), node="conv", op="QLinearConv", inputs=read, scale=SY, zero_point=0)
        rec.outputs("y")
    return rec.recording


@pytest.fixture(scope="module")
def session():
    return DiffSession(float_run(), device(SB))


def test_the_codes_of_the_bias_are_what_is_changed(session):
    found = find_repair(session, RepairOptions(within=25))
    assert found.reached
    assert [(edit.kind, edit.unit.node.name) for edit in found.edits] == [("bias-unit", "conv")]


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"bias-unit", "float"}))
def test_nothing_that_has_no_part_in_it_is_offered(session, kind):
    found = find_repair(session, RepairOptions(within=25, cost=EditCost(kinds=[kind])))
    assert [edit for edit in found.edits if edit.unit.node.name == "conv"] == []


def test_a_bias_in_the_unit_of_the_sums_has_no_such_edit():
    found = find_repair(DiffSession(float_run(), device(SX * SW)), RepairOptions(within=90))
    assert "bias-unit" not in {edit.kind for edit in found.edits}


def test_a_bias_at_a_new_scale_is_rounded_once_from_the_reference():
    catalog = prepare_search(DiffSession(float_run(), device(SX * SW)), RepairOptions(within=60)).catalog
    edits = [edit for name in catalog.units for edit in catalog.edits_of(name, ("16-bit",))]
    ((_, bias),) = catalog.biases([edit for edit in edits if edit.unit.node.name == "q"]).items()
    step = float(bias.codes.scale.max())
    assert step < SX * SW / 100
    assert np.abs(bias.values - B).max() <= step
