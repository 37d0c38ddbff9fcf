"""Names beside a recording that belong to others are not touched, and permissions stay."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from qdebug.errors import RecordingError
from qdebug.recording import target as target_module
from qdebug.recording.reading.opening import join
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.recorder import Recorder
from qdebug.recording.target import (
    WriterLock,
    is_complete_part,
    is_recorder_file,
    lock_holder,
    part_of,
    replacing_file,
    sync_file,
    sync_folder,
    target_of,
)
from qdebug.recording.writing.pack import pack
from qdebug.recording.writing.recovery import recover


def recorded(path, value=1.0, **options):
    with Recorder(path, backend="b", **options) as rec:
        rec.put("x", np.full(3, value))
    return path


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("run.h5.part", "run.h5"),
        ("run.h5.journal", "run.h5"),
        ("run.h5.part.journal", "run.h5.part"),
        ("run.h5", "run.h5"),
        ("run.h5.lock", "run.h5.lock"),
        (".part", ".part"),
        (".journal", ".journal"),
        (".", "."),
    ],
)
def test_the_recording_that_a_file_of_a_run_belongs_to(name, target):
    assert target_of(Path("folder") / name) == Path("folder") / target


def left_behind(path, **options):
    rec = Recorder(path, backend="b", **options)
    rec.put("x", np.ones(3))
    rec._sink.leave()
    return path


def contents(folder):
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


def foreign_hdf5(path):
    with h5py.File(path, "w") as file:
        file["mine"] = np.arange(3)


def foreign_text(path):
    path.write_text("mine\n")


def hard_link(path):
    """Another name of a precious file that looks as a recorder's does."""
    precious = path.with_name("precious")
    if path.suffix == ".lock":
        precious.write_text("1234\n")
    elif path.suffix == ".journal":
        precious.write_bytes(b"QDJ1\r\n\x1a\n")
    else:
        recorded(precious)
    path.hardlink_to(precious)


FOREIGN = [
    (".part", foreign_text),
    (".part", foreign_hdf5),
    (".part", hard_link),
    (".journal", foreign_text),
    (".journal", hard_link),
    (".lock", foreign_text),
    (".lock", foreign_hdf5),
    (".lock", hard_link),
]


def named(value):
    return value if isinstance(value, str) else value.__name__


@pytest.mark.parametrize("force", [False, True], ids=["plain", "forced"])
@pytest.mark.parametrize(("ending", "plant"), FOREIGN, ids=named)
def test_a_recorder_touches_nothing_foreign(tmp_path, ending, plant, force):
    path = tmp_path / "run.h5"
    plant(path.with_name(path.name + ending))
    before = contents(tmp_path)
    with pytest.raises(RecordingError, match=rf"run\.h5{ending}' exists, but|did not finish") as caught:
        Recorder(path, backend="b", force=force)
    assert caught.value.hint
    assert contents(tmp_path) == before


