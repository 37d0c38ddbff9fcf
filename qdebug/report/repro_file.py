"""A reproducer as a pytest file of its own: it needs numpy alone, and uses the real backend where that is installed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import fill

import numpy as np

from qdebug.model import AttrValue
from qdebug.report.repro_arrays import ArrayPool, plain_dtype
from qdebug.report.repro_code import reference_code
from qdebug.view.text import safe_text
from qdebug.workflow.repro import Reproducer

__all__ = ["reproducer_text"]

_ONNX_DOMAINS = ("", "ai.onnx", "com.microsoft")
_CARRIES_SCALES = ("QLinear", "QGemm", "QuantizeLinear", "DequantizeLinear")
"""How the names of operators begin that ONNX Runtime runs on codes as they are."""

_IMPORTS = """\
from __future__ import annotations

import base64
import importlib.util
import io

import numpy as np
"""

_ONNXRUNTIME = '''
def model():
    """Make a model of this node alone."""
    import onnx
    from onnx import helper, numpy_helper

    names = ["" if array is None else f"i{at}" for at, array in enumerate(INPUTS)]
    node = helper.make_node(OP, names, ["y"], domain=DOMAIN, **ATTRIBUTES)
    fed, stored = [], []
    for name, array, constant in zip(names, INPUTS, CONSTANT):
        if array is not None and constant:
            stored.append(numpy_helper.from_array(array, name))
        elif array is not None:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            fed.append(helper.make_tensor_value_info(name, kind, array.shape))
    kind = helper.np_dtype_to_tensor_dtype(RECORDED.dtype)
    graph = helper.make_graph([node], "node", fed, [helper.make_tensor_value_info("y", kind, None)], stored)
    domains = {"": 13, DOMAIN: OPSET}
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*pair) for pair in domains.items()], ir_version=8
    )


def backend_output():
    """Run the node on ONNX Runtime; where it is not installed, give what was recorded."""
    if not all(map(importlib.util.find_spec, ("onnx", "onnxruntime"))):
        return RECORDED, "the recording"
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model().SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {entry.name: INPUTS[int(entry.name[1:])] for entry in session.get_inputs()}
    return session.run(None, feed)[0], f"onnxruntime {onnxruntime.__version__}"
'''

_RECORDED = '''
def backend_output():
    """Give what was recorded: the backend cannot be run from here."""
    return RECORDED, "the recording"
'''

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


def reproducer_text(found: Reproducer, path: Path) -> str:
    """Give the text of a test file for one node.

    Args:
        found: The node.
        path: What the file is called.
    """
    pool = ArrayPool()
    code = reference_code(found.unit, found.variant, pool)
    if code is None:
        code = _STORED
    backend, runs = _backend(found, pool)
    values = [f"RECORDED = {pool.text(found.recorded)}", f"EXPECTED = {pool.text(found.expected)}"]
    parts = [_head(found, path, runs=runs), _IMPORTS, "@", *values, code.strip("\n"), "", backend.strip("\n"), _TESTS]
    text = "\n".join(parts).replace("\n@\n", f"\n{pool.block()}\n", 1)
    used = [line for line in text.split("\n") if not _unused(line, text)]
    return "\n".join(used).rstrip("\n") + "\n"


_STORED = '''
def reference():
    """Give the codes that the node should give; they were computed when this file was made."""
    return EXPECTED
'''


_RUNS = "With onnx and onnxruntime installed the node runs there as a model of its own; else the recording is checked."


def _unused(line: str, text: str) -> bool:
    """Tell whether a line imports something that the rest does not use."""
    words = line.split()
    return line.startswith("import ") and len(words) == 2 and f"{words[1]}." not in text.replace(line, "", 1)


def _head(found: Reproducer, path: Path, *, runs: bool) -> str:
    """Give the docstring. Everything in it that was recorded is escaped, and cannot end it."""
    run = found.run
    versions = ", ".join(
        f"{name} {version}" for name, version in run.versions.items() if name in (run.backend, "qdebug")
    )
    flags = ", ".join(flag for flag in run.cpu_flags if flag.startswith(("avx512_vnni", "avx_vnni", "amx", "asimd")))
    held = f"which reproduces {found.siblings} other nodes of its kind in the run" if found.siblings else ""
    model = f" of {_quoted(run.model)}" if run.model else ""
    where = f"{_plain(run.backend)} ({_plain(versions) or 'version unknown'})"
    wrong = f"{found.wrong} of {found.elements} codes are not what the arithmetic {_plain(found.variant)} gives"
    sentences = [
        f"Node {_quoted(found.node.name)} ({_plain(found.node.op)}){model}, on {where}.",
        f"Sample {found.place[0]}: {wrong}{', ' + held if held else ''}.",
        f"Of the whole node, this file holds {_plain(found.kept)}." if found.kept else "",
        f"Processor: {_plain(flags)}." if flags else "",
        f"{_plain(found.reference)}." if found.reference else "",
        _RUNS if runs else "The recorded output is checked.",
    ]
    text = "\n".join(fill(sentence, 110, break_long_words=False) for sentence in sentences if sentence)
    return f'"""{text}\n\nRun it: pytest {_plain(path.name)}\n"""\n'


def _plain(value: object) -> str:
    """Give recorded text for a docstring: nothing in it can end the docstring or start an escape."""
    return safe_text(value, limit=200).replace("\\", "/").replace('"', "'")


def _quoted(value: str) -> str:
    return f"'{_plain(value)}'"


def _backend(found: Reproducer, pool: ArrayPool) -> tuple[str, bool]:
    """Give the statements that run the backend, and whether they can."""
    node = found.node
    if found.run.backend != "onnxruntime" or node.domain not in _ONNX_DOMAINS or not _all_plain(found):
        return _RECORDED, False
    op, domain, attrs, opset = node.op, node.domain.replace("ai.onnx", ""), dict(node.attrs), found.opset
    inputs, constant = found.inputs, found.constant
    if not found.whole or not op.startswith(_CARRIES_SCALES):
        if found.unit.kind != "conv" or found.unit.bias_scale is not None:
            return _RECORDED, False
        op, domain, opset, attrs = "QLinearConv", "", 13, dict(found.unit.attrs)
        inputs, constant = _conv_inputs(found), (False, *(True,) * 8)
    shown = _attributes(attrs)
    if shown is None:
        return _RECORDED, False
    lines = [
        f"OP, DOMAIN, OPSET = {op!r}, {domain!r}, {opset}",
        f"ATTRIBUTES = {shown}",
        "INPUTS = (",
        *(f"    {pool.text(array)}," for array in inputs),
        ")",
        f"CONSTANT = {constant}",
        "",
    ]
    return "\n".join(lines) + _ONNXRUNTIME, True


def _all_plain(found: Reproducer) -> bool:
    """Tell whether the file can hold all operands in their own dtypes."""
    arrays = (*found.inputs, found.recorded, *(operand.codes for operand in found.unit.operands))
    return all(array is None or plain_dtype(array.dtype) == array.dtype for array in arrays)


def _conv_inputs(found: Reproducer) -> tuple[np.ndarray | None, ...]:
    """Give the operands of a convolution that was cut, in QLinearConv's order."""
    x, w = found.unit.operands
    out, flat = found.unit.out, (-1,) if w.scale.size > 1 else ()
    zero = np.broadcast_to(w.zero_point, w.scale.shape) if w.scale.size > 1 else w.zero_point
    inputs: list[np.ndarray | None] = [x.codes, x.scale.reshape(()), x.zero_point.reshape(()), w.codes]
    inputs += [w.scale.reshape(flat), zero.astype(w.codes.dtype).reshape(flat)]
    inputs += [out.scale.reshape(()), out.zero_point.reshape(())]
    return (*inputs, found.unit.bias) if found.unit.bias is not None else tuple(inputs)


def _attributes(attrs: Mapping[str, AttrValue]) -> str | None:
    """Write attributes as a dict; None if one of them is no plain value."""
    shown = []
    for name, value in attrs.items():
        plain = list(value) if isinstance(value, tuple) else value
        if isinstance(value, np.ndarray) or (isinstance(value, float) and not np.isfinite(value)):
            return None
        shown.append(f"{name!r}: {plain!r}")
    return "{" + ", ".join(shown) + "}"
