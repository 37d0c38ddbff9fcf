"""Results reach their target whole or not at all, progress only a terminal."""

import io
import os
import subprocess
import sys

import numpy as np
import pytest
from rich.table import Table
from rich.text import Text

from qdebug import data
from qdebug.cli.output import check_target, emit, natural_width, progress, render, show_stages, write_result
from qdebug.errors import OutputExistsError, RecordingError, UsageError
from qdebug.running.save import save_recording
from qdebug.session import open_recording
from qdebug.testing import random_recording


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    target = tmp_path / "a.json"
    target.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_result("new", target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


FULL_DISK = """
import resource, signal, sys
from qdebug.cli.start import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.dont_write_bytecode = True
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["diff", "REF", "INT8", "-f", "json", "-o", "report.json"], "report.json"),
        pytest.param(["export", "npz", "REF", "-o", "values.npz"], "values.npz", marks=pytest.mark.slow),
        pytest.param(
            ["export", "model-explorer", "REF", "INT8", "-o", "graph"], "graph/reference.json", marks=pytest.mark.slow
        ),
        pytest.param(["scales", "profile", "REF", "-o", "profile.h5"], "profile.h5", marks=pytest.mark.slow),
        (["file", "pack", "REF", "-o", "packed.h5"], "packed.h5"),
        pytest.param(["diff", "REF", "INT8", "-f", "json", "-o", "/dev/full"], "/dev/full", marks=pytest.mark.slow),
    ],
)
def test_a_full_disk_names_the_file_that_was_not_written(tmp_path, words, file):
    for name, source in (("REF", data.FLOAT_NET), ("INT8", data.INT8_NET)):
        words = [str(source) if word == name else word for word in words]
    command = [sys.executable, "-c", FULL_DISK, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert file in done.stderr.splitlines()[0]
    assert ".part" not in done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix == ".part"]


def test_a_file_gets_the_usual_permissions_and_a_last_line_end(tmp_path, capsys):
    (tmp_path / "usual").touch()
    write_result("text", tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "text\n"
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "usual").stat().st_mode
    write_result("text", None)
    emit("more\n")
    assert capsys.readouterr().out == "text\nmore\n"


def test_half_a_character_does_not_stop_a_file(tmp_path):
    write_result('{"name": "half\ud800"}', tmp_path / "a.json")
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{"name": "half\\ud800"}\n'


def test_targets_are_refused_before_any_work(tmp_path):
    existing = tmp_path / "there.json"
    existing.touch()
    check_target(None, force=False)
    check_target(tmp_path / "new.json", force=False)
    check_target(existing, force=True)
    with pytest.raises(OutputExistsError, match="exists"):
        check_target(existing, force=False)
    with pytest.raises(UsageError, match="is a directory"):
        check_target(tmp_path, force=True)
    with pytest.raises(RecordingError, match="does not exist"):
        check_target(tmp_path / "no" / "a.json", force=False)
    link = tmp_path / "link.json"
    link.symlink_to(existing)
    with pytest.raises(UsageError, match="is also an input of this command"):
        check_target(link, force=True, sources=[existing])


def test_progress_is_shown_on_a_terminal_alone(monkeypatch):
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    with progress("comparing") as note:
        note(1, 2, "conv1")
    assert pipe.getvalue() == ""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress("comparing") as note:
        note(1, 2, "[red]conv\x1b[5m")
        note(2, 2)
    assert "comparing" in terminal.getvalue()
    assert "2/2" in terminal.getvalue()
    assert "\x1b[5m" not in terminal.getvalue()


def test_colours_go_to_a_terminal_alone(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = Text("bad", style="red")
    assert "\x1b[31m" in render(text, width=40)
    assert render(text, width=40, is_plain=True).strip() == "bad"
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in render(text, width=40)


def test_without_a_terminal_nothing_wraps_and_no_line_ends_in_blanks():
    table = Table(box=None)
    table.add_column("a")
    table.add_row(Text("word " * 40))
    table.add_row(Text("short"))
    width = natural_width(table)
    lines = render(table, width=width, is_plain=True).splitlines()
    assert len(lines) == 3
    assert all(line == line.rstrip() for line in lines)
    assert natural_width(Text("x")) == 80


def test_text_goes_through_a_pipe_and_the_pipe_stays(tmp_path):
    """A device is such a thing too: putting a file in the place of /dev/null would spoil the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_target(pipe, force=False)
        write_result("text", pipe)
        assert os.read(reader, 100) == b"text\n"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]
    with pytest.raises(UsageError, match="not a regular file"):
        check_target(pipe, force=True, regular=True)


def test_a_link_stays_and_its_file_is_written(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_result("text", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "text\n"


def test_no_recording_takes_the_place_of_a_pipe(tmp_path, run):
    pipe = tmp_path / "pipe.h5"
    os.mkfifo(pipe)
    save_recording(random_recording(np.random.default_rng(0)), tmp_path / "a.h5")
    with pytest.raises(RecordingError, match="not a regular file"):
        save_recording(open_recording(tmp_path / "a.h5"), pipe, force=True)
    np.savez(tmp_path / "x.npz", x=np.zeros(1))
    for words in (
        ("file", "join", tmp_path / "a.h5", "-o", pipe),
        ("export", "npz", tmp_path / "a.h5", "-o", pipe),
        ("record", tmp_path / "a.h5", "--backend", "interpreter", "--inputs", tmp_path / "x.npz", "-o", pipe),
    ):
        assert run(*map(str, words), "--force").code == 2
    assert pipe.is_fifo()


def test_stages_are_told_to_a_terminal_once_they_take_long(monkeypatch):
    shown, times = Terminal(), iter([0.0, 0.1, 1.0])
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr("qdebug.cli.output.monotonic", lambda: next(times))
    with show_stages("aligning") as told:
        told("reading both graphs")
        assert shown.getvalue() == ""
        told("comparing layouts")
        told("pairing [red]tensors 40%")
    assert "aligning: pairing [red]tensors 40%" in shown.getvalue()


def test_stages_are_told_to_nobody_else(capsys):
    with show_stages("aligning") as told:
        told("reading both graphs")
    assert capsys.readouterr() == ("", "")
