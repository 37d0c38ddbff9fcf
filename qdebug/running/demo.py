"""The whole story on a net that ships with the package: two real runs, one planted bug, one comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from qdebug import data
from qdebug.backends import load_backend
from qdebug.backends.protocol import OnProgress
from qdebug.compare.result.result import RunComparison
from qdebug.errors import OutputExistsError
from qdebug.replay import Fault
from qdebug.running.record import record_feeds
from qdebug.session import DiffSession, opened_recording

if TYPE_CHECKING:
    from qdebug.backends.interpreter import InterpreterBackend

__all__ = ["BUG", "PLANTED", "DemoRun", "run_demo"]

PLANTED = "pwconv_quant"
"""The node of the int8 net that the bug is planted in: a pointwise convolution with 24 output channels."""

BUG = "its kernel computes 16 channels at a time and never writes the 8 that are left over of 24"
"""What is wrong with it: an unwritten tail, as in onnxruntime #26324 and glow pull request #1322."""

_AT_ONCE = 16
_ARITHMETIC = "glow-interpreter"
"""The other way of rounding, which is no bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRun:
    """What the demo made and found.

    Args:
        reference: Recording of the float net.
        backend: Recording of the int8 net with the bug.
        planted: Node that the bug is planted in.
        bug: What is wrong with it, in one clause.
        digits: Number of digits both nets were run on.
        reference_right: How many of them the float net reads correctly.
        backend_right: How many of them the int8 net reads correctly.
        result: The comparison.
    """

    reference: Path
    backend: Path
    planted: str
    bug: str
    digits: int
    reference_right: int
    backend_right: int
    result: RunComparison


class _Digits:
    """Ten handwritten digits as the feeds of a run, and what they are."""

    steps = 1

    def __init__(self) -> None:
        with np.load(data.INPUTS) as inputs, np.load(data.LABELS) as labels:
            self._x: np.ndarray = inputs["x"]
            self._labels: np.ndarray = labels["y"]
        self.samples = len(self._x)

    def feed(self, sample: int, step: int = 0) -> dict[str, np.ndarray]:  # noqa: ARG002  one step
        """Return the picture of one digit."""
        return {"x": self._x[sample]}

    def right(self, path: Path) -> int:
        """Count the digits that a recorded net reads correctly."""
        with opened_recording(path) as recording:
            found = [int(recording.load("logits", sample).argmax()) for sample in range(self.samples)]
        return int((np.array(found) == self._labels).sum())


def run_demo(directory: Path, *, force: bool = False, on_progress: OnProgress | None = None) -> DemoRun:
    """Record the float net and its int8 form with a bug, and compare them.

    Both runs are real: the interpreter replays the graphs and weights that ship with the package on ten
    digits. The int8 run also takes the arithmetic of another backend, which is no bug.

    Args:
        directory: Where the recordings go; made if it is missing.
        force: Overwrite recordings that are there.
        on_progress: Called with (done, total, label).

    Raises:
        OutputExistsError: A recording is there and `force` is not set; nothing was written.
        RecordingError: The folder cannot be written.
    """
    reference, backend = directory / "float.h5", directory / "int8.h5"
    for path in (reference, backend):
        if path.exists() and not force:
            raise OutputExistsError(
                f"The file {str(path)!r} exists already.", hint="Add --force to overwrite it, or name another folder."
            )
    directory.mkdir(parents=True, exist_ok=True)
    digits = _Digits()
    _record(data.FLOAT_NET, reference, digits, {}, {}, force=force, on_progress=on_progress)
    faults = {PLANTED: _leave_tail}
    options = {"arithmetic": _ARITHMETIC}
    _record(data.INT8_NET, backend, digits, options, faults, force=force, on_progress=on_progress)
    with opened_recording(reference) as ref, opened_recording(backend) as other:
        result = DiffSession(ref, other, cache=True).result()
    return DemoRun(
        reference=reference,
        backend=backend,
        planted=PLANTED,
        bug=BUG,
        digits=digits.samples,
        reference_right=digits.right(reference),
        backend_right=digits.right(backend),
        result=result,
    )


def _leave_tail(arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Leave the output channels (axis 1) that do not fill a block at code 0."""
    codes = arrays[0].copy()
    codes[:, codes.shape[1] // _AT_ONCE * _AT_ONCE :] = 0
    return (codes, *arrays[1:])


def _record(
    net: Path,
    out: Path,
    digits: _Digits,
    options: Mapping[str, str],
    faults: Mapping[str, Fault],
    *,
    force: bool,
    on_progress: OnProgress | None,
) -> None:
    """Replay a recorded net on all digits, record every tensor, and check that a plain run gives the same."""
    interpreter = cast("InterpreterBackend", load_backend("interpreter"))
    with opened_recording(net) as recording:
        run = interpreter.open(recording, options=options, faults=faults)
        record_feeds(run, digits, out, force=force, on_progress=on_progress)
