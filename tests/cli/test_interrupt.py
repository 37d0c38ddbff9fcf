"""Ctrl-C of a recording, at any moment: what was recorded is in a sealed file that says it is incomplete."""

import errno
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from qdebug.cli.interrupts import Interrupts
from qdebug.cli.main import main
from qdebug.record.recovery import recover
from qdebug.store.reader import open_file

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


def interrupted(command, out, delay):
    """Record, press Ctrl-C after a delay, and give the exit code and what was said."""
    begin = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "qdebug", *command, str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        time.sleep(max(0.0, delay - (time.monotonic() - begin)))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    return process.returncode, said


def check_left(out, code, said):
    """Check what an interrupted run left; give how."""
    if code == 0:
        with open_file(out) as recording:
            assert recording.info.complete
        return "finished"
    assert code in (130, -signal.SIGINT), said  # the latter before there is anything to do
    left = sorted(entry.name for entry in out.parent.iterdir())
    if not left:
        return "nothing"
    if left != [out.name]:
        recover(out)
    else:
        assert "qdebug info" in said
    with open_file(out) as recording:
        assert not recording.info.complete
        for event in range(recording.event_count):
            recording.check_payload(event)
    return "recovered" if left != [out.name] else "sealed"


def whole_run(command, out):
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "qdebug", *command, str(out)], check=True, capture_output=True)
    assert done.returncode == 0
    out.unlink()
    return time.monotonic() - begin


def try_moments(command, folder, delays):
    ways = []
    for number, delay in enumerate(delays):
        out = folder / f"{number}" / "out.h5"
        out.parent.mkdir()
        ways.append(check_left(out, *interrupted(command, out, delay)))
    return ways


def test_a_few_moments(command, tmp_path):
    lasts = whole_run(command, tmp_path / "whole.h5")
    assert "sealed" in try_moments(command, tmp_path, [lasts * share for share in (0.5, 0.7, 0.85)])


@pytest.mark.slow
def test_fifty_random_moments(command, tmp_path):
    lasts = whole_run(command, tmp_path / "whole.h5")
    rng = random.Random(1)  # noqa: S311  seeded on purpose
    ways = try_moments(command, tmp_path, [rng.uniform(0, lasts) for _ in range(50)])
    print({way: ways.count(way) for way in set(ways)})
    assert ways.count("sealed") > 10


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


@pytest.mark.parametrize(("at", "safe"), [(40, "tensors are safe"), (3, "Nothing was kept")])
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
    if at > 3:
        assert "qdebug file recover" in said
        assert recover(tmp_path / "out.h5").tensors == int(re.search(r"(\d+) tensors are safe", said)[1])


def stop_after(count):
    left = iter(range(count))

    def check(self):
        if next(left, None) is None:
            raise KeyboardInterrupt

    return check


def test_the_first_is_a_wish_and_the_second_an_order():
    with Interrupts() as interrupts:
        interrupts.check()
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            interrupts.checked(lambda done, total, label="": None)(1, 2)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_progress_is_handed_on_while_nobody_presses():
    seen = []
    with Interrupts() as interrupts:
        interrupts.checked(lambda *given: seen.append(given))(1, 2, "x")
    assert seen == [(1, 2, "x")]


def test_who_ignores_it_is_left_alone():
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGINT)
            interrupts.check()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, previous)
