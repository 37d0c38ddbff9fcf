"""A plugin of pytest: for each mutant, run in a fork those tests that call the function that is changed.

The tests are collected once. A first fork runs all of them and notes which functions each calls, with what its shared
fixtures call, and which tests start processes. Then each mutant gets a fork of its own: the file is changed on the
disk, for processes that the tests start, and the code of the function is changed in memory. The fork ends at the first
test that fails. For a function that no test calls, the tests of its file run in a process that imports it anew.
"""

from __future__ import annotations

import contextlib
import cProfile
import gc
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections import defaultdict
from pathlib import Path

import pytest

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"}
LEAST = 20
"""Seconds that each test of a mutant, and all of them, may take at least."""
TIMES = 4
"""How many times longer they may take than without a change."""


class Watch:
    """Notes what each test calls and how long it takes, in the process that runs all of them unchanged."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.calls: dict[str, set] = defaultdict(set)
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self._into: set = set()
        self._profile: cProfile.Profile | None = None
        sys.addaudithook(lambda event, _: event in STARTS and self._into.add("process"))

    def _called(self, frame: types.FrameType, *_: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(self.package):
            self._into.add((code.co_filename, code.co_firstlineno))

    @contextlib.contextmanager
    def into(self, name: str):
        """Note under a name what is called meanwhile."""
        outer = self._into, self._profile
        if self._profile is not None:
            self._profile.disable()
        self._into, self._profile = self.calls[name], cProfile.Profile(builtins=False)
        threading.settrace(self._called)
        self._profile.enable()
        try:
            yield
        finally:
            self._profile.disable()
            codes = (entry.code for entry in self._profile.getstats() if not isinstance(entry.code, str))
            inside = (code for code in codes if code.co_filename.startswith(self.package))
            self._into.update((code.co_filename, code.co_firstlineno) for code in inside)
            self._into, self._profile = outer
            if self._profile is not None:
                self._profile.enable()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        """Note what a fixture calls under its own name, if several tests share it."""
        if fixturedef.scope == "function":
            return (yield)
        with self.into(f"fixture {fixturedef.argname}"):
            return (yield)

    def pytest_runtest_logreport(self, report) -> None:
        """Note which tests fail though nothing was changed."""
        if report.failed:
            self.failed.append(report.nodeid)

    def all_of(self, item) -> list:
        """Return what a test calls, with its fixtures."""
        names = [item.nodeid, *(f"fixture {name}" for name in item.fixturenames)]
        return sorted(map(str, set().union(*(self.calls.get(name, set()) for name in names))))


def pytest_addoption(parser) -> None:
    """Take the file of mutants, and the file of what became of them."""
    parser.addoption("--mutants", type=Path)
    parser.addoption("--outcomes", type=Path)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session) -> bool:
    """Run the tests unchanged once, and then those of each mutant."""
    given = json.loads(session.config.getoption("mutants").read_text(encoding="utf-8"))
    with session.config.getoption("outcomes").open("w", encoding="utf-8") as told:

        def tell(**facts) -> None:
            told.write(json.dumps(facts) + "\n")
            told.flush()

        begun = time.monotonic()
        known, failed = unchanged(session, given["package"])
        tell(seconds=time.monotonic() - begun, failed=failed)
        if failed:
            return True
        for number, mutant in enumerate(given["mutants"]):
            tell(number=number, outcome=outcome(session, mutant, known))
    return True


def unchanged(session, package: str) -> tuple[dict, list[str]]:
    """Run all tests in a fork; return what each calls and how long it takes, and which fail."""

    def work(send) -> None:
        watch = Watch(package)
        session.config.pluginmanager.register(watch)
        for item, after in zip(session.items, [*session.items[1:], None], strict=True):
            begun = time.monotonic()
            with watch.into(item.nodeid):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            watch.seconds[item.nodeid] = time.monotonic() - begun
        known = {item.nodeid: (watch.all_of(item), watch.seconds[item.nodeid]) for item in session.items}
        send(json.dumps([known, watch.failed]))

    said = forked(work, 3600)
    return json.loads(said) if said else ({}, ["the tests did not end"])


def outcome(session, mutant: dict, known: dict) -> str:
    """Run the tests that call a changed function; return what became of the mutant."""
    inside = [str((mutant["file"], line)) for line in range(mutant["first"], mutant["last"] + 1)]
    calling = {name for name, (calls, _) in known.items() if not set(inside).isdisjoint(calls)}
    others = {name for name, (calls, _) in known.items() if "process" in calls} - calling
    stem = f"test_{Path(mutant['file']).stem}"
    order = sorted(
        (item for item in session.items if item.nodeid in calling | others),
        key=lambda item: (item.nodeid in others, not item.path.name.startswith(stem), known[item.nodeid][1]),
    )
    path = Path(mutant["file"])
    before = path.read_text(encoding="utf-8")
    if not order:
        path.write_text(mutant["text"], encoding="utf-8")
        try:
            return afresh([item for item in session.items if item.path.name.startswith(stem)])
        finally:
            path.write_text(before, encoding="utf-8")

    def work(send) -> None:
        change(mutant)
        for item, after in zip(order, [*order[1:], None], strict=True):
            signal.alarm(int(LEAST + TIMES * known[item.nodeid][1]))  # which ends the fork
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if session.testsfailed:
                send(f"killed by {item.nodeid}")
                return
        send("survived")

    path.write_text(mutant["text"], encoding="utf-8")
    try:
        said = forked(work, LEAST + TIMES * sum(known[item.nodeid][1] for item in order))
    finally:
        path.write_text(before, encoding="utf-8")
    return "killed (time)" if said is None else said or "killed (time or process)"


def afresh(items: list) -> str:
    """Run the tests of a changed file in a process that imports it anew: its functions may run then alone."""
    files = sorted({str(item.path) for item in items})
    words = [sys.executable, "-B", "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
    words += ["--import-mode=importlib", "-m", "not slow", *files]
    failed = files and subprocess.run(words, capture_output=True, check=False).returncode
    return f"killed by {files[0]}, afresh" if failed else "not called"


def change(mutant: dict) -> None:
    """Change the code of a function in this process, whoever holds the function."""
    new = inner(compile(mutant["text"], mutant["file"], "exec"), mutant["function"])
    gc.unfreeze()
    for held in gc.get_objects():
        if isinstance(held, types.FunctionType):
            code = held.__code__
            if code.co_filename == mutant["file"] and code.co_qualname == mutant["function"]:
                held.__code__ = new


def inner(code: types.CodeType, qualified: str) -> types.CodeType | None:
    """Return the code of a function by its qualified name."""
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            found = part if part.co_qualname == qualified else inner(part, qualified)
            if found is not None:
                return found
    return None


def forked(work, seconds: float) -> str | None:
    """Do something in a fork; return what it sent, nothing if it died, None if it took too long."""
    reader, writer = os.pipe()
    folder = tempfile.mkdtemp()
    process = os.fork()
    if not process:
        os.setpgid(0, 0)
        os.close(reader)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(nowhere, number)
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        with contextlib.suppress(BaseException):
            work(lambda text: send_all(writer, text.encode() + b"\0"))
        os._exit(0)
    os.close(writer)
    said, begun = b"", time.monotonic()
    try:
        while True:
            left = begun + seconds - time.monotonic()
            if left <= 0 or not select.select([reader], [], [], left)[0]:
                return None
            part = os.read(reader, 1 << 20)
            said += part
            if not part or part.endswith(b"\0"):  # what the tests have started may hold the pipe open
                return said.rstrip(b"\0").decode()
    finally:
        os.close(reader)
        with contextlib.suppress(OSError):
            os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        shutil.rmtree(folder, ignore_errors=True)


def send_all(writer: int, data: bytes) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(writer, data) :]
