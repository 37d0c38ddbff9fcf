"""Ctrl-C of a recording, at any moment: what was recorded is in a sealed file that says it is incomplete."""

import errno
import os
import random
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from qdebug.cli.interrupts import Interrupts, interrupts_resent
from qdebug.cli.main import main
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.target import journal_of
from qdebug.recording.writing.recovery import recover

SAMPLES = 60


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """A recording of the built-in net by the interpreter, over many samples; OUT.h5 is still to be named."""
    import qdebug.data

    folder = tmp_path_factory.mktemp("interrupt")
    data = Path(qdebug.data.__file__).parent
    with np.load(data / "digits.inputs.npz") as given:
        (name,) = given.files
        images = given[name]
    np.savez(folder / "x.npz", **{name: np.resize(images, (SAMPLES, *images.shape[1:]))})
    words = ["record", str(data / "digits.float.h5"), "--backend", "interpreter"]
    return [*words, "--inputs", str(folder / "x.npz"), "--samples", str(SAMPLES), "-o"]


def interrupted(command, out, until):
    """Record, press Ctrl-C when `until` returns, and give the exit code and what was said."""
    with subprocess.Popen(
        [sys.executable, "-m", "qdebug", *command, str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        until()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    return process.returncode, said


def check_left(out, code, said):
    """Check what an interrupted run left; give how."""
    if code == 0:
        with FileRecording(out) as recording:
            assert recording.info.complete
        return "finished"
    left = sorted(entry.name for entry in out.parent.iterdir())
    if not left:
        assert code in (130, -signal.SIGINT) or "KeyboardInterrupt" in said  # the interpreter was still starting
        return "nothing"
    if code == -signal.SIGINT and "next: qdebug info" in said:  # the interpreter was already ending
        with FileRecording(out) as recording:
            assert recording.info.complete
        return "finished"
    assert code == 130, said
    if left != [out.name]:
        recover(out)
    else:
        assert "qdebug info" in said
    with FileRecording(out) as recording:
        if recording.info.complete:
            assert "is finished" in said
            return "finished"
        assert "incomplete" in said or "recover" in said
        for event in range(recording.event_count):
            recording.check_payload(event)
    return "recovered" if left != [out.name] else "sealed"


def whole_run(command, out):
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "qdebug", *command, str(out)], check=True, capture_output=True)
    assert done.returncode == 0
    out.unlink()
    return time.monotonic() - begin


def wait_for(journal, size):
    """Wait until a journal has a size."""
    until = time.monotonic() + 60
    while not (journal.exists() and journal.stat().st_size >= size) and time.monotonic() < until:
        time.sleep(0.001)


@pytest.mark.parametrize("size", [1, *(pytest.param(size, marks=pytest.mark.slow) for size in (30_000, 100_000))])
def test_while_it_records(command, tmp_path, size):
    out = tmp_path / "there" / "out.h5"
    out.parent.mkdir()
    way = check_left(out, *interrupted(command, out, lambda: wait_for(journal_of(out), size)))
    assert way in (("nothing", "sealed") if size == 1 else ("sealed", "finished"))


@pytest.mark.slow
def test_fifty_random_moments(command, tmp_path):
    lasts = whole_run(command, tmp_path / "whole.h5")
    rng = random.Random(1)  # noqa: S311  seeded on purpose
    ways = []
    for number in range(50):
        out = tmp_path / f"{number}" / "out.h5"
        out.parent.mkdir()
        delay = rng.uniform(0, lasts)
        ways.append(check_left(out, *interrupted(command, out, lambda delay=delay: time.sleep(delay))))
    print({way: ways.count(way) for way in set(ways)})
    assert "sealed" in ways


def test_the_same_command_once_more_says_what_to_do(tmp_path, capsys, command, monkeypatch):
    out = tmp_path / "out.h5"
    monkeypatch.setattr(Interrupts, "check", stop_after(30))
    assert main([*command, str(out)]) == 130
    said = capsys.readouterr().err
    assert f"qdebug info {out}" in said
    assert "incomplete" in said
    monkeypatch.undo()
    assert main([*command, str(out)]) == 2
    said = capsys.readouterr().err
    assert "part of an interrupted run" in said
    assert "--force" in said
    assert main([*command, str(out), "--force"]) in (0, 3)


