"""Packed recordings hold the same to the last bit, are smaller, and are read by plain h5py."""

import subprocess
import sys

import h5py
import ml_dtypes
import numpy as np
import pytest
from recording_parts import count_sound, rewrite_as_format_one, spans_of

from qdebug.errors import MissingExtraError, OutputExistsError, RecordingError, UsageError
from qdebug.model import Graph, Node, RunInfo
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.recording.format import payload as chunks
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.recorder import Recorder
from qdebug.recording.writing.pack import pack
from qdebug.recording.writing.write import RecordingWriter

RNG = np.random.default_rng(0)


@pytest.fixture(params=["gzip", "zstd"])
def codec(request):
    if request.param == "zstd":
        pytest.importorskip("zstandard", reason="the extra zstd is not installed")
    return request.param


def write(path, arrays):
    writer = RecordingWriter(path)
    for name, array in arrays.items():
        writer.append(name, array)
    writer.close(Graph([Node(name="n", op="Relu", inputs=("a",), outputs=("b",))]), RunInfo(backend="b"))
    return path


def arrays():
    steps = np.cumsum(RNG.integers(-1, 2, (1, 64, 70, 70)), axis=-1)
    return {
        "codes": steps.astype(np.int8),
        "floats": (steps / 7).astype(np.float32),
        "grid": (RNG.integers(-8, 8, (700, 700)) * np.float32(0.37)).astype(np.float32),
        "noise": RNG.random((300, 300)),
        "zeros": np.zeros((700, 700), np.float32),
        "long": np.arange(400_000, dtype=np.int64),
        "odd": steps[0, :7, :13, :11].astype(np.float16),
        "scalar": np.float32(3),
        "empty": np.zeros((0, 5)),
        "tiny": np.arange(5),
    }


@pytest.mark.usefixtures("made_in")
def test_everything_comes_back(tmp_path, codec):
    given = arrays()
    path = write(tmp_path / "run.h5", given)
    with FileRecording(path) as recording:
        before = recording.content_hash
    done = pack(path, codec=codec)
    assert done.after < 0.5 * done.before
    assert path.stat().st_size == done.after
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.h5"]
    with FileRecording(path) as recording:
        assert recording.content_hash == before
        for name, array in given.items():
            found = recording.load(name)
            assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert count_sound(path) == len(given)
    with FileRecording(path) as recording:
        assert recording.graph.nodes[0].name == "n"


@pytest.mark.usefixtures("made_in")
def test_every_dtype(tmp_path, codec):
    drawn = RNG.integers(0, 2, (40, 40))
    arrays = {each: drawn.astype(np.dtype(getattr(ml_dtypes, each, each))) for each in LOGICAL_DTYPES}
    path = write(tmp_path / "run.h5", arrays)
    pack(path, codec=codec)
    with FileRecording(path) as recording:
        for name, array in arrays.items():
            assert recording.load(name).tobytes() == array.tobytes()
            assert recording.load(name).dtype == array.dtype


def test_plain_h5py_reads_gzip(tmp_path):
    given = arrays()
    path = write(tmp_path / "run.h5", given)
    pack(path)
    with h5py.File(path) as file:
        tensors = file["tensors"]
        for name, array in given.items():
            assert np.array_equal(tensors[name][0], array)
        assert tensors["codes"].compression == "gzip"
        assert not tensors["codes"].shuffle
        assert tensors["floats"].chunks is not None
        assert tensors["tiny"].chunks is None


def test_samples_of_a_tensor_are_chunks_of_one_dataset(tmp_path, codec):
    """Noise is stored as it is among chunks that are smaller, and equal samples are stored once."""
    samples = [
        np.zeros((40, 100), np.int32),
        RNG.integers(-(2**31), 2**31, (40, 100), np.int32),
        np.ones((40, 100), "i4"),
    ]
    writer = RecordingWriter(tmp_path / "run.h5")
    for number, array in enumerate([*samples, samples[0]]):
        writer.append("x", array, (number, 0))
        writer.append("y", array, (number, 0))
    writer.close(Graph(), RunInfo(backend="b"))
    pack(tmp_path / "run.h5", codec=codec)
    with h5py.File(tmp_path / "run.h5") as file:
        found = file["tensors"]["x"]
        assert found.chunks == (1, 40, 100)
        infos = [found.id.get_chunk_info_by_coord((number, 0, 0)) for number in range(4)]
        assert infos[1].size == samples[1].nbytes
        assert infos[0].byte_offset == infos[3].byte_offset
        if codec == "gzip":
            assert [np.array_equal(found[number], array) for number, array in enumerate(samples)] == [True] * 3
    with FileRecording(tmp_path / "run.h5") as recording:
        for number, array in enumerate([*samples, samples[0]]):
            assert np.array_equal(recording.load("x", number), array)
            assert np.array_equal(recording.load("y", number), array)
    assert count_sound(tmp_path / "run.h5") == 8
    pack(tmp_path / "run.h5", codec=codec)


