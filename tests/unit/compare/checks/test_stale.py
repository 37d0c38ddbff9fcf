"""A tensor with the bytes of another one: a buffer that was overwritten or not written."""

import numpy as np
import pytest

import qdebug

RNG = np.random.default_rng(1)
X = RNG.normal(size=(4, 16)).astype(np.float32)
WEIGHTS = [RNG.normal(size=(16, 16)).astype(np.float32) for _ in range(3)]


def run(path, *, stale=None):
    values = {"x": X}
    for number, weight in enumerate(WEIGHTS):
        read = "x" if number == 0 else f"y{number - 1}"
        values[f"y{number}"] = values[read] @ weight
        if stale is not None and stale[0] == number:
            values[f"y{number}"] = values[stale[1]]
    with qdebug.Recorder(path, backend="board") as rec:
        rec.put("x", X)
        for number, weight in enumerate(WEIGHTS):
            rec.constant(f"w{number}", weight)
            read = "x" if number == 0 else f"y{number - 1}"
            rec.put(f"y{number}", values[f"y{number}"], node=f"n{number}", op="MatMul", inputs=(read, f"w{number}"))
        rec.outputs("y2")
    return path


def test_a_tensor_that_was_not_written_holds_those_of_another(tmp_path):
    reference = run(tmp_path / "ref.h5")
    result = qdebug.diff(reference, run(tmp_path / "stale.h5", stale=(2, "y0")))
    (found,) = [each for each in result["n2"].findings if each.kind == "stale"]
    assert (found.role, found.evidence) == ("cause", "y0")
    assert "its bytes equal those of 'y0'" in result.verdict.sentence


def test_other_wrong_values_are_not_stale(tmp_path):
    with qdebug.Recorder(tmp_path / "wrong.h5", backend="board") as rec:
        rec.put("x", X)
        rec.constant("w0", WEIGHTS[0])
        rec.put("y0", X @ WEIGHTS[0] * 2, node="n0", op="MatMul", inputs=("x", "w0"))
    result = qdebug.diff(run(tmp_path / "ref.h5"), tmp_path / "wrong.h5")
    assert "stale" not in {str(found.kind) for found in result["n0"].findings}


def test_the_bytes_of_a_view_are_no_sign(tmp_path):
    def flattened(path, factor):
        values = X @ WEIGHTS[0] * factor
        with qdebug.Recorder(tmp_path / path, backend="board") as rec:
            rec.put("x", X)
            rec.constant("w0", WEIGHTS[0])
            rec.put("y0", values, node="n0", op="MatMul", inputs=("x", "w0"))
            rec.put("flat", values.reshape(1, -1), node="view", op="Flatten", inputs=("y0",), attrs={"axis": 0})
            rec.outputs("flat")
        return tmp_path / path

    result = qdebug.diff(flattened("ref.h5", 1), flattened("wrong.h5", np.float32(2)))
    assert result["n0"].status == "diverged"
    assert "stale" not in {str(found.kind) for found in result["n0"].findings}


@pytest.mark.parametrize("axis", ["steps", "samples"])
def test_a_tensor_that_was_captured_once_for_all_steps_is_named(tmp_path, axis):
    """The hook of a captured graph runs once; the file has its first tensor in each step."""

    def captured(path, *, once):
        with qdebug.Recorder(tmp_path / path, backend="board") as rec:
            rec.constant("w0", WEIGHTS[0])
            rec.constant("w1", WEIGHTS[1])
            for step in range(4):
                x = X + step
                rec.put("x", x)
                rec.put("y0", (X if once else x) @ WEIGHTS[0], node="n0", op="MatMul", inputs=("x", "w0"))
                rec.put("y1", x @ WEIGHTS[0] @ WEIGHTS[1], node="n1", op="MatMul", inputs=("y0", "w1"))
                if step < 3:
                    rec.next_step() if axis == "steps" else rec.next_sample()
            rec.outputs("y1")
        return tmp_path / path

    result = qdebug.diff(captured("ref.h5", once=False), captured("once.h5", once=True))
    (finding,) = [each for each in result["n0"].findings if each.kind == "stale"]
    assert finding.role == "cause"
    assert f"the same in 4 {axis}" in finding.sentence
