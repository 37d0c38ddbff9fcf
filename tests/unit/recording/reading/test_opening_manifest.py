"""Recordings of several processes are read as one, or it is said why not."""

import json
import os
import pickle
import resource
import shutil
from collections import Counter

import h5py
import numpy as np
import pytest

import qdebug
from qdebug.cli.main import main
from qdebug.errors import NotARecordingError, OutputExistsError, RecordingError, UsageError
from qdebug.model import Fidelity, Role
from qdebug.recording.format.specification import GRAPH_TABLES
from qdebug.recording.reading import opening
from qdebug.recording.reading.container import Container
from qdebug.recording.reading.opening import JoinedRecording, Part, join, read_manifest
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.reading.verify import verify
from qdebug.recording.recorder import Recorder


def value(name, sample):
    return np.full((2, 3), 10 * sample + len(name), np.float32)


def record(path, nodes, samples=2, *, complete=True, check=True, constant=True, start=0):
    """Record a chain of nodes; the first reads what is before it."""
    rec = Recorder(path, backend="b", model="net")
    if constant:
        rec.constant("w", np.ones(3))
    for sample in range(samples):
        rec.at(sample)
        for name in nodes:
            facts = {} if name == nodes[0] else {"node": f"n_{name}", "op": "Relu", "inputs": (f"{name[:-1]}",)}
            rec.put(name, value(name, start + sample), **facts)
        if check:
            rec.check({nodes[-1]: value(nodes[-1], start + sample)})
    rec.outputs(nodes[-1])
    rec.close(complete=complete)
    return path


@pytest.fixture
def ranks(tmp_path):
    """Two ranks of a pipeline: the second one is handed what the first has made."""
    return [record(tmp_path / "r0.h5", ["a", "aa", "aaa"]), record(tmp_path / "r1.h5", ["aaa", "aaaa"])]


def test_ranks_make_one_graph(tmp_path, ranks):
    join(ranks, tmp_path / "run.json")
    with qdebug.open_recording(tmp_path / "run.json") as whole:
        assert isinstance(whole, qdebug.Recording)
        assert [node.name for node in whole.graph.nodes] == ["n_aa", "n_aaa", "n_aaaa"]
        assert whole.graph.inputs == ("a",)
        assert whole.graph.tensors["aaa"].role is not Role.INPUT
        assert set(whole.names) == {"w", "a", "aa", "aaa", "aaaa"}
        assert (whole.samples, whole.steps) == (2, 1)
        assert whole.load("aaaa", 1).tolist() == value("aaaa", 1).tolist()
        assert whole.load("w", 1).tolist() == [1, 1, 1]
        assert not whole.has("aaaa", 2)
        assert (whole.info.fidelity, whole.info.complete) == (Fidelity.BIT_EQUAL, True)
        with pytest.raises(RecordingError, match="no tensor 'zzz'"):
            whole.load("zzz")
        with pytest.raises(RecordingError, match="sample 7"):
            whole.load("a", 7)
        again = pickle.loads(pickle.dumps(whole))  # noqa: S301  our own
        assert again.load("a").tolist() == value("a", 0).tolist()
        again.close()


def test_workers_continue_each_others_samples(tmp_path):
    paths = [record(tmp_path / f"w{number}.h5", ["a", "aa"], 2 + number, start=2 * number) for number in range(2)]
    join(paths, tmp_path / "run.json", by="samples")
    with qdebug.open_recording(tmp_path / "run.json") as whole:
        assert whole.samples == 5
        for sample in range(5):
            assert whole.load("aa", sample).tolist() == value("aa", sample).tolist()
        assert len(whole.graph.nodes) == 1
    one = record(tmp_path / "one.h5", ["a", "aa"], 5)
    result = qdebug.diff(one, tmp_path / "run.json")
    assert result.status == "identical"


