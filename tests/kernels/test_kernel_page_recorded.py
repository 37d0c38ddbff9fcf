"""What runtimes have recorded, by the NumPy of the page of kernels: no kernel of the package takes part.

Probes and the digits nets run on every runtime at hand. `explain` names the arithmetic of each node; the page's lines
for that arithmetic, on windows and columns that are cut out here, give the recorded codes bit for bit.
"""

from collections import defaultdict
from contextlib import closing
from pathlib import Path

import kernel_functions
import kernel_page
import kernel_words
import numpy as np
import pytest

from qdebug.arithmetic.units import Units, UnitSource
from qdebug.backends import load_backend
from qdebug.compare.explaining.explain import explain_recording
from qdebug.compare.explaining.explanation import ExplainStatus
from qdebug.compare.measure.recordings import as_compared
from qdebug.probe.dialects import translate_to_qdq
from qdebug.probe.models import probe_models
from qdebug.probe.run import _record, _translate_for_backend
from qdebug.replay.variant import parse_variant
from qdebug.running.feeds import ArrayFeeds
from qdebug.running.record import record_feeds
from qdebug.session import open_recording

SAMPLES = Path(__file__).resolve().parents[2] / "samples/digits"
RUNTIMES = {
    "onnxruntime": ("onnxruntime", {}),
    "litert-reference": ("litert", {"kernels": "reference"}),
    "litert-builtin": ("litert", {"kernels": "builtin"}),
    "litert-xnnpack": ("litert", {"kernels": "xnnpack"}),
}
DIGITS = {"onnxruntime": "digits.qoperator.per_channel.onnx", "litert": "digits_int8.tflite"}
KINDS = {"conv", "conv.depthwise", "linear", "add", "mul", "average_pool", "max_pool", "softmax", "concat", "quantize"}
KINDS |= {"lookup.Sigmoid", "lookup.LeakyRelu"}
OWN = {
    "onnxruntime": {"global_average_pool"},
    "litert": {"reduce_mean", "sub", "prelu", "lookup.HardSwish", "lookup.Tanh", "requantize", "resize"},
}
"""What all runtimes compute on codes, and what only some do: the others compute it on real numbers."""
FUNCTIONS = {
    "Sigmoid": lambda v, _: 1 / (1 + np.exp(-v)),
    "Tanh": lambda v, _: np.tanh(v),
    "LeakyRelu": lambda v, slope: np.where(v < 0, v * v.dtype.type(slope), v),
}
SUMMED = {"wrap32": "conv, linear", "pairsat16:hwc": "conv, linear with `acc=pairsat16:hwc`"}
HELPERS = {"np": np}
exec("\n".join(kernel_functions.HELPERS.values()), HELPERS)  # noqa: S102  the text that is tested


# -- NumPy of its own: scales and zero points as plain numbers, windows, and columns of sums


def by_the_page(unit, variant):
    """Compute a node by the page's lines; None where the page has none for it."""
    low, high = unit.out.clamp or unit.out.limits
    kernel = kernel_page.Kernel(variant, [kernel_page.Use(kind=unit.kind, where="", preset="", known="measured")])
    names = {"sy": single(unit.out.scale), "zy": whole(unit.out.zero_point), "low": low, "high": high}
    codes = unit.operands[0].codes
    names |= {"bits": 8 * unit.out.dtype.itemsize, "sw": np.float32(1)}
    names["lowest"] = np.iinfo(codes.dtype).min if codes.dtype.kind in "iu" else 0
    return OF_KIND[unit.kind](unit, kernel_page.code(kernel), variant, names)


def single(scale):
    return np.float32(np.asarray(scale).reshape(-1)[0])


def whole(zero_point):
    return int(np.asarray(zero_point).reshape(-1)[0])


def run(text, names, kind=""):
    sums = next((text for kinds, text in kernel_words.SUMS.items() if kind in kinds.split(", ")), "")
    given = HELPERS | names
    with np.errstate(all="ignore"):
        exec(f"{sums}\n{text}", given)  # noqa: S102  the text that is tested
    return np.asarray(given["y"])


