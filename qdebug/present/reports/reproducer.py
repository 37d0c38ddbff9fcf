"""A reproducer as a standalone pytest file: it needs only numpy, and uses the real backend if available."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill, indent, wrap

import numpy as np

from qdebug.model import AttrValue, Node, RunInfo, operators
from qdebug.numerics.rounding import ROUNDINGS
from qdebug.present.text import safe_text
from qdebug.replay.columns import Columns
from qdebug.replay.precision import plain_dtype
from qdebug.replay.program import compile_variant
from qdebug.replay.registry import Call
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant
from qdebug.replay.windows import Window, window_of
from qdebug.reproduce.reproducer import FloatReproducer, Reproducer

__all__ = ["ArrayPool", "float_reproducer_text", "reference_code", "reproducer_text"]

_LITERAL_LIMIT = 80
"""Maximum number of characters of an array that is written as a literal."""
_WIDTH = 110


class ArrayPool:
    """The arrays of one program. Equal arrays are stored once."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._arrays: dict[str, np.ndarray] = {}

    def text(self, array: np.ndarray | None) -> str:
        """Return an expression that makes an array. None becomes "None"."""
        if array is None:
            return "None"
        array = np.ascontiguousarray(array.astype(plain_dtype(array.dtype), copy=False)).reshape(array.shape)
        if array.size <= _LITERAL_LIMIT // 3 and array.dtype.kind in "iuf" and np.isfinite(array).all():
            # tolist() makes floats of 64 bits, and their repr identifies every float32.
            values = repr(array.tolist())
            if len(values) <= _LITERAL_LIMIT:
                return f"np.array({values}, np.{array.dtype.name})"
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._names:
            self._names[key] = f"a{len(self._names)}"
            self._arrays[self._names[key]] = array
        return f'ARRAYS["{self._names[key]}"]'

    def block(self) -> str:
        """Return the statement that defines the arrays that are not literals, or "" if there are none."""
        if not self._arrays:
            return ""
        file = io.BytesIO()
        np.savez_compressed(file, **self._arrays)  # type: ignore[arg-type]  # a mapping of arrays, whatever their names
        lines = wrap(base64.b64encode(file.getvalue()).decode("ascii"), _WIDTH)
        shapes = [f"# {name}: {array.dtype.name}{list(array.shape)}" for name, array in self._arrays.items()]
        text, shapes_text = "\n".join(lines), "\n".join(shapes)
        return f'{shapes_text}\n_PACKED = """\n{text}\n"""\nARRAYS = np.load(io.BytesIO(base64.b64decode(_PACKED)))\n'


_ONNX_DOMAINS = ("", "ai.onnx", "com.microsoft")

_IMPORTS = """\
from __future__ import annotations

import base64
import importlib.util
import io

import numpy as np
"""


_RUN = '''
def model():
    """Make a model of this node alone."""
    import onnx
    from onnx import helper, numpy_helper

    names = ["" if array is None else f"i{at}" for at, array in enumerate(FED)]
    node = helper.make_node(OP, names, OUTPUTS, domain=DOMAIN, **ATTRIBUTES)
    fed, stored = [], []
    for name, array, constant in zip(names, FED, CONSTANT):
        if array is not None and constant:
            stored.append(numpy_helper.from_array(array, name))
        elif array is not None:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            fed.append(helper.make_tensor_value_info(name, kind, array.shape))
    kind = helper.np_dtype_to_tensor_dtype(RECORDED.dtype)
    graph = helper.make_graph([node], "node", fed, [helper.make_tensor_value_info(TENSOR, kind, None)], stored)
    domains = {"": 13, DOMAIN: OPSET}
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*pair) for pair in domains.items()], ir_version=8
    )


def on_onnxruntime():
    """Run the node on ONNX Runtime; None where it is not installed."""
    if not all(map(importlib.util.find_spec, ("onnx", "onnxruntime"))):
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model().SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {entry.name: FED[int(entry.name[1:])] for entry in session.get_inputs()}
    return session.run(None, feed)[0]
'''

