"""Environments hold the version, are bounded and removed, and a full disk is an error of its own."""

import errno
import os
import sys
import time
from pathlib import Path

import pytest
import toy_wheels

from qdebug.bisect.environments import EnvironmentCache, UnavailableError, check_disk, run_command
from qdebug.errors import QdebugError


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    toy_wheels.build(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path


def test_an_environment_is_made_once_and_removed_beyond_the_limit(wheels, tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    cache = EnvironmentCache(folder, limit=0)
    with cache.open("toy-rounds", "1.3", ["toy_rounds"]) as environment:
        words = environment.command("-c", "import toy_rounds, numpy; print(toy_rounds.__file__)")
        assert run_command(words).output.startswith(str(folder))
        assert cache.prune() == (0, 0)  # it is in use
    (path,) = folder.iterdir()
    made = path.stat().st_ino
    with monkeypatch.context() as patch:
        patch.setattr(os, "utime", read_only)
        with EnvironmentCache(folder).open("toy-rounds", "1.3", ["toy_rounds"]):
            assert path.stat().st_ino == made
    with cache.open("", "", []) as bare:
        assert run_command(bare.command("-c", "import toy_rounds")).status == 1
        assert not path.exists()  # the room was needed
    count, size = cache.prune(limit=0)
    assert (count, list(folder.iterdir())) == (1, [])
    assert size > 0


def read_only(path):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))


@pytest.mark.slow  # the gate has it in tests/cli/test_bisect.py
def test_a_version_without_a_wheel_leaves_nothing_behind(wheels, tmp_path):
    cache = EnvironmentCache(tmp_path / "cache")
    with (
        pytest.raises(UnavailableError, match=r"cannot be installed: .*toy-rounds==7\.0"),
        cache.open("toy-rounds", "7.0", []),
    ):
        pass
    with (
        pytest.raises(UnavailableError, match=r"cannot be imported: .*no_such_module"),
        cache.open("toy-rounds", "1.0", ["no_such_module"]),
    ):
        pass
    assert [path.name[:19] for path in (tmp_path / "cache").iterdir()] == ["env-toy-rounds-1.0-"]


def test_a_command_ends_with_what_waits_for_it(tmp_path):
    def stop():
        raise KeyboardInterrupt

    mark = tmp_path / "mark"
    script = f"import time; time.sleep(30); open({str(mark)!r}, 'w')"
    with pytest.raises(KeyboardInterrupt):
        run_command([sys.executable, "-c", script], on_wait=stop)
    assert not mark.exists()


def test_a_command_that_does_not_end_is_ended_with_its_children(tmp_path):
    inner = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}], stdout=open('pid', 'w'))"
    script = f"import os; os.chdir({str(tmp_path)!r}); {outer}"
    pid = tmp_path / "pid"
    with pytest.raises(UnavailableError, match=r"did not end within 0\.1 s, the limit of --timeout"):
        run_command([sys.executable, "-c", script], on_wait=lambda: wait_for(pid), timeout=0.1)
    deadline = time.monotonic() + 30
    while is_running(int(pid.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_for(path):
    while not path.exists() or not path.read_text():
        time.sleep(0.01)


def is_running(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"  # no zombie
    except OSError:
        return False


def test_a_full_disk_is_told_from_a_version_that_is_missing(tmp_path):
    with pytest.raises(QdebugError, match="No space left on device"):
        check_disk(f"ERROR: Could not install packages: [Errno 28] {os.strerror(errno.ENOSPC)}", tmp_path)
    check_disk("ERROR: No matching distribution found for toy-rounds==7.0", tmp_path)
