"""A table read off a recording: its deviating entries, and the range, clamp or output scale that it was made for."""

from dataclasses import replace

import numpy as np
import pytest

from qdebug.arithmetic.code_table import CodeTable, TableEntry
from qdebug.compare.explaining.explain import explain_recording
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, TensorInfo

RNG = np.random.default_rng(3)
CODES = np.arange(-128, 128)
SCALE = 0.05


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def table(function, scale=SCALE, *, ends=(-np.inf, np.inf), out=(1 / 256, -128)):
    """Return the output code of each input code, in float64."""
    real = np.clip(CODES * scale, *ends)
    return np.clip(np.rint(function(real) / out[0]) + out[1], -128, 127).astype(int)


def explained(entries, *, op="Sigmoid", out=(1 / 256, -128), noise=0, count=3000):
    """Record a node that looks codes up, and explain it."""
    x = RNG.integers(-128, 128, (1, count)).astype(np.int8)
    y = entries[x.astype(int) + 128]
    y = np.clip(y + RNG.integers(0, noise + 1, y.shape), -128, 127).astype(np.int8)
    quants = {"x": (SCALE, 0), "y": out}
    infos = [
        TensorInfo(name=name, quant=QuantParams(dtype="int8", scale=np.float32(scale), zero_point=zero))
        for name, (scale, zero) in quants.items()
    ]
    node = Node(name="n", op=op, inputs=("x",), outputs=("y",))
    graph = Graph([node], tensors=infos, inputs=["x"], outputs=["y"])
    return explain_recording(MemoryRecording.single(graph, {"x": x, "y": y})).nodes[0]


@pytest.mark.parametrize(
    ("entries", "options", "said"),
    [
        (table(sigmoid, 8 / 128), {}, "the range [-8, 8] (scale 0.0625), not for the scale 0.05"),
        (table(sigmoid, 8 / 127.5), {}, "the range [-8, 8] (scale 0.0627451), not for the scale 0.05"),
        (table(sigmoid, 8 / 128), {"count": 300}, "the range [-8, 8] (scale 0.0625)"),
        (table(np.tanh, 4 / 128, out=(1 / 128, 0)), {"op": "Tanh", "out": (1 / 128, 0)}, "the range [-4, 4]"),
        (table(sigmoid, 0.0437), {}, "(scale 0.04369"),
        (table(sigmoid, ends=(-4, 4)), {}, "inputs clamped to about [-3.85, 3.85]"),
        (table(sigmoid, out=(1 / 255, -128)), {}, "the output scale 0.00392157 / zero point -128"),
    ],
)
def test_what_a_table_was_made_for_is_named_and_reproduces_every_element(entries, options, said):
    node = explained(entries, **options)
    assert node.status == "unexplained"
    assert said in node.residual.table.made_for
    assert (node.residual.reproduces, "a table for" in node.residual.likely) == (True, True)


def test_wrong_entries_are_listed_and_nothing_is_fitted_to_them():
    entries = table(sigmoid)
    right = entries.copy()
    for code, error in ((-5, 3), (7, -2), (100, 1)):
        entries[code + 128] += error
    found = explained(entries).residual
    assert [(entry.code, entry.value, entry.exact) for entry in found.table.deviations] == [
        (code, entries[code + 128], right[code + 128]) for code in (-5, 7, 100)
    ]
    assert (found.table.seen, found.table.ambiguous, found.table.made_for, found.reproduces) == (256, 0, "", False)
    assert found.likely.startswith("wrong entries in the table")
    assert "256 of 256 entries seen; 3 deviate from Sigmoid: -5 -> " in found.detail


def test_another_function_fits_no_scale():
    found = explained(table(lambda x: sigmoid(x) ** 2 * (1 + np.sin(3 * x) / 4))).residual
    assert (found.table.made_for, found.reproduces) == ("", False)
    assert found.likely.startswith("a table of a function other than Sigmoid")


def test_different_output_codes_of_one_input_code_are_no_table():
    found = explained(table(sigmoid), noise=1).residual
    assert found.table.ambiguous > 200
    assert (found.table.deviations, found.table.made_for) == ((), "")
    assert "so it is not a table" in found.detail


def test_a_right_table_is_explained():
    assert explained(table(sigmoid)).status == "explained"


def test_entries_that_are_passed_on_without_rescaling_are_named():
    entries = tuple(TableEntry(code=code, value=code, exact=code - 90) for code in range(118, 208))
    table = CodeTable(function="LeakyRelu", seen=149, ambiguous=0, deviations=entries, made_for="")
    assert table.passed_on.startswith("input codes 118 to 207 are passed on unchanged")
    assert replace(table, deviations=entries[:3]).passed_on is None
    other = (*entries, TableEntry(code=3, value=9, exact=4))
    assert replace(table, deviations=other).passed_on is None
