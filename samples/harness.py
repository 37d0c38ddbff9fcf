"""A recorder inside a test harness: assert on a comparison instead of on final outputs.

The device under test is a small 1-D filter bank. Its driver has a callback for intermediate values, as debug builds
often do; the callback feeds a recorder. A recorder without a path keeps everything in memory: the test leaves no files.

Run it from a clone with qdebug installed: python samples/harness.py
Under pytest it works the same: python -m pytest samples/harness.py
"""

from __future__ import annotations

import unittest
from collections.abc import Callable

import numpy as np

import qdebug

Tap = Callable[[str, str, tuple[str, ...], np.ndarray], None]

SMOOTH = np.array([0.25, 0.5, 0.25], np.float32)
EDGE = np.array([-1.0, 0.0, 1.0], np.float32)
SIGNAL = np.sin(np.arange(200, dtype=np.float32) / 7)


class Device:
    """Stand in for a driver: runs the net and calls `tap` with every intermediate tensor."""

    def __init__(self, dtype: type[np.floating], edge: np.ndarray = EDGE) -> None:
        self.dtype = dtype
        self.edge = edge

    def run(self, signal: np.ndarray, tap: Tap) -> np.ndarray:
        """Filter the signal: smooth, find edges, take magnitudes."""
        smooth = np.convolve(signal, SMOOTH, "valid").astype(self.dtype)
        tap("smooth", "Conv1d", ("signal",), smooth)
        edges = np.convolve(smooth.astype(np.float32), self.edge, "valid").astype(self.dtype)
        tap("edges", "Conv1d", ("smooth",), edges)
        power = np.abs(edges)
        tap("power", "Abs", ("edges",), power)
        return power


def record(device: Device, name: str) -> qdebug.Recording:
    """Run a device with a recorder on its taps; its plain output proves that tapping changes nothing."""
    plain = device.run(SIGNAL, lambda *_: None)
    with qdebug.Recorder(None, backend=name) as rec:
        rec.put("signal", SIGNAL)
        device.run(SIGNAL, lambda name, op, inputs, value: rec.put(name, value, node=name, op=op, inputs=inputs))
        rec.outputs("power")
        rec.check({"power": plain})
    return rec.recording


class FilterBank(unittest.TestCase):
    """Compare devices with the float reference, tensor by tensor."""

    def setUp(self) -> None:
        """Record the reference."""
        self.reference = record(Device(np.float32), "reference")

    def test_half_precision_is_good_enough(self) -> None:
        """Half precision stays within the limits, and recording it changed nothing."""
        result = qdebug.diff(self.reference, record(Device(np.float16), "half"))
        self.assertEqual(result.status, "within", result.verdict.sentence)
        self.assertEqual(result.fidelity["backend"], "bit_equal")

    def test_a_wrong_filter_is_found_where_it_is(self) -> None:
        """A filter with the wrong sign is blamed on its own node; the output alone would look perfect."""
        result = qdebug.diff(self.reference, record(Device(np.float32, edge=-EDGE), "mirrored"))
        self.assertEqual(result.first_divergence, "edges")
        by_name = {node.tensor: node.status for node in result.nodes}
        self.assertEqual(by_name["smooth"], "identical")
        self.assertEqual(by_name["power"], "identical")


if __name__ == "__main__":
    unittest.main()
