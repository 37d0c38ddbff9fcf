"""What all tests share: property tests that no slow machine can fail, and a report of soft budgets at the end."""

from __future__ import annotations

import ast
import gc
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

PACKAGE = Path(__file__).resolve().parents[1] / "qdebug"
SOFT_MODULE_LINES = 300
SOFT_FUNCTION_LINES = 50

settings.register_profile("steady", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


def pytest_configure() -> None:
    """Take signals as in a terminal: what is started in the background, or by nohup, inherits that they are ignored."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without looking for garbage: all of it stays, and looking at it takes a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report what is over a soft budget: allowed, and worth a look at the next change."""
    over: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(PACKAGE.parent).as_posix()
        if (lines := len(text.splitlines())) > SOFT_MODULE_LINES:
            over.append(f"{name}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > SOFT_FUNCTION_LINES:
                    over.append(f"{name}:{node.lineno} {node.name}: {lines} lines")
    if over and terminalreporter.config.getoption("verbose") >= 0:
        terminalreporter.section(f"over the soft budgets ({SOFT_MODULE_LINES} and {SOFT_FUNCTION_LINES} lines)")
        for line in over:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def mlas():
    """Name the arithmetic of ONNX Runtime's products on this processor."""
    from qdebug.recording.environment import cpu_flags

    flags = cpu_flags()
    exact = "avx2" not in flags or any("vnni" in flag for flag in flags)
    return "ort-mlas" if exact else "ort-mlas-avx2-nonvnni"
