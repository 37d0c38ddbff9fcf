"""What is printed as JSON validates against the committed schemas, and the schemas can fail."""

import copy
import math
from dataclasses import replace

import jsonschema
import numpy as np
import pytest
from referencing import Registry, Resource

from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.compare.result.result import Status
from qdebug.errors import UsageError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, TensorInfo
from qdebug.present.contents import Contents
from qdebug.present.detail import NodeDetail
from qdebug.present.reports.matrix import diffs_dict
from qdebug.present.reports.node import with_detail
from qdebug.present.reports.schema import SCHEMAS, load_schema

REGISTRY = Registry().with_resources(
    [(load_schema(name)["$id"], Resource.from_contents(load_schema(name))) for name in SCHEMAS]
)


def mistakes(name, plain):
    return [error.message for error in validator(name).iter_errors(plain)]


def validator(name):
    return jsonschema.Draft202012Validator(load_schema(name), registry=REGISTRY)


@pytest.fixture
def result(made):
    nodes = [
        made.node(0, Status.IDENTICAL, metrics=made.stats(sqnr_db=math.inf)),
        made.node(1, Status.DIVERGED, metrics=made.stats(max_rel=None, cosine=math.nan)),
        made.node(2, Status.INCOMPARABLE, saturation=None, quant=None, samples=(), reason="shape"),
        made.node(3, Status.NONFINITE, metrics=made.stats(sqnr_db=None, worst_index=(), nonfinite=3)),
    ]
    unranked = made.ranking(samples=0, top1_agreement=None, top5_agreement=None, worst_rank=None, worst_sample=None)
    left_out = [made.unmatched(), made.unmatched("lost", kind=UnmatchedKind.LOST)]
    return made.result(nodes, left_out=left_out, outputs=(made.ranking(), unranked))


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_valid_and_names_its_document(name):
    schema = load_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["format"] == {"const": f"qdebug.{name}"}
    assert schema["$id"] == f"urn:qdebug:{name}:1"


def test_an_unknown_schema_is_an_error():
    with pytest.raises(UsageError, match=r"Unknown JSON schema '\.\./diff'"):
        load_schema("../diff")


def test_a_comparison_is_valid(result):
    assert not mistakes("diff", result.to_dict())


def test_one_node_in_full_is_valid_too(result, made):
    detail = NodeDetail(result=result.nodes[1], worst=[made.worst()], backend=TensorInfo(name="conv1_q"))
    assert not mistakes("diff", with_detail(result, detail))


def test_several_comparisons_are_valid_and_lined_up_by_reference_tensor(made, result):
    other = made.result([made.node(1, metrics=made.stats(sqnr_db=-math.inf)), made.node(9)])
    plain = diffs_dict({"a.h5": result, "b.h5": other})
    assert not mistakes("diffs", plain)
    matrix = plain["matrix"]
    assert matrix["backends"] == ["a.h5", "b.h5"]
    rows = dict(zip(matrix["nodes"], matrix["rows"], strict=True))
    assert rows == {
        "conv0_out": ["Infinity", None],
        "conv1_out": [30.0, "-Infinity"],
        "conv2_out": [None, None],
        "conv3_out": [None, None],
        "conv9_out": [None, 30.0],
    }


def test_a_reference_tensor_that_is_met_twice_counts_at_its_worst(made):
    twice = made.result(
        [made.node(i, reference_tensor="h", metrics=made.stats(sqnr_db=db)) for i, db in enumerate((30.0, 12.0, None))]
    )
    assert diffs_dict({"a": twice})["matrix"]["rows"] == [[12.0]]


def test_what_a_recording_holds_is_valid():
    graph = Graph(
        [Node(name="fc", op="Gemm", inputs=("x",), outputs=("y",))],
        tensors=[TensorInfo(name="y", shape=(None, 2), dtype="int8", quant=QuantParams(dtype="int8", scale=math.nan))],
        inputs=["x"],
        outputs=["y"],
    )
    contents = Contents(recording=MemoryRecording.single(graph, {"y": np.zeros((1, 2), np.int8)}), path="a", size=3)
    assert not mistakes("info", contents.to_dict())
    assert not mistakes("info", replace(contents, listed=True).to_dict())


@pytest.mark.parametrize(
    "path",
    [
        ("verdict",),
        ("coverage", "compared"),
        ("limits", "source"),
        ("nodes", 0, "metrics", "sqnr_db"),
        ("nodes", 0, "saturation", "floor"),
        ("nodes", 0, "introduced"),
        ("nodes", 0, "quant", "zero_point"),
        ("backend", "cpu_flags"),
        ("outputs",),
        ("outputs", 1, "top5_agreement"),
    ],
)
def test_a_missing_key_is_noticed(result, path):
    plain = result.to_dict()
    *above, last = path
    holder = plain
    for key in above:
        holder = holder[key]
    del holder[last]
    assert not validator("diff").is_valid(plain)


@pytest.mark.parametrize(
    ("path", "value"),
    [(("verdict", "status"), "fine"), (("nodes", 0, "match"), "position"), (("nodes", 0, "metrics", "rmse"), "nan")],
)
def test_a_wrong_value_is_noticed_and_a_new_key_is_allowed(result, path, value):
    plain = result.to_dict()
    wrong = copy.deepcopy(plain)
    *above, last = path
    holder, added = wrong, plain
    for key in above:
        holder, added = holder[key], added[key]
    holder[last] = value
    added["brand_new"] = 1
    assert not validator("diff").is_valid(wrong)
    assert validator("diff").is_valid(plain)
