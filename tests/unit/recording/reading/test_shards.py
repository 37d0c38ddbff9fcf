"""Slices of ranks are read as one, and replicas that differ are found."""

import pickle

import numpy as np
import pytest

import qdebug
from qdebug.errors import RecordingError, UsageError
from qdebug.present.replicas import replica_lines
from qdebug.recording.reading.opening import join
from qdebug.recording.reading.shards import ShardAxis, parse_axes

AXES = "qkv=-1:2:1:1,down.weight=0,up=1,*=replicated"
RANKS = 2


def slices(values, axis, blocks=(1,)):
    """Return each rank's slice of the whole, block after block."""
    ends = np.cumsum(blocks)[:-1] * values.shape[axis] // sum(blocks)
    pieces = [np.split(block, RANKS, axis) for block in np.split(values, ends, axis)]
    return [np.concatenate([piece[rank] for piece in pieces], axis) for rank in range(RANKS)]


def whole_tensors(sample=0):
    rng = np.random.default_rng(sample)
    return {
        "x": rng.normal(size=(3, 8)).astype(np.float32),
        "l.0.qkv": rng.normal(size=(3, 16)).astype(np.float32),
        "l/0/up": rng.integers(-128, 128, (3, 4, 2), np.int8),
    }


def record(path, rank, *, change=None, samples=2, leave_out=(), down=None, **node):
    down = np.arange(32, dtype=np.float32).reshape(8, 4) if down is None else down
    scales = np.arange(1, 5, dtype=np.float32)
    with qdebug.Recorder(path, backend="tp") as rec:
        rec.constant("down.weight", slices(down, 0)[rank])
        for sample in range(samples):
            rec.at(sample)
            tensors = whole_tensors(sample)
            tensors["l.0.qkv"] = slices(tensors["l.0.qkv"], 1, (2, 1, 1))[rank]
            tensors["l/0/up"] = slices(tensors["l/0/up"], 1)[rank]
            for name in leave_out:
                del tensors[name]
            if change:
                change(tensors, sample)
            for name, values in tensors.items():
                facts = {"scale": slices(scales, 0)[rank], "axis": 1} if name == "l/0/up" else {}
                if name == "l.0.qkv":
                    facts |= {"node": "n", "op": "MatMul", "inputs": ("x", "down.weight")} | node
                rec.put(name, values, **facts)
    return path


def joined(tmp_path, paths, axes=AXES):
    join(paths, tmp_path / "run.json", by="shards", axes=axes, force=True)
    return qdebug.open_recording(tmp_path / "run.json")


@pytest.fixture
def first(tmp_path):
    return record(tmp_path / "r0.h5", 0)


def test_slices_make_the_whole(tmp_path, first):
    with joined(tmp_path, [first, record(tmp_path / "r1.h5", 1)]) as run:
        for sample in range(2):
            for name, values in whole_tensors(sample).items():
                np.testing.assert_array_equal(run.load(name, sample), values)
                assert run.outline(name, sample).shape == values.shape
        np.testing.assert_array_equal(run.load("down.weight").ravel(), np.arange(32))
        up = run.graph.tensors["l/0/up"]
        assert (up.shape, up.quant.scale.tolist()) == ((3, 4, 2), [1, 2, 3, 4])
        assert not run.load("l.0.qkv").flags.writeable
        assert list(run.replica_differences()) == []
        copy = pickle.loads(pickle.dumps(run))  # noqa: S301  our own
        assert copy.load("l.0.qkv", 1).tolist() == run.load("l.0.qkv", 1).tolist()
        copy.close()


def test_the_rank_that_differs_from_most_is_named_though_it_is_the_first(tmp_path):
    def change(tensors, sample):
        tensors["x"][1, 2] += 0.25 * sample

    odd = record(tmp_path / "odd.h5", 0, change=change)
    others = [record(tmp_path / f"r{number}.h5", 1) for number in range(2)]
    with joined(tmp_path, [odd, *others]) as run:
        (difference,) = run.replica_differences()
        assert (difference.tensor, difference.rank, difference.path) == ("x", 0, odd)
        assert (difference.reference, difference.places) == (others[0], ((1, 0),))
        assert difference.stats.max_abs == pytest.approx(0.25, rel=1e-6)
        assert (difference.stats.mismatches, difference.stats.count) == (1, 24)


def test_zeros_of_different_sign_are_equal_and_a_nan_is_not(tmp_path):
    def zero(tensors, sample):
        tensors["x"][0] = 0.0

    def negative_zero(tensors, sample):
        tensors["x"][0] = -0.0

    def nan(tensors, sample):
        tensors["x"][0] = np.nan

    paths = [
        record(tmp_path / f"r{number}.h5", 0, change=each) for number, each in enumerate((zero, negative_zero, nan))
    ]
    with joined(tmp_path, paths) as run:
        (difference,) = run.replica_differences()
        assert (difference.rank, difference.stats.nonfinite) == (2, 16)


