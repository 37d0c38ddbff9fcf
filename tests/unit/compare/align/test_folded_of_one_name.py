"""A normalization folded into a convolution that keeps its name: it is looked for before the names pair."""

import numpy as np

import qdebug

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 8, 8)).astype(np.float32)
W, B = RNG.normal(size=(8, 3, 3, 3)).astype(np.float32), RNG.normal(size=8).astype(np.float32)
NORM = [RNG.uniform(0.4, 2, 8).astype(np.float32) for _ in range(4)]  # scale, bias, mean, variance
GAIN = (NORM[0] / np.sqrt(NORM[3] + 1e-5)).astype(np.float32)


def conv(weight, bias):
    x = np.pad(X.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    seen = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    return (np.einsum("nchwij,mcij->nmhw", seen, weight.astype(np.float64)) + bias.reshape(1, -1, 1, 1)).astype(
        np.float32
    )


def normalized(values):
    each = [array.reshape(1, -1, 1, 1) for array in (*NORM, GAIN)]
    return ((values - each[2]) * each[4] + each[1]).astype(np.float32)


def reference():
    plain = conv(W, B)
    with qdebug.Recorder(None, backend="plain") as rec:
        for name, value in {"c1.weight": W, "c1.bias": B, **{f"b1.{k}": v for k, v in enumerate(NORM)}}.items():
            rec.constant(name, value)
        rec.put("x", X)
        pads = {"pads": [1] * 4}
        rec.put("c1", plain, node="c1", op="Conv", inputs=("x", "c1.weight", "c1.bias"), attrs=pads)
        read = ("c1", *(f"b1.{k}" for k in range(4)))
        rec.put("b1", normalized(plain), node="b1", op="BatchNormalization", inputs=read)
        rec.put("relu", np.maximum(normalized(plain), 0), node="relu", op="Relu", inputs=("b1",))
        rec.outputs("relu")
    return rec.recording


def folded(*, gain=GAIN):
    weight = W * gain.reshape(-1, 1, 1, 1)
    bias = ((B - NORM[2]) * gain + NORM[1]).astype(np.float32)
    made = conv(weight, bias)
    with qdebug.Recorder(None, backend="folded") as rec:
        rec.constant("c1.weight", weight)
        rec.constant("c1.bias", bias)
        rec.put("x", X)
        inputs = ("x", "c1.weight", "c1.bias")
        rec.put("c1", made, node="c1", op="Conv", inputs=inputs, attrs={"pads": [1] * 4})
        rec.put("relu", np.maximum(made, 0), node="relu", op="Relu", inputs=("c1",))
        rec.outputs("relu")
    return rec.recording


def test_a_convolution_of_one_name_answers_to_what_is_folded_in():
    result = qdebug.diff(reference(), folded())
    assert (result.exit_code, result["c1"].reference_tensor) == (0, "b1")
    assert [node.node for node in result.nodes if node.status == "diverged"] == []


def test_a_wrong_fold_is_still_its_weights():
    wrong = GAIN.copy()
    wrong[2] *= 1.5
    result = qdebug.diff(reference(), folded(gain=wrong))
    assert result.verdict.first_divergence == "c1"
    assert "weight" in {str(found.kind) for found in result["c1"].findings}


def test_what_is_not_folded_keeps_its_name():
    assert qdebug.diff(reference(), reference())["c1"].reference_tensor == "c1"
