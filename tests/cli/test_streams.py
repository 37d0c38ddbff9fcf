"""Standard streams that are closed, pipes or terminals: the result and the exit code stay what they are."""

import os
import pty
import signal
import subprocess
import sys

import h5py
import pytest


@pytest.fixture
def pair(recordings):
    return str(recordings.reference), str(recordings.diverged)


def start(*words, closed=(), **options):
    """Run qdebug with some descriptors closed before it starts."""

    def close():
        for number in closed:
            os.close(number)

    return subprocess.run([sys.executable, "-m", "qdebug", *words], preexec_fn=close, check=False, **options)


def test_a_closed_standard_error_changes_nothing(pair, tmp_path):
    target = tmp_path / "r.json"
    usual = start("diff", *pair, "--json", capture_output=True)
    done = start("diff", *pair, "--json", closed=[2], stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (usual.returncode, usual.stdout)
    assert start("diff", *pair, "-o", str(target), closed=[0, 1, 2]).returncode == usual.returncode
    assert target.read_text()


def test_no_file_takes_the_place_of_a_closed_stream(pair, tmp_path):
    target = tmp_path / "copy.h5"
    assert start("file", "pack", pair[0], "-o", str(target), closed=[0, 2], stdout=subprocess.PIPE).returncode == 0
    with h5py.File(target) as file:
        assert len(file)


def test_the_terminal_interface_without_streams_prints_no_traceback(pair):
    done = start("tui", *pair, closed=[0, 1], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert "Standard output is closed" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_page_is_not_thrown_at_a_terminal(pair):
    main, terminal = pty.openpty()
    try:
        done = start("diff", *pair, "-f", "html", stdout=terminal, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(main)
        os.close(terminal)
    assert done.returncode == 2
    assert "-o diff.html" in done.stderr
    piped = start("diff", *pair, "-f", "html", capture_output=True, text=True)
    assert piped.stdout.startswith("<!DOCTYPE html>")


def test_a_framework_that_crashes_does_not_end_the_program_without_a_word(pair):
    crashing = "import ctypes, qdebug.cli.info as i; i.run = lambda given: ctypes.string_at(0)"
    words = f"{crashing}; from qdebug.cli.main import main; main(['info', {pair[0]!r}])"
    done = subprocess.run([sys.executable, "-c", words], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in done.stderr
    assert "qdebug/cli/main.py" in done.stderr