def test_prefixes_tell_ranks_apart(tmp_path):
    paths = [record(tmp_path / "r0.h5", ["a", "aa"]), record(tmp_path / "r1.h5", ["a", "aa"])]
    join(paths, tmp_path / "run.json", prefixes=["r0/", "r1/"])
    with qdebug.open_recording(tmp_path / "run.json") as whole:
        assert {"r0/a", "r0/aa", "r1/a", "r1/aa", "r0/w"} <= set(whole.names)
        assert [node.inputs for node in whole.graph.nodes] == [("r0/a",), ("r1/a",)]


def test_one_part_that_is_not_whole_makes_the_whole_so(tmp_path):
    paths = [
        record(tmp_path / "r0.h5", ["a", "aa"]),
        record(tmp_path / "r1.h5", ["aa", "aaa"], complete=False, check=False),
    ]
    join(paths, tmp_path / "run.json")
    with qdebug.open_recording(tmp_path / "run.json") as whole:
        assert (whole.info.complete, whole.info.fidelity) == (False, Fidelity.UNKNOWN)


def test_what_is_said_of_single_samples_is_found_under_its_number(tmp_path):
    paths = []
    for number in range(2):
        with Recorder(tmp_path / f"w{number}.h5", backend="b", keep="z=stats") as rec:
            for sample in range(2):
                rec.at(sample)
                rec.put("y", np.ones(2, np.int8), scale=0.5 if sample == 0 else 0.25)
                rec.put("z", np.full(4, number))
        paths.append(tmp_path / f"w{number}.h5")
    join(paths, tmp_path / "run.json", by="samples")
    with qdebug.open_recording(tmp_path / "run.json") as whole:
        assert sorted(whole.event_quants) == [("y", 1, 0), ("y", 3, 0)]
        assert whole.kept("z", 3).statistics.mean == 1
        with pytest.raises(RecordingError, match="Only part of the values"):
            whole.load("z", 3)


def test_recordings_that_contradict_each_other(tmp_path):
    paths = [record(tmp_path / "r0.h5", ["a", "aa"]), tmp_path / "r1.h5"]
    with Recorder(paths[1], backend="b") as rec:
        rec.put("aa", value("aa", 0), node="n_aa", op="Sigmoid", inputs=("a",))
    with pytest.raises(RecordingError, match="'n_aa'") as caught:
        join(paths, tmp_path / "run.json")
    assert "--prefix" in caught.value.hint
    assert not (tmp_path / "run.json").exists()


def test_recordings_beside_the_manifest_alone(tmp_path, ranks):
    (tmp_path / "below").mkdir()
    with pytest.raises(UsageError, match="not in or below"):
        join(ranks, tmp_path / "below" / "run.json")


def test_a_manifest_is_overwritten_on_demand(tmp_path, ranks):
    join(ranks, tmp_path / "run.json")
    with pytest.raises(OutputExistsError):
        join(ranks, tmp_path / "run.json")
    join(ranks[:1], tmp_path / "run.json", force=True)
    assert len(json.loads((tmp_path / "run.json").read_text())["parts"]) == 1


def test_it_can_be_moved_with_its_recordings(tmp_path, ranks):
    join(ranks, tmp_path / "run.json")
    (tmp_path / "there").mkdir()
    for path in (*ranks, tmp_path / "run.json"):
        path.rename(tmp_path / "there" / path.name)
    with qdebug.open_recording(tmp_path / "there" / "run.json") as whole:
        assert len(whole.names) == 5


PARTS = [
    [{"path": "/etc/passwd"}],
    [{"path": "../r0.h5"}],
    [{"path": "a/../../r0.h5"}],
    [{"path": ""}],
    [{"path": "r0.h5\0"}],
    [{"path": 5}],
    [{}],
    [],
    5,
    [{"path": "r0.h5", "prefix": 5}],
    [{"path": "r0.h5", "first_sample": -1}],
    [{"path": "r0.h5", "first_sample": True}],
    [{"path": "run.json"}],
    [{"path": "missing.h5"}],
]


@pytest.mark.parametrize("parts", PARTS, ids=str)
def test_a_manifest_that_leads_elsewhere_or_nowhere(tmp_path, ranks, parts):
    (tmp_path / "run.json").write_text(json.dumps({"format": "qdebug.manifest", "version": 1, "parts": parts}))
    with pytest.raises(RecordingError) as caught:
        qdebug.open_recording(tmp_path / "run.json")
    assert caught.value.hint