def read(operand, x="x", z="zx", s="sx"):
    codes = operand.codes.astype(np.int64) if operand.codes.dtype.kind in "iu" else operand.codes
    return {x: codes, z: whole(operand.zero_point), s: single(operand.scale)}


def windows(unit, x, kernel, fill):
    """Cut out windows: (N, C, rows, columns, *kernel)."""
    attrs = unit.attrs
    pads, strides = attrs.get("pads") or (0,) * 4, attrs.get("strides") or (1, 1)
    dilations = attrs.get("dilations") or (1, 1)
    spans = [(extent - 1) * step + 1 for extent, step in zip(kernel, dilations, strict=True)]
    if attrs.get("auto_pad") == "SAME_UPPER":
        sizes = zip(x.shape[2:], spans, strides, strict=True)
        missing = [max((-(-size // stride) - 1) * stride + span - size, 0) for size, span, stride in sizes]
        pads = (*(n // 2 for n in missing), *(n - n // 2 for n in missing))
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])), constant_values=fill)
    found = np.lib.stride_tricks.sliding_window_view(x, spans, (2, 3))
    return found[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]


def filters(unit, text, variant, names, columns, matrix, bias):
    """Compute columns (P, K) times a matrix (K, M), one filter after the other."""
    weight = unit.operands[1]
    names |= read(unit.operands[0])
    given = []
    for at in range(matrix.shape[1]):
        scale, zero = (
            np.asarray(a).reshape(-1)[at if np.size(a) > 1 else 0] for a in (weight.scale, weight.zero_point)
        )
        own = {"x": columns, "w": matrix[:, [at]], "sw": np.float32(scale), "zw": int(zero), "bias": bias[at]}
        sums = SUMMED[variant.accumulate] if variant.bias == "int32" else "conv, linear with `bias=float`"
        given.append(run(kernel_words.SUMS[sums] + text, names | own))
    return np.concatenate(given, -1)


def conv(unit, text, variant, names):
    x, w = (operand.codes.astype(np.int64) for operand in unit.operands)
    if unit.transposed or w.ndim != 4:
        return None
    bias = np.zeros(len(w), np.int64) if unit.bias is None else unit.bias.reshape(-1)
    cut = windows(unit, x, w.shape[2:], whole(unit.operands[0].zero_point))
    each, parts = len(w) // unit.groups, []
    for group, taps in enumerate(np.split(cut, unit.groups, 1)):
        columns = taps.transpose(0, 2, 3, 4, 5, 1)  # taps before channels
        own = w[group * each : (group + 1) * each].transpose(2, 3, 1, 0).reshape(-1, each)
        weight = unit.operands[1]
        part = {
            name: array.reshape(-1)[group * each : (group + 1) * each] if array.size > 1 else array
            for name, array in (("scale", np.asarray(weight.scale)), ("zero_point", np.asarray(weight.zero_point)))
        }
        one = Part(unit.operands[0], type(weight)(codes=weight.codes, **part))
        shape = columns.shape[:3]
        args = names, columns.reshape(np.prod(shape), -1), own, bias[group * each : (group + 1) * each]
        parts.append(filters(one, text, variant, *args).reshape(*shape, each))
    return np.moveaxis(np.concatenate(parts, -1), -1, 1)


class Part:
    """One group of a convolution."""

    def __init__(self, *operands):
        self.operands = operands


def linear(unit, text, variant, names):
    x, w = (operand.codes.astype(np.int64) for operand in unit.operands)
    if w.ndim != 2:
        return None
    bias = np.zeros(w.shape[1], np.int64) if unit.bias is None else np.broadcast_to(unit.bias.reshape(-1), w.shape[1])
    columns = x.reshape(-1, x.shape[-1])
    return filters(unit, text, variant, names, columns, w, bias).reshape(*x.shape[:-1], -1)


def pair(unit, text, variant, names):
    a, b = unit.operands
    op = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}.get(unit.kind)
    names |= read(a, "a", "za", "sa") | read(b, "b", "zb", "sb") | {"op": op}
    names["a"], names["b"] = np.broadcast_arrays(names["a"], names["b"])
    return run(text, names, unit.kind)


def average_pool(unit, text, variant, names):
    x, attrs = unit.operands[0].codes.astype(np.int64), unit.attrs
    if unit.attrs.get("ceil_mode"):
        return None
    there = windows(unit, np.ones_like(x), attrs["kernel_shape"], int(bool(attrs.get("count_include_pad"))))
    cut = windows(unit, x, attrs["kernel_shape"], whole(unit.operands[0].zero_point))
    given = np.empty(cut.shape[:4], np.int64)
    for row, column in np.ndindex(cut.shape[2:4]):
        inside = there[0, 0, row, column].astype(bool)
        own = {"x": cut[:, :, row, column][..., inside].reshape(-1, inside.sum())}
        found = run(text, names | read(unit.operands[0]) | own | {"n": int(inside.sum())}, unit.kind)
        given[:, :, row, column] = found.reshape(cut.shape[:2])
    return given


def max_pool(unit, text, variant, names):
    return run(text, names | read(unit.operands[0]) | {"x": largest(unit)}, unit.kind)


def largest(unit):
    """Return the largest code of each window: all there is to a pool that keeps its scale."""
    return largest_of(unit.operands[0].codes, unit)


def largest_of(x, node):
    return windows(node, x.astype(np.int64), node.attrs["kernel_shape"], np.iinfo(np.int64).min).max((-2, -1))


def largest_last(recording, node):
    """Return the same of a node that ONNX Runtime has made, with channels last."""
    return np.moveaxis(largest_of(np.moveaxis(recording.load(node.inputs[0]), -1, 1), node), 1, -1)


def mean(unit, text, variant, names):
    x = unit.operands[0].codes.astype(np.int64)
    axes = tuple(range(2, x.ndim)) if unit.kind == "global_average_pool" else unit.attrs["axes"]
    axes = sorted(axis % x.ndim for axis in axes)
    x = np.moveaxis(x, axes, range(-len(axes), 0)).reshape(*(n for k, n in enumerate(x.shape) if k not in axes), -1)
    return run(text, names | read(unit.operands[0]) | {"x": x, "n": x.shape[-1]}, unit.kind)


def one_code(unit, text, variant, names):
    slope = np.float32(unit.attrs.get("alpha", 0.01))
    names |= {"alpha": slope, "tanh": unit.function == "Tanh"}
    if unit.function in FUNCTIONS:
        names["f"] = lambda v: FUNCTIONS[unit.function](v, slope)
    return run(text, names | read(unit.operands[0]), "" if unit.kind == "lookup" else unit.kind)


def softmax(unit, text, variant, names):
    axis = unit.attrs.get("axis", -1)
    x = np.moveaxis(unit.operands[0].codes.astype(np.int64), axis, -1)
    return np.moveaxis(run(text, names | read(unit.operands[0]) | {"x": x}), -1, axis)


def concat(unit, text, variant, names):
    kind = unit.kind if variant.form == "sum" else ""
    return np.concatenate([run(text, names | read(each), kind) for each in unit.operands], unit.attrs["axis"])


def resize(unit, text, variant, names):
    x, sizes = unit.operands[0].codes.astype(np.int64), unit.settings[-1]
    last = tuple(unit.attrs.get("axes", (2, 3)))[-2:] == (1, 2)
    if sizes is None or sizes.dtype.kind != "i" or variant.form == "sum":
        return None
    placing = unit.attrs.get("coordinate_transformation_mode", "half_pixel")
    if placing == "align_corners":
        return None
    rows, columns = sizes[1:3] if last and len(sizes) == x.ndim else sizes[-2:]
    names |= read(unit.operands[0]) | {"rows": int(rows), "columns": int(columns), "half": placing == "half_pixel"}
    return np.moveaxis(run(text, names | {"x": np.moveaxis(x, -1, 1)}), 1, -1) if last else run(text, names | {"x": x})


OF_KIND = {
    "conv": conv, "linear": linear, "average_pool": average_pool, "max_pool": max_pool, "softmax": softmax,
    "concat": concat, "resize": resize, **dict.fromkeys(("add", "sub", "mul", "div", "prelu"), pair),
    **dict.fromkeys(("global_average_pool", "reduce_mean"), mean),
    **dict.fromkeys(("lookup", "requantize", "quantize"), one_code),
}  # fmt: skip


# -- what runtimes have recorded


def recordings(backend, options, folder):
    """Record all probes, and the digits net."""
    for number, model in enumerate(probe_models()):
        for said in dict.fromkeys(
            (_translate_for_backend(backend, model), translate_to_qdq(model) if backend.name == "onnxruntime" else None)
        ):
            if said is None:
                continue
            own = folder / f"{number}-{len(said.graph.nodes)}"
            own.mkdir()
            try:
                _record(backend, said, options, own)
                yield open_recording(own / "probe.h5")
            except Exception as error:  # noqa: BLE001  the runtime has no such operator
                print(model.title, error)
    with np.load(SAMPLES / "digits_test.npz") as file:
        digits = file["x"][:1] if backend.name == "onnxruntime" else np.moveaxis(file["x"][:1], 1, -1)
    with closing(backend.open(SAMPLES / DIGITS[backend.name], options=options)) as net:
        (fed,) = net.inputs
        if fed.dtype == "int8":
            digits = np.clip(np.rint(digits * 255) - 128, -128, 127).astype(np.int8)
        record_feeds(net, ArrayFeeds({fed.name: digits}, net.inputs), folder / "digits.h5")
    yield open_recording(folder / "digits.h5")


def held(recording):
    """Yield kind, variant and whether the page's lines give the recorded codes, of each explained node."""
    recording = as_compared(recording)
    units = Units(recording)
    for node in explain_recording(recording).nodes:
        if node.status is not ExplainStatus.EXPLAINED:
            continue
        producer = recording.graph.producer(node.tensor)
        source = units.missing(producer, node.tensor) or units.find(producer, node.tensor)
        if producer.op == "NhwcMaxPool":  # no unit: it moves codes
            yield "max_pool", node, np.array_equal(largest_last(recording, producer), recording.load(node.tensor))
        if not isinstance(source, UnitSource):
            continue
        unit = source.unit(source.places[0])
        variant = parse_variant(node.variants[0]) if node.variants else None
        if unit.kind not in OF_KIND or (variant is None and unit.kind != "max_pool"):
            continue
        codes = largest(unit) if variant is None else by_the_page(unit, variant)
        if codes is None:
            continue
        recorded = source.codes(source.places[0])
        recorded = np.moveaxis(recorded, -1, 1) if unit.channels_last else recorded
        branch = f".{unit.branch}" if unit.branch and unit.kind in ("lookup", "conv") else ""
        yield unit.kind + branch, node, np.array_equal(codes.reshape(-1), recorded.reshape(-1))


@pytest.mark.slow
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_pages_numpy_gives_what_a_runtime_has_recorded(runtime, tmp_path):
    name, options = RUNTIMES[runtime]
    pytest.importorskip({"litert": "ai_edge_litert"}.get(name, name), reason=f"needs the extra {name}")
    backend = load_backend(name)
    found, wrong = defaultdict(int), []
    for recording in recordings(backend, options, tmp_path):
        for kind, node, same in held(recording):
            found[kind] += same
            wrong += [] if same else [(kind, node.node, node.variants[0])]
    print(runtime, dict(found))
    assert not wrong
    assert {kind for kind, count in found.items() if count} >= KINDS | OWN[name]
