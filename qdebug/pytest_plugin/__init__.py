"""The pytest plugin: recordings made in tests, checks against references, golden recordings.

    @pytest.mark.qdebug(reference="ref.h5", max_lsb=1)
    def test_kernel(qdebug_recorder):
        qdebug_recorder.put("fc1", run_device(), node="fc1", op="Gemm", scale=0.02, zero_point=-3)

    def test_net(qdebug_recorder, qdebug_regression):
        run_net(qdebug_recorder)
        qdebug_regression.check(qdebug_recorder)

pytest loads this by its entry point in every run, so nothing is imported here that a run without qdebug would miss.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from qdebug.pytest_plugin.gather import ComparisonLedger
from qdebug.pytest_plugin.options import MARKER, add_options, settings

if TYPE_CHECKING:
    from qdebug.pytest_plugin.golden import Regression
    from qdebug.recording.recorder import Recorder

__all__ = ["qdebug_recorder", "qdebug_regression"]

_LEDGER = pytest.StashKey[ComparisonLedger]()
_RECORDER = pytest.StashKey[Any]()
_FAILED = pytest.StashKey[bool]()
_UNWRITTEN = pytest.StashKey[str]()
_SECTION = "qdebug"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each with its twin in the ini file."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and begin the list of what is compared in this process."""
    config.addinivalue_line("markers", MARKER)
    given: dict[str, Any] = getattr(config, "workerinput", {})
    config.stash[_LEDGER] = ComparisonLedger(given.get("qdebug_folder"), worker=str(given.get("workerid", "")))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist the folder in which the controller gathers what was compared."""
    node.workerinput["qdebug_folder"] = str(node.config.stash[_LEDGER].folder)


@pytest.fixture
def qdebug_recorder(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """Provide a recorder for this test; its file is kept if the test fails.

    It closes by itself. With the marker `qdebug(reference=...)` it is compared when the test function has returned.
    """
    from qdebug.pytest_plugin.checks import open_recorder

    item = request.node
    recorder, keep = open_recorder(item, settings(item.config), item.config.stash[_LEDGER])
    item.stash[_RECORDER] = recorder
    yield recorder
    keep(failed=item.stash.get(_FAILED, False))


@pytest.fixture
def qdebug_regression(request: pytest.FixtureRequest) -> Regression:
    """Return the check of a recording against the golden one that is kept beside the test."""
    from qdebug.pytest_plugin.golden import Regression

    return Regression(request.node, settings(request.config), request.config.stash[_LEDGER])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Compare what was recorded with the marker's reference, once the test function has returned."""
    result = yield
    marker = item.get_closest_marker("qdebug")
    if marker is not None:
        from qdebug.pytest_plugin.checks import check_marker

        check_marker(item, settings(item.config), item.config.stash[_LEDGER], item.stash.get(_RECORDER, None))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failed comparison what was found, and the command that opens it."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    if report.failed and call.excinfo is not None:
        recorder = item.stash.get(_RECORDER, None) if report.when == "call" else None
        from qdebug.pytest_plugin.sections import failure_section

        text = failure_section(call.excinfo.value, recorder, settings(item.config), shown=report.longreprtext)
        if text:
            report.sections.append((_SECTION, text))
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report of all comparisons, where one was asked for; workers leave that to the controller."""
    chosen = settings(session.config)
    if chosen.report is None or hasattr(session.config, "workerinput"):
        return
    try:
        session.config.stash[_LEDGER].write_report(chosen.report)
    except OSError as error:  # the summary of the run must still come
        session.config.stash[_UNWRITTEN] = f"the report {str(chosen.report)!r} cannot be written: {error.strerror}"
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Sum up the comparisons of this run."""
    lines = config.stash[_LEDGER].summary(settings(config))
    lines += config.stash[_LEDGER].cut_off(settings(config))
    if _UNWRITTEN in config.stash:
        lines.append(config.stash[_UNWRITTEN])
    if lines:
        terminalreporter.section(_SECTION)
        for line in lines:
            terminalreporter.write_line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder of the list; a worker's belongs to the controller."""
    if _LEDGER in config.stash and not hasattr(config, "workerinput"):
        config.stash[_LEDGER].remove()
