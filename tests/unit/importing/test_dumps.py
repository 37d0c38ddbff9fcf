"""Dumps: what is listed of a folder, an archive and a description, and everything hostile that is refused."""

import json
import os
import zipfile

import numpy as np
import pytest

from qdebug.errors import UsageError
from qdebug.importing.dumps import SOURCES, read_dump
from qdebug.importing.formats.arrays import TENSOR_NAMES


def listed(source, **options):
    """Return values by name and place."""
    with read_dump(source, **options) as (_, dump):
        return {(entry.name, entry.place): entry.load() for entry in dump.tensors}


def dumped(source):
    """Return what is listed, closed again."""
    with read_dump(source) as (_, dump):
        return dump


def arrays(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_a_folder_gives_each_file_and_each_array_of_an_archive_in_natural_order(tmp_path):
    (tmp_path / "block").mkdir()
    np.save(tmp_path / "layer10.npy", arrays(2, 3))
    np.save(tmp_path / "layer9.npy", arrays(3, 2).T)
    np.save(tmp_path / "block" / "conv.npy", np.float32(3))
    np.savez_compressed(tmp_path / "more.npz", a=arrays(4), **{"b/c": arrays(1)})
    (tmp_path / "log.txt").write_text("ran on device 3")
    with read_dump(tmp_path) as (form, dump):
        assert form == "arrays"
        assert [entry.name for entry in dump.tensors] == ["block/conv", "layer9", "layer10", "a", "b/c"]
        assert dump.ignored == {"log.txt": "not one of .npy, .npz, .safetensors, .pt, .pth, .tensorproto, .pb"}
        found = {entry.name: entry for entry in dump.tensors}
        assert np.array_equal(found["layer9"].load(), arrays(3, 2).T)
        assert found["block/conv"].load().shape == ()
        assert found["b/c"].location == "more.npz:b/c"


def test_numbered_folders_are_samples_and_steps_and_numbered_archives_samples(tmp_path):
    for sample in (1, 2, 10):
        for step in (0, 1):
            folder = tmp_path / "folders" / f"Result_{sample}" / f"step{step}"
            folder.mkdir(parents=True)
            np.save(folder / "y.npy", np.int8(10 * sample + step))
    found = listed(tmp_path / "folders")
    assert {place: int(value) for (_, place), value in found.items()} == {
        (0, 0): 10,
        (0, 1): 11,
        (1, 0): 20,
        (1, 1): 21,
        (9, 0): 100,
        (9, 1): 101,
    }
    (tmp_path / "archives").mkdir()
    for sample in (0, 1):
        np.savez(tmp_path / "archives" / f"out{sample}.npz", y=np.int8(sample))
    assert {place: int(v) for (_, place), v in listed(tmp_path / "archives").items()} == {(0, 0): 0, (1, 0): 1}
    assert dumped(tmp_path / "folders").remarks == ["3 samples by the numbers of 'Result_1' to 'Result_10'"]


def test_folders_that_are_no_samples_are_parts_of_names(tmp_path):
    for name in ("conv1", "head"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "out.npy", arrays(2))
    assert set(listed(tmp_path)) == {("conv1/out", (0, 0)), ("head/out", (0, 0))}


def test_an_archive_may_say_which_array_is_which_tensor(tmp_path):
    np.savez(tmp_path / "x.npz", **{TENSOR_NAMES: np.array([("t0", "a/b:0")]), "t0": arrays(2), "c": arrays(1)})
    assert set(listed(tmp_path / "x.npz")) == {("a/b:0", (0, 0)), ("c", (0, 0))}


def test_an_array_without_a_name_is_left_out_and_the_others_are_read(tmp_path):
    np.savez(tmp_path / "dump.npz", **{"": arrays(2), "a": arrays(3)})
    for source in (tmp_path / "dump.npz", tmp_path):
        assert dumped(source).ignored == {"dump.npz:.npy": "the array has no name"}
        assert [name for name, _ in listed(source)] == ["a"]


def described(folder, *tensors, **run):
    (folder / "dump.json").write_text(json.dumps({"format": "qdebug.dump", "version": 1, "tensors": tensors, **run}))
    return folder / "dump.json"


def test_a_description_reads_raw_files_of_any_type_and_byte_order(tmp_path):
    codes = np.arange(-3, 3, dtype=np.int16).reshape(2, 3)
    (tmp_path / "a.raw").write_bytes(b"head" + codes.astype(">i2").tobytes() + b"tail")
    (tmp_path / "b.bin").write_bytes(np.array([0x3F80, 0xC000], np.uint16).tobytes())
    np.savez(tmp_path / "c.npz", inner=arrays(2))
    source = described(
        tmp_path,
        {"file": "a.raw", "tensor": "a", "shape": [2, 3], "offset": 4, "byte_order": "big", "scale": 0.5, "order": 2},
        {"file": "b.bin", "tensor": "b", "shape": [2], "dtype": "bfloat16", "sample": 3, "step": 1, "order": 1},
        {"file": "c.npz", "array": "inner", "tensor": "c", "constant": True, "order": 0},
        defaults={"dtype": "int16"},
        backend="npu",
        outputs=["a"],
    )
    with read_dump(source) as (form, dump):
        c, b, a = dump.tensors
        assert form == "description"
        assert np.array_equal(a.load(), codes)
        assert a.facts == {"scale": 0.5}
        assert b.place == (3, 1)
        assert b.load().astype(np.float32).tolist() == [1, -2]
    assert (c.name, c.is_constant) == ("c", True)
    assert dump.facts == {"backend": "npu", "outputs": ("a",)}


RAW = {"file": "a.raw", "dtype": "int8", "shape": [4]}


@pytest.mark.parametrize(
    ("entry", "run", "said"),
    [
        ({**RAW, "file": "../a.raw"}, {}, "points outside the folder"),
        ({**RAW, "file": "/etc/passwd"}, {}, "points outside the folder"),
        ({**RAW, "file": "link.raw"}, {}, "points outside the folder"),
        ({**RAW, "file": "gone.raw"}, {}, "cannot be read"),
        ({**RAW, "file": "a\0b"}, {}, "has no file name"),
        ({**RAW, "shape": [5]}, {}, "has 4 bytes, but tensors[0] needs 5"),
        ({**RAW, "shape": [1 << 40, 1 << 40]}, {}, "has 4 bytes"),
        ({**RAW, "shape": [-4]}, {}, "not a list of extents"),
        ({**RAW, "shape": [True]}, {}, "not a list of extents"),
        ({**RAW, "shape": None}, {}, "has no shape"),
        ({**RAW, "offset": 2}, {}, "has 4 bytes"),
        ({**RAW, "offset": -1}, {}, "not a number of bytes"),
        ({**RAW, "dtype": "object"}, {}, "dtype 'object'"),
        ({**RAW, "dtype": None}, {}, "use a dtype name of numpy"),
        ({**RAW, "byte_order": "mixed"}, {}, "neither 'little' nor 'big'"),
        ({**RAW, "sample": -1}, {}, "not an integer"),
        ({**RAW, "sample": 1 << 40}, {}, "not an integer"),
        ({**RAW, "step": 0.5}, {}, "not an integer"),
        ({**RAW, "tensor": ""}, {}, "has no tensor name"),
        ({**RAW, "constant": 1}, {}, "not true or false"),
        ({**RAW, "skale": 1}, {}, "an unknown key 'skale'"),
        (RAW, {"version": 2}, '"version": 1'),
        (RAW, {"tensor": []}, "an unknown key 'tensor'"),
        (RAW, {"outputs": [1]}, "outputs and tensors must be lists"),
        (RAW, {"defaults": []}, "each tensor must be an object"),
    ],
)
def test_a_description_that_is_wrong_is_refused_in_a_sentence(tmp_path, entry, run, said):
    (tmp_path / "dump").mkdir()
    (tmp_path / "a.raw").write_bytes(bytes(4))
    (tmp_path / "dump" / "a.raw").write_bytes(bytes(4))
    (tmp_path / "dump" / "link.raw").symlink_to("/etc/hostname")
    with pytest.raises(UsageError) as caught:
        listed(described(tmp_path / "dump", entry, **run))
    assert said in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"format": "qdebug.dump"}', "[" * 100_000])
