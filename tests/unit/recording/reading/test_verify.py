"""Every byte of a recording that matters is checked, by a process that may die of it."""

import json
import os
import random

import h5py
import numpy as np
import pytest
from recording_parts import rewrite_as_format_one, spans_of
from sweeps import sweep

from qdebug.errors import RecordingError, UsageError
from qdebug.model import Graph, Node, RunInfo
from qdebug.recording.reading import verify as verify_module
from qdebug.recording.reading.verify import verify
from qdebug.recording.writing.write import RecordingWriter


@pytest.fixture
def sound(tmp_path):
    """A recording of a few tensors, some of them large."""
    rng = np.random.default_rng(0)
    path = tmp_path / "run.h5"
    writer = RecordingWriter(path)
    for number, size in enumerate((1, 300, 70_000, 0, 5)):
        writer.append(f"t{number}", rng.integers(0, 255, size).astype(np.uint8))
    writer.append("again", rng.integers(0, 1, 5).astype(np.uint8))
    writer.close(Graph([Node(name="n", op="Relu", inputs=("t0",), outputs=("t1",))]), RunInfo(backend="b"))
    return path


def regions(path):
    """Byte ranges of the payloads, and of the tables."""
    tables, payloads = spans_of(path)
    return [point for span in payloads for point in span], [point for span in tables.values() for point in span]


def test_a_sound_recording(sound):
    found = verify(sound)
    assert (found.tensors, found.bytes, found.complete, found.tables) == (6, 70_311, True, True)


def test_it_needs_no_write_permission_and_leaves_no_trace(sound):
    sound.chmod(0o400)
    verify(sound)
    assert [entry.name for entry in sound.parent.iterdir()] == ["run.h5"]


@pytest.mark.parametrize(
    ("region", "count"),
    [(0, 50), (1, 50), pytest.param(0, 1000, marks=pytest.mark.slow), pytest.param(1, 1000, marks=pytest.mark.slow)],
    ids=["payloads", "tables", "payloads, many", "tables, many"],
)
def test_single_flipped_bits_are_all_found(sound, region, count):
    rng = random.Random(region)  # noqa: S311  seeded on purpose
    points = regions(sound)[region]
    fd = os.open(sound, os.O_RDWR)
    missed = []
    for _ in range(count):
        at, bit = rng.choice(points), 1 << rng.randrange(8)
        (before,) = os.pread(fd, 1, at)
        os.pwrite(fd, bytes([before ^ bit]), at)
        try:
            verify_module._check_file(sound)  # what the child does; a flipped bit in there crashes nothing
        except RecordingError:
            pass
        else:
            missed.append((at, bit))
        os.pwrite(fd, bytes([before]), at)
    os.close(fd)
    assert not missed
    verify(sound)


def test_the_damaged_tensors_are_named(sound):
    at = spans_of(sound)[1][2][0]
    with sound.open("r+b") as file:
        file.seek(at + 69_000)
        file.write(b"\x00\x01\x02\x03")
    with pytest.raises(RecordingError, match=r"The bytes of tensor 't2' in .* differ from what was") as caught:
        verify(sound)
    assert caught.value.hint


def test_a_file_without_a_hash_of_its_tables(sound):
    with h5py.File(sound, "a") as file:
        del file.attrs["tables_hash"]
    assert not verify(sound).tables


@pytest.mark.parametrize("content", sweep([None, b"", b"text", b"\x89HDF\r\n\x1a\n" + bytes(100)], 2))
def test_something_else(tmp_path, content):
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    with pytest.raises(RecordingError) as caught:
        verify(tmp_path / "x")
    assert caught.value.hint


CRASHES = {
    "os.abort()": "ended by SIGABRT",
    "os.kill(os.getpid(), 9)": "ended by SIGKILL",
    "time.sleep(600)": "takes more than 1 seconds",
    "\nwhile True: pass": "takes more than 1 seconds of processor time",
    "sys.exit(7)": "ended with code 7",
    "print('[')": "ended with code 0",
    "raise MemoryError": "ended with code 1",
}


@pytest.mark.parametrize("crash", CRASHES)
def test_a_file_that_kills_or_stops_its_reader(sound, monkeypatch, crash):
    monkeypatch.setattr(
        verify_module,
        "_CHILD_CODE",
        f"import os, resource, sys, time; resource.setrlimit(resource.RLIMIT_CPU, (1, 6)); {crash}",
    )
    # The clock counts only where nothing else ends the process: a busy machine may take minutes to start one.
    monkeypatch.setattr(verify_module, "_WALL_FACTOR", 1 if "sleep" in crash else 600)
    with pytest.raises(RecordingError, match=CRASHES[crash]) as caught:
        verify(sound, timeout=1)
    assert "not safe to read" in caught.value.message


