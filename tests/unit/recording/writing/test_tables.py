"""The tables of a graph, and the rows of events, are what the description of the format says."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qdebug.errors import RecordingError
from qdebug.model import Graph, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.recording.format.payload import StoredArray
from qdebug.recording.format.specification import DTYPE_CODES, INDEX_DIMS, NO_PAYLOAD, TABLES, UNKNOWN, Flag
from qdebug.recording.writing.tables import EventPlace, IndexRows, encode_tables, pack_row

SCALE = np.float64([0.5, 0.25])
QUANT = QuantParams(dtype="int8", scale=SCALE, zero_point=[3, 4], axis=1, multiplier=[5, 6], shift=[1, 2])
PLAIN = QuantParams(dtype="uint8", scale=np.float32(0.5), qmin=1, qmax=250)
WIDE = QuantParams(dtype="uint64", scale=np.float32(0.5), qmin=0, qmax=2**64 - 1)
GRAPH = Graph(
    [
        Node(name="a", op="Relu", inputs=("x", "", "w"), outputs=("", "m"), attrs={"k": 1}, origin=("o1", "o2")),
        Node(name="b", op="Exp", inputs=("m",), outputs=("y",), attrs={"k": 22}, origin=("o1",), placement="npu"),
        Node(name="c", op="Exp", inputs=("y",), outputs=("z",), domain="d", placement="npu"),
    ],
    tensors=[
        TensorInfo(name="w", role=Role.CONSTANT, dtype="int8", shape=(2, None), quant=QUANT, layout="NCHW"),
        TensorInfo(name="m", dtype="float32", shape=(), stands_for="x", quant=PLAIN),
        TensorInfo(name="y", shape=(3,), quant=QUANT),
        TensorInfo(name="z", quant=WIDE),
    ],
    inputs=["x"],
    outputs=["y", "z"],
    name="net",
    opset={"": 17},
)


def made(**facts):
    known = {"samples": 1, "steps": 1} | facts
    return encode_tables(GRAPH, RunInfo(backend="test"), known.pop("recorded", ()), **known)


def texts_of(tables):
    names = tables["names"].tobytes()
    return [names[row["offset"] : row["offset"] + row["length"]].decode() for row in tables["strings"]]


def test_each_tensor_has_a_row_of_what_is_said_of_it():
    tables, rows, _ = made()
    texts = texts_of(tables)
    said = []
    for row in tables["tensors"]:
        name, stands_for, layout = (
            texts[row[column]] if row[column] >= 0 else None for column in ("name", "stands_for", "layout")
        )
        shape = None if row["ndim"] == UNKNOWN else tables["dims"][row["dims"] : row["dims"] + row["ndim"]].tolist()
        said.append((name, stands_for, layout, int(row["quant"]), int(row["dtype"]), int(row["role"]), shape))
    assert said == [
        ("w", None, "NCHW", 0, DTYPE_CODES["int8"], 3, [2, -1]),
        ("m", "x", None, 1, DTYPE_CODES["float32"], 0, []),
        ("y", None, None, 0, UNKNOWN, 0, [3]),
        ("z", None, None, 2, UNKNOWN, 0, None),
        ("x", None, None, -1, UNKNOWN, 1, None),
    ]
    assert rows == {"w": 0, "m": 1, "y": 2, "z": 3, "x": 4}
    assert len(set(texts)) == len(texts), "each text is written once"


def test_each_node_has_a_row_of_runs_of_the_pools():
    tables, rows, _ = made()
    texts = texts_of(tables)
    said = []
    for row in tables["nodes"]:
        runs = {
            name: tables[pool][row[f"{name}_off"] : row[f"{name}_off"] + row[f"{name}_len"]].tolist()
            for name, pool in (
                ("inputs", "operands"),
                ("outputs", "operands"),
                ("origin", "origins"),
                ("attrs", "attributes"),
            )
        }
        origin = [texts[number] for number in runs["origin"]]
        head = tuple(texts[row[column]] for column in ("name", "op", "domain"))
        said.append((*head, runs["inputs"], runs["outputs"], origin, bytes(runs["attrs"])))
    x, w, m, y, z = (rows[name] for name in "xwmyz")
    assert said == [
        ("a", "Relu", "", [x, -1, w], [-1, m], ["o1", "o2"], b'{"k":["i",1]}'),
        ("b", "Exp", "", [m], [y], ["o1"], b'{"k":["i",22]}'),
        ("c", "Exp", "d", [y], [z], [], b""),
    ]
    assert len(tables["operands"]) == 9
    assert len(tables["origins"]) == 3


def test_each_quantization_has_one_row_of_its_numbers():
    tables, _, rows = made(quants=[PLAIN, QUANT, QuantParams(dtype="int8", scale=np.float32(7))])
    assert rows == [1, 0, 3]
    first, second, third, _ = tables["quants"]
    assert [int(row["dtype"]) for row in tables["quants"]] == [
        DTYPE_CODES[name] for name in ("int8", "uint8", "uint64", "int8")
    ]
    # axis 1, qmin 4 and qmax 8 (which int8 has by itself), multiplier 16, shift 32, and a scale in float64
    assert int(first["has"]) == 1 + 4 + 8 + 16 + 32 + 64
    assert int(second["has"]) & (1 + 2 + 16 + 32 + 64) == 0
    assert (int(first["axis"]), int(first["qmin"]), int(first["qmax"])) == (1, -128, 127)
    assert (int(second["qmin"]), int(second["qmax"])) == (1, 250)
    assert (int(third["qmin"]), int(third["qmax"])) == (0, -1)  # two's complement
    assert tables["scales64"].tolist() == SCALE.tolist()
    assert tables["scales32"].tolist() == [0.5, 0.5, 7]
    integers = tables["integers"].tolist()
    runs = [first["zero_point_off"], first["multiplier_off"], first["shift_off"]]
    assert [integers[at : at + 2] for at in runs] == [[3, 4], [5, 6], [1, 2]]
    assert [int(row["scale_off"]) for row in tables["quants"]] == [0, 0, 1, 2]
    for name in ("scale", "multiplier", "shift"):
        assert int(first[f"{name}_ndim"]) == 1
        assert tables["dims"][first[f"{name}_dims"]] == 2
    assert tables["dims"][second["scale_dims"]] == 1
    assert len(integers) == 6 + 3


def test_tensors_that_the_graph_does_not_know_get_rows_behind_its_own():
    more = [TensorInfo(name="new", dtype="int8"), TensorInfo(name="w", dtype="float64")]
    tables, rows, _ = made(recorded=more)
    assert rows["new"] == 5
    assert len(tables["tensors"]) == 6
    assert tables["tensors"]["dtype"][rows["w"]] == DTYPE_CODES["int8"]


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (TensorInfo(name="t", dtype="int7"), "dtype 'int7'"),
        (TensorInfo(name="t", shape=(1,) * UNKNOWN), "an extent must be a number or None"),
        (TensorInfo(name="t", shape=(-1,)), "an extent must be a number or None"),
        (TensorInfo(name="t", shape=(2**63,)), "an extent must be a number or None"),
        (TensorInfo(name="t", shape=("n",)), "an extent must be a number or None"),
    ],
)
def test_a_tensor_that_no_row_can_describe_is_named(tensor, said):
    with pytest.raises(RecordingError, match=rf"'t' of the graph has .*{said}"):
        encode_tables(Graph([], tensors=[tensor]), RunInfo(backend="test"), (), samples=1, steps=1)
    largest = TensorInfo(name="t", shape=(2**63 - 1, 0, *[1] * (UNKNOWN - 3)))
    encode_tables(Graph([], tensors=[largest]), RunInfo(backend="test"), (), samples=1, steps=1)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (1,) * INDEX_DIMS, (1,) * INDEX_DIMS + (5,), (0, 7)])
@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("int4", 1), ("complex128", 16)])
def test_the_row_of_an_event_says_what_its_values_are(shape, dtype, itemsize):
    digest = bytes(range(16))
    stored = StoredArray(7, 1024, digest, dtype, shape)
    row = np.frombuffer(pack_row(9, EventPlace(3, 4, 5), stored, Flag.DEDUP), TABLES["index"])[0]
    count = math.prod(shape)
    assert [int(row[name]) for name in ("seq", "tensor", "sample", "step", "payload", "quant")] == [9, 3, 4, 5, 7, -1]
    assert int(row["flags"]) == Flag.DEDUP
    assert (int(row["dtype"]), int(row["ndim"])) == (DTYPE_CODES[dtype], len(shape))
    extents = [*shape[:INDEX_DIMS], *[0] * INDEX_DIMS][:INDEX_DIMS]
    assert row["shape"].tolist() == extents
    assert (int(row["nbytes"]), int(row["count"])) == (count * itemsize, count)
    assert row["hash"].tobytes() == digest
    assert [int(row[name]) for name in ("nan", "inf", "zero", "sat_lo", "sat_hi")] == [0] * 5
    unknown = ("min", "max", "absmax", "mean", "std", "l2", "t_start", "duration")
    assert all(math.isnan(row[name]) for name in unknown)


def test_the_rows_of_an_index_lead_to_tensors_samples_and_quantizations():
    rows = IndexRows()
    stored = StoredArray(0, 1024, bytes(16), "int8", (2,))
    for name, sample, step, constant, quant in (
        ("new", 0, 0, False, None),
        ("w", 5, 6, True, None),  # a constant is that of all samples and steps
        ("m", 2, 1, False, PLAIN),
        ("new", 1, 3, False, QUANT),
    ):
        place = rows.place(name, sample, step, constant=constant)
        row = pack_row(rows.count, place, stored, Flag(0))
        rows.add(row, name, place, "int8", constant=constant, quant=quant)
    assert rows.count == 4
    tables = rows.tables(GRAPH, RunInfo(backend="test"))
    _, numbers, _ = made()
    index = tables["index"]
    assert index["tensor"].tolist() == [5, numbers["w"], numbers["m"], 5]
    assert list(zip(index["sample"].tolist(), index["step"].tolist(), strict=True)) == [(0, 0), (0, 0), (2, 1), (1, 3)]
    assert index["quant"].tolist() == [-1, -1, 1, 0]
    assert index["seq"].tolist() == [0, 1, 2, 3]
    assert b'"samples": 3, "steps": 4' in tables["run"].tobytes()
    assert tables["tensors"]["role"][5] == 0
    assert set(tables) == set(TABLES)
    assert NO_PAYLOAD not in index["payload"]
