"""Assertions on arrays and recordings, for tests. Their messages state what is wrong and where.

    from qdebug.testing import assert_close

    def test_kernel():
        assert_close(expected, codes, scale=0.02, zero_point=-3, max_lsb=1)

    def test_net():
        assert_close("ref.h5", "npu.h5")

Nothing here needs pytest. With pytest, `qdebug.pytest_plugin` adds fixtures and a section in the failure report.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from qdebug.api import DiffResult
from qdebug.compare.checks.codes import saturation
from qdebug.compare.evidence.measured import Error
from qdebug.compare.policy import judge_error
from qdebug.compare.result.limits import ALL_BOUNDS, Limits, checked_limits
from qdebug.compare.result.result import Status
from qdebug.errors import UsageError
from qdebug.model import QuantParams, Recording
from qdebug.model.dtypes import logical_name
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.rails import count_rails
from qdebug.present.array_difference import array_difference
from qdebug.present.failure import failure_lines
from qdebug.present.text import safe_text
from qdebug.recording.recorder import Recorder
from qdebug.running.random_net import random_recording
from qdebug.session import DiffSession, opened_recording

if TYPE_CHECKING:
    from qdebug.compare.explaining.explanation import NodeExplanation

    Run = str | Path | Recording | Recorder

__all__ = ["ComparisonError", "assert_close", "assert_explained", "check_close", "random_recording"]

_MAX_NODE_LINES = 20


class ComparisonError(AssertionError):
    """Two recordings are further apart than allowed.

    Args:
        message: What is wrong, in a few lines.
        result: The whole comparison.
        files: Files of the reference and of the backend; None unless both are in files.
    """

    def __init__(self, message: str, *, result: DiffResult, files: tuple[Path, Path] | None = None) -> None:
        super().__init__(message)
        self.result = result
        self.files = files


def assert_close(
    reference: Run | npt.ArrayLike,
    backend: Run | npt.ArrayLike,
    *,
    limits: Limits | None = None,
    scale: npt.ArrayLike | None = None,
    zero_point: npt.ArrayLike = 0,
    axis: int | None = None,
    name: str = "",
    **bounds: float | None,
) -> None:
    """Check that a backend is as close to its reference as the limits require.

    Without limits, two arrays must be equal, and two recordings must meet derived limits.

    Args:
        reference: An array of real values, or a recording: a path, an open recording, or a closed recorder.
        backend: The same kind of object; an array of codes if `scale` is given.
        limits: The limits; `qdebug.load_limits(path)` reads them from a file.
        scale: Scale of a backend array of codes, in real units per code: one number, or one per channel along `axis`.
        zero_point: The code that represents real 0 in the backend array.
        axis: Channel axis of the backend array.
        name: Name of the arrays, for the message.
        **bounds: Limits by name, which override those in `limits`: min_sqnr, max_lsb, atol, rtol, max_saturation; for
            recordings also min_output_sqnr.

    Raises:
        AssertionError: They are further apart than allowed; for recordings, a `ComparisonError` with the whole result.
        UsageError: An array is compared with a recording, a limit has an unknown name or invalid value, max_lsb or
            max_saturation is given without a scale, the scale does not match, or an array does not hold numbers.
        RecordingError: A file cannot be read.
    """
    __tracebackhide__ = True
    limits_in_force = _merge_limits(limits, bounds)
    sides = [_is_run(side) for side in (reference, backend)]
    if sides[0] != sides[1]:
        raise UsageError(
            "A recording and an array cannot be compared.", hint="Give two recordings, or load one tensor of each."
        )
    if sides[0] and (scale is not None or axis is not None):
        raise UsageError(
            "scale= applies only to arrays; a recording has its own scales.", hint="Leave out scale= and axis=."
        )
    if scale is None and (axis is not None or np.any(np.asarray(zero_point) != 0)):
        raise UsageError("A zero point or an axis needs a scale.", hint="Give scale= too.")
    if sides[0]:
        check_close(_to_openable(reference), _to_openable(backend), limits=limits_in_force)
        return
    reference_array, backend_array = _to_array(reference, "reference"), _to_array(backend, "backend")
    quant = None if scale is None else _make_quant(backend_array, scale, zero_point, axis)
    _check_arrays(reference_array, backend_array, limits_in_force, quant, name)


def check_close(
    reference: str | Path | Recording, backend: str | Path | Recording, *, limits: Limits | None = None
) -> DiffResult:
    """Compare two recordings, and return the result if they are as close as the limits require.

    Raises:
        ComparisonError: They are further apart than allowed, or the comparison is incomplete.
        RecordingError: A file cannot be read.
    """
    __tracebackhide__ = True
    # Without the cache: a test should leave no files, and compares its recording only once.
    with opened_recording(reference) as reference_recording, opened_recording(backend) as backend_recording:
        result = DiffResult.made_of(DiffSession(reference_recording, backend_recording, limits=limits).result())
    if result.exit_code:
        paths = [_path_of_run(side) for side in (reference, backend)]
        files = (paths[0], paths[1]) if paths[0] is not None and paths[1] is not None else None
        raise ComparisonError("\n".join(failure_lines(result, files=files)), result=result, files=files)
    return result


def assert_explained(backend: Run, *, allow: Sequence[str] | str = (), limits: Limits | None = None) -> None:
    """Check that a legitimate arithmetic reproduces the output of every node of a backend bit for bit.

    Nodes without a known kernel or recorded inputs cannot be judged. They do not fail, and `qdebug explain` lists them.

    Args:
        backend: A path, an open recording, or a closed recorder.
        allow: One or more name patterns of nodes that may stay unexplained.
        limits: Acknowledged nodes, and the maximum error in steps that needs no explanation.

    Raises:
        AssertionError: A node is not explained, no nodes can be judged, or the recording is not reliable.
        RecordingError: The file cannot be read.
    """
    __tracebackhide__ = True
    from qdebug.api import explain
    from qdebug.compare.explaining.explanation import ExplainStatus

    explanation = explain(_to_openable(backend), limits=limits)
    patterns = (allow,) if isinstance(allow, str) else tuple(allow)
    judged = [n for n in explanation.nodes if n.status not in (ExplainStatus.NO_KERNEL, ExplainStatus.NO_INPUT)]
    unexplained = [
        node
        for node in explanation.of(ExplainStatus.UNEXPLAINED)
        if node.accepted is None and not any(fnmatchcase(node.node, pattern) for pattern in patterns)
    ]
    lines = [_explained_line(node) for node in unexplained[:_MAX_NODE_LINES]]
    if len(unexplained) > _MAX_NODE_LINES:
        lines.append(f"  and {len(unexplained) - _MAX_NODE_LINES} more")
    if unexplained:
        lines.insert(0, f"no known arithmetic reproduces {len(unexplained)} of {len(judged)} nodes that can be judged:")
    if not judged:
        lines.append("no node can be judged, because no node has a kernel and all its inputs")
    if explanation.exit_code == 3:
        lines.append("the recording is incomplete, or recording changed the result of the run")
    if lines:
        raise AssertionError("\n".join(lines))


def _explained_line(node: NodeExplanation) -> str:
    residual = node.residual
    reason = "" if residual is None else f": {residual.pattern}; {residual.likely}"
    return f"  {safe_text(node.op, limit=40)} {safe_text(node.node, limit=120)}{safe_text(reason, limit=300)}"


def _merge_limits(limits: Limits | None, bounds: dict[str, Any]) -> Limits:
    for name in bounds:
        if name not in ALL_BOUNDS:
            names = ", ".join(ALL_BOUNDS)
            raise UsageError(f"Unknown limit {name!r}; limits are {names}.", hint="Give one of these.")
    return replace(checked_limits(limits), **bounds)


def _is_run(side: object) -> bool:
    return isinstance(side, str | os.PathLike | Recording | Recorder)


def _to_openable(side: Any) -> str | Path | Recording:
    __tracebackhide__ = True
    if not _is_run(side):
        raise UsageError(f"A {type(side).__name__} is not a recording.", hint="Give a path or an open recording.")
    if isinstance(side, os.PathLike):
        return Path(side)
    if not isinstance(side, Recorder):
        return side  # type: ignore[no-any-return]  # only str and Recording are left of the types in `_is_run`
    return side.recording if side.path is None else side.path


def _to_array(side: Any, title: str) -> np.ndarray:
    __tracebackhide__ = True
    try:
        return np.asarray(side)
    except ValueError as error:
        raise UsageError(
            f"The {title} is not an array: its rows differ in length.", hint="Compare arrays of one shape each."
        ) from error


def _make_quant(codes: np.ndarray, scale: npt.ArrayLike, zero_point: npt.ArrayLike, axis: int | None) -> QuantParams:
    __tracebackhide__ = True
    try:
        quant = QuantParams(dtype=logical_name(codes.dtype), scale=scale, zero_point=zero_point, axis=axis)  # type: ignore[arg-type]
        quant.check_zero_point()
    except ValueError as error:
        raise UsageError(
            f"The scale does not fit: {error}.", hint="Give one scale, or one per channel and axis=."
        ) from None
    if not (np.isfinite(quant.scale) & (quant.scale > 0)).all():  # a scale of 0 would make any codes equal
        raise UsageError(
            f"The scale must be finite and above 0, but is {safe_text(scale, limit=80)}.",
            hint="Give the scale in real units per code.",
        )
    return quant


def _path_of_run(side: str | Path | Recording) -> Path | None:
    if isinstance(side, str | Path):
        return Path(side)
    path = getattr(side, "path", None)
    return path if isinstance(path, Path) else None


def _check_arrays(
    reference: np.ndarray, backend: np.ndarray, limits: Limits, quant: QuantParams | None, name: str
) -> None:
    __tracebackhide__ = True
    label = f"{safe_text(name)}: " if name else ""
    for bound, reason_needed in (
        (limits.max_lsb, "max_lsb needs a scale"),
        (limits.max_saturation, "max_saturation needs codes"),
    ):
        if bound is not None and quant is None:
            raise UsageError(f"{reason_needed}.", hint="Give the scale of the backend's codes: scale=.")
    if reference.shape != backend.shape:
        raise AssertionError(f"{label}the reference has shape {reference.shape}, but the backend has {backend.shape}")
    errors = ErrorAccumulator(backend_quant=quant, tolerance=limits.tolerance)
    errors.update(reference, backend, sample=0)
    stats = errors.stats()
    status, reason = judge_error(Error(stats=stats, limits=limits))
    if not limits.given and status in (Status.WITHIN, Status.DIVERGED):
        status, reason = Status.DIVERGED, "the arrays differ, and no limit was given"
    if status in (Status.IDENTICAL, Status.WITHIN):
        rails = None if quant is None or limits.max_saturation is None else count_rails(backend, quant, reference)
        clipped = saturation(Error(stats=stats, limits=limits, rails=rails))
        if clipped is not None:
            raise AssertionError(f"{label}{clipped.sentence}")
        return
    facts = array_difference(reference, backend, stats=stats, quant=quant)
    raise AssertionError("\n  ".join([f"{label}{reason}", *facts]))