_HOOK = '''
def run_backend(inputs):
    """Run the node on your device: take its inputs, return its output. Return None to check the recorded output."""
    return @RUN


def backend_output():
    """Return the output that is checked, and where it comes from."""
    output = run_backend(INPUTS)
    return (RECORDED, "the recording") if output is None else (np.asarray(output), "the backend")
'''

_KNOWN_GOOD = '''
def test_a_known_runtime_is_within_one_step_of_the_reference():
    """A runtime that computes the node correctly returns the same codes, except at ties."""
    output = on_onnxruntime()
    if output is None:
        return  # onnx or onnxruntime is not installed
@TURNED    assert np.abs(output.astype(np.int64) - reference().astype(np.int64)).max(initial=0) <= 1
'''

RUNS = (
    "The recorded output is checked. Return the output of your device from run_backend() to check it instead; the "
    "test passes once the output is right."
)
"""Sentences in the docstring of a file whose node does not run on ONNX Runtime by default."""
RUNS_THERE = (
    "If onnx and onnxruntime are installed, the node runs there as a separate model; else the recording is checked. "
    "For another device, change run_backend()."
)
"""Sentences in the docstring of a file that runs its node on ONNX Runtime, where it was recorded."""


def onnxruntime_code(
    node: Node,
    *,
    op: str,
    domain: str,
    opset: int,
    attrs: Mapping[str, AttrValue],
    inputs: Sequence[np.ndarray | None],
    constant: Sequence[bool],
    tensor: str,
    pool: ArrayPool,
) -> str | None:
    """Return the statements that run a single node on ONNX Runtime, or None if it cannot be written as a model.

    Args:
        node: The node whose outputs are requested.
        op: The operator to run.
        domain: The operator set.
        opset: Version of the operator set.
        attrs: Its attributes.
        inputs: Its inputs. None for an optional input that is left out.
        constant: Whether each input is a constant.
        tensor: The output to check.
        pool: Collects the arrays.
    """
    attributes_text = _attributes_text(attrs)
    if node.domain not in _ONNX_DOMAINS or attributes_text is None:
        return None
    outputs = [f"y{at}" if name else "" for at, name in enumerate(node.outputs)]
    lines = [
        f"OP, DOMAIN, OPSET = {op!r}, {domain.replace('ai.onnx', '')!r}, {opset}",
        f"ATTRIBUTES = {attributes_text}",
        f"FED = {_tuple_text(inputs, pool)}",
        f"CONSTANT = {tuple(constant)}",
        f"OUTPUTS, TENSOR = {outputs}, {outputs[node.outputs.index(tensor)]!r}",
        "",
    ]
    return "\n".join(lines) + _RUN


def backend_hook_code(inputs: Sequence[np.ndarray | None], pool: ArrayPool, *, on_onnxruntime: bool) -> str:
    """Return the functions in which a user supplies the output of a device to check.

    Args:
        inputs: The node's inputs. None for an optional input that is left out.
        pool: Collects the arrays.
        on_onnxruntime: Whether the node runs on ONNX Runtime by default.
    """
    return f"INPUTS = {_tuple_text(inputs, pool)}\n\n" + _HOOK.replace(
        "@RUN", "on_onnxruntime()" if on_onnxruntime else "None"
    )


def _tuple_text(inputs: Sequence[np.ndarray | None], pool: ArrayPool) -> str:
    """Return an expression that makes a tuple of arrays."""
    return "\n".join(["(", *(f"    {pool.text(array)}," for array in inputs), ")"])


def run_clause(run: RunInfo) -> str:
    """Return the model, the backend and its version, as the end of a sentence in a docstring."""
    versions = ", ".join(
        f"{name} {version}" for name, version in run.versions.items() if name in (run.backend, "qdebug")
    )
    model = f" of {quoted_text(run.model)}" if run.model else ""
    return f"{model}, on {plain_text(run.backend)} ({plain_text(versions) or 'version unknown'})"


