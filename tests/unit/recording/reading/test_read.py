import copy
import errno
import fcntl
import gc
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from recording_parts import OpenedFile, spans_of
from sweeps import sweep

from qdebug.errors import FormatVersionError, NotARecordingError, PayloadMismatchError, RecordingError
from qdebug.model import Graph, Recording, RunInfo
from qdebug.numerics.large_arrays import SPILL_FROM, SpillFile, mapping_of
from qdebug.recording.format.specification import STATISTICS, TABLES, TIMES
from qdebug.recording.reading import read
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.recorder import Recorder
from qdebug.recording.writing.recovery import recover
from qdebug.recording.writing.write import RecordingWriter


def open_descriptors():
    return sum(1 for _ in Path("/dev/fd").iterdir())


class TestWhatIsNoRecording:
    def test_no_file(self, tmp_path):
        with pytest.raises(NotARecordingError, match="There is no file") as caught:
            FileRecording(tmp_path / "no.h5")
        assert caught.value.hint

    @pytest.mark.parametrize(
        "content", [b"", b"\x89", b"hello", b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a\n" + bytes(500)]
    )
    def test_other_contents(self, tmp_path, content):
        (tmp_path / "x.h5").write_bytes(content)
        with pytest.raises(RecordingError) as caught:
            FileRecording(tmp_path / "x.h5")
        assert str(tmp_path / "x.h5") in str(caught.value)
        assert caught.value.hint

    def test_a_folder(self, tmp_path):
        with pytest.raises(NotARecordingError, match="it is a directory"):
            FileRecording(tmp_path)

    def test_a_pipe_does_not_block(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(NotARecordingError, match="not a regular file"):
            FileRecording(tmp_path / "pipe")

    def test_a_name_with_nul(self, tmp_path):
        with pytest.raises(NotARecordingError, match="cannot be opened"):
            FileRecording(f"{tmp_path}/a\0b")

    def test_other_hdf5(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["data"] = np.zeros(3)
        with pytest.raises(NotARecordingError, match="HDF5 file but not a qdebug recording"):
            FileRecording(tmp_path / "x.h5")

    def test_hdf5_behind_a_user_block(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w", userblock_size=512) as file:
            file["data"] = np.zeros(3)
        with pytest.raises(NotARecordingError):
            FileRecording(tmp_path / "x.h5")

    def test_an_unfinished_part(self, tmp_path):
        writer = RecordingWriter(tmp_path / "run.h5")
        writer.append("x", np.zeros(3))
        with pytest.raises(RecordingError):
            FileRecording(tmp_path / "run.h5.part")
        writer.discard()

    def test_a_journal_without_its_values(self, tmp_path):
        writer = RecordingWriter(tmp_path / "run.h5")
        writer.append("x", np.zeros(3))
        writer.leave()
        (tmp_path / "run.h5.part").unlink()
        with pytest.raises(RecordingError, match=r"journal of an unfinished run.*run\.h5\.part.*missing") as error:
            FileRecording(tmp_path / "run.h5.journal")
        assert "Put that file back" in error.value.hint
        assert "qdebug file recover" in error.value.hint
        (tmp_path / "run.h5.journal").rename(tmp_path / "odd.name")
        with pytest.raises(RecordingError, match="is the journal of a recording, not the recording") as error:
            FileRecording(tmp_path / "odd.name")
        assert "odd.name' -o OUT.h5" in error.value.hint

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_an_unreadable_file(self, recorded):
        recorded.chmod(0)
        with pytest.raises(NotARecordingError, match="permission denied"):
            FileRecording(recorded)


class TestVersions:
    @pytest.mark.parametrize("version", [3, 99, 2**31 - 1])
    def test_a_newer_format_is_refused_by_name(self, recorded, version):
        with OpenedFile(recorded, "a") as file:
            file.attrs.modify("format_version", np.int32(version))
        with pytest.raises(FormatVersionError, match=rf"\b{version}\b.*\b2\b") as caught:
            FileRecording(recorded)
        assert "pip install" in caught.value.hint

    def test_a_newer_format_is_refused_before_its_tables_are_looked_at(self, recorded):
        with OpenedFile(recorded, "a") as file:
            file.attrs.modify("format_version", np.int32(3))
            for table in (*TABLES, "t"):
                del file[table]
        with pytest.raises(FormatVersionError):
            FileRecording(recorded)

    @pytest.mark.parametrize("value", [np.int32(0), np.int32(-1), np.float64(1), np.array([1]), "1", np.bytes_("1")])
    def test_versions_that_are_none(self, recorded, value):
        with OpenedFile(recorded, "a") as file:
            del file.attrs["format_version"]
            file.attrs["format_version"] = value
        with pytest.raises(RecordingError):
            FileRecording(recorded)

    @pytest.mark.parametrize("attribute", ["format_version", "complete"])
    def test_a_missing_attribute_is_named(self, recorded, attribute):
        with OpenedFile(recorded, "a") as file:
            del file.attrs[attribute]
        with pytest.raises(RecordingError, match=attribute):
            FileRecording(recorded)

    def test_what_later_versions_may_add_is_ignored(self, recorded):
        with OpenedFile(recorded, "a") as file:
            file.attrs["mood"] = np.int32(3)
            file["histograms"] = np.zeros((3, 7))
            for name in ("index", "tensors", "nodes", "quants", "strings"):
                table = file[name][:]
                wider = np.zeros(
                    len(table), dtype=[("added", "<f4"), *((f, table.dtype[f]) for f in table.dtype.names)]
                )
                for field in table.dtype.names:
                    wider[field] = table[field]
                del file[name]
                file[name] = wider
        with FileRecording(recorded) as recording:
            assert recording.load("z", 1)[0, 0] == 1.0
            assert recording.graph.nodes[0].name == "conv"

    @pytest.mark.parametrize("table", TABLES)
    def test_a_missing_table_is_named(self, recorded, table):
        with OpenedFile(recorded, "a") as file:
            del file[table]
        with pytest.raises(RecordingError, match=f"/{table}"):
            FileRecording(recorded)

    @pytest.mark.parametrize(
        ("table", "field"),
        sweep(((n, f) for n, d in TABLES.items() for f in d.names or () if f not in (*STATISTICS, *TIMES)), 12),
    )
    def test_a_missing_field_is_refused(self, recorded, table, field):
        without_field(recorded, table, field)
        with pytest.raises(RecordingError, match=field):
            FileRecording(recorded)

    @pytest.mark.parametrize("field", sweep(STATISTICS, 3))
    def test_a_missing_statistic_is_refused_if_a_row_has_it(self, tmp_path, field):
        with Recorder(tmp_path / "a.h5", backend="test", keep="stats") as recorder:
            recorder.put("x", np.float32([1.5, -2.0]))
        with FileRecording(tmp_path / "a.h5") as recording:
            assert recording.kept("x").statistics.high == 1.5
        without_field(tmp_path / "a.h5", "index", field)
        with pytest.raises(RecordingError, match=field):
            FileRecording(tmp_path / "a.h5")


def without_field(path, table, field):
    """Write a table of a recording anew, without one of its columns."""
    with OpenedFile(path, "a") as file:
        tables = file.get("graph", file)
        rows = tables[table][:]
        kept = [name for name in rows.dtype.names if name != field]
        del tables[table]
        tables[table] = rows[kept].astype([(name, rows.dtype[name]) for name in kept])


class TestReading:
    def test_a_value_may_have_the_quantization_of_another_tensor(self, tmp_path):
        """That of `first` is the first that is written, and `second` has it in one sample."""
        with Recorder(tmp_path / "x.h5", backend="test") as recorder:
            recorder.put("first", np.zeros(4, np.int8), scale=1.0)
            recorder.put("second", np.zeros(4, np.int8), scale=2.0)
            recorder.next_sample()
            recorder.put("second", np.zeros(4, np.int8), scale=1.0)
        with FileRecording(tmp_path / "x.h5") as recording:
            assert list(recording.event_quants) == [("second", 1, 0)]
            assert recording.event_quants["second", 1, 0].scale == 1

    def test_it_is_a_recording(self, recorded):
        with FileRecording(recorded) as recording:
            assert isinstance(recording, Recording)
            assert (recording.samples, recording.steps) == (2, 1)
            assert recording.names == ("w", "x", "y", "z", "big")
            assert recording.info.backend == "test"
            assert recording.info.complete

    def test_a_read_only_file_in_a_read_only_folder(self, recorded):
        recorded.chmod(0o400)
        recorded.parent.chmod(0o500)
        try:
            with FileRecording(recorded) as recording:
                assert recording.load("x").shape == (4, 3)
        finally:
            recorded.parent.chmod(0o700)

    def test_several_readers_at_once(self, recorded):
        with FileRecording(recorded) as first, FileRecording(recorded) as second, OpenedFile(recorded, "r") as third:
            assert np.array_equal(first.load("x"), second.load("x"))
            assert third.attrs["format_version"] in (1, 2)
            code = (
                "import sys; from qdebug.recording.reading.read import FileRecording; "
                "print(FileRecording(sys.argv[1]).names)"
            )
            result = subprocess.run(
                [sys.executable, "-c", code, recorded], capture_output=True, text=True, timeout=60, check=True
            )
            assert "big" in result.stdout

    def test_a_file_that_somebody_has_locked(self, recorded):
        descriptor = os.open(recorded, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            with FileRecording(recorded) as recording:
                assert recording.load("x").shape == (4, 3)
        finally:
            os.close(descriptor)

    def test_what_somebody_holds_is_not_read_again(self, recorded):
        with FileRecording(recorded) as recording:
            first = recording.load("x")
            assert np.shares_memory(first, recording.load("x"))
            assert not np.shares_memory(first, recording.load("x", 1))
            with pytest.raises(ValueError, match="WRITEABLE"):
                first.flags.writeable = True

    @pytest.mark.parametrize("name", ["big", "x"])
    def test_values_are_read_only(self, recorded, name):
        with FileRecording(recorded) as recording:
            array = recording.load(name)
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0

    def test_values_outlive_the_file_being_closed_and_removed(self, recorded):
        recording = FileRecording(recorded)
        big, small = recording.load("big", 1), recording.load("x", 1)
        recording.close()
        recording.close()
        recorded.unlink()
        del recording
        gc.collect()
        assert np.array_equal(big, np.arange(1 << 18, dtype=np.float32) + 1)
        assert small[0].tolist() == [1, 2, 3]

    def test_a_closed_recording_says_so(self, recorded):
        recording = FileRecording(recorded)
        recording.close()
        with pytest.raises(RecordingError, match="is closed"):
            recording.load("x")
        with pytest.raises(RecordingError, match="is closed"):
            recording.check_payload(0)

    def test_no_descriptor_is_lost(self, recorded, tmp_path):
        (tmp_path / "junk.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))

        def use():
            with FileRecording(recorded) as recording:
                recording.load("big")
            FileRecording(recorded).load("x")
            for other in ("junk.h5", "none.h5"):
                with pytest.raises(RecordingError):
                    FileRecording(tmp_path / other)

        use()
        gc.collect()
        before = open_descriptors()
        for _ in range(10):
            use()
        gc.collect()
        assert open_descriptors() == before

    def test_more_large_values_than_descriptors(self, tmp_path):
        writer = RecordingWriter(tmp_path / "run.h5")
        for number in range(80):
            writer.append(f"t{number}", np.full(1 << 18, number, dtype=np.float32))
        writer.close(Graph(), RunInfo(backend="t"))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_descriptors() + 30, limits[1]))
        try:
            with FileRecording(tmp_path / "run.h5") as recording:
                loaded = [recording.load(name) for name in recording.names]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert [float(array[-1]) for array in loaded] == list(range(80))

    def test_it_can_be_handed_to_another_process(self, recorded, monkeypatch, tmp_path):
        monkeypatch.chdir(recorded.parent)
        with FileRecording(recorded.name) as recording:
            pickled = pickle.dumps(recording)
        monkeypatch.chdir("/")
        with pickle.loads(pickled) as again:  # noqa: S301  our own
            assert again.load("x").shape == (4, 3)
            assert again.names == ("w", "x", "y", "z", "big")
        with copy.copy(again) as another:
            assert another.graph.nodes

    def test_a_compressed_rewrite_reads_the_same(self, recorded):
        with FileRecording(recorded) as recording:
            before = {name: recording.load(name, 1).copy() for name in recording.names}
        with OpenedFile(recorded, "a") as file:
            for group in (file["t"], *([file["constants"]] if "constants" in file else [])):
                for key in list(group):
                    data, kind = group[key][...], group[key].id.get_type()
                    del group[key]
                    group.create_dataset(
                        key, data=data, dtype=h5py.Datatype(kind), compression="gzip", shuffle=True, fletcher32=True
                    )
        with FileRecording(recorded) as recording:
            for name, array in before.items():
                assert np.array_equal(recording.load(name, 1), array)
            for event in range(recording.event_count):
                recording.check_payload(event)

    def test_a_file_that_is_replaced_while_the_library_opens_it(self, recorded, monkeypatch):
        with OpenedFile(recorded, "a") as file:
            file.attrs["foreign"] = 1
        real = h5py.h5f.open

        def swap(*arguments, **keys):
            other = recorded.with_suffix(".new")
            other.write_bytes(recorded.read_bytes())
            other.replace(recorded)
            return real(*arguments, **keys)

        monkeypatch.setattr(h5py.h5f, "open", swap)
        with pytest.raises(RecordingError, match="replaced while it was being opened"):
            FileRecording(recorded)


class TestCheckPayload:
    def test_intact_values_pass(self, recorded):
        with FileRecording(recorded) as recording:
            for event in range(recording.event_count):
                recording.check_payload(event)

    @pytest.mark.parametrize("name", ["w", "x", "big"])
    def test_one_flipped_bit_is_found_and_named(self, recorded, name):
        with FileRecording(recorded) as recording:
            number, event = next((e.payload, row) for row, e in enumerate(recording.events()) if e.tensor == name)
        place = spans_of(recorded)[1][number][-1]
        content = bytearray(recorded.read_bytes())
        content[place] ^= 0x10
        recorded.write_bytes(content)
        with FileRecording(recorded) as recording:
            with pytest.raises(RecordingError, match=repr(name)):
                recording.check_payload(event)
            others = [row for row, e in enumerate(recording.events()) if e.payload != number]
            for row in others:
                recording.check_payload(row)


class TestContentHash:
    def test_it_tells_recordings_apart_by_what_they_hold(self, tmp_path):
        def write(name, value, info=None):
            writer = RecordingWriter(tmp_path / name)
            writer.append("x", np.asarray(value))
            writer.close(Graph(), info or RunInfo(backend="t"))
            with FileRecording(tmp_path / name) as recording:
                return recording.content_hash

        first = write("a.h5", np.zeros(4))
        assert write("b.h5", np.zeros(4)) == first
        others = [
            write("c.h5", np.array([0, 0, 0, -0.0])),
            write("d.h5", np.zeros((2, 2))),
            write("e.h5", np.zeros(4, dtype=np.int64)),
            write("f.h5", np.zeros(4), RunInfo(backend="u")),
        ]
        assert len({first, *others}) == 5


class TestOthersReadIt:
    """The promise that plain tools read a recording."""

    def test_plain_h5py_sees_real_dtypes_shapes_and_values(self, tmp_path):
        named = {
            "float32": np.arange(6, dtype=np.float32).reshape(2, 3),
            "int8": np.array([-128, 127], dtype=np.int8),
            "uint64": np.array([2**64 - 1], dtype=np.uint64),
            "bool": np.array([True, False]),
            "complex64": np.array([1 + 2j], dtype=np.complex64),
            "scalar": np.array(2.5),
        }
        writer = RecordingWriter(tmp_path / "run.h5")
        for name, array in named.items():
            writer.append(name, array)
        writer.close(Graph(), RunInfo(backend="t"))
        with OpenedFile(tmp_path / "run.h5", "r") as file:
            assert sorted(file["/tensors"]) == sorted(named)
            for name, array in named.items():
                dataset = file["/tensors"][name]
                assert (dataset.dtype, dataset.shape) == (array.dtype, (1, *array.shape))
                assert np.array_equal(dataset[0], array)
            assert file.attrs["format"] == b"qdebug.recording"

    def test_plain_h5py_reads_bfloat16_and_int4_as_numbers(self, tmp_path):
        bfloat16, int4 = np.dtype("bfloat16"), np.dtype("int4")
        numbers = np.array([1.5, -2.0, 3.0e38, np.inf, np.nan, -0.0, 1e-40], dtype=np.float32)
        writer = RecordingWriter(tmp_path / "run.h5")
        writer.append("b", numbers.astype(bfloat16))
        writer.append("i", np.array([-8, -1, 7]).astype(int4))
        writer.close(Graph(), RunInfo(backend="t"))
        with OpenedFile(tmp_path / "run.h5", "r") as file:
            read = file["t/00000000"].astype(np.float32)[0]
            assert np.array_equal(read, numbers.astype(bfloat16).astype(np.float32), equal_nan=True)
            assert np.signbit(read[5])
            assert file["t/00000001"][0].tolist() == [-8, -1, 7]
            assert file["t/00000001"].dtype == np.int8

    def test_the_tables_are_plain(self, recorded):
        with OpenedFile(recorded, "r") as file:
            in_groups = file.attrs["format_version"] == 2
            assert set(file) == ({"tensors", "constants", "graph"} if in_groups else {*TABLES, "t"})
            index = file["index"][:]
            assert index["seq"].tolist() == list(range(9))
            enum = h5py.check_enum_dtype(file["index"].dtype["dtype"])
            assert index["dtype"][0] == enum["int8"]
            assert h5py.check_enum_dtype(file["tensors"].dtype["role"])["constant"] == 3
            assert index[1]["count"] == 12
            assert set(index["flags"].tolist()) <= {0, 2}  # nothing counted, some shared

    def test_h5dump_reads_it(self, tmp_path, h5dump):
        writer = RecordingWriter(tmp_path / "run.h5")
        writer.append("b", np.array([1.5, -2.0, np.inf], dtype=np.float32).astype(np.dtype("bfloat16")))
        writer.append("x", np.array([[7, -7]], dtype=np.int8))
        writer.close(Graph(), RunInfo(backend="t"))
        text = h5dump(tmp_path / "run.h5")
        assert 'DATASET "x"' in text
        assert "(0,0): 1.5, -2, inf" in text
        assert "(0,0,0): 7, -7" in text
        assert "H5T_STD_I8LE" in text


@pytest.fixture
def h5dump():
    """The program h5dump, as a function of the file that gives what it prints."""
    import shutil

    program = shutil.which("h5dump")
    if program is None:
        pytest.skip("h5dump is not installed")

    def dump(path):
        return subprocess.run([program, path], capture_output=True, text=True, timeout=60, check=True).stdout

    return dump


def test_opening_the_same_path_gives_a_file_recording(recorded):
    with FileRecording(str(recorded)) as recording:
        assert isinstance(recording, FileRecording)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (MemoryError(), "there is not enough memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "there is not enough memory"),
        (OSError(errno.EMFILE, "Too many open files"), "too many files are open"),
    ],
)
def test_what_this_process_ran_out_of_is_no_damage_of_the_file(tmp_path, monkeypatch, raised, said):
    with Recorder(tmp_path / "run.h5", backend="b") as rec:
        rec.put("x", np.ones(3, np.float32))

    def fail(*_args, **_named):
        raise raised

    with FileRecording(tmp_path / "run.h5") as recording:
        monkeypatch.setattr(read, "load_payload", fail)
        with pytest.raises(RecordingError, match=said) as caught:
            recording.load("x")
    assert "damaged" not in caught.value.message


def test_a_file_that_was_cut_off_says_how_much_of_it_is_there(tmp_path):
    whole = tmp_path / "run.h5"
    with Recorder(whole, backend="b") as rec:
        rec.put("x", np.ones(30_000, np.float32))
    size = whole.stat().st_size
    (tmp_path / "cut.h5").write_bytes(whole.read_bytes()[:50_000])
    with pytest.raises(RecordingError, match=rf"is truncated: only 50,000 of its {size:,} bytes are present"):
        FileRecording(tmp_path / "cut.h5")
    with pytest.raises(RecordingError, match="is truncated"):
        recover(tmp_path / "cut.h5")


@pytest.fixture
def huge(tmp_path):
    """A recording of a very large tensor, and the place of its values."""
    path = tmp_path / "huge.h5"
    values = np.arange(SPILL_FROM // 4 + 5, dtype=np.float32)
    with Recorder(path, backend="b") as rec:
        rec.put("huge", values)
    return path, path.read_bytes().index(values[:64].tobytes())


def changed(path, at):
    """Change a byte of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_values_that_are_not_what_was_recorded_are_not_given(recorded):
    with FileRecording(recorded) as recording:
        values = recording.load("big", 1).tobytes()
    changed(recorded, recorded.read_bytes().index(values) + 400)
    with FileRecording(recorded) as recording:
        assert recording.load("x").size == 12
        for _ in range(2):
            with pytest.raises(
                PayloadMismatchError, match=r"bytes of tensor 'big' in .*run\.h5' differ from what was"
            ) as caught:
                recording.load("big", 1)
        assert "Copy the file again" in caught.value.hint
        assert recording.load("big", 0).size


@pytest.mark.parametrize("place", [0, SPILL_FROM // 2, SPILL_FROM + 19])
def test_a_very_large_tensor_is_compared_with_its_hash_before_it_is_given(huge, place):
    path, at = huge
    changed(path, at + place)
    with FileRecording(path) as recording, pytest.raises(PayloadMismatchError, match="'huge'"):
        recording.load("huge")


def test_a_very_large_tensor_lies_in_a_file_that_nobody_else_can_cut(huge):
    """Memory stays flat, and the process does not end when somebody writes another recording over the file."""
    path, _ = huge
    with FileRecording(path) as recording:
        array = recording.load("huge")
        assert isinstance(mapping_of(array), SpillFile)
        os.truncate(path, 0)
        assert np.array_equal(array, np.arange(array.size, dtype=np.float32))


def test_a_file_that_is_cut_while_it_is_read_is_one_sentence(recorded, huge):
    recording = FileRecording(recorded)
    os.truncate(recorded, recorded.stat().st_size // 2)
    with pytest.raises(RecordingError, match="was changed while it was in use") as caught:
        [recording.load("big", sample) for sample in range(2)]
    assert not isinstance(caught.value, PayloadMismatchError)
    path, at = huge
    with FileRecording(path) as recording:
        os.truncate(path, at + (4 << 20))
        with pytest.raises(RecordingError, match="was changed while it was in use"):
            recording.load("huge")


@pytest.mark.parametrize("bug", [TypeError, KeyError, AttributeError])
def test_a_bug_of_this_package_is_not_blamed_on_the_file(recorded, monkeypatch, bug):
    def fail(*_args, **_named):
        raise bug("of our own")

    with FileRecording(recorded) as recording:
        monkeypatch.setattr(read, "load_payload", fail)
        with pytest.raises(bug, match="of our own"):
            recording.load("x")
    monkeypatch.setattr(read, "decode_run", fail)
    with pytest.raises(bug, match="of our own"):
        FileRecording(recorded)
