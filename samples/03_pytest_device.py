"""Tests of a device: the pytest plugin with a recorder for each test, and assertions on a single kernel.

The device under test is a filter bank that hands every intermediate tensor to a callback. `qdebug_recorder` is the
callback; the marker says what the recording is compared with; the plugin is there as soon as qdebug is installed.

Run it from a clone with qdebug and pytest installed: python -m pytest -p no:cacheprovider samples/03_pytest_device.py
As a script it runs itself twice, in a temporary folder: once as it is, once with a device that has a bug.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.testing import assert_close, assert_explained, random_recording

SIGNAL = np.sin(np.arange(200, dtype=np.float32) / 7)
SCALE = 0.05
BROKEN = False


def run_device(dtype: type[np.floating], put: Callable[..., None]) -> None:
    """Filter the signal: smooth, find edges, take magnitudes; `put` sees every tensor."""
    put("signal", SIGNAL)
    smooth = np.convolve(SIGNAL, np.float32([0.25, 0.5, 0.25]), "valid").astype(dtype)
    put("smooth", smooth, node="smooth", op="Conv1d", inputs=("signal",))
    kernel = np.float32([-1, 0, 1.25 if BROKEN else 1])
    edges = np.convolve(smooth.astype(np.float32), kernel, "valid").astype(dtype)
    put("edges", edges, node="edges", op="Conv1d", inputs=("smooth",))
    put("power", np.abs(edges), node="power", op="Abs", inputs=("edges",))


@pytest.fixture(scope="session", autouse=True)
def reference() -> None:
    """Record the float reference once, beside the tests."""
    global BROKEN  # noqa: PLW0603  the reference has no bug
    path, broken, BROKEN = Path(__file__).with_name("reference.h5"), BROKEN, False
    with qdebug.Recorder(path, backend="float32", force=True) as rec:
        run_device(np.float32, rec.put)
        rec.outputs("power")
    BROKEN = broken


@pytest.mark.qdebug(reference="reference.h5", min_sqnr=50)
def test_half_precision_is_good_enough(qdebug_recorder: qdebug.Recorder) -> None:
    """Half precision keeps 50 dB everywhere; the plugin compares when this function has returned."""
    run_device(np.float16, qdebug_recorder.put)
    qdebug_recorder.outputs("power")


def test_a_table_of_256_entries_is_good_enough() -> None:
    """Check one kernel on arrays alone: a sigmoid by a table, in 8-bit codes, within one step of the exact values."""
    x = np.linspace(-6, 6, 1000, dtype=np.float32)
    entry = np.rint((x + 8) / 16 * 255)
    codes = np.rint(1 / (1 + np.exp(8 - entry / 255 * 16)) / SCALE).astype(np.int8)
    assert_close(1 / (1 + np.exp(-x)), codes, scale=SCALE, max_lsb=1)


def test_the_arithmetic_of_a_net_is_known() -> None:
    """Check a whole recording: within the derived limits, and each node in a known arithmetic."""
    reference = random_recording(np.random.default_rng(0))
    backend = random_recording(np.random.default_rng(0), quantized=True)
    assert_close(reference, backend)
    assert_explained(backend)


def main() -> None:
    """Run the tests as a user would, with a good device and with a broken one."""
    with tempfile.TemporaryDirectory() as folder:
        test = Path(folder, "test_device.py")
        shutil.copy(__file__, test)
        for broken in (False, True):
            test.write_text(test.read_text().replace("BROKEN = False\n", f"BROKEN = {broken}\n", 1))
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
            print(f"--- device {'with a bug' if broken else 'without bug'}: pytest exits with {done.returncode}")
            print(done.stdout.replace(folder, "..."))


if __name__ == "__main__":
    main()
