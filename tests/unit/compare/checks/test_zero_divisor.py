"""The divisor that rounding made 0 is named where values are not finite on the backend alone."""

import numpy as np
import pytest

import qdebug
from qdebug.compare.checks import table
from qdebug.compare.result.finding import FindingKind, FindingRole

X = np.array([[0.001, 0.5, -2, 0.002, 3, 1]], np.float32)
STEP = np.float32(0.1)


def recorded(op, x=X, *, coded=False, constant=False, samples=1):
    codes = np.rint(x / STEP).astype(np.int8)
    read = (codes * STEP).astype(np.float32) if coded else x
    with np.errstate(all="ignore"):
        made = (2 / read).astype(np.float32)
    names = ("d",) if op == "Reciprocal" else ("a", "d")
    with qdebug.Recorder(None, backend="b") as rec:
        if constant:
            rec.constant("d", codes if coded else x, **({"scale": STEP} if coded else {}))
        for _ in range(samples):
            rec.put("a", np.full_like(x, 2))
            if not constant:
                rec.put("x", x)
                stored, op_q, scale = (codes, "QuantizeLinear", STEP) if coded else (x, "Identity", None)
                rec.put("q", stored, node="q", op=op_q, inputs=("x",), scale=scale)
                rec.put("d", read, node="d", op="DequantizeLinear" if coded else "Identity", inputs=("q",))
            rec.put("y", made / (2 if op == "Reciprocal" else 1), node="divide", op=op, inputs=names)
            rec.next_sample()
        rec.outputs("y")
    return rec.recording


def causes(result):
    found = [each for each in result.nodes[-1].findings if each.role is FindingRole.CAUSE]
    return [each for each in found if each.kind is FindingKind.NONFINITE and each.unit == "elements"]


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("op", ["Div", "Reciprocal"])
def test_zeros_that_rounding_makes_are_counted(op, samples):
    result = qdebug.diff(recorded(op, samples=samples), recorded(op, coded=True, samples=samples))
    (found,) = causes(result)
    said = f"its divisor 'd' has {2 * samples} zeros in {6 * samples} elements; the reference's has 0"
    assert (found.sentence, found.evidence, found.amount, found.limit) == (said, "d", 2 * samples, 0)
    assert result.nodes[-1].status == "nonfinite"
    assert said in result.verdict.sentence


def test_a_constant_divisor_is_named():
    (found,) = causes(qdebug.diff(recorded("Div", constant=True), recorded("Div", constant=True, coded=True)))
    assert found.sentence == "its divisor 'd' has 2 zeros in 6 elements; the reference's has 0"


def test_one_zero_beside_one_of_the_reference():
    x = np.array([[0, 0.001, 1]], np.float32)
    (found,) = causes(qdebug.diff(recorded("Div", x), recorded("Div", x, coded=True)))
    assert found.sentence == "its divisor 'd' has 2 zeros in 3 elements; the reference's has 1"
    (found,) = causes(qdebug.diff(recorded("Div", x[:, 1:]), recorded("Div", x[:, 1:], coded=True)))
    assert found.sentence == "its divisor 'd' has 1 zero in 2 elements; the reference's has 0"


def test_nothing_is_said_where_the_reference_alone_divides_by_zero():
    assert not causes(qdebug.diff(recorded("Div", coded=True), recorded("Div")))
    assert not causes(qdebug.diff(recorded("Div", X + 10), recorded("Div", X + 10, coded=True)))


def test_it_is_looked_for_before_an_overflow():
    names = [check.__name__ for check in table.CHECKS]
    assert names.index("zero_divisor") + 1 == names.index("overflow")