def test_share_of_a_rank_is_no_description_of_the_whole(tmp_path):
    paths = [record(tmp_path / f"r{rank}.h5", rank, op="Attention", attrs={"num_heads": 4}) for rank in range(RANKS)]
    with joined(tmp_path, paths) as run:
        assert (run.graph.nodes[0].op, dict(run.graph.nodes[0].attrs)) == ("", {})
    with joined(tmp_path, paths, "down.weight=0,up=1,*=replicated") as run:  # the node sees the slice of a weight
        assert run.graph.nodes[0].op == ""


@pytest.mark.parametrize(
    ("other", "axes", "message"),
    [
        ({"leave_out": ("x",)}, AXES, "has no tensor 'x'"),
        ({"samples": 1}, AXES, "has no values for tensor 'x' in sample 1, step 0"),
        ({"op": "Gemm"}, AXES, r"Rank 1 ran a different graph: .*'n' \(Gemm\).*'n' \(MatMul\)"),
        (
            {"down": np.ones((8, 5), np.float32)},
            AXES,
            r"cannot be joined along axis 0.*\(4, 4\) in rank 0.*\(4, 5\) in rank 1",
        ),
        ({"down": np.ones((8, 4), np.int32)}, AXES, "'down.weight' is float32"),
        (
            {"change": lambda tensors, _: tensors.update(x=tensors["x"][:2])},
            AXES,
            r"Replicated tensor 'x' has shape \(3, 8\)",
        ),
        (
            {},
            AXES.replace("2:1:1", "2:2:1"),
            "8 entries along axis -1 in rank 0, which do not divide into blocks of 2:2:1",
        ),
        ({}, "qkv=2,*=replicated", "2 dimensions"),
        ({}, "qkv=1", "No axis rule matches"),
        ({}, "up=2,qkv=1,down=0,*=replicated", "different quantizations of tensor 'l/0/up'"),
    ],
)
def test_ranks_that_do_not_fit(tmp_path, first, other, axes, message):
    path = record(tmp_path / "r1.h5", 1, **other)
    with pytest.raises(RecordingError, match=message) as raised:
        joined(tmp_path, [first, path], axes)
    assert raised.value.hint
    assert not (tmp_path / "run.json").exists()


@pytest.mark.parametrize("text", ["", "x", "=1", "x=", "x=one", "x=1,x=2", "x=1:0", "x=99", "x=1:1:a"])
def test_rules_that_are_none(text):
    with pytest.raises(UsageError, match="axis rule"):
        parse_axes(text)


def test_rules():
    assert parse_axes("a=b=1, *=replicated,q=-1:4:1:1") == {
        "a=b": ShardAxis(axis=1),
        "*": None,
        "q": ShardAxis(axis=-1, blocks=(4, 1, 1)),
    }


@pytest.mark.parametrize("axes", [None, 7, "x=?", ["x=1"]])
def test_damaged_manifest(tmp_path, first, axes):
    joined(tmp_path, [first]).close()
    manifest = tmp_path / "run.json"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(
        text.replace(f'"{AXES}"', str(axes).replace("'", '"') if axes != "x=?" else '"x=?"'), encoding="utf-8"
    )
    with pytest.raises(RecordingError, match=r"damaged|manifest"):
        qdebug.open_recording(manifest)


def test_tensors_kept_in_part_have_no_values(tmp_path):
    paths = []
    for rank in range(RANKS):
        with qdebug.Recorder(tmp_path / f"r{rank}.h5", backend="tp", keep="stats") as rec:
            rec.put("qkv", np.ones((2, 4), np.float32))
            rec.put("x", np.ones((2, 4), np.float32))
        paths.append(rec.path)
    with joined(tmp_path, paths) as run:
        assert run.partial_tensors() == ["qkv"]
        assert run.kept("x") is not None
        with pytest.raises(RecordingError, match="Only part"):
            run.load("qkv")


@pytest.mark.parametrize("keep", ["stats", "sketch"])
def test_replicas_kept_in_part_are_compared_by_their_hashes(tmp_path, keep):
    paths = []
    for rank in range(3):
        with qdebug.Recorder(tmp_path / f"r{rank}.h5", backend="tp", keep=keep) as rec:
            rec.put("x", np.arange(100.0) + (rank == 1))
        paths.append(rec.path)
    with joined(tmp_path, paths, "*=replicated") as run:
        (difference,) = run.replica_differences()
        assert (difference.rank, difference.places, difference.stats.count) == (1, ((0, 0),), 0)
    assert "r1.h5 differs from" in "".join(replica_lines([difference]))
    assert "the hashes differ, only part of the values was kept" in "".join(replica_lines([difference]))
