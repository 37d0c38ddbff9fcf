"""What all tests share: property tests that no slow machine can fail."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from sweeps import drawn

settings.register_profile(
    "steady",
    settings(),
    max_examples=drawn(100).max_examples,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")


def pytest_configure() -> None:
    """Take signals as in a terminal: what is started in the background, or by nohup, inherits that they are ignored."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_xdist_auto_num_workers() -> int:
    """Run three workers on two cores: a test of the terminal waits for most of its time."""
    return max(2, len(os.sched_getaffinity(0)) * 3 // 2) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without looking for garbage: all of it stays, and looking at it takes a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="session")
def mlas():
    """Name the arithmetic of ONNX Runtime's products on this processor."""
    from qdebug.recording.environment import cpu_flags

    flags = cpu_flags()
    exact = "avx2" not in flags or any("vnni" in flag for flag in flags)
    return "ort-mlas" if exact else "ort-mlas-avx2-nonvnni"
