"""A reproducer of a float node as a pytest file: its output has to be as near a replay as rounding its sums allows."""

from __future__ import annotations

from pathlib import Path

from qdebug.report.repro_arrays import ArrayPool, plain_dtype
from qdebug.report.repro_parts import RECORDED, RUNS, head, plain, put_together, quoted, running, where_run
from qdebug.workflow.repro_float import FloatReproducer

__all__ = ["float_reproducer_text"]

_TEST = """
def test_the_backend_is_as_near_the_replay_as_rounding_allows():
    output, source = backend_output()
    assert output.shape == EXPECTED.shape
    ours, right = (np.asarray(values).astype(np.float64) for values in (output, EXPECTED))
    finite = np.isfinite(right)
    same = (ours == right) | (np.isnan(ours) & np.isnan(right))
    odd = np.where(finite, ~np.isfinite(ours), ~same)
    assert not odd.any(), f"{source}: {odd.sum()} of {odd.size} elements are NaN or infinite on one side alone"
    gap = np.where(finite, ours, 0) - np.where(finite, right, 0)
    error = float(np.sqrt(np.sum(gap**2)))
    worst = tuple(map(int, np.unravel_index(np.abs(gap).argmax(), gap.shape))) if gap.size else ()
    assert error <= ALLOWED, (
        f"{source}: the norm of the error is {error:.4g}, {error / ALLOWED if ALLOWED else np.inf:.3g} times what is "
        f"allowed; the largest is {np.abs(gap).max():.4g}, at {worst}"
    )
"""


def float_reproducer_text(found: FloatReproducer, path: Path) -> str:
    """Give the text of a test file for one float node.

    Args:
        found: The node.
        path: What the file is called.
    """
    pool = ArrayPool()
    backend = _backend(found, pool)
    values = [
        f"RECORDED = {pool.text(found.recorded)}",
        f"EXPECTED = {pool.text(found.expected)}",
        f"ALLOWED = {found.allowed!r}  # norm of the difference from EXPECTED, all elements together",
    ]
    start = head(_sentences(found, runs=backend is not None), found.run, path)
    return put_together([start, *values, "", (backend or RECORDED).strip("\n"), _TEST], pool)


def _sentences(found: FloatReproducer, *, runs: bool) -> list[str]:
    """Say what the file is about, and where its tolerance comes from."""
    if found.allowed:
        held = f"; {found.siblings} other {plain(found.node.op)} nodes of the run have that" if found.siblings else ""
        source = f"what rounding its sums in {plain(found.precision)} accounts for{held}"
    else:
        source = f"none, since {plain(found.node.op)} rounds nothing"
    times = f", {found.error / found.allowed:.3g} times that" if found.allowed else ""
    return [
        f"Node {quoted(found.node.name)} ({plain(found.node.op)}){where_run(found.run)}.",
        "EXPECTED is a replay of the node in numpy on the recorded inputs, computed when this file was made.",
        f"The tolerance is a norm of {found.allowed:.4g}: {source}.",
        f"Sample {found.place[0]}: the recorded output is off by {found.error:.4g}{times}.",
        f"{plain(found.reference)}." if found.reference else "",
        RUNS if runs else "The recorded output is checked.",
    ]


def _backend(found: FloatReproducer, pool: ArrayPool) -> str | None:
    """Give the statements that run the backend; None if they cannot be given."""
    node = found.node
    held = all(array is None or plain_dtype(array.dtype) == array.dtype for array in (*found.inputs, found.recorded))
    if found.run.backend != "onnxruntime" or not found.real or not held:
        return None
    return running(
        node, op=node.op, domain=node.domain, opset=found.opset, attrs=dict(node.attrs), inputs=found.inputs,
        constant=found.constant, tensor=found.tensor, pool=pool,
    )  # fmt: skip
