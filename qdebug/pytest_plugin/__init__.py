"""The pytest plugin: recordings made in tests, checks against references, golden recordings.

    @pytest.mark.qdebug(reference="ref.h5", max_lsb=1)
    def test_kernel(qdebug_recorder):
        qdebug_recorder.put("fc1", run_device(), node="fc1", op="Gemm", scale=0.02, zero_point=-3)

    def test_net(qdebug_recorder, qdebug_regression):
        run_net(qdebug_recorder)
        qdebug_regression.check(qdebug_recorder)

pytest imports this module in every run, through an entry point. Heavy modules are therefore imported in the functions.
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
_REPORT_ERROR = pytest.StashKey[str]()
_SECTION = "qdebug"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each of which is also available in the ini file."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and start the ledger of this process."""
    config.addinivalue_line("markers", MARKER)
    worker_input: dict[str, Any] = getattr(config, "workerinput", {})
    config.stash[_LEDGER] = ComparisonLedger(
        worker_input.get("qdebug_folder"), worker=str(worker_input.get("workerid", ""))
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist the folder of the controller's ledger."""
    node.workerinput["qdebug_folder"] = str(node.config.stash[_LEDGER].folder)


@pytest.fixture
def qdebug_recorder(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """Provide a recorder for the current test. Its file is kept if the test fails.

    The fixture closes the recorder. With the marker `qdebug(reference=...)`, its recording is compared after the test
    function.
    """
    from qdebug.pytest_plugin.checks import open_recorder

    item = request.node
    recorder, keep = open_recorder(item, settings(item.config), item.config.stash[_LEDGER])
    item.stash[_RECORDER] = recorder
    yield recorder
    keep(failed=item.stash.get(_FAILED, False))


@pytest.fixture
def qdebug_regression(request: pytest.FixtureRequest) -> Regression:
    """Return a check of recordings against golden ones next to the test."""
    from qdebug.pytest_plugin.golden import Regression

    return Regression(request.node, settings(request.config), request.config.stash[_LEDGER])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """After the test function, compare its recording with the marker's reference."""
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
    """Add the result of a failed comparison, and the command that opens it, to the test's report."""
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
    """Write the report of all comparisons if requested. Only the controller writes it, not the workers."""
    options = settings(session.config)
    if options.report is None or hasattr(session.config, "workerinput"):
        return
    try:
        session.config.stash[_LEDGER].write_report(options.report)
    except OSError as error:  # do not raise: pytest must still print its summary
        session.config.stash[_REPORT_ERROR] = f"the report {str(options.report)!r} cannot be written: {error.strerror}"
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.USAGE_ERROR


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print a summary of the comparisons of this run."""
    lines = config.stash[_LEDGER].summary(settings(config))
    lines += config.stash[_LEDGER].unfinished_lines(settings(config))
    if _REPORT_ERROR in config.stash:
        lines.append(config.stash[_REPORT_ERROR])
    if lines:
        terminalreporter.section(_SECTION)
        for line in lines:
            terminalreporter.write_line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder of the ledger, except in workers, which leave it to the controller."""
    if _LEDGER in config.stash and not hasattr(config, "workerinput"):
        config.stash[_LEDGER].remove()
