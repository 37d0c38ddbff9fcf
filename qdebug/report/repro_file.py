"""A reproducer as a pytest file of its own: it needs numpy alone, and uses the real backend where that is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from qdebug.model import operators
from qdebug.report.repro_arrays import ArrayPool, plain_dtype
from qdebug.report.repro_code import reference_code
from qdebug.report.repro_parts import RECORDED, RUNS, head, plain, put_together, quoted, running, where_run
from qdebug.workflow.repro import Reproducer

__all__ = ["reproducer_text"]

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
    backend = _backend(found, pool)
    values = [f"RECORDED = {pool.text(found.recorded)}", f"EXPECTED = {pool.text(found.expected)}"]
    start = head(_sentences(found, runs=backend is not None), found.run, path)
    return put_together([start, *values, code.strip("\n"), "", (backend or RECORDED).strip("\n"), _TESTS], pool)


_STORED = '''
def reference():
    """Give the codes that the node should give; they were computed when this file was made."""
    return EXPECTED
'''


def _sentences(found: Reproducer, *, runs: bool) -> list[str]:
    """Say what the file is about."""
    held = f"which reproduces {found.siblings} other nodes of its kind in the run" if found.siblings else ""
    wrong = f"{found.wrong} of {found.elements} codes are not what the arithmetic {plain(found.variant)} gives"
    return [
        f"Node {quoted(found.node.name)} ({plain(found.node.op)}){where_run(found.run)}.",
        f"Sample {found.place[0]}: {wrong}{', ' + held if held else ''}.",
        f"Of the whole node, this file holds {plain(found.kept)}." if found.kept else "",
        f"{plain(found.reference)}." if found.reference else "",
        RUNS if runs else "The recorded output is checked.",
    ]


def _backend(found: Reproducer, pool: ArrayPool) -> str | None:
    """Give the statements that run the backend; None if they cannot be given."""
    node = found.node
    if found.run.backend != "onnxruntime" or not _all_plain(found):
        return None
    op, domain, attrs, opset = node.op, node.domain, dict(node.attrs), found.opset
    inputs, constant = found.inputs, found.constant
    if not found.whole or operators.of(op).real is None:
        if found.unit.kind != "conv" or found.unit.bias_scale is not None:
            return None
        op, domain, opset, attrs = "QLinearConv", "", 13, dict(found.unit.attrs)
        inputs, constant = _conv_inputs(found), (False, *(True,) * 8)
    return running(
        node, op=op, domain=domain, opset=opset, attrs=attrs, inputs=inputs, constant=constant,
        tensor=node.outputs[0], pool=pool,
    )  # fmt: skip


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
