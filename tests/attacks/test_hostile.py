"""The promises on hostile recordings: that each can be seen broken, and that each is kept."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("hostile.py")


@pytest.fixture(scope="module")
def hostile():
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        import hostile
    finally:
        sys.path.remove(str(SCRIPT.parent))
    return hostile


FINE = {"code": 2, "said": "qdebug: It is damaged.\n", "seconds": 1.0, "memory": 100.0, "changed": []}


@pytest.mark.parametrize(
    ("promise", "what"),
    [
        (0, {"code": -11}),
        (0, {"said": "qdebug: the guarded process was ended by SIGSEGV.\n"}),
        (1, {"seconds": 31.0}),
        (2, {"code": 70}),
        (3, {"said": "qdebug: internal error: ValueError.\n"}),
        (4, {"said": "qdebug: It is damaged\nqdebug: It is.\n"}),
        (5, {"changed": ["file.qdebug-cache"]}),
        (6, {"memory": 1100.0}),
    ],
)
def test_each_promise_is_seen_when_it_is_broken(hostile, promise, what):
    assert all(hostile.judged(**FINE, guarded=True))
    assert hostile.judged(**{**FINE, **what}, guarded=True)[promise] is False


@pytest.mark.parametrize("each", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_there_are_as_many_hostile_recordings_as_promised(hostile, tmp_path, each):
    ways = hostile.ways(tmp_path)
    assert len(ways) >= 150
    for number, write in enumerate([*ways.values()][::each]):
        write(tmp_path / f"{number}.h5")
        assert (tmp_path / f"{number}.h5").stat().st_size


@pytest.mark.slow
def test_every_promise_is_kept():
    done = subprocess.run(
        [sys.executable, SCRIPT, "--share", "0.2", "--mutations", "4000"],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