@pytest.mark.parametrize("form", [1, 2])
def test_what_another_program_compressed_is_read(tmp_path, form):
    array = np.cumsum(RNG.integers(-1, 2, (60, 70, 8)), axis=0).astype(np.float32)
    path = write(tmp_path / "run.h5", {"x": array})
    if form == 1:
        rewrite_as_format_one(path)
    with h5py.File(path, "a") as file:
        group, name, chunk = (file["t"], "00000000", ()) if form == 1 else (file["tensors"], "x", (1,))
        data = group[name][...]
        del group[name]
        group.create_dataset(
            name, data=data, chunks=(*chunk, 7, 33, 5), compression="gzip", shuffle=True, fletcher32=True
        )
    with FileRecording(path) as recording:
        assert np.array_equal(recording.load("x"), array)
        recording.check_payload(0)


def test_format_one_is_packed_to_format_two(tmp_path):
    given = arrays()
    path = rewrite_as_format_one(write(tmp_path / "run.h5", given))
    with FileRecording(path) as recording:
        before = recording.content_hash
    pack(path)
    with h5py.File(path) as file:
        assert file.attrs["format_version"] == 2
        assert np.array_equal(file["tensors"]["noise"][0], given["noise"])
    with FileRecording(path) as recording:
        assert recording.content_hash == before


def test_elements_and_statistics_are_packed_too(tmp_path, codec):
    array = np.cumsum(RNG.integers(-1, 2, 100_000)).astype(np.int32)
    with Recorder(tmp_path / "run.h5", backend="b", keep=["x=elements:5000", "y=stats"]) as rec:
        rec.put("x", array)
        rec.put("y", array)
    pack(tmp_path / "run.h5", codec=codec)
    with FileRecording(tmp_path / "run.h5") as recording:
        kept = recording.kept("x")
        assert np.array_equal(kept.values, array[kept.positions])
        assert recording.kept("y").statistics.count == array.size
    count_sound(tmp_path / "run.h5")


def test_elsewhere_leaves_the_original(tmp_path):
    path = write(tmp_path / "run.h5", {"x": np.zeros(100_000)})
    before = path.read_bytes()
    assert pack(path, tmp_path / "out.h5").path == tmp_path / "out.h5"
    assert path.read_bytes() == before
    with pytest.raises(OutputExistsError):
        pack(path, tmp_path / "out.h5")
    pack(path, tmp_path / "out.h5", force=True)
    pack(tmp_path / "out.h5", tmp_path / "again.h5")


def test_a_damaged_recording_is_not_packed(tmp_path):
    path = write(tmp_path / "run.h5", {"x": np.arange(100_000)})
    at = spans_of(path)[1][0][0]
    content = bytearray(path.read_bytes())
    content[at + 5000] ^= 1
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="differ from what was recorded"):
        pack(path)
    assert path.read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.h5"]


def test_a_codec_that_nobody_knows(tmp_path):
    with pytest.raises(UsageError, match="'lz5'"):
        pack(tmp_path / "x", codec="lz5")


def test_without_the_package(tmp_path, monkeypatch):
    pytest.importorskip("zstandard", reason="the extra zstd is not installed")
    path = write(tmp_path / "run.h5", {"x": np.arange(10_000)})
    pack(path, codec="zstd")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match="zstandard") as caught:
        pack(path, codec="zstd")
    assert "qdebug[zstd]" in caught.value.hint
    with FileRecording(path) as recording, pytest.raises(MissingExtraError):
        recording.load("x")


def test_no_room_leaves_everything_as_it_was(tmp_path):
    path = write(tmp_path / "run.h5", {"x": RNG.random(200_000)})
    code = f"""
import resource, sys
from pathlib import Path
from qdebug.errors import RecordingError
from qdebug.recording.writing.pack import pack
sys.dont_write_bytecode = True
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    pack(Path({str(path)!r}))
except RecordingError as error:
    print(error)
"""
    before = path.read_bytes()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "cannot be written" in done.stdout
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.h5"]


