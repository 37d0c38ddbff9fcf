"""Chips that compute in int8 and hand on real numbers, of random float nets: right ones, and some with a fault."""

import numpy as np
import pytest
from sweeps import sweep

import qdebug

WIDTHS = (8, 16, 32)
FAULTS = {
    "scale": lambda y: y * 1.2,
    "channels not written": lambda y: np.where(_along(y, 1) >= y.shape[1] * 3 // 4, 0, y),
    "bias": lambda y: y + 0.3 * y.std(),
    "channels shifted": lambda y: np.roll(y, 1, 1),
    "last column": lambda y: np.where(_along(y, -1) == y.shape[-1] - 1, 0.3 * y, y),
}


def _along(array, axis):
    return np.expand_dims(np.arange(array.shape[axis]), [d for d in range(array.ndim) if d != axis % array.ndim])


def on_grid(values, step, zero=0):
    """Round to int8 codes and back."""
    codes = np.clip(np.rint(np.asarray(values, np.float64) / step) + zero, -128, 127)
    return ((codes - zero) * step).astype(np.float32)


def conv(x, weight, bias):
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    seen = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], (2, 3))
    return np.einsum("nchwij,mcij->nmhw", seen, weight.astype(np.float64)) + bias.reshape(1, -1, 1, 1)


COMPUTED = {
    "Relu": lambda x: np.maximum(x, 0),
    "HardSwish": lambda x: x * np.clip(x.astype(np.float64) + 3, 0, 6) / 6,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x.astype(np.float64))),
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdims=True, dtype=np.float64),
}


class Net:
    """Four convolutions with activations, a mean and a product, of a size and of weights that a seed gives."""

    def __init__(self, seed, classes):
        rng = np.random.default_rng(seed)
        widths = [3, *rng.choice(WIDTHS, 4)]
        self.ops, self.weights = [], {}
        for at in range(4):
            shape = (widths[at + 1], widths[at], 3, 3)
            weight = rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[1:]))
            self.weights[f"conv{at}"] = weight.astype(np.float32), (rng.normal(size=shape[0]) * 0.1).astype(np.float32)
            self.ops += [(f"conv{at}", "Conv"), (f"act{at}", str(rng.choice(["Relu", "HardSwish", "Sigmoid"])))]
        self.ops += [("mean", "GlobalAveragePool"), ("flat", "Flatten"), ("head", "MatMul")]
        self.weights["head"] = ((rng.normal(size=(widths[4], classes)) * 0.3).astype(np.float32),)
        self.samples = rng.normal(size=(2, 1, 3, 12, 12)).astype(np.float32)
        self.symmetric, self.by_channel = rng.integers(2, size=2)

    def run(self, rounded, weighted, fault=None):
        """Give the tensors of each sample; each is rounded, and a fault is (name, what it makes of the result)."""
        for sample in self.samples:
            tensors = {"x": rounded("x", sample)}
            read = tensors["x"]
            for name, op in self.ops:
                if op == "Conv":
                    made = conv(read, weighted(self.weights[name][0]), self.weights[name][1])
                elif op == "MatMul":
                    made = read.astype(np.float64) @ weighted(self.weights[name][0])
                else:
                    made = read.reshape(1, -1) if op == "Flatten" else COMPUTED[op](read)
                made = fault[1](made) if fault and fault[0] == name else made
                read = tensors[name] = read.reshape(1, -1) if op == "Flatten" else rounded(name, made)
            yield tensors

    def reference(self):
        return [*self.run(lambda _, values: np.asarray(values, np.float32), lambda weight: weight)]

    def chip(self, reference, fault=None):
        def step_of(name):
            low = min(0, *(tensors[name].min() for tensors in reference))
            high = max(0, *(tensors[name].max() for tensors in reference))
            if self.symmetric:
                return np.float32(max(-low, high) / 127), 0
            step = np.float32((high - low) / 255)
            return step, int(np.rint(-low / step)) - 128

        def weighted(weight):
            axes = (1, 2, 3) if self.by_channel and weight.ndim == 4 else None
            step = np.abs(weight).max(axes, keepdims=True) / 127
            return np.rint(weight / step) * step

        return [*self.run(lambda name, values: on_grid(values, *step_of(name)), weighted, fault)]

    def recorded(self, runs):
        with qdebug.Recorder(None, backend="chip") as rec:
            for name, constants in self.weights.items():
                for kind, array in zip("wb", constants, strict=False):
                    rec.constant(f"{name}.{kind}", array)
            for number, tensors in enumerate(runs):
                if number:
                    rec.next_sample()
                rec.put("x", tensors["x"])
                read = "x"
                for name, op in self.ops:
                    constants = [f"{name}.{kind}" for kind, _ in zip("wb", self.weights.get(name, ()), strict=False)]
                    attrs = {"pads": [1, 1, 1, 1]} if op == "Conv" else {}
                    rec.put(name, tensors[name], node=f"n_{name}", op=op, inputs=(read, *constants), attrs=attrs)
                    read = name
            rec.outputs("head")
        return rec.recording


@pytest.mark.parametrize(("seed", "classes"), sweep([(0, 10), (1, 3), (2, 10), (4, 10), (3, 3)], 2))
def test_a_right_chip_is_not_accused_and_a_fault_is_named_alone(seed, classes):
    net = Net(seed, classes)
    runs = net.reference()
    reference = net.recorded(runs)
    right = qdebug.diff(reference, net.recorded(net.chip(runs)))
    assert [node.node for node in right.nodes if node.status == "diverged"] == []
    assert sum(node.precision == "8-bit codes" for node in right.nodes) > 8
    names = [name for name, op in net.ops if op not in ("Flatten", "MatMul")]
    for number, fault in enumerate(FAULTS.values()):
        name = names[(seed + 2 * number) % (len(names) - 1)]
        wrong = qdebug.diff(reference, net.recorded(net.chip(runs, (name, fault))))
        assert [node.node for node in wrong.nodes if node.status == "diverged"] == [f"n_{name}"]


def test_a_scale_that_is_stated_judges_alone():
    net = Net(0, 10)
    runs = net.reference()
    wrong = net.chip(runs, ("conv1", lambda y: y * 1.02))
    with qdebug.Recorder(None, backend="chip") as rec:
        rec.put("codes", np.int8([[1, 2]]), scale=0.1, zero_point=0)
        rec.put("x", wrong[0]["x"])
        rec.put("y", np.maximum(wrong[0]["x"], 0) * np.float32(1.001), node="n", op="Relu", inputs=("x",))
    with qdebug.Recorder(None, backend="reference") as ref:
        ref.put("x", wrong[0]["x"])
        ref.put("y", np.maximum(wrong[0]["x"], 0), node="n", op="Relu", inputs=("x",))
    assert qdebug.diff(ref.recording, rec.recording)["n"].status == "diverged"