@pytest.mark.parametrize("text", ['{"a": 1}', "{", '{"format": "qdebug.diff"}', "{" * 100_000])
def test_json_that_is_no_manifest(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(NotARecordingError):
        qdebug.open_recording(tmp_path / "run.json")


def test_a_manifest_of_a_later_version(tmp_path):
    (tmp_path / "run.json").write_text('{"format": "qdebug.manifest", "version": 3, "parts": []}')
    with pytest.raises(RecordingError, match="version 3"):
        qdebug.open_recording(tmp_path / "run.json")


def test_commands_take_it_in_place_of_a_file(tmp_path, ranks, capsys):
    run = str(tmp_path / "run.json")
    assert main(["file", "join", *map(str, ranks), "-o", run]) == 0
    assert "2 recordings, 5 tensors, 2 samples" in capsys.readouterr().out
    assert main(["info", run]) == 0
    assert main(["diff", run, run]) == 0
    assert main(["diff", run, run, "--untrusted"]) == 0
    assert main(["file", "verify", run]) == 0
    assert verify(tmp_path / "run.json").tensors == 12
    assert main(["file", "join", *map(str, ranks), "--prefix", "a", "-o", run, "--force"]) == 2


def test_a_manifest_never_replaces_one_of_its_recordings(tmp_path, ranks):
    before = ranks[1].read_bytes()
    with pytest.raises(UsageError, match=r"r1\.h5' is one of the recordings; the manifest would replace it"):
        join(ranks, tmp_path / "r1.h5", force=True)
    assert ranks[1].read_bytes() == before


def test_a_recording_is_joined_once(tmp_path, ranks):
    with pytest.raises(UsageError, match=r"r0\.h5' is given twice"):
        join([*ranks, ranks[0]], tmp_path / "run.json")
    join([ranks[0], ranks[0]], tmp_path / "run.json", prefixes=["a/", "b/"])
    with qdebug.open_recording(tmp_path / "run.json") as whole:
        assert {"a/aa", "b/aa"} <= set(whole.names)


@pytest.mark.parametrize("read", [qdebug.open_recording, verify], ids=["open", "verify"])
def test_a_manifest_that_names_itself_or_another_one_is_refused(tmp_path, ranks, read):
    inner = {"format": "qdebug.manifest", "version": 1, "parts": [{"path": "run.json"}]}
    (tmp_path / "run.json").write_text(json.dumps(inner))
    with pytest.raises(RecordingError, match=r"run\.json' is a JSON file, such as a manifest, not a recording"):
        read(tmp_path / "run.json")


def test_a_recording_that_is_gone_is_named(tmp_path, ranks, capsys):
    join(ranks, tmp_path / "run.json")
    ranks[1].unlink()
    assert main(["info", str(tmp_path / "run.json")]) == 2
    said = capsys.readouterr().err.replace("\n", " ")
    assert "includes" in said
    assert f"There is no file '{ranks[1]}'" in said


def other_values(path, name, *, constant=False):
    with Recorder(path, backend="b", model="net") as rec:
        rec.put("mine", np.ones(2))
        (rec.constant if constant else rec.put)(name, np.full((2, 3), 77, np.float32))
    return path


@pytest.mark.parametrize("constant", [False, True], ids=["activation", "constant"])
def test_ranks_that_hold_different_values_of_a_tensor_are_refused(tmp_path, constant):
    ranks = [other_values(tmp_path / "r0.h5", "a", constant=constant), tmp_path / "r1.h5"]
    with Recorder(ranks[1], backend="b", model="net") as rec:
        rec.put("yours", np.ones(2))
        (rec.constant if constant else rec.put)("a", np.full((2, 3), 78, np.float32))
    with pytest.raises(RecordingError, match=r"r0\.h5' and .*r1\.h5' have different values for tensor 'a', sample 0"):
        join(ranks, tmp_path / "run.json")
    assert not (tmp_path / "run.json").exists()
    join(ranks, tmp_path / "run.json", prefixes=["0/", "1/"])


def test_values_that_differ_are_told_by_their_place_in_the_whole(tmp_path):
    values = {"r0.h5": [0, 1, 2], "r1.h5": [2, 3], "r2.h5": [9, 3]}
    parts = []
    for path, first in (("r0.h5", 0), ("r1.h5", 2), ("r2.h5", 2)):
        with Recorder(tmp_path / path, backend="b", model="net") as rec:
            rec.constant("w", np.ones(3))
            for sample, number in enumerate(values[path]):
                rec.at(sample)
                rec.put("a", np.full(2, number, np.float32))
        parts.append(Part(path=tmp_path / path, first_sample=first))
    with JoinedRecording(parts[:2], tmp_path / "all.json") as joined:
        assert joined.samples == 4
    with pytest.raises(
        RecordingError, match=r"r1\.h5' and .*r2\.h5' have different values for tensor 'a', sample 2, step 0"
    ):
        JoinedRecording([parts[1], parts[2]], tmp_path / "all.json")


def test_a_recording_that_changed_since_is_found_to_contradict_the_others(tmp_path, ranks):
    join(ranks, tmp_path / "run.json")
    ranks[1].unlink()
    record(ranks[1], ["aaa", "aaaa"], start=5)
    with pytest.raises(RecordingError, match="have different values for tensor 'aaa'"):
        qdebug.open_recording(tmp_path / "run.json")


def test_a_file_that_stands_for_several_parts_is_opened_once(tmp_path, monkeypatch):
    record(tmp_path / "part.h5", ["x"], samples=1)
    parts = [{"path": "part.h5", "first_sample": number} for number in range(50)]
    path = tmp_path / "all.json"
    path.write_text(json.dumps({"format": "qdebug.manifest", "version": 1, "parts": parts}))
    opened = []
    init = FileRecording.__init__
    monkeypatch.setattr(
        FileRecording, "__init__", lambda self, path, **how: (opened.append(path), init(self, path, **how))[1]
    )
    with qdebug.open_recording(path) as run:
        assert run.samples == 50
        np.testing.assert_array_equal(run.load("x", 49), value("x", 0))
    assert len(opened) == 1


MANY, AT_ONCE = 40, 16
"""More recordings than are open at once."""


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """The manifest of many workers that each ran one sample of one net, and kept some tensors in part."""
    folder = tmp_path_factory.mktemp("workers")
    for number in range(MANY):
        with Recorder(folder / f"{number}.h5", backend="b", keep="z=elements:2") as rec:
            rec.put("x", value("x", number), node="n", op="Relu", inputs=("w",), scale=0.5, zero_point=0)
            rec.put("z", value("z", number))
    paths = [folder / f"{number}.h5" for number in range(MANY)]
    join(paths, folder / "run.json", by="samples")
    return folder / "run.json"


@pytest.fixture
def few_open(monkeypatch):
    """Let fewer recordings be open at once."""
    monkeypatch.setattr(opening, "_MOST_OPEN", AT_ONCE)


@pytest.fixture
def copied(workers, tmp_path, few_open):
    """A copy of that manifest, to be spoiled."""
    return shutil.copytree(workers.parent, tmp_path / "copy") / "run.json"


@pytest.mark.usefixtures("few_open")
def test_many_recordings_are_read_with_few_open_files(workers):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest := os.dup(0))  # the first number that is free
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 2 * AT_ONCE + 12, limits[1]))
    try:
        with qdebug.open_recording(workers) as whole:
            for sample in (*range(MANY), *reversed(range(MANY))):
                assert whole.load("x", sample).tolist() == value("x", sample).tolist()
                assert set(whole.kept("z", sample).values.tolist()) == {value("z", sample)[0, 0]}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with pytest.raises(RecordingError, match="closed"):
        whole.load("x", 0)