def test_what_is_no_description_is_refused(tmp_path, text):
    (tmp_path / "d.json").write_text(text)
    with pytest.raises(UsageError, match="cannot be parsed"):
        dumped(tmp_path / "d.json")


def header(shape, descr="'<f4'"):
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (header("(4000000000000,)") + bytes(16), "states 16000000000000 bytes of elements, but 16 follow"),
        (header("(4,)") + bytes(12), "states 16 bytes of elements, but 12 follow"),
        (header("(4,)") + bytes(20), "but 20 follow"),
        (header("(-1,)") + bytes(4), "bytes of elements"),
        (header("(1,)", "'|O'") + b"cos\nsystem\n", "Python objects, which qdebug never loads"),
        (header("(1,)", "[('a', '<f4')]") + bytes(4), None),
        (b"\x93NUMPY\x01\x00\xff\xff", "not a numpy array file"),
        (b"\x80\x04K\x01.", "not a numpy array file"),
        (b"", "not a numpy array file"),
        (b"\x93NUMPY\x09\x00" + bytes(20), "not a numpy array file"),
    ],
)
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_hostile_arrays_are_refused_before_anything_is_allocated(tmp_path, content, said, ending):
    if ending == "npy":
        (tmp_path / "a.npy").write_bytes(content)
    else:
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("a.npy", content)
    if said is None:  # a dtype with fields: no tensor is made of it, which whoever records it says
        assert dumped(tmp_path).tensors[0].dtype.names
        return
    with pytest.raises(UsageError) as caught:
        dumped(tmp_path)
    assert said in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "entry",
    [
        {"file": "\ud800.bin", "dtype": "int8", "shape": [1]},
        {"file": "a.npz", "array": "\udfff"},
        {"file": "a.npz", "array": "a", "tensor": "\ud800"},
        {"file": "a.npz", "array": "a", "node": "\ud800", "op": "Relu"},
        {"file": "a.npz", "array": "a", "attrs": {"\ud800": 1}},
    ],
)
def test_half_a_character_in_a_description_is_refused(tmp_path, entry):
    np.savez(tmp_path / "a.npz", a=arrays(1))
    plain = {"format": "qdebug.dump", "version": 1, "tensors": [entry]}
    (tmp_path / "d.json").write_text(json.dumps(plain))
    with pytest.raises(UsageError, match=r"not valid Unicode, near '.*\\ud[8f]"):
        dumped(tmp_path / "d.json")


