"""Columns kept beside a recording: found again, dropped when anything changed, and never trusted."""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import xxhash
from sweeps import sweep

from qdebug import version
from qdebug.model import Graph, MemoryRecording
from qdebug.recording import cache as module
from qdebug.recording.cache import ColumnCache, user_folder
from qdebug.recording.reading.read import FileRecording

COLUMNS = {"a": np.array([1.5, np.nan, -0.0]), "b": np.array([2**62], np.int64), "c": np.zeros(0, np.uint8)}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setattr(Path, "home", lambda: folder)
    return folder


def opened(path, *, facts=("limits",)):
    recording = FileRecording(path)
    return ColumnCache.of(recording, recording, facts=facts)


def beside(path):
    return path.with_name(path.name + ".qdebug-cache")


def written(path):
    opened(path).write(COLUMNS)
    (found,) = beside(path).iterdir()
    return found


def same(found):
    return found is not None and {n: c.tobytes() for n, c in found.items()} == {
        n: c.tobytes() for n, c in COLUMNS.items()
    }


def test_columns_come_back_bit_for_bit(recorded):
    assert opened(recorded).read() is None
    written(recorded)
    assert same(opened(recorded).read())
    assert {name: column.dtype for name, column in opened(recorded).read().items()} == {
        name: column.dtype for name, column in COLUMNS.items()
    }


def test_only_recordings_in_files_have_a_cache(recorded):
    assert ColumnCache.of(MemoryRecording.single(Graph(), {}), FileRecording(recorded), facts=()) is None
    assert ColumnCache.of(FileRecording(recorded), MemoryRecording.single(Graph(), {}), facts=()) is None


def test_a_recording_that_is_gone_has_no_cache(recorded):
    recording = FileRecording(recorded)
    recorded.unlink()
    assert ColumnCache.of(recording, recording, facts=()) is None


def test_other_facts_are_another_key(recorded):
    written(recorded)
    assert opened(recorded, facts=("other limits",)).read() is None
    assert opened(recorded, facts=("lim", "its")).read() is None