def file_docstring(sentences: Sequence[str], run: RunInfo, path: Path) -> str:
    """Return the docstring of a file. Recorded text in it is escaped, so that it cannot end the docstring.

    Args:
        sentences: Sentences of the docstring. Empty ones are left out.
        run: Facts of the run.
        path: Name of the file.
    """
    flags = ", ".join(flag for flag in run.cpu_flags if flag.startswith(("avx512_vnni", "avx_vnni", "amx", "asimd")))
    parts = [*sentences, f"Processor: {plain_text(flags)}." if flags else ""]
    text = "\n".join(fill(sentence, 110, break_long_words=False) for sentence in parts if sentence)
    return f'"""{text}\n\nRun it: pytest {plain_text(path.name)}\n"""\n'


def assemble_file(parts: Sequence[str], pool: ArrayPool) -> str:
    """Return the text of a file: its docstring, imports, arrays, and the rest.

    Args:
        parts: The docstring, then everything below the arrays.
        pool: The arrays.
    """
    first, *other_parts = parts
    text = "\n".join([first, _IMPORTS, "@", *other_parts]).replace("\n@\n", f"\n{pool.block()}\n", 1)
    used_lines = [line for line in text.split("\n") if not _is_unused_import(line, text)]
    return "\n".join(used_lines).rstrip("\n") + "\n"


def _with_blank_lines(parts: Sequence[str]) -> list[str]:
    """Return the non-empty parts, each followed by two empty lines."""
    return [part.strip("\n") + "\n\n" for part in parts if part]


def _is_unused_import(line: str, text: str) -> bool:
    """Return whether a line imports something that the rest does not use."""
    words = line.split()
    return line.startswith("import ") and len(words) == 2 and f"{words[1]}." not in text.replace(line, "", 1)


def plain_text(value: object) -> str:
    """Return recorded text for a docstring, escaped so that it cannot end the docstring or start an escape sequence."""
    return safe_text(value, limit=200).replace("\\", "/").replace('"', "'")


def quoted_text(value: str) -> str:
    """Return recorded text in quotes."""
    return f"'{plain_text(value)}'"


def _attributes_text(attrs: Mapping[str, AttrValue]) -> str | None:
    """Return an expression that makes a dict of attributes, or None if an attribute has no literal."""
    entries = []
    for name, value in attrs.items():
        plain_value = list(value) if isinstance(value, tuple) else value
        if isinstance(value, np.ndarray) or (isinstance(value, float) and not np.isfinite(value)):
            return None
        entries.append(f"{name!r}: {plain_value!r}")
    return "{" + ", ".join(entries) + "}"


_SHIFTS = "\n".join(f'        "{name}": lambda: {row.shift_text},' for name, row in ROUNDINGS.items() if row.shift_text)

HELPERS = f'''
def shifted(v, bits, rounding):
    """Divide integers by 2**bits and round to nearest; ties as the rounding says."""
    half = (np.int64(1) << bits) >> 1
    return {{
{_SHIFTS}
    }}[rounding]()

'''
"""Functions that statements of integer programs call."""

_REFERENCE = '''
def reference():
    """Return the codes that the node should return."""
'''

_CONV = '''
def sums():
    """Return the exact sums of products, per output channel and position, in int64."""
    x = np.pad(X.astype(np.float64) - X_ZERO, ((0, 0), (0, 0), *PADS))
    w = W.astype(np.float64) - W_ZERO
    axes = tuple(range(2, x.ndim))
    reach = tuple((k - 1) * d + 1 for k, d in zip(w.shape[2:], DILATIONS))
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)
    windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in STRIDES))]
    windows = windows[(..., *(slice(None, None, d) for d in DILATIONS))]
    taps = (1, *range(x.ndim, 2 * x.ndim - 2))
    parts = []
    for g in range(GROUPS):
        own = windows[:, g * w.shape[1] : (g + 1) * w.shape[1]]
        filters = w[g * w.shape[0] // GROUPS : (g + 1) * w.shape[0] // GROUPS]
        parts.append(np.moveaxis(np.tensordot(own, filters, (taps, tuple(range(1, w.ndim)))), -1, 1))
    return np.concatenate(parts, axis=1).astype(np.int64) + BIAS
'''