@pytest.mark.parametrize("how", ["replaced", "written to", "gone"])
def test_a_recording_that_changed_since_it_was_opened_is_not_read(copied, how):
    with qdebug.open_recording(copied) as whole:
        first, content = copied.with_name("0.h5"), copied.with_name("1.h5").read_bytes()
        if how != "written to":
            first.unlink()
        if how != "gone":
            first.write_bytes(content)
        with pytest.raises(
            RecordingError, match=r"There is no file .*0\.h5" if how == "gone" else r"0\.h5' was changed"
        ):
            whole.load("x", 0)
        assert whole.load("x", 1).tolist() == value("x", 1).tolist()


def tables_read(monkeypatch, path):
    """Open a manifest; return what it says of the net, and how often each table was read."""
    count = Counter()
    read = Container._read_table
    monkeypatch.setattr(Container, "_read_table", lambda self, name: (count.update([name]), read(self, name))[1])
    with qdebug.open_recording(path) as whole:
        return (whole.graph.nodes, list(whole.graph.tensors.values())), count


def test_the_graph_of_many_recordings_of_one_net_is_read_once(copied, monkeypatch):
    graph, count = tables_read(monkeypatch, copied)
    assert (count["index"], count["run"]) == (MANY, MANY)
    assert {count[name] for name in GRAPH_TABLES} == {1}
    for number in (0, 7):
        with h5py.File(copied.with_name(f"{number}.h5"), "a") as file:
            del file.attrs["graph_hash"]
    again, count = tables_read(monkeypatch, copied)
    assert again == graph
    assert {count[name] for name in GRAPH_TABLES} == {3}