def test_values_changed_in_place_are_noticed(recorded):
    written(recorded)
    before = recorded.stat()
    os.utime(recorded, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert opened(recorded).read() is None


def test_an_edit_whose_time_was_put_back_is_noticed(recorded):
    written(recorded)
    before, content = recorded.stat(), recorded.read_bytes()
    recorded.write_bytes(content)
    os.utime(recorded, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert recorded.stat().st_mtime_ns == before.st_mtime_ns
    assert opened(recorded).read() is None


@pytest.mark.parametrize(("owner", "name"), [(version, "__version__"), (np, "__version__")])
def test_another_version_is_another_key(recorded, monkeypatch, owner, name):
    written(recorded)
    monkeypatch.setattr(owner, name, "0.0.0")
    assert opened(recorded).read() is None


def test_code_that_changed_is_another_key(recorded, tmp_path, monkeypatch):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("first = 1\n")
    monkeypatch.setattr(version, "__file__", str(package / "version.py"))
    written(recorded)
    assert same(opened(recorded).read())
    (package / "__init__.py").write_text("second = 2\n")
    assert opened(recorded).read() is None


def test_the_two_sides_are_not_the_same_side(recorded, tmp_path, graph, info):
    from qdebug.recording.writing.write import RecordingWriter

    with_one = RecordingWriter(tmp_path / "other.h5")
    with_one.append("x", np.zeros(3, np.float32))
    with_one.close(graph, info)
    one, other = FileRecording(recorded), FileRecording(tmp_path / "other.h5")
    ColumnCache.of(one, other, facts=()).write(COLUMNS)
    assert same(ColumnCache.of(one, other, facts=()).read())
    assert ColumnCache.of(other, one, facts=()).read() is None


def spoil(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize(("recorded", "step"), sweep([(2, 29), (1, 7), (2, 7)], 1), indirect=["recorded"])
def test_any_damaged_byte_and_any_cut_is_noticed(recorded, step):
    path = written(recorded)
    content = path.read_bytes()
    for place in range(0, len(content), step):
        path.write_bytes(spoil(content, place))
        assert opened(recorded).read() is None, place
        path.write_bytes(content[:place])
        assert opened(recorded).read() is None, place
    path.write_bytes(content + b"\0")
    assert opened(recorded).read() is None
    path.write_bytes(content)
    assert same(opened(recorded).read())


def forged(path, header, body=b"", *, key=None):
    """A file whose checksum is right."""
    coded = header if isinstance(header, bytes) else json.dumps(header).encode()
    rest = (key or bytes.fromhex(path.name)) + struct.pack("<I", len(coded)) + coded + body
    path.write_bytes(b"qdebug columns 1\n" + xxhash.xxh3_128_digest(rest) + rest)


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (b"", b""),
        (b"no json", b""),
        (b"\xff\xfe", b""),
        (b"[" * 100_000, b""),
        ({"a": 1}, b""),
        ([["a", "<f8"]], b""),
        ([["a", "<f8", 1.0]], b"\0" * 8),
        ([["a", "<f8", True]], b"\0" * 8),
        ([[1, "<f8", 1]], b"\0" * 8),
        ([["a", "|O", 1]], b"\0" * 8),
        ([["a", ">f8", 1]], b"\0" * 8),
        ([["a", "<f8", -1]], b""),
        ([["a", "<f8", 2**61]], b"\0" * 8),
        ([["a", "<f8", 2]], b"\0" * 8),
        ([["a", "<f8", 1]], b"\0" * 9),
        ([["a", "<f8", 1], ["a", "<f8", 1]], b"\0" * 16),
    ],
)
@pytest.mark.parametrize("recorded", [2], indirect=True)
def test_a_header_that_does_not_fit_is_not_trusted(recorded, header, body):
    forged(written(recorded), header, body)
    assert opened(recorded).read() is None


def test_a_file_under_another_key_is_not_trusted(recorded):
    path = written(recorded)
    forged(path, [["a", "<f8", 1]], b"\0" * 8)
    assert opened(recorded).read() is not None
    forged(path, [["a", "<f8", 1]], b"\0" * 8, key=bytes(16))
    assert opened(recorded).read() is None
    path.write_bytes(
        b"qdebug columns 1\n" + xxhash.xxh3_128_digest(bytes.fromhex(path.name)) + bytes.fromhex(path.name)
    )
    assert opened(recorded).read() is None


def test_links_pipes_folders_and_files_of_others_are_not_read(recorded, monkeypatch):
    path = written(recorded)
    moved = path.rename(path.with_name("elsewhere"))
    path.symlink_to(moved)
    assert opened(recorded).read() is None
    path.unlink()
    os.mkfifo(path)
    assert opened(recorded).read() is None
    path.unlink()
    path.mkdir()
    assert opened(recorded).read() is None
    path.rmdir()
    moved.rename(path)
    assert same(opened(recorded).read())
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    assert opened(recorded).read() is None


def test_where_the_folder_cannot_be_written_the_users_is_used(recorded, home):
    beside(recorded).write_text("not a folder")
    opened(recorded).write(COLUMNS)
    assert [path.parent for path in home.rglob("*") if path.is_file()] == [user_folder()]
    assert user_folder().is_relative_to(home)
    assert same(opened(recorded).read())


def test_a_folder_that_is_a_link_is_not_written(recorded, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    beside(recorded).symlink_to(target)
    opened(recorded).write(COLUMNS)
    assert not list(target.iterdir())


def test_with_no_place_at_all_nothing_is_kept_and_nothing_fails(recorded, home):
    beside(recorded).write_text("not a folder")
    home.rmdir()
    home.write_text("not a folder")
    opened(recorded).write(COLUMNS)
    assert opened(recorded).read() is None


def test_a_user_without_a_home_is_no_error(recorded, monkeypatch):
    def nowhere():
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", nowhere)
    assert user_folder() is None
    beside(recorded).write_text("not a folder")
    opened(recorded).write(COLUMNS)
    assert opened(recorded).read() is None


def test_the_users_folder_on_macos(home, monkeypatch):
    monkeypatch.setattr(module.sys, "platform", "darwin")
    assert user_folder() == home / "Library" / "Caches" / "qdebug"
    monkeypatch.setattr(module.sys, "platform", "linux")
    assert user_folder() == home / ".cache" / "qdebug"


def test_a_write_that_fails_leaves_nothing_behind(recorded, monkeypatch, home):
    def broken(self, target):
        raise OSError("no space")

    monkeypatch.setattr(Path, "replace", broken)
    opened(recorded).write(COLUMNS)
    assert list(beside(recorded).iterdir()) == []
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_the_oldest_are_dropped_and_files_of_others_are_left(recorded):
    folder = beside(recorded)
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    (folder / ("0" * 32 + ".half")).write_bytes(b"")
    for number in range(12):
        opened(recorded, facts=(str(number),)).write(COLUMNS)
        for path in folder.iterdir():
            known = path.stat()
            os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns - 10**9))  # all before the next one
    found = {path.name for path in folder.iterdir()}
    assert len(found) == 9
    assert "notes.txt" in found
    assert [opened(recorded, facts=(str(n),)).read() is not None for n in range(12)] == [False] * 4 + [True] * 8


def test_what_is_too_large_is_not_kept(recorded, monkeypatch):
    monkeypatch.setattr(module, "_MOST_BYTES", 100)
    opened(recorded).write(COLUMNS)
    assert not beside(recorded).exists()