_LINEAR = '''
def sums():
    """Return the exact sums of products in int64."""
    return np.matmul(X.astype(np.float64) - X_ZERO, W.astype(np.float64) - W_ZERO).astype(np.int64) + BIAS
'''

_PRODUCT = '''
def sums():
    """Return the products of the codes without their zero points."""
    return (X.astype(np.int64) - X_ZERO) * (W.astype(np.int64) - W_ZERO)
'''


def reference_code(unit: Unit, variant: Variant, pool: ArrayPool) -> str | None:
    """Return statements that define `reference()`, which computes the unit's output in its node's own layout.

    Args:
        unit: The unit.
        variant: Its arithmetic.
        pool: Collects the arrays.

    Returns:
        The text, or None if there is no numpy code for this unit and variant.
    """
    sums = _sums_code(unit, variant, pool)
    columns = Columns(sums=variant.sums, values=(), shape=())
    operations = compile_variant(unit, columns, variant) if sums is not None else ()
    if sums is None or any(operation.text is None for operation in operations):
        return None
    texts = [(operation.text or "").format(*map(pool.text, operation.parameters)) for operation in operations]
    lines = ["v = sums()" + ("" if variant.accumulate == "exact" else ".astype(np.int32)  # as 32 bits")]
    lines += [f"v = {text}" for text in texts if text != "v"]
    returned = "np.moveaxis(v, 1, -1)" if unit.channels_last else "v"
    body = "\n".join([*lines, f"return {returned}"])
    helpers = HELPERS if any("shifted(" in line for line in lines) else ""
    return f"{sums}\n{helpers}\n{_REFERENCE}{indent(body, '    ')}\n"


def _sums_code(unit: Unit, variant: Variant, pool: ArrayPool) -> str | None:
    if variant.form != "sum" or variant.accumulate not in ("wrap32", "exact") or len(unit.operands) != 2:
        return None
    if unit.kind not in ("conv", "linear", "mul") or unit.transposed or unit.condition is not None:
        return None
    if unit.bias is not None and (
        unit.bias.dtype.kind not in "iu" or unit.bias_scale is not None or variant.bias != "int32"
    ):
        return None
    x, w = unit.operands
    lines = [f"X = {pool.text(x.codes)}", f"X_ZERO = {pool.text(x.zero_point)}"]
    lines += [f"W = {pool.text(w.codes)}", f"W_ZERO = {pool.text(w.zero_point)}"]
    lines = [line if "_ZERO" not in line else f"{line}.astype(np.int64)" for line in lines]
    if unit.kind == "mul":
        return "\n".join(lines) + "\n\n" + _PRODUCT
    bias = unit.bias
    if bias is not None and unit.kind == "conv":
        bias = bias.reshape(-1, *(1,) * (x.codes.ndim - 2))
    lines.append("BIAS = 0" if bias is None else f"BIAS = {pool.text(bias)}.astype(np.int64)")
    if unit.kind == "linear":
        return "\n".join(lines) + "\n\n" + _LINEAR
    window = _conv_window(unit)
    lines += [
        f"PADS = {tuple(zip(window.begin, window.end, strict=True))}",
        f"STRIDES, DILATIONS, GROUPS = {window.strides}, {window.dilations}, {unit.groups}",
    ]
    return "\n".join(lines) + "\n\n" + _CONV


def _conv_window(unit: Unit) -> Window:
    """Return strides, dilations and padding of a convolution."""
    x, weight = unit.operands
    call = Call(inputs=(), attrs=unit.attrs, opset=unit.opset, op=unit.op)
    return window_of(call, x.codes.shape[2:], weight.codes.shape[2:])


_TESTS = """
def test_the_backend_gives_the_codes_of_the_reference():
    output, source = backend_output()
    expected = reference()
    assert output.shape == expected.shape
    wrong = np.argwhere(output != expected)
    gap = np.abs(output.astype(np.int64) - expected.astype(np.int64))
    assert not len(wrong), (
        f"{source}: {len(wrong)} of {output.size} codes are wrong, by up to {gap.max()}; "
        f"the first at {[tuple(map(int, place)) for place in wrong[:8]]}"
    )


def test_the_reference_gives_what_it_gave_when_this_file_was_made():
    np.testing.assert_array_equal(reference(), EXPECTED)
"""


