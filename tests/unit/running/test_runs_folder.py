"""The folder of recordings that qdebug makes by itself: what may be removed from it, and that nothing else is."""

import os
import time

import pytest

from qdebug.running.runs_folder import DAY, mark_used, note_sources, prunable_recordings, prune, runs_size


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "qdebug-runs"
    made.mkdir()
    return made


@pytest.fixture
def recorded(folder, tmp_path):
    """Return what puts a recording of a model there that was last used some days ago."""

    def put(number, *, days=2.0, size=1000, note=True):
        model = tmp_path / f"net{number}.onnx"
        model.write_bytes(b"model %d" % number)
        path = folder / f"net{number}-onnxruntime-{number:010x}.h5"
        path.write_bytes(bytes(size))
        if note:
            note_sources(path, [model])
        used = time.time() - days * DAY
        os.utime(path, (used, used))
        return path, model

    return put


def test_the_one_not_used_for_longest_goes_first_until_the_limit_is_kept(folder, recorded):
    paths = [recorded(number, days=2 + number)[0] for number in range(4)]
    note = runs_size(folder) // 4 - 1000
    gone = prune(folder, limit=2 * (1000 + note))
    assert [each.path for each in gone] == [paths[3], paths[2]]
    assert [path.exists() for path in paths] == [True, True, False, False]
    assert not list(folder.glob("net3-*"))
    assert prune(folder, limit=10_000) == []


def test_a_dry_run_says_the_same_and_removes_nothing(folder, recorded):
    for number in range(3):
        recorded(number)
    before = sorted(folder.rglob("*"))
    assert len(prune(folder, limit=0, dry_run=True)) == 3
    assert sorted(folder.rglob("*")) == before


def test_what_was_used_within_a_day_stays(folder, recorded):
    path, _ = recorded(1)
    assert prunable_recordings(folder)
    mark_used(path)
    assert prunable_recordings(folder) == []


def test_what_cannot_be_made_again_stays(folder, recorded):
    _, changed = recorded(1)
    _, gone = recorded(2)
    recorded(3, note=False)
    damaged, _ = recorded(4)
    changed.write_bytes(b"other")
    gone.unlink()
    damaged.with_name(damaged.name + ".made.json").write_text("[")
    assert prune(folder, limit=0) == []
    note_sources(recorded(5, note=False)[0], [folder])  # an input that is no file
    assert prune(folder, limit=0) == []


def test_what_somebody_has_open_stays(folder, recorded):
    path, _ = recorded(1)
    with path.open("rb"):
        assert prune(folder, limit=0) == []
    assert [each.path for each in prune(folder, limit=0)] == [path]


def test_nothing_else_is_ever_removed(folder, recorded, tmp_path):
    recorded(1)
    other = [folder / "mine.h5", folder / "net-onnxruntime-0123456789.h5.part", folder / "notes.txt"]
    for path in other:
        path.write_text("mine")
        os.utime(path, (1.0, 1.0))
    outside = tmp_path / "outside.h5"
    outside.write_text("mine")
    (folder / "link-onnxruntime-0123456789.h5").symlink_to(outside)
    prune(folder, limit=0)
    assert all(path.exists() for path in (*other, outside, folder / "link-onnxruntime-0123456789.h5"))
    assert prune(tmp_path / "nowhere", limit=0) == []