@pytest.mark.parametrize(("at", "safe"), [(40, "tensors are safe"), (4, "Nothing was kept"), (1, "cannot be written")])
def test_a_full_disk_says_how_much_is_safe(tmp_path, capsys, command, monkeypatch, at, safe):
    real, calls = os.pwrite, iter(range(1 << 30))

    def pwrite(fd, data, offset):
        if next(calls) >= at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    assert main([*command, str(tmp_path / "out.h5")]) == 2
    monkeypatch.undo()
    said = capsys.readouterr().err
    assert safe in said
    assert "no space left" in said
    if at > 4:
        assert "qdebug file recover" in said
        assert recover(tmp_path / "out.h5").tensors == int(re.search(r"(\d+) tensors are safe", said)[1])


def test_ctrl_c_after_the_end_says_that_it_is_finished(tmp_path, capsys, command, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("qdebug.cli.record.emit", interrupt)
    assert main([*command, str(tmp_path / "out.h5")]) == 130
    assert "is finished" in capsys.readouterr().err
    monkeypatch.setattr("qdebug.running.record.load_backend", interrupt)
    assert main([*command, str(tmp_path / "out.h5"), "--force"]) == 130
    assert "nothing was kept" in capsys.readouterr().err  # the file that is there is the old one


def stop_after(count):
    left = iter(range(count))

    def check(self):
        if next(left, None) is None:
            raise KeyboardInterrupt

    return check


def test_the_first_is_a_wish_and_the_second_an_order():
    with Interrupts() as interrupts:
        interrupts.check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            interrupts.wrap_progress(lambda done, total, label="": None)(1, 2)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_progress_is_handed_on_while_nobody_presses():
    seen = []
    with Interrupts() as interrupts:
        interrupts.wrap_progress(lambda *given: seen.append(given))(1, 2, "x")
    assert seen == [(1, 2, "x")]


def test_who_ignores_it_is_left_alone():
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            interrupts.check()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, previous)


def swallow_and_wait():
    with interrupts_resent():
        Swallowing()
        time.sleep(20)


class Swallowing:
    """Its destructor is where Ctrl-C falls."""

    def __del__(self):
        raise KeyboardInterrupt


def test_what_falls_into_a_destructor_is_not_lost(capsys):
    before = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt):
        swallow_and_wait()
    assert sys.unraisablehook is before
    assert capsys.readouterr().err == ""


def test_other_mistakes_of_destructors_are_told_as_ever(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    monkeypatch.setattr(Swallowing, "__del__", lambda self: 1 / 0)
    with interrupts_resent():
        Swallowing()
    assert len(told) == 1


EARLY = """
import os, runpy, signal, sys

class Interrupting:
    def __init__(self, module):
        self.module = module

    def find_spec(self, name, *_):
        if name == self.module:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting(sys.argv.pop(1)))
runpy.run_module("qdebug", run_name="__main__")
"""
"""The program, with Ctrl-C pressed when it looks for a module."""


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "module",
    [
        "qdebug.cli.main",
        "qdebug.cli.diff",
        *(pytest.param(each, marks=SLOW) for each in ("argparse", "qdebug.cli.parser")),
    ],
)
def test_while_the_program_is_loaded(module):
    words = [sys.executable, "-c", EARLY, module, "diff", "a.h5", "b.h5"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "qdebug: interrupted; nothing was kept.\n")


def test_while_a_verb_is_at_work():
    words = [sys.executable, "-c", EARLY, "qdebug.session", "diff", "a.h5", "b.h5"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "qdebug: interrupted; nothing was kept.\n")


def test_ctrl_c_that_is_to_be_ignored_is_ignored():
    ignoring = EARLY.replace("sys.meta_path", "signal.signal(signal.SIGINT, signal.SIG_IGN); sys.meta_path")
    words = [sys.executable, "-c", ignoring, "qdebug.cli.diff", "diff", "a.h5", "b.h5"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "a.h5" in done.stderr


def test_the_command_begins_where_ctrl_c_is_taken_care_of():
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["scripts"] == {"qdebug": "qdebug.cli.start:main"}