def reproducer_text(reproducer: Reproducer, path: Path) -> str:
    """Return the text of a test file for one node.

    Args:
        reproducer: The node.
        path: Name of the file.
    """
    pool = ArrayPool()
    code = reference_code(reproducer.unit, reproducer.variant, pool)
    if code is None:
        code = _STORED
    backend = _backend_code(reproducer, pool)
    runs_there = backend is not None and reproducer.run.backend == "onnxruntime"
    known_runtime_test = (
        "" if runs_there or backend is None else _KNOWN_GOOD.replace("@TURNED", _layout_statements(reproducer.unit))
    )
    operands = [operand.codes for operand in reproducer.unit.operands]
    inputs = (
        reproducer.inputs
        if reproducer.whole
        else [*operands, *([] if reproducer.unit.bias is None else [reproducer.unit.bias])]
    )
    values = [f"RECORDED = {pool.text(reproducer.recorded)}", f"EXPECTED = {pool.text(reproducer.expected)}"]
    start = file_docstring(_docstring_sentences(reproducer, on_onnxruntime=runs_there), reproducer.run, path)
    parts = [
        code,
        backend or "",
        backend_hook_code(inputs, pool, on_onnxruntime=runs_there),
        _TESTS,
        known_runtime_test,
    ]
    return assemble_file([start, *values, *_with_blank_lines(parts)], pool)


def _layout_statements(unit: Unit) -> str:
    """Return the statements that convert ONNX Runtime's codes to the node's layout and activation."""
    statements = "    output = np.moveaxis(output, 1, -1)\n" if unit.channels_last else ""
    low, high = unit.out.clamp or unit.out.limits
    return statements if unit.out.clamp is None else f"{statements}    output = np.clip(output, {low}, {high})\n"


_STORED = '''
def reference():
    """Return the codes that the node should return; they were computed when this file was made."""
    return EXPECTED
'''


def _docstring_sentences(reproducer: Reproducer, *, on_onnxruntime: bool) -> list[str]:
    """Return the sentences that describe the file."""
    count_text = (
        f"{reproducer.wrong} of {reproducer.elements} codes differ from the arithmetic {plain_text(reproducer.variant)}"
    )
    return [
        f"Node {quoted_text(reproducer.node.name)} ({plain_text(reproducer.node.op)}){run_clause(reproducer.run)}.",
        f"Sample {reproducer.place[0]}: {count_text}{', ' + reproducer.evidence if reproducer.evidence else ''}.",
        f"This file contains a part of the node: {plain_text(reproducer.kept)}." if reproducer.kept else "",
        f"{plain_text(reproducer.reference)}." if reproducer.reference else "",
        RUNS_THERE if on_onnxruntime else RUNS,
    ]


def _backend_code(reproducer: Reproducer, pool: ArrayPool) -> str | None:
    """Return the statements that run the node on ONNX Runtime; None if it cannot run it, or computes other sums.

    ONNX Runtime is either the backend itself, or a runtime that is known to be right except at ties.
    """
    node = reproducer.node
    if not _is_storable(reproducer):
        return None
    if reproducer.run.backend != "onnxruntime":
        return _known_runtime_code(reproducer, pool)
    op, domain, attrs, opset = node.op, node.domain, dict(node.attrs), reproducer.opset
    inputs, constant = reproducer.inputs, reproducer.constant
    if not reproducer.whole or operators.of(op).real is None:
        if reproducer.unit.kind != "conv" or reproducer.unit.bias_scale is not None:
            return None
        op, domain, opset, attrs = "QLinearConv", "", 13, dict(reproducer.unit.attrs)
        inputs, constant = _conv_inputs(reproducer.unit), (False, *(True,) * 8)
    return onnxruntime_code(
        node, op=op, domain=domain, opset=opset, attrs=attrs, inputs=inputs, constant=constant,
        tensor=node.outputs[0], pool=pool,
    )  # fmt: skip


