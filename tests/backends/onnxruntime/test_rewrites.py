"""What ONNX Runtime makes of patterns of operators answers to the patterns, whichever of the two is the reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sweeps import sweep

import qdebug
from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.compare.result.result import Status
from qdebug.running.record import record_run

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

LEVELS = ("none", "extended", "all")
ROOT = {"r2": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
NORM = (
    ("ReduceMean", "x", "m", {"axes": [-1]}),
    ("Sub", "x m", "d", {}),
    ("Pow", "d two", "p", {}),
    ("ReduceMean", "p", "v", {"axes": [-1]}),
    ("Add", "v eps", "ve", {}),
    ("Sqrt", "ve", "s", {}),
    ("Div", "d s", "n", {}),
    ("Mul", "n g", "ng", {}),
    ("Add", "ng b", "nb", {}),
    ("MatMul", "nb w", "y", {}),
)


def gelu(source: str):
    return (
        ("Div", f"{source} r2", "e0", {}),
        ("Erf", "e0", "e", {}),
        ("Add", "e one", "e1", {}),
        ("Mul", f"{source} e1", "he", {}),
        ("Mul", "he half", "g", {}),
        ("MatMul", "g w2", "y", {}),
    )


def draw(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return (rng.normal(size=shape) * 0.3).astype(np.float32)


NETS = {
    "layer norm": (NORM, {"two": np.float32(2), "eps": np.float32(1e-5), "g": draw(32) + 1, "b": draw(32)}, (4, 8, 32)),
    "gelu": ((("MatMul", "x w", "h", {}), *gelu("h")), ROOT, (4, 8, 32)),
    "bias and gelu": ((("MatMul", "x w", "h", {}), ("Add", "h b", "hb", {}), *gelu("hb")), ROOT, (4, 8, 32)),
    "product and sum": (
        (("MatMul", "x w", "h", {}), ("Add", "h b", "hb", {}), ("Relu", "hb", "y", {})),
        {},
        (4, 32),
    ),
    "scaled product": (
        (("MatMul", "x w", "h", {}), ("Mul", "h half", "hs", {}), ("Softmax", "hs", "y", {"axis": -1})),
        ROOT,
        (4, 32),
    ),
    "attention": (
        (
            ("MatMul", "x w", "q", {}),
            ("MatMul", "x wk", "k", {}),
            ("Transpose", "k", "kt", {"perm": [0, 2, 1]}),
            ("MatMul", "q kt", "qk", {}),
            ("Div", "qk r2", "qs", {}),
            ("Softmax", "qs", "a", {"axis": -1}),
            ("MatMul", "a x", "y", {}),
        ),
        {**ROOT, "wk": draw(32, 32)[:, ::-1].copy()},
        (2, 8, 32),
    ),
    "batch norm": (
        (
            ("Conv", "x k", "c", {"pads": [1, 1, 1, 1]}),
            ("BatchNormalization", "c g b mu va", "n", {}),
            ("Relu", "n", "y", {}),
        ),
        {"k": draw(8, 3, 3, 3), "g": draw(8) + 1, "b": draw(8), "mu": draw(8), "va": np.abs(draw(8)) + 0.5},
        (1, 3, 8, 8),
    ),
    "skip and layer norm": (
        (
            ("MatMul", "x w", "h", {}),
            ("Add", "h b", "hb", {}),
            ("Add", "hb x", "sk", {}),
            ("LayerNormalization", "sk g b", "l", {"axis": -1}),
            ("MatMul", "l w2", "y", {}),
        ),
        {"g": draw(32) + 1},
        (2, 8, 32),
    ),
}
SHARED = {"w": draw(32, 32), "w2": draw(32, 8), "b": draw(32)}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return a function that records a net at a level, once, perhaps with one weight changed."""
    folder = tmp_path_factory.mktemp("rewrites")

    def run(name: str, level: str, wrong: str | None = None):
        out = folder / f"{name}.{level}.{wrong}.h5".replace(" ", "_")
        if not out.exists():
            path = model(name, folder / f"{out.stem}.onnx", wrong)
            feed = {"x": draw(*NETS[name][2]) * 3}
            record_run(path, backend="onnxruntime", options={"opt": level}, inputs=feed, out=out)
        return out

    return run


def model(name: str, path, wrong: str | None):
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    lines, constants, shape = NETS[name]
    nodes = [helper.make_node(op, ins.split(), [out], name=f"{op}_{out}", **attrs) for op, ins, out, attrs in lines]
    read = {tensor for node in nodes for tensor in node.input}
    held = {key: value for key, value in {**SHARED, **constants}.items() if key in read}
    if wrong is not None:
        held[wrong] = np.roll(held[wrong], 1, axis=0)
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    ends = [onnx.ValueInfoProto(name="y")]
    graph = helper.make_graph(
        nodes, "net", [given], ends, [numpy_helper.from_array(np.asarray(value), key) for key, value in held.items()]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize(
    ("name", "reference", "backend"),
    sweep(((name, *levels) for name in NETS for levels in itertools.permutations(LEVELS, 2)), 10),
)
def test_a_rewritten_pattern_answers_to_the_pattern(recorded, name, reference, backend):
    result = qdebug.diff(recorded(name, reference), recorded(name, backend))
    assert result.status in (Status.WITHIN, Status.IDENTICAL), result.verdict.sentence
    assert [entry for entry in result.coverage.unmatched if entry.kind is UnmatchedKind.LOST] == []
    assert result.exit_code == 0


WEIGHTS = (
    ("layer norm", "g"),
    ("gelu", "w"),
    ("bias and gelu", "b"),
    ("product and sum", "b"),
    ("attention", "wk"),
    ("batch norm", "g"),
    ("skip and layer norm", "b"),
    ("scaled product", "w"),
)


@pytest.mark.parametrize(
    ("name", "weight", "backend"), sweep(((*each, level) for each in WEIGHTS for level in LEVELS), 9)
)
def test_a_wrong_weight_in_a_rewritten_pattern_is_seen(recorded, name, weight, backend):
    result = qdebug.diff(recorded(name, "none"), recorded(name, backend, weight))
    assert result.status is Status.DIVERGED
    assert result.exit_code == 1
