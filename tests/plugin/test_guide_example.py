"""The tests that the guide shows run as they stand there, with a device to test."""

import contextlib
import re

import pytest

import qdebug.session  # noqa: F401  numpy and h5py load once a process: before pytester, which forgets what comes later
from qdebug.cli.topics import topic_text

with contextlib.suppress(ImportError):
    import onnx  # noqa: F401  the same

pytest_plugins = ["pytester"]

CONFTEST = """
import numpy as np
import pytest
import qdebug


class Device:
    def run(self, on_tensor):
        values = np.arange(8, dtype=np.float32)
        on_tensor("x", values)
        on_tensor("fc1", (values * 2).astype(np.int8), node="fc1", op="Double", inputs=("x",), scale=1.0)


@pytest.fixture
def device(request):
    device = Device()
    path = request.path.with_name("ref.h5")
    if not path.exists():
        with qdebug.Recorder(path, backend="reference") as rec:
            device.run(rec.put)
    return device
"""


@pytest.fixture
def example():
    first, second = re.findall(r"^```python\n(.*?)^```$", topic_text("tests"), re.MULTILINE | re.DOTALL)
    assert "assert_close" in first
    return second


def test_the_example_runs(pytester, example):
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_device=example)
    without = ("-p", "no:asyncio", "-p", "no:textual-snapshot", "-p", "no:syrupy", "-p", "no:hypothesispytest")
    options = (*without, "-p", "no:xdist")
    pytester.runpytest_inprocess(*options).assert_outcomes(passed=1, failed=1)  # there is no golden recording yet
    pytester.runpytest_inprocess(*options, "--qdebug-regen").assert_outcomes(passed=2)
    pytester.runpytest_inprocess(*options).assert_outcomes(passed=2)