@pytest.mark.parametrize(("ending", "plant"), [*FOREIGN[:3], *FOREIGN[5:]], ids=named)
def test_packing_touches_nothing_foreign(tmp_path, ending, plant):
    path = recorded(tmp_path / "run.h5")
    plant(path.with_name(path.name + ending.replace(".part", ".packing")))
    before = contents(tmp_path)
    with pytest.raises(RecordingError, match="no recorder wrote it"):
        pack(path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(("ending", "plant"), FOREIGN, ids=named)
def test_recovering_touches_nothing_foreign(tmp_path, ending, plant):
    path = left_behind(tmp_path / "run.h5")
    plant(path.with_name(path.name + ".recovered" + ending))
    before = contents(tmp_path)
    with pytest.raises(RecordingError, match="no recorder wrote it"):
        recover(path)
    assert contents(tmp_path) == before


def test_what_a_recorder_left_is_replaced(tmp_path):
    path = left_behind(tmp_path / "run.h5")
    path.with_name("run.h5.lock").write_text("99999\n")
    recorded(path, 2.0, force=True)
    (tmp_path / "run.h5.packing").write_bytes(path.read_bytes())
    pack(path)
    left_behind(path, force=True)
    (tmp_path / "run.h5.recovered.part").write_bytes(path.read_bytes())
    recover(path, force=True)
    assert list(contents(tmp_path)) == ["run.h5"]


def test_files_that_are_put_there_meanwhile_stay(tmp_path):
    for number, end in enumerate((Recorder.discard, Recorder.close)):
        path = tmp_path / f"{number}.h5"
        rec = Recorder(path, backend="b")
        rec.put("x", np.ones(3))
        for ending in (".journal", ".lock"):
            path.with_name(path.name + ending).unlink()
            path.with_name(path.name + ending).write_text("mine")
        end(rec)
        assert path.with_name(path.name + ".journal").read_text() == "mine"
        assert path.with_name(path.name + ".lock").read_text() == "mine"


def mode(path):
    return path.stat().st_mode & 0o777


class TestPermissions:
    def test_of_a_file_that_is_replaced(self, tmp_path):
        path = recorded(tmp_path / "run.h5")
        path.chmod(0o600)
        rec = Recorder(path, backend="b", force=True)
        rec.put("x", np.ones(3))
        assert [mode(tmp_path / f"run.h5{ending}") for ending in (".part", ".journal")] == [0o600] * 2
        rec.close()
        assert mode(path) == 0o600
        pack(path)
        assert mode(path) == 0o600
        left_behind(path, force=True)
        recover(path, force=True)
        assert mode(path) == 0o600

    def test_of_what_a_run_left_that_is_recovered(self, tmp_path):
        path = left_behind(tmp_path / "run.h5")
        part_of(path).chmod(0o640)
        recover(path)
        assert mode(path) == 0o640

    def test_of_a_file_that_may_not_be_written(self, tmp_path):
        path = recorded(tmp_path / "run.h5")
        path.chmod(0o440)
        recorded(path, 2.0, force=True, durable=True)
        assert mode(path) == 0o440

    @pytest.mark.parametrize("mask", [0o077, 0o002, 0o022])
    def test_of_new_files_follow_the_mask(self, tmp_path, mask):
        before = os.umask(mask)
        try:
            path = tmp_path / "run.h5"
            rec = Recorder(path, backend="b", durable=True)
            rec.put("x", np.ones(3))
            assert {mode(entry) for entry in tmp_path.iterdir()} == {0o666 & ~mask}
            rec.close()
            pack(path, tmp_path / "packed.h5")
            join([path], tmp_path / "run.json")
            recover(left_behind(tmp_path / "left.h5"))
            assert len(list(tmp_path.iterdir())) == 4
            assert {mode(entry) for entry in tmp_path.iterdir()} == {0o666 & ~mask}
        finally:
            os.umask(before)


class TestWhole:
    def test_only_a_file_that_was_closed_is_whole(self, tmp_path):
        path = left_behind(tmp_path / "run.h5")
        assert not is_complete_part(part_of(path))
        whole = recorded(tmp_path / "other.h5")
        assert is_complete_part(whole)
        content = whole.read_bytes()
        for cut in (0, 20, 40, len(content) - 1):
            whole.write_bytes(content[:cut])
            assert not is_complete_part(whole)

    def test_a_recorder_marks_its_file_from_the_beginning(self, tmp_path):
        rec = Recorder(tmp_path / "run.h5", backend="b")
        assert is_recorder_file(tmp_path / "run.h5.part")
        rec.discard()

    @pytest.mark.parametrize("size", [0, 5, 5000])
    def test_what_a_power_cut_blanked_is_replaced(self, tmp_path, size):
        for ending in (".part", ".journal", ".lock"):
            (tmp_path / f"run.h5{ending}").write_bytes(bytes(size))
        recorded(tmp_path / "run.h5")
        assert list(contents(tmp_path)) == ["run.h5"]

    @pytest.mark.parametrize("size", [3, 40, 48])
    def test_what_a_process_left_that_died_at_once_is_replaced(self, tmp_path, size):
        content = recorded(tmp_path / "other.h5").read_bytes()
        (tmp_path / "run.h5.part").write_bytes(content[:size])
        recorded(tmp_path / "run.h5")
        assert sorted(contents(tmp_path)) == ["other.h5", "run.h5"]

    def test_a_whole_file_is_not_written_over_unless_that_is_forced(self, tmp_path):
        recorded(tmp_path / "run.h5").rename(tmp_path / "run.h5.part")
        with pytest.raises(RecordingError, match="did not finish"):
            Recorder(tmp_path / "run.h5", backend="b")
        recorded(tmp_path / "run.h5", 5.0, force=True)
        with FileRecording(tmp_path / "run.h5") as recording:
            assert recording.load("x").tolist() == [5.0] * 3


class TestToDisk:
    def test_a_folder_that_cannot_be_forced_to_the_disk_is_no_error(self, tmp_path, monkeypatch):
        asked = []

        def refuse(fd):
            asked.append(os.fstat(fd).st_ino)
            raise OSError(22, "invalid argument")

        monkeypatch.setattr(os, "fsync", refuse)
        sync_folder(tmp_path)
        assert asked == [tmp_path.stat().st_ino]

    def test_a_broken_disk_is(self, tmp_path, monkeypatch):
        def refuse(_):
            raise OSError(5, "input/output error")

        monkeypatch.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="input/output"):
            sync_folder(tmp_path)

    def test_the_full_form_where_there_is_one(self, tmp_path, monkeypatch):
        asked = []
        monkeypatch.setattr(target_module.fcntl, "F_FULLFSYNC", 51, raising=False)
        monkeypatch.setattr(target_module.fcntl, "fcntl", lambda _, what: asked.append(what))
        with (tmp_path / "x").open("w") as file:
            sync_file(file.fileno())
        assert asked == [51]