def test_a_recording_that_claims_the_graph_of_another_one_is_found(copied):
    with h5py.File(copied.with_name("0.h5"), "r") as file:
        claimed = file.attrs["graph_hash"]
    other = copied.with_name("1.h5")
    other.unlink()
    record(other, ["a", "aa", "aaa"])
    with h5py.File(other, "a") as file:
        file.attrs["graph_hash"] = claimed
    with pytest.raises(RecordingError, match=r"1\.h5' is damaged"):
        qdebug.open_recording(copied)
    with pytest.raises(RecordingError, match="its graph and index differ from what was written"):
        verify(other)


@pytest.mark.parametrize("turned", [False, True])
def test_a_shape_is_taken_from_the_part_that_recorded_the_tensor(tmp_path, turned):
    """The other part only reads it; of two that recorded it an extent that varies is unknown."""
    first = record(tmp_path / "r0.h5", ["a", "aa"])
    with Recorder(tmp_path / "r1.h5", backend="b", model="net") as rec:
        for sample in range(2):
            rec.at(sample)
            rec.put("y", value("y", sample), node="n_y", op="Relu", inputs=("aa",))
        rec.outputs("y")
    parts = [first, tmp_path / "r1.h5"]
    join(parts[::-1] if turned else parts, tmp_path / "run.json")
    with qdebug.open_recording(tmp_path / "run.json") as whole:
        assert {name: whole.graph.tensors[name].shape for name in ("a", "aa", "y")} == dict.fromkeys(
            ("a", "aa", "y"), (2, 3)
        )


@pytest.mark.parametrize(
    ("entry", "read"),
    [
        ({}, ("", 0)),
        ({"prefix": "rank0.", "first_sample": 7}, ("rank0.", 7)),
        ({"first_sample": 2**32 - 1}, ("", 2**32 - 1)),
        ({"first_sample": 2**32}, None),
        ({"first_sample": 1.0}, None),
        ({"prefix": None}, None),
    ],
)
def test_a_part_of_a_manifest_says_where_it_begins(tmp_path, entry, read):
    parts = [{"path": "r0.h5"} | entry]
    (tmp_path / "run.json").write_text(json.dumps({"format": "qdebug.manifest", "version": 1, "parts": parts}))
    if read is None:
        with pytest.raises(RecordingError, match="of the wrong type"):
            read_manifest(tmp_path / "run.json")
    else:
        (part,) = read_manifest(tmp_path / "run.json").parts
        assert (part.path, part.prefix, part.first_sample) == (tmp_path / "r0.h5", *read)
