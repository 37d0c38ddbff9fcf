"""The datasets of a recording as plain HDF5 programs read them: the same bits that qdebug reads."""

import shutil
import subprocess
import urllib.parse

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recording_parts import count_sound

from qdebug.model import Graph, RunInfo
from qdebug.model.dtypes import LOGICAL_DTYPES, logical_dtype
from qdebug.recording.format.link_names import link_of, name_of
from qdebug.recording.format.specification import physical_dtype, place_key
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.recorder import Recorder
from qdebug.recording.writing import datasets as datasets_module
from qdebug.recording.writing.pack import pack
from qdebug.recording.writing.write import RecordingWriter

HOSTILE = [
    *("", ".", "..", "../x", "/", "a/b", "a%2Fb", "a%b", "%", "%~", "/a", "a/", "./a", "a//b"),
    *("\0", "a\0b", "a\0", "\ud800", "\udfffa", "x" * 300, "/" * 600, "名" * 600, "naïve", "\x1b[31m", "\x85", "a b"),
]


def bits(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).tobytes()


def write(path, arrays, **keys):
    """Write arrays by tensor, sample and step."""
    writer = RecordingWriter(path)
    for (name, *place), array in arrays.items():
        writer.append(name, np.asarray(array), (*place, 0, 0)[:2], **keys)
    writer.close(Graph(), RunInfo(backend="b"))
    return path


def shown(file, recording, name, sample, step):
    """Return the values of a tensor as plain h5py has them, in the type of the file."""
    place = () if recording.graph.is_constant(name) else (sample, step)[: 2 if recording.steps > 1 else 1]
    found = file["tensors" if place else "constants"][link_of(name)]
    if isinstance(found, h5py.Group):
        found, place = found[place_key(sample, step, steps=recording.steps)], ()
    out = np.empty(found.shape[len(place) :], physical_dtype(logical_of(recording, name, sample, step)))
    space = found.id.get_space()
    if place and out.size:
        space.select_hyperslab((*place, *(0,) * out.ndim), (*(1,) * len(place), *out.shape))
    if out.size:
        memory = h5py.h5s.create_simple(out.shape) if out.ndim else h5py.h5s.create(h5py.h5s.SCALAR)
        found.id.read(memory, space, out, mtype=found.id.get_type())
    return out


def logical_of(recording, name, sample, step):
    return recording.load(name, sample, step).dtype.name


def assert_shown(path):
    """Check that plain h5py shows what the recording holds, of every tensor, sample and step."""
    count = 0
    with h5py.File(path) as file, FileRecording(path) as recording:
        for name in recording.names:
            for place in recording.places(name):
                if recording.has(name, *place):
                    array, seen = recording.load(name, *place), shown(file, recording, name, *place)
                    assert seen.shape == array.shape
                    stored = array if array.dtype.itemsize != 1 or array.dtype.kind == "b" else array.view(np.uint8)
                    if array.dtype.name in ("int4", "int2", "uint4", "uint2"):
                        stored = array.astype(seen.dtype)
                    assert bits(seen) == bits(stored), name
                    count += 1
    assert count_sound(path) >= count
    return count


@pytest.mark.parametrize("samples", [1, 3])
def test_every_dtype(tmp_path, samples):
    rng = np.random.default_rng(0)
    arrays = {
        (logical, sample): rng.integers(0, 2, (2, 5)).astype(logical_dtype(logical))
        for logical in LOGICAL_DTYPES
        for sample in range(samples)
    }
    assert assert_shown(write(tmp_path / "run.h5", arrays)) == len(arrays)


