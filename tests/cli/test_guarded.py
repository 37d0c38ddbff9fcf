"""With --untrusted, a verb does all its work in a process that may take only so much."""

import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from qdebug.cli import guarded
from qdebug.cli.guarded import run_guarded


def run_alone(*words, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "qdebug", *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_it_prints_and_ends_as_without_and_keeps_nothing(recordings, tmp_path):
    copies = [tmp_path / path.name for path in (recordings.reference, recordings.diverged)]
    for copy, path in zip(copies, (recordings.reference, recordings.diverged), strict=True):
        copy.write_bytes(path.read_bytes())
    alone = run_alone("diff", *copies, "--json", "--untrusted")
    assert sorted(tmp_path.iterdir()) == sorted(copies), "results were kept beside the files"
    plain = run_alone("diff", *copies, "--json")
    assert plain.returncode == alone.returncode == 1
    assert alone.stdout == plain.stdout


def test_too_little_memory_is_called_that(recordings):
    done = run_alone("diff", recordings.reference, recordings.diverged, "--untrusted", "--memory", 90)
    assert done.returncode == 2
    assert "--memory 90 is too small" in done.stderr


def test_a_recording_that_is_named_as_a_model_is_checked_as_one(recordings, tmp_path):
    content = bytearray(recordings.reference.read_bytes())
    content[-1] ^= 255
    (tmp_path / "net.onnx").write_bytes(content[:-100])
    done = run_alone("info", tmp_path / "net.onnx", "--untrusted")
    assert done.returncode == 2
    assert "net.onnx" in done.stderr


@pytest.mark.parametrize(
    ("ended", "said"),
    [(signal.SIGXCPU, "used more than 25 seconds"), (signal.SIGSEGV, "was ended by SIGSEGV")],
)
def test_the_end_of_the_process_is_said_in_one_sentence(monkeypatch, capsys, ended, said):
    died = SimpleNamespace(wait=lambda: -ended, poll=lambda: -ended)
    monkeypatch.setattr(guarded.subprocess, "Popen", lambda *_args, **_keys: died)
    assert run_guarded(SimpleNamespace(memory=None, seconds=None, endless=False), ["info"]) == 2
    assert said in capsys.readouterr().err


def test_memory_is_chosen_by_the_room_that_a_file_takes(monkeypatch, tmp_path):
    asked = []

    def start(command, **_keys):
        asked.append(guarded.json.loads(command[5])[0])
        return SimpleNamespace(wait=lambda: 0, poll=lambda: 0)

    monkeypatch.setattr(guarded.subprocess, "Popen", start)
    (tmp_path / "full").write_bytes(bytes(1 << 20) + b"x")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("full", "sparse"):
        run_guarded(SimpleNamespace(memory=None, seconds=None, endless=True, file=tmp_path / name), ["info"])
    assert asked[0] > asked[1]
    assert asked[1] < 1.1 * (1 << 30)


def test_its_limits_mean_nothing_without_it(run, recordings):
    done = run("info", recordings.reference, "--seconds", "5")
    assert done.code == 2
    assert "Add --untrusted" in done.err