def _known_runtime_code(reproducer: Reproducer, pool: ArrayPool) -> str | None:
    """Return the statements that run a convolution or a matrix product on ONNX Runtime, with exact sums."""
    unit, variant = reproducer.unit, reproducer.variant
    plain_bias = unit.bias is None or (unit.bias.dtype == np.int32 and unit.bias_scale is None)
    if variant.limited_sums is not None or variant.bias != "int32" or not plain_bias:
        return None
    is_8_bit = all(operand.codes.dtype.itemsize == 1 for operand in unit.operands)
    scales = (*(operand.scale for operand in unit.operands), unit.out.scale)
    # The integer operators of ONNX support float32 scales only.
    is_single = all(np.array_equal(scale, scale.astype(np.float32)) for scale in scales)
    if (
        not is_single
        or not is_8_bit
        or unit.operands[0].codes.dtype != unit.out.dtype
        or unit.transposed
        or unit.condition is not None
    ):
        return None
    if unit.kind == "conv":
        window = _conv_window(unit)
        attrs: dict[str, AttrValue] = {
            "pads": (*window.begin, *window.end),
            "strides": window.strides,
            "dilations": window.dilations,
            "group": unit.groups,
        }
        op, domain, inputs = "QLinearConv", "", _conv_inputs(_with_exact_sums(unit))
    elif unit.kind == "linear" and all(operand.codes.ndim == 2 for operand in unit.operands):
        op, domain, attrs, inputs = "QGemm", "com.microsoft", {}, _gemm_inputs(_with_exact_sums(unit))
    else:
        return None
    return onnxruntime_code(
        replace(reproducer.node, domain=domain), op=op, domain=domain, opset=1 if domain else 13, attrs=attrs,
        inputs=inputs, constant=(False, *(True,) * (len(inputs) - 1)), tensor=reproducer.node.outputs[0], pool=pool,
    )  # fmt: skip


def _with_exact_sums(unit: Unit) -> Unit:
    """Return a unit whose weight has the type of its data. ONNX Runtime may saturate sums over mixed types."""
    x, weight = unit.operands
    if not (x.codes.dtype == np.uint8 and weight.codes.dtype == np.int8):
        return unit
    codes = (weight.codes.astype(np.int16) + 128).astype(np.uint8)
    zero = np.asarray(weight.zero_point.astype(np.int16) + 128)
    return replace(unit, operands=(x, replace(weight, codes=codes, zero_point=zero)))


def _gemm_inputs(unit: Unit) -> tuple[np.ndarray | None, ...]:
    """Return the operands of a matrix product in the order of QGemm."""
    *operands, scale, zero = _conv_inputs(unit)[:8]
    bias = unit.bias
    if bias is not None:
        bias = np.broadcast_to(bias.reshape(-1), unit.operands[1].codes.shape[-1:])
    return (*operands, bias, scale, zero)


def _is_storable(reproducer: Reproducer) -> bool:
    """Return whether the file can store all operands in their own dtypes."""
    arrays = (*reproducer.inputs, reproducer.recorded, *(operand.codes for operand in reproducer.unit.operands))
    return all(array is None or plain_dtype(array.dtype) == array.dtype for array in arrays)


def _conv_inputs(unit: Unit) -> tuple[np.ndarray | None, ...]:
    """Return the operands of a convolution in the order of QLinearConv."""
    x, w = unit.operands
    out, flat = unit.out, (-1,) if w.scale.size > 1 else ()
    zero = np.broadcast_to(w.zero_point, w.scale.shape) if w.scale.size > 1 else w.zero_point
    inputs: list[np.ndarray | None] = [
        x.codes,
        x.scale.reshape(()).astype(np.float32),
        x.zero_point.reshape(()).astype(x.codes.dtype),
        w.codes,
    ]
    inputs += [w.scale.reshape(flat).astype(np.float32), zero.astype(w.codes.dtype).reshape(flat)]
    inputs += [out.scale.reshape(()).astype(np.float32), out.zero_point.reshape(()).astype(out.dtype)]
    return tuple(inputs) if unit.bias is None else (*inputs, unit.bias.reshape(-1))