@pytest.mark.parametrize(("samples", "steps"), [(1, 1), (4, 1), (3, 5), pytest.param(3, 70, marks=pytest.mark.slow)])
def test_every_shape(tmp_path, samples, steps):
    rng = np.random.default_rng(0)
    shapes = [(), (1,), (0,), (3, 0, 2), (2, 3), (1,) * 9, (1, 2) * 15, (1,) * 31, (1,) * 32]
    arrays = {
        (str(at), sample, step): rng.standard_normal(shape)
        for at, shape in enumerate(shapes)
        for sample in range(samples)
        for step in range(steps)
    }
    path = write(tmp_path / "run.h5", arrays)
    assert assert_shown(path) == len(arrays)
    lead = (samples, steps) if steps > 1 else (samples,)
    with h5py.File(path) as file:
        for at, shape in enumerate(shapes):
            found = file["tensors"][str(at)]
            if len(shape) + len(lead) <= 32:
                assert found.shape == (*lead, *shape)
            else:
                assert len(found) == samples * steps


def test_equal_samples_lie_at_one_place(tmp_path):
    path = write(tmp_path / "run.h5", {("x", sample): np.full((5, 5), sample // 2) for sample in range(6)})
    assert assert_shown(path) == 6
    with h5py.File(path) as file:
        found = file["tensors"]["x"].id
        offsets = [found.get_chunk_info_by_coord((sample, 0, 0)).byte_offset for sample in range(6)]
    assert offsets[::2] == offsets[1::2]
    assert len(set(offsets)) == 3


def test_a_tensor_whose_shape_or_dtype_changes_is_a_group(tmp_path):
    arrays = {("x", 0): np.zeros((1, 2)), ("x", 2): np.ones((1, 3)), ("y", 0): np.zeros(2), ("y", 2): np.zeros(2, "i4")}
    path = write(tmp_path / "run.h5", arrays)
    assert assert_shown(path) == 4
    with h5py.File(path) as file:
        assert list(file["tensors"]["x"]) == ["0", "2"]
        assert file["tensors"]["x"]["2"][()].tolist() == [[1, 1, 1]]
        assert file["tensors"]["x"].attrs["recorded"].tolist() == [0, 2]
        assert {name: file["tensors"]["y"][name].dtype.name for name in "02"} == {"0": "float64", "2": "int32"}


@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16", "complex64"])
def test_samples_without_values_are_told(tmp_path, dtype):
    arrays = {("x", sample): np.ones((1, 2)).astype(logical_dtype(dtype)) for sample in (1, 4)}
    path = write(tmp_path / "run.h5", {**arrays, ("y", 5): np.zeros(1)})
    assert assert_shown(path) == 3
    with h5py.File(path) as file:
        found = file["tensors"]["x"]
        assert found.shape == (6, 1, 2)
        assert (found.attrs["missing"], found.attrs["recorded"].tolist()) == (4, [1, 4])
        assert bool(np.isnan(found[0]).all()) == (dtype != "int8")
        assert found[4].tolist() == [[1, 1]]
        assert "missing" not in file["tensors"]["y"].attrs or file["tensors"]["y"].attrs["missing"] == 5


def test_many_samples_apart_take_little_room(tmp_path):
    arrays = {("x", 0): np.zeros(3), ("x", 2**32 - 2): np.ones(3), ("y", 7): np.ones(3)}
    path = write(tmp_path / "run.h5", arrays)
    assert path.stat().st_size < 50_000
    with h5py.File(path) as file:
        assert file["tensors"]["x"].shape == (2**32 - 1, 3)
        assert file["tensors"]["x"][2**32 - 2].tolist() == [1, 1, 1]
    assert count_sound(path) == 3


def test_extents_beyond_hdf5_are_a_group(tmp_path):
    path = write(tmp_path / "run.h5", {("x", 2**32 - 2, 2**32 - 2): np.ones(3)})
    assert assert_shown(path) == 1
    with h5py.File(path) as file:
        assert list(file["tensors"]["x"]) == ["4294967294,4294967294"]


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_large_samples_are_several_chunks(tmp_path, monkeypatch, most):
    """As those above 2 GiB are: a chunk is a run of the payload, and the last one may reach beyond it."""
    monkeypatch.setattr(datasets_module, "MAX_PIECE", most * 4)
    rng = np.random.default_rng(0)
    shapes = [(11,), (4, 6), (3, 5, 2), (2, 2, 13), (1, 1, 1, 9), (7, 3)]
    arrays = {
        (str(at), sample): rng.standard_normal(shape, np.float32)
        for at, shape in enumerate(shapes)
        for sample in range(3)
    }
    path = write(tmp_path / "run.h5", arrays)
    assert assert_shown(path) == len(arrays)
    with h5py.File(path) as file:
        assert all(np.prod(found.chunks) <= most for found in file["tensors"].values())
    with FileRecording(path) as recording:
        assert not recording._container.rewritten


def test_what_was_not_kept_in_full(tmp_path):
    with Recorder(tmp_path / "run.h5", backend="b", keep=["s=stats", "e=elements:9"]) as rec:
        for sample in range(2):
            rec.at(sample)
            rec.put("s", np.arange(100.0).reshape(4, 25))
            rec.put("e", np.arange(100.0).reshape(4, 25) + sample)
    with h5py.File(tmp_path / "run.h5") as file, FileRecording(tmp_path / "run.h5") as recording:
        for name, kept in (("s", b"statistics"), ("e", b"elements")):
            found = file["tensors"][name]
            assert (found.shape, found.attrs["kept"], found.attrs["missing"]) == ((0, 4, 25), kept, 2)
            index = file["graph"]["index"][:]
            rows = index[index["tensor"] == found.attrs["row"]]
            assert rows["max"].tolist() == [99.0, 99.0 + (name == "e")]
        for sample in range(2):
            kept = recording.kept("e", sample)
            assert np.array_equal(file["elements"]["e"][f"{sample}.values"], kept.values)
            assert np.array_equal(file["elements"]["e"][f"{sample}.positions"], kept.positions)
    count_sound(tmp_path / "run.h5")


def test_attributes_explain_the_tensor(tmp_path):
    with Recorder(tmp_path / "run.h5", backend="b") as rec:
        rec.constant("w", np.zeros((2, 4), np.int8), scale=[0.5, 0.25], axis=0)
        rec.put("x", np.zeros((1, 4), np.uint8), scale=np.float32(0.1), zero_point=128, layout="NC")
        facts = {"node": "fc", "op": "Gemm", "inputs": ("x", "w"), "scale": 0.5, "zero_point": -3, "qmin": -127}
        rec.put("y", np.zeros((1, 2), np.int8), **facts, multiplier=7, shift=2, stands_for="z")
        rec.outputs("y")
    with h5py.File(tmp_path / "run.h5") as file:
        w, x, y = (
            dict(file[group][name].attrs) for group, name in (("constants", "w"), ("tensors", "x"), ("tensors", "y"))
        )
    assert (w["scale"].tolist(), w["zero_point"], w["axis"], w["role"]) == ([0.5, 0.25], 0, 0, b"constant")
    assert (x["scale"], x["scale"].dtype, x["zero_point"], x["layout"]) == (np.float32(0.1), "f4", 128, b"NC")
    assert (x["qmin"], x["qmax"], x["role"], x["dtype"], x["kept"]) == (0, 255, b"input", b"uint8", b"full")
    assert "node" not in x
    assert (y["name"], y["node"], y["op"], y["role"], y["stands_for"]) == (b"y", b"fc", b"Gemm", b"output", b"z")
    assert (y["scale"], y["zero_point"], y["qmin"], y["qmax"], y["multiplier"], y["shift"]) == (
        0.5,
        -3,
        -127,
        127,
        7,
        2,
    )


@pytest.mark.parametrize("count", [4096, 4097, 70_000])
def test_large_scales_are_a_dataset(tmp_path, count):
    scale, zero_point = np.linspace(1, 2, count, dtype=np.float32), np.arange(count) % 5
    with Recorder(tmp_path / "run.h5", backend="b") as rec:
        rec.put("x", np.zeros(1))
        for name in "vw":
            rec.constant(name, np.zeros((count, 1), np.int8), scale=scale, zero_point=zero_point, axis=0)
    with h5py.File(tmp_path / "run.h5") as file:
        for name in "vw":
            attrs = file["constants"][name].attrs
            assert ("scale" in attrs) == (count <= 4096)
            found = attrs["scale"] if "scale" in attrs else file[attrs["scale_at"]][()]
            assert np.array_equal(found, scale)
            assert np.array_equal(file[attrs["zero_point_at"]][()], zero_point)
        assert len(file["quant"]) == 1 + (count > 4096)


def test_a_scale_for_each_block(tmp_path):
    scale = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    with Recorder(tmp_path / "run.h5", backend="b") as rec:
        rec.put("x", np.zeros(1))
        rec.constant("w", np.zeros((4, 64), np.int8), dtype="int4", scale=scale, axis=1, block_size=32)
    with h5py.File(tmp_path / "run.h5") as file:
        attrs = file["constants"]["w"].attrs
        assert np.array_equal(attrs["scale"], scale)
        assert (attrs["axis"], attrs["block_size"], attrs["dtype"], attrs["qmin"]) == (1, 32, b"int4", -8)


@pytest.mark.parametrize("steps", [1, 3])
def test_a_scale_for_each_sample(tmp_path, steps):
    with Recorder(tmp_path / "run.h5", backend="b") as rec:
        for sample in range(4):
            for step in range(steps):
                rec.at(sample, step)
                rec.put("x", np.zeros(2, np.int8), scale=0.5 + sample + 10 * step, zero_point=sample)
    with h5py.File(tmp_path / "run.h5") as file:
        attrs = file["tensors"]["x"].attrs
        wanted = 0.5 + np.arange(4)[:, None] + 10 * np.arange(steps)
        assert np.array_equal(attrs["scale_by_sample"], wanted if steps > 1 else wanted[:, 0])
        assert attrs["quant_varies"] == 1
        assert attrs["zero_point_by_sample"].reshape(4, steps)[:, 0].tolist() == [0, 1, 2, 3]


def test_hostile_names_stay_in_their_group(tmp_path):
    arrays = {(name,): np.full(3, number) for number, name in enumerate(HOSTILE)}
    path = write(tmp_path / "run.h5", arrays)
    assert assert_shown(path) == len(HOSTILE)
    with h5py.File(path) as file:
        assert list(file) == ["constants", "graph", "tensors"]
        assert len(file["tensors"]) == len(HOSTILE)
        for number, name in enumerate(HOSTILE):
            found = file["tensors"][link_of(name)]
            assert found[0].tolist() == [number] * 3
            assert found.parent.name == "/tensors"
            encoded = name.encode("utf-8", "surrogatepass")
            assert bytes(found.attrs["name"]).rstrip(b"\0") == encoded.rstrip(b"\0")
            link = link_of(name)
            assert name_of(link) == (None if b"%~" in link else name)
        assert "/tensors/a%2Fb" in file
    with Recorder(tmp_path / "parts.h5", backend="b", keep="elements:2") as rec:
        for name in HOSTILE:
            if name.isprintable() and name:
                rec.put(name, np.arange(50.0))
    count_sound(tmp_path / "parts.h5")


@given(st.text(st.characters(codec=None), max_size=8), st.text(st.sampled_from("%/.~2F\0\ud800é"), max_size=6))
def test_a_link_stands_for_one_name(first, second):
    for name in (first, second, first + second):
        link = link_of(name)
        assert b"/" not in link
        assert b"\0" not in link
        assert link not in (b"", b".", b"..")
        assert name_of(link) == name
        if name and "\ud800" <= max(name) <= "\udfff":
            continue
        if name and not any("\ud800" <= letter <= "\udfff" for letter in name):
            assert urllib.parse.unquote(link.decode()) == name
    assert (link_of(first) == link_of(second)) == (first == second)


def everything(path):
    """Record a bit of every form."""
    with Recorder(path, backend="b", keep=["kept=elements:5", "counted=stats"]) as rec:
        rec.constant("w", np.arange(6, dtype=np.int8).reshape(2, 3), scale=[0.5, 0.25], axis=0)
        for sample in range(3):
            for step in range(30):
                rec.at(sample, step)
                rec.put("x", np.full((1, 3), sample + step / 100, np.float32), scale=None)
                rec.put("code", np.full((2,), step, np.int8), scale=0.1, zero_point=3)
                rec.put("scalar", np.float64(step))
                rec.put("grows", np.full((1, step + 1), sample, np.float16))
                rec.put("empty", np.zeros((0, 4), np.int16))
                rec.put("kept", np.arange(40.0))
                rec.put("counted", np.arange(40.0))
                rec.put("a/b%", np.full(700, step * sample, np.int32))
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_reader_that_is_not_the_library(tmp_path, packed):
    pyfive = pytest.importorskip("pyfive", reason="pyfive is not installed")
    path = everything(tmp_path / "run.h5")
    if packed:
        pack(path)
    count = 0
    with h5py.File(path) as file, pyfive.File(path) as other:
        for group in ("tensors", "constants", "elements"):
            names = []
            file[group].visititems(lambda name, item, names=names: names.append(name))
            for name in names:
                seen, found = other[group][name], file[group][name]
                assert set(seen.attrs) == set(found.attrs)
                for attribute, value in found.attrs.items():
                    assert np.array_equal(np.asarray(seen.attrs[attribute]), np.asarray(value)), attribute
                if isinstance(found, h5py.Dataset):
                    assert (seen.shape, seen.dtype) == (found.shape, found.dtype)
                    assert bits(seen[...]) == bits(found[...]), name
                    count += 1
    assert count > 100


@pytest.mark.parametrize("packed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_h5dump_and_h5repack_read_it(tmp_path, packed):
    dump, repack = shutil.which("h5dump"), shutil.which("h5repack")
    if dump is None or repack is None:
        pytest.skip("the HDF5 tools are not installed")
    path = everything(tmp_path / "run.h5")
    if packed:
        pack(path)
    done = subprocess.run([dump, "-d", "/tensors/scalar", path], capture_output=True, text=True, timeout=60, check=True)
    assert "DATASPACE  SIMPLE { ( 3, 30 ) / ( 3, 30 ) }" in done.stdout
    subprocess.run([dump, path], capture_output=True, timeout=60, check=True)
    subprocess.run([repack, path, tmp_path / "again.h5"], capture_output=True, timeout=60, check=True)
    with FileRecording(path) as recording, FileRecording(tmp_path / "again.h5") as again:
        assert again._container.rewritten
        assert again.content_hash == recording.content_hash
        for event in range(again.event_count):
            again.check_payload(event)
    assert count_sound(tmp_path / "again.h5") == count_sound(path)


def test_a_dataset_that_shows_other_values_is_found(tmp_path):
    """Nobody but other programs reads it: the values that qdebug reads are still right."""
    path = write(tmp_path / "run.h5", {("x", sample): np.full(1000, sample) for sample in range(3)})
    with h5py.File(path) as file:
        info = file["tensors"]["x"].id.get_chunk_info(1)
    content = path.read_bytes()
    address = info.byte_offset.to_bytes(8, "little")
    at = content.rindex(address, 0, content.index(b"HEAP"))  # in the index of chunks, which is before the groups
    path.write_bytes(content[:at] + (info.byte_offset + 16).to_bytes(8, "little") + content[at + 8 :])
    with FileRecording(path) as recording:
        assert recording.load("x", 1)[0] == 1
        with pytest.raises(Exception, match="does not match the index"):
            recording.check_datasets()
    with pytest.raises(Exception, match="does not match the index"):
        count_sound(path)