@pytest.mark.parametrize("shape", [(1,), (5,), (3, 1 << 20), (7, 3, 500, 500), (1 << 22,), (2, 2, 2, 2, 2)])
@pytest.mark.parametrize("itemsize", [1, 2, 8])
def test_chunks_are_bounded_and_cover_everything(shape, itemsize):
    chunk = chunks.chunk_shape(shape, itemsize)
    assert np.prod(chunk) * itemsize <= 1 << 20
    assert all(1 <= size <= extent for size, extent in zip(chunk, shape, strict=True))
    count = len(list(chunks.chunks_of(shape, chunk)))
    assert count == np.prod([-(-extent // size) for extent, size in zip(shape, chunk, strict=True)])


@pytest.mark.parametrize("data", [b"", b"x" * 40, bytes(40)])
@pytest.mark.parametrize("filters", [(1,), (2, 1), (2,), (9,), (32015,)])
def test_a_chunk_that_rots_is_damage(data, filters):
    if 32015 in filters:
        pytest.importorskip("zstandard", reason="the extra zstd is not installed")
    with pytest.raises(ValueError, match="chunk"):
        chunks.decompress(data, filters, nbytes=64, itemsize=8)


def test_a_chunk_that_swells_is_not_inflated():
    import zlib

    bomb = zlib.compress(bytes(50 << 20))
    with pytest.raises(ValueError, match="chunk"):
        chunks.decompress(bomb, (1,), nbytes=64, itemsize=8)


def test_what_is_not_there_is_not_said_to_be_unwritable(tmp_path):
    with pytest.raises(RecordingError, match=r"There is no file .*nothing\.h5"):
        pack(tmp_path / "nothing.h5")
    assert list(tmp_path.iterdir()) == []


def test_damaged_values_are_blamed_on_the_file_that_has_them(tmp_path):
    path = write(tmp_path / "a.h5", arrays())
    at = max(span[0] for span in spans_of(path)[1] if span)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    before = path.read_bytes()
    with pytest.raises(RecordingError, match=r"The bytes of tensor .* in .*a\.h5'"):
        pack(path)
    assert path.read_bytes() == before
    assert [left.name for left in tmp_path.iterdir()] == ["a.h5"]


@pytest.mark.parametrize("level", [0, -1, 10, 99])
def test_a_level_that_there_is_not(tmp_path, level):
    path = write(tmp_path / "run.h5", {"a": np.zeros(9)})
    before = path.read_bytes()
    with pytest.raises(UsageError, match=f"Invalid level {level}; levels are 1 to 9") as error:
        pack(path, level=level)
    assert "--level 9" in error.value.hint
    assert path.read_bytes() == before


def test_a_payload_that_cannot_be_opened_is_damage_and_leaves_nothing(tmp_path):
    path = rewrite_as_format_one(write(tmp_path / "run.h5", {"a": np.ones(8, np.float32)}))
    with h5py.File(path, "a") as file:
        del file["t/00000000"]
        file.create_dataset("t/00000000", (8,), np.float32, chunks=(8,), compression="lzf")
    with pytest.raises(RecordingError, match="payload 0"):
        pack(path, tmp_path / "packed.h5")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("size", "packed"), [(1024, False), (1025, True)])
def test_small_payloads_are_left_as_they_are(tmp_path, size, packed):
    path = write(tmp_path / "run.h5", {"x": np.zeros(size, np.uint8)})
    pack(path)
    with h5py.File(path) as file:
        assert (file["tensors"]["x"].chunks is not None) == packed


def test_what_compression_would_make_larger_is_left_as_it_is(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, 4000, dtype=np.uint8)
    path = write(tmp_path / "run.h5", {"x": noise, "y": np.zeros(4000, np.uint8)})
    pack(path, level=9)
    with h5py.File(path) as file:
        assert [file["tensors"][name].chunks is not None for name in "xy"] == [False, True]
    with FileRecording(path) as recording:
        assert np.array_equal(recording.load("x"), noise)


@pytest.mark.parametrize("rows", [1, 3, 200])
def test_bytes_are_shuffled_where_that_helps(tmp_path, rows):
    """Small numbers in wide integers: their upper bytes are alike. One byte has nothing to shuffle."""
    wide = np.random.default_rng(0).integers(0, 200, (rows, 1000))
    path = write(tmp_path / "run.h5", {"wide": wide, "narrow": wide.astype(np.uint8) // 4})
    pack(path)
    with h5py.File(path) as file:
        found = file["tensors"]
        assert found["wide"].shuffle
        assert not found["narrow"].shuffle
        assert found["wide"].id.get_create_plist().get_filter(0)[2] == (8,)
        assert np.array_equal(found["wide"][0], wide)


def test_progress_counts_payloads_and_a_level_is_one_of_nine(tmp_path):
    path, seen = write(tmp_path / "run.h5", {f"t{at}": np.arange(at + 3) for at in range(4)}), []
    pack(path, progress=lambda *counts: seen.append(counts))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    for level in (1, 9):
        pack(path, level=level)
    for level in (0, 10):
        with pytest.raises(UsageError, match=f"Invalid level {level}"):
            pack(path, level=level)
