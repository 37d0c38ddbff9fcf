"""The demo: records a float network and its int8 form with a planted bug, and compares them."""

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
"""Node of the int8 network with the bug: a pointwise convolution with 24 output channels."""

BUG = "its kernel computes 16 channels at a time and never writes the remaining 8 of 24"
"""The bug: an unwritten tail, as in onnxruntime #26324 and glow pull request #1322."""

_BLOCK_CHANNELS = 16
_ARITHMETIC = "glow-interpreter"
"""Arithmetic of the int8 run. It rounds differently from the default, which is not a bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRun:
    """Result of the demo.

    Args:
        reference: Recording of the float network.
        backend: Recording of the int8 network with the bug.
        planted: Node with the planted bug.
        bug: The bug, as one clause.
        digits: Number of digits that both networks were run on.
        reference_right: Number of digits that the float network reads correctly.
        backend_right: Number of digits that the int8 network reads correctly.
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
    """Ten handwritten digits, as inputs of a run, with their labels."""

    steps = 1

    def __init__(self) -> None:
        with np.load(data.INPUTS) as inputs, np.load(data.LABELS) as labels:
            self._x: np.ndarray = inputs["x"]
            self._labels: np.ndarray = labels["y"]
        self.samples = len(self._x)

    def feed(self, sample: int, step: int = 0) -> dict[str, np.ndarray]:  # noqa: ARG002  one step
        """Return the picture of one digit."""
        return {"x": self._x[sample]}

    def count_correct(self, path: Path) -> int:
        """Count the digits that a recorded network reads correctly."""
        with opened_recording(path) as recording:
            predictions = [int(recording.load("logits", sample).argmax()) for sample in range(self.samples)]
        return int((np.array(predictions) == self._labels).sum())


def run_demo(directory: Path, *, force: bool = False, on_progress: OnProgress | None = None) -> DemoRun:
    """Record the float network and its int8 form with a bug, and compare them.

    Both are real runs: the interpreter replays packaged graphs and weights on ten digits. The int8 run also uses the
    arithmetic of a different backend, which is not a bug.

    Args:
        directory: Folder of the recordings, created if missing.
        force: Whether to overwrite recordings.
        on_progress: Called with (done, total, label).

    Raises:
        OutputExistsError: A recording exists and `force` is not set. Nothing was written.
        RecordingError: The folder cannot be written.
    """
    reference, backend = directory / "float.h5", directory / "int8.h5"
    for path in (reference, backend):
        if path.exists() and not force:
            raise OutputExistsError(
                f"The file {str(path)!r} already exists.", hint="Add --force to overwrite it, or name another folder."
            )
    directory.mkdir(parents=True, exist_ok=True)
    digits = _Digits()
    _record_net(data.FLOAT_NET, reference, digits, {}, {}, force=force, on_progress=on_progress)
    faults = {PLANTED: _zero_tail_channels}
    options = {"arithmetic": _ARITHMETIC}
    _record_net(data.INT8_NET, backend, digits, options, faults, force=force, on_progress=on_progress)
    with opened_recording(reference) as reference_recording, opened_recording(backend) as backend_recording:
        result = DiffSession(reference_recording, backend_recording, cache=True).result()
    return DemoRun(
        reference=reference,
        backend=backend,
        planted=PLANTED,
        bug=BUG,
        digits=digits.samples,
        reference_right=digits.count_correct(reference),
        backend_right=digits.count_correct(backend),
        result=result,
    )


def _zero_tail_channels(arrays: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Set the output channels (axis 1) that do not fill a block to code 0."""
    codes = arrays[0].copy()
    codes[:, codes.shape[1] // _BLOCK_CHANNELS * _BLOCK_CHANNELS :] = 0
    return (codes, *arrays[1:])


def _record_net(
    net: Path,
    recording_path: Path,
    digits: _Digits,
    options: Mapping[str, str],
    faults: Mapping[str, Fault],
    *,
    force: bool,
    on_progress: OnProgress | None,
) -> None:
    """Replay a packaged network on all digits, and record every tensor."""
    interpreter = cast("InterpreterBackend", load_backend("interpreter"))
    with opened_recording(net) as recording:
        run = interpreter.open(recording, options=options, faults=faults)
        record_feeds(run, digits, recording_path, force=force, on_progress=on_progress)