_TEST = """
def test_the_backend_is_as_near_the_replay_as_rounding_allows():
    output, source = backend_output()
    assert output.shape == EXPECTED.shape
    ours, right = (np.asarray(values).astype(np.float64) for values in (output, EXPECTED))
    finite = np.isfinite(right)
    same = (ours == right) | (np.isnan(ours) & np.isnan(right))
    odd = np.where(finite, ~np.isfinite(ours), ~same)
    assert not odd.any(), f"{source}: {odd.sum()} of {odd.size} elements are NaN or infinite on one side only"
    gap = np.where(finite, ours, 0) - np.where(finite, right, 0)
    error = float(np.sqrt(np.sum(gap**2)))
    worst = tuple(map(int, np.unravel_index(np.abs(gap).argmax(), gap.shape))) if gap.size else ()
    assert error <= ALLOWED, (
        f"{source}: the norm of the error is {error:.4g}, {error / ALLOWED if ALLOWED else np.inf:.3g} times what is "
        f"allowed; the largest is {np.abs(gap).max():.4g}, at {worst}"
    )
"""


def float_reproducer_text(reproducer: FloatReproducer, path: Path) -> str:
    """Return the text of a test file for one float node.

    Args:
        reproducer: The node.
        path: Name of the file.
    """
    pool = ArrayPool()
    backend = _float_backend_code(reproducer, pool)
    runs_there = backend is not None
    values = [
        f"RECORDED = {pool.text(reproducer.recorded)}",
        f"EXPECTED = {pool.text(reproducer.expected)}",
        f"ALLOWED = {reproducer.allowed!r}  # norm of the difference from EXPECTED, all elements together",
    ]
    start = file_docstring(_float_docstring_sentences(reproducer, on_onnxruntime=runs_there), reproducer.run, path)
    parts = [backend or "", backend_hook_code(reproducer.inputs, pool, on_onnxruntime=runs_there), _TEST]
    return assemble_file([start, *values, "", *_with_blank_lines(parts)], pool)


def _float_docstring_sentences(reproducer: FloatReproducer, *, on_onnxruntime: bool) -> list[str]:
    """Return the sentences that describe the file, with the source of its tolerance."""
    if reproducer.allowed:
        siblings_text = (
            f"; {reproducer.siblings} other {plain_text(reproducer.node.op)} nodes of the run are within it"
            if reproducer.siblings
            else ""
        )
        source = f"the rounding bound of its sums in {plain_text(reproducer.precision)}{siblings_text}"
    else:
        source = f"none, because {plain_text(reproducer.node.op)} does not round"
    times = f", {reproducer.error / reproducer.allowed:.3g} times that" if reproducer.allowed else ""
    return [
        f"Node {quoted_text(reproducer.node.name)} ({plain_text(reproducer.node.op)}){run_clause(reproducer.run)}.",
        "EXPECTED is a replay of the node in numpy on the recorded inputs, computed when this file was made.",
        f"The tolerance is a norm of {reproducer.allowed:.4g}: {source}.",
        f"Sample {reproducer.place[0]}: the recorded output is off by {reproducer.error:.4g}{times}.",
        f"In EXPECTED as well, {plain_text(reproducer.outside)}." if reproducer.outside else "",
        f"{plain_text(reproducer.reference)}." if reproducer.reference else "",
        RUNS_THERE if on_onnxruntime else RUNS,
    ]


def _float_backend_code(reproducer: FloatReproducer, pool: ArrayPool) -> str | None:
    """Return the statements that run a float node on ONNX Runtime, or None if that is not possible."""
    node = reproducer.node
    is_storable = all(
        array is None or plain_dtype(array.dtype) == array.dtype for array in (*reproducer.inputs, reproducer.recorded)
    )
    if reproducer.run.backend != "onnxruntime" or not reproducer.real or not is_storable:
        return None
    return onnxruntime_code(
        node, op=node.op, domain=node.domain, opset=reproducer.opset, attrs=dict(node.attrs), inputs=reproducer.inputs,
        constant=reproducer.constant, tensor=reproducer.tensor, pool=pool,
    )  # fmt: skip
