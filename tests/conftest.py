"""What all tests share: property tests that no slow machine can fail."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run three workers on two cores: a test of the terminal waits for most of its time."""
    return max(2, len(os.sched_getaffinity(0)) * 3 // 2) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2


def pytest_sessionstart(session: pytest.Session) -> None:
    """Rewrite the assertions of all tests before workers start, as each of them would: it takes half of collecting."""
    if sys.dont_write_bytecode or hasattr(session.config, "workerinput") or not session.config.getoption("tx", None):
        return
    files = [path for name in ("test_*.py", "conftest.py") for path in sorted(Path(__file__).parent.rglob(name))]
    children = []
    for first in range(cores := len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1):
        children.append(os.fork())
        if not children[-1]:
            with suppress(Exception):  # of a pytest that keeps them otherwise: workers do it themselves
                for path in files[first::cores]:
                    rewrite_asserts(path, session.config)
            os._exit(0)
    for child in children:
        os.waitpid(child, 0)


def rewrite_asserts(path: Path, config: pytest.Config) -> None:
    """Write the file that pytest would write when it imports a test."""
    kept = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(path, kept) is None and rewrite.try_makedirs(kept.parent):
        facts, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, facts, kept)


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
