"""Infinities that change nothing are remarks; those that turn into wrong finite numbers are followed to the output."""

import numpy as np
import pytest

import qdebug

F16, LOW = np.float16, np.finfo(np.float32).min


def softmax(x):
    with np.errstate(all="ignore"):
        e = np.exp((x - x.max(-1, keepdims=True)).astype(np.float32))
        return (e / e.sum(-1, keepdims=True)).astype(x.dtype)


def attention(mask, *, rows=6, dtype=np.float32, wrong=None):
    """Record masked scores, their softmax and its product with values."""
    rng = np.random.default_rng(0)
    scores = (rng.normal(size=(rows, 6)) * 20).astype(dtype)
    seen = np.triu(np.full((rows, 6), mask, np.float32), 1).astype(dtype)
    values = rng.normal(size=(6, 8)).astype(dtype)
    with np.errstate(all="ignore"):
        masked = scores + seen
    if wrong is not None:
        masked[wrong] = -np.inf
    probable = softmax(masked)
    with qdebug.Recorder(None, backend=str(dtype)) as rec:
        rec.constant("mask", seen)
        rec.constant("v", values)
        rec.put("s", scores)
        rec.put("m", masked, node="add", op="Add", inputs=("s", "mask"))
        rec.put("p", probable, node="softmax", op="Softmax", inputs=("m",), attrs={"axis": -1})
        rec.put("y", (probable.astype(np.float32) @ values).astype(dtype), node="pv", op="MatMul", inputs=("p", "v"))
        rec.outputs("y")
    return rec.recording


@pytest.mark.parametrize("pair", [(LOW, -np.inf), (-np.inf, LOW)])
def test_a_mask_of_infinities_is_a_remark(pair):
    result = qdebug.diff(*map(attention, pair))
    assert (result.exit_code, result.verdict.first_divergence) == (0, None)
    found = [each for each in result["add"].findings if each.kind == "nonfinite"]
    assert {each.role for each in found} == {"note"}
    assert 15.0 in {each.amount for each in found}


def test_an_infinity_that_is_no_mask_is_none():
    likeliest = int(np.argmax(attention(LOW).load("m")[3]))
    result = qdebug.diff(attention(LOW), attention(LOW, wrong=(3, likeliest)))
    assert result["add"].status == "nonfinite"
    assert result.exit_code == 1


def test_a_mask_that_overflows_beside_negative_scores_is_a_remark():
    result = qdebug.diff(attention(-65504.0), attention(-65504.0, dtype=F16))
    assert result.exit_code == 0


@pytest.mark.parametrize("rows", [2, 300])
def test_an_overflow_that_becomes_zero_is_followed_to_the_output(rows):
    def recorded(dtype):
        rng = np.random.default_rng(0)
        x = (rng.normal(size=(rows, 32)) * 40).astype(dtype)
        x[0, 3] = 700
        with np.errstate(all="ignore"):
            square = x * x
            total = square.astype(np.float32).sum(1, keepdims=True).astype(dtype)
            root = np.sqrt(total)
            y = x / root
        with qdebug.Recorder(None, backend=str(dtype)) as rec:
            rec.constant("axis", np.array([1]))
            rec.put("x", x)
            rec.put("sq", square, node="square", op="Mul", inputs=("x", "x"))
            rec.put("ss", total, node="sum", op="ReduceSum", inputs=("sq", "axis"), attrs={"keepdims": 1})
            rec.put("n", root, node="norm", op="Sqrt", inputs=("ss",))
            rec.put("y", y, node="div", op="Div", inputs=("x", "n"))
            rec.outputs("y")
        return rec.recording

    result = qdebug.diff(recorded(np.float32), recorded(F16))
    assert (result.verdict.first_divergence, result.verdict.origin) == ("square", "square")
    assert (result.verdict.nonfinite.output, result.verdict.nonfinite.spoilt) == (None, "y")
    assert "ends after 'norm'" in result.verdict.sentence
    assert result["div"].status == "within"


def test_what_cannot_be_replayed_is_not_excused():
    def recorded(mask):
        with qdebug.Recorder(None, backend="b") as rec:
            rec.put("m", np.array([[1.0, mask]], np.float32))
            rec.put("y", np.ones((1, 2), np.float32), node="n", op="Unheard", inputs=("m",))
            rec.outputs("y")
        return rec.recording

    result = qdebug.diff(recorded(LOW), recorded(-np.inf))
    assert result.exit_code != 0