def test_an_archive_that_says_to_be_far_larger_than_its_file_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", header("(4,)") + bytes(16))
        archive.filelist[0].file_size = 1 << 31
    with pytest.raises(UsageError, match="claims to contain 1 arrays of 2147483648 bytes"):
        dumped(tmp_path / "bomb.npz")


def test_a_damaged_archive_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", a=arrays(300))
    whole = (tmp_path / "a.npz").read_bytes()
    for content in (whole[:-30], b"PK\x03\x04", whole[:400] + b"\xff" * 100 + whole[500:]):
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(UsageError, match="is not a numpy array file, or is damaged"):
            listed(tmp_path / "a.npz")


def test_nothing_waits_for_a_pipe_or_follows_a_link_out_of_the_folder(tmp_path):
    folder = tmp_path / "dump"
    folder.mkdir()
    np.save(tmp_path / "secret.npy", arrays(2))
    (folder / "link.npy").symlink_to(tmp_path / "secret.npy")
    np.save(folder / "a.npy", arrays(2))
    assert dumped(folder).ignored == {"link.npy": "it points outside the folder"}
    os.mkfifo(folder / "pipe.npy")
    with pytest.raises(UsageError, match=r"pipe\.npy' cannot be read"):
        dumped(folder)


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path):
    np.save(tmp_path / "a.npy", arrays(2))
    with read_dump(tmp_path) as (_, dump):
        np.save(tmp_path / "a.npy", arrays(3))
        with pytest.raises(UsageError, match="changed while it was being read"):
            dump.tensors[0].load()


def test_two_files_of_one_tensor_are_an_error(tmp_path):
    np.save(tmp_path / "a.npy", arrays(2))
    np.savez(tmp_path / "b.npz", a=arrays(2))
    with pytest.raises(UsageError, match="contain tensor 'a' for sample 0"):
        dumped(tmp_path)


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda path: (path / "x.raw").write_bytes(b"1"), "litert-debugger"),
        (lambda path: (path / "x.txt").write_text("1"), ".npz"),
        (lambda path: None, ".npz"),
    ],
)
def test_a_folder_without_tensors_is_an_error_with_a_way_on(tmp_path, make, hint):
    make(tmp_path)
    with pytest.raises(UsageError, match="contains no readable tensor") as caught:
        dumped(tmp_path)
    assert hint in caught.value.hint


def test_unknown_sources_are_refused(tmp_path):
    (tmp_path / "a.pt").write_bytes(b"PK")
    for path in (tmp_path / "a.pt", tmp_path / "gone"):
        with pytest.raises(UsageError):
            dumped(path)
    assert {"arrays", "description", "litert-debugger"} < set(SOURCES)