class TestFailures:
    """What the system refuses is one clear error, and nothing is lost."""

    @pytest.fixture
    def refused(self, monkeypatch):
        """A function that lets the system refuse a call."""

        def refuse(name):
            def call(*_, **__):
                raise OSError(5, "input/output error")

            monkeypatch.setattr(os, name, call)
            if name == "replace":  # a name that is new is taken by a system call of its own
                monkeypatch.setattr(target_module, "_rename_exclusively", call)

        return refuse

    @pytest.mark.parametrize("call", ["ftruncate", "pwrite", "fsync", "replace"])
    @pytest.mark.parametrize("work", [recover, pack])
    def test_of_recovering_and_packing(self, tmp_path, refused, monkeypatch, call, work):
        path = left_behind(tmp_path / "run.h5") if work is recover else recorded(tmp_path / "run.h5")
        before = contents(tmp_path)
        refused(call)
        with pytest.raises(RecordingError, match="input/output error") as caught:
            work(path)
        assert caught.value.hint
        monkeypatch.undo()
        assert contents(tmp_path) == before
        if work is recover:
            recover(path)
        with FileRecording(path) as recording:
            assert recording.load("x").tolist() == [1.0] * 3

    @pytest.mark.parametrize("call", ["fsync", "replace"])
    def test_of_joining(self, tmp_path, refused, call):
        path = recorded(tmp_path / "run.h5")
        refused(call)
        with pytest.raises(RecordingError, match="cannot be written"):
            join([path], tmp_path / "run.json")
        assert list(contents(tmp_path)) == ["run.h5"]

    def test_a_file_that_is_in_its_place_needs_no_tidying(self, tmp_path, refused):
        refused("unlink")
        with replacing_file(tmp_path / "x") as partial:
            partial.write_text("new")
        assert (tmp_path / "x").read_text() == "new"


@pytest.mark.parametrize(("said", "holder"), [(b"4321\n", "4321"), (b"", "unknown"), (b"  \n", "unknown")])
def test_whoever_holds_a_lock_is_named(tmp_path, said, holder):
    target = tmp_path / "run.h5"
    assert lock_holder(target) == ""
    lock = WriterLock(target)
    assert lock_holder(target) == str(os.getpid())
    lock.path.write_bytes(said)
    assert lock_holder(target) == holder
    with pytest.raises(RecordingError, match=f"is being written by process {holder}"):
        WriterLock(target)
    lock.release()
    assert lock_holder(target) == ""
    WriterLock(target).release()