SIZE = 220 << 20


def test_a_file_that_needs_too_much_memory(tmp_path):
    path = tmp_path / "run.h5"
    writer = RecordingWriter(path)
    writer.append("x", np.zeros(1))
    writer.close(Graph(), RunInfo(backend="b"))
    with h5py.File(rewrite_as_format_one(path), "a") as file:
        index = file["index"][:]
        file["t"].create_dataset("00000001", data=np.zeros(SIZE, np.uint8), chunks=(1 << 20,), compression="gzip")
        index["payload"], index["shape"][0, 0], index["nbytes"], index["dtype"] = 1, SIZE, SIZE, 2
        file["index"][:] = index
        del file.attrs["tables_hash"]
    with pytest.raises(RecordingError, match=r"memory|damaged"):
        verify(path, memory=SIZE + (64 << 20))


def test_a_path_to_modules_of_others_is_not_taken_from_the_folder(sound, monkeypatch, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the folder')")
    monkeypatch.chdir(tmp_path)
    assert verify(sound).tensors == 6


def test_too_little_memory_is_not_blamed_on_the_file(sound):
    with pytest.raises(UsageError, match="--memory 1 is too small"):
        verify(sound, memory=1 << 20)
    assert verify(sound, memory=verify_module._MIN_MEMORY).tensors == 6


@pytest.mark.parametrize(
    ("bad", "said"), [(1, "'t0'"), (5, "'t0', 't1', 't2', 't3', 't4'"), (7, "'t0', 't1', 't2', 't3', 't4' and 2 more")]
)
def test_five_damaged_tensors_are_named_and_the_others_counted(tmp_path, bad, said):
    path = tmp_path / "run.h5"
    writer = RecordingWriter(path)
    for number in range(8):
        writer.append(f"t{number}", np.full(40, number, np.uint8))
    writer.close(Graph([]), RunInfo(backend="b"))
    offsets = [span[0] for span in spans_of(path)[1][:bad]]
    with path.open("r+b") as file:
        for at in offsets:
            file.seek(at + 7)
            file.write(b"\xff")
    with pytest.raises(RecordingError, match=rf"The bytes of tensors? {said} in .* differ from what was"):
        verify(path)


@pytest.mark.parametrize(("size", "seconds"), [(0, 20), (20 << 20, 21), (200 << 20, 30)])
def test_reading_may_take_as_long_as_a_slow_disk_takes(tmp_path, monkeypatch, size, seconds):
    path, given = tmp_path / "run.h5", {}
    with path.open("wb") as file:
        file.truncate(size)

    def run(command, **facts):
        given.update(facts, command=command)
        raise verify_module.subprocess.TimeoutExpired(command, facts["timeout"])

    monkeypatch.setattr(verify_module.subprocess, "run", run)
    with pytest.raises(RecordingError, match=f"takes more than {10 * seconds} seconds"):
        verify(path)
    assert given["timeout"] == 10 * seconds
    assert given["command"][-2:] == [str(verify_module.MEMORY_LIMIT), str(seconds)]
    with pytest.raises(RecordingError, match="takes more than 30 seconds"):
        verify(path, timeout=3, memory=256 << 20)
    assert given["command"][-2:] == [str(256 << 20), "3"]


def test_a_run_of_several_files_is_checked_in_one_process_each_of_them_once(sound, monkeypatch, tmp_path):
    other = tmp_path / "other.h5"
    writer = RecordingWriter(other)
    writer.append("x", np.zeros(3))
    writer.close(Graph(), RunInfo(backend="b", complete=False))
    entries = [{"path": sound.name, "prefix": f"p{number}/"} for number in range(3000)] + [{"path": other.name}]
    manifest = tmp_path / "run.json"
    manifest.write_text(json.dumps({"format": "qdebug.manifest", "version": 1, "parts": entries}))
    real, calls = verify_module.subprocess.run, []

    def run(command, **facts):
        calls.append(json.loads(facts["input"]))
        return real(command, **facts)

    monkeypatch.setattr(verify_module.subprocess, "run", run)
    whole, alone = verify(manifest), verify(sound)
    assert calls == [[str(sound), str(other)], [str(sound)]]
    assert (whole.path, whole.tensors, whole.bytes) == (manifest, alone.tensors + 1, alone.bytes + 24)
    assert (alone.complete, whole.complete) == (True, False)


def test_how_a_reader_ended_that_told_nothing_is_said():
    assert verify_module._describe_end(-11) == "the process that read it was ended by SIGSEGV"
    assert verify_module._describe_end(0) == "the process that read it ended with code 0"
    assert verify_module._describe_end(3) == "the process that read it ended with code 3"
