"""What all reproducers are written with: the head of the file, and the functions that run a node on its backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill

import numpy as np

from qdebug.model import AttrValue, Node, RunInfo
from qdebug.report.repro_arrays import ArrayPool
from qdebug.view.text import safe_text

__all__ = ["RECORDED", "RUNS", "head", "plain", "put_together", "quoted", "running", "where_run"]

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

    names = ["" if array is None else f"i{at}" for at, array in enumerate(INPUTS)]
    node = helper.make_node(OP, names, OUTPUTS, domain=DOMAIN, **ATTRIBUTES)
    fed, stored = [], []
    for name, array, constant in zip(names, INPUTS, CONSTANT):
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

RECORDED = '''
def backend_output():
    """Give what was recorded: the backend cannot be run from here."""
    return RECORDED, "the recording"
'''
"""Statements of a node whose backend cannot be run."""

RUNS = "With onnx and onnxruntime installed the node runs there as a model of its own; else the recording is checked."
"""What the head says of a file that can run its node."""


def running(
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
    """Give the statements that run a node alone on ONNX Runtime; None if it cannot be written as a model.

    Args:
        node: The node, whose outputs are asked for.
        op: The operator to run.
        domain: Its operator set.
        opset: Version of that.
        attrs: Its attributes.
        inputs: What it reads; None where an optional input is left out.
        constant: Which of them are constants.
        tensor: The output that is looked at.
        pool: Where the arrays go.
    """
    shown = _attributes(attrs)
    if node.domain not in _ONNX_DOMAINS or shown is None:
        return None
    outputs = [f"y{at}" if name else "" for at, name in enumerate(node.outputs)]
    lines = [
        f"OP, DOMAIN, OPSET = {op!r}, {domain.replace('ai.onnx', '')!r}, {opset}",
        f"ATTRIBUTES = {shown}",
        "INPUTS = (",
        *(f"    {pool.text(array)}," for array in inputs),
        ")",
        f"CONSTANT = {tuple(constant)}",
        f"OUTPUTS, TENSOR = {outputs}, {outputs[node.outputs.index(tensor)]!r}",
        "",
    ]
    return "\n".join(lines) + _RUN


def where_run(run: RunInfo) -> str:
    """Name the backend and its version, and the model, for a docstring."""
    versions = ", ".join(
        f"{name} {version}" for name, version in run.versions.items() if name in (run.backend, "qdebug")
    )
    model = f" of {quoted(run.model)}" if run.model else ""
    return f"{model}, on {plain(run.backend)} ({plain(versions) or 'version unknown'})"


def head(sentences: Sequence[str], run: RunInfo, path: Path) -> str:
    """Give the docstring. Everything in it that was recorded is escaped, and cannot end it.

    Args:
        sentences: What it says; empty ones are left out.
        run: Facts of the run.
        path: What the file is called.
    """
    flags = ", ".join(flag for flag in run.cpu_flags if flag.startswith(("avx512_vnni", "avx_vnni", "amx", "asimd")))
    said = [*sentences, f"Processor: {plain(flags)}." if flags else ""]
    text = "\n".join(fill(sentence, 110, break_long_words=False) for sentence in said if sentence)
    return f'"""{text}\n\nRun it: pytest {plain(path.name)}\n"""\n'


def put_together(parts: Sequence[str], pool: ArrayPool) -> str:
    """Give the text of a file: its head, what it imports, its arrays, then the rest.

    Args:
        parts: The docstring, then everything below the arrays.
        pool: The arrays.
    """
    first, *others = parts
    text = "\n".join([first, _IMPORTS, "@", *others]).replace("\n@\n", f"\n{pool.block()}\n", 1)
    used = [line for line in text.split("\n") if not _unused(line, text)]
    return "\n".join(used).rstrip("\n") + "\n"


def _unused(line: str, text: str) -> bool:
    """Tell whether a line imports something that the rest does not use."""
    words = line.split()
    return line.startswith("import ") and len(words) == 2 and f"{words[1]}." not in text.replace(line, "", 1)


def plain(value: object) -> str:
    """Give recorded text for a docstring: nothing in it can end the docstring or start an escape."""
    return safe_text(value, limit=200).replace("\\", "/").replace('"', "'")


def quoted(value: str) -> str:
    """Give recorded text between quotes."""
    return f"'{plain(value)}'"


def _attributes(attrs: Mapping[str, AttrValue]) -> str | None:
    """Write attributes as a dict; None if one of them is no plain value."""
    shown = []
    for name, value in attrs.items():
        plain = list(value) if isinstance(value, tuple) else value
        if isinstance(value, np.ndarray) or (isinstance(value, float) and not np.isfinite(value)):
            return None
        shown.append(f"{name!r}: {plain!r}")
    return "{" + ", ".join(shown) + "}"
