"""Every number in the diff JSON is defined: `qdebug diff --explain-metrics` has a row for each key."""

import numpy as np
import pytest

import qdebug
from qdebug.compare.measure.agreement import agreements
from qdebug.numerics.metric_table import METRICS
from qdebug.present.reports.definitions import definitions_json
from qdebug.present.reports.matrix import diffs_dict
from qdebug.session import DiffSession

ROWS = {entry["name"] for entry in definitions_json()["metrics"]}
WORDS = {"sample", "step", "status", "node", "op", "tensor", "index"}
"""Keys that name a thing and measure nothing."""


def recording(noise):
    recorder = qdebug.Recorder(None, backend="test")
    generator = np.random.default_rng(0)
    with recorder as rec:
        for _ in range(2):
            x = generator.standard_normal((1, 8)).astype(np.float32)
            rec.put("x", x)
            y = (1 / (1 + np.exp(-x)) + noise).astype(np.float32)
            if noise:
                codes = np.clip(np.rint(y / 0.02), -128, 127).astype(np.int8)
                rec.put("y", codes, node="sigmoid", op="Sigmoid", inputs=("x",), scale=0.02, zero_point=0)
            else:
                rec.put("y", y, node="sigmoid", op="Sigmoid", inputs=("x",))
            rec.next_sample()
        rec.outputs("y")
    return recorder.recording


@pytest.fixture(scope="module")
def session():
    return DiffSession(recording(0.0), recording(0.05))


def without_a_row(plain):
    """Return the keys of an object that nothing defines."""
    return set(plain) - ROWS - WORDS


def test_every_number_of_a_node_is_defined(session):
    plain = session.result().to_dict()
    (node,) = [node for node in plain["nodes"] if node["op"] == "Sigmoid"]
    for part in ("metrics", "introduced", "propagated", "saturation"):
        assert not without_a_row(node[part]), part
    for sample in node["samples"]:
        assert not without_a_row(sample)
        assert not without_a_row(sample["introduced"])
    assert plain["outputs"]
    assert not without_a_row(plain["outputs"][0])
    assert "gain" in ROWS


def test_every_number_of_one_node_in_full_is_defined(session):
    profile = session.profile("y")
    assert not without_a_row(profile.to_dict())
    assert not without_a_row(type(profile.worst[0]).__dataclass_fields__)


def test_every_number_of_several_backends_is_defined(session):
    result = session.result()
    alike = agreements(session.reference, [(session.backend, session.alignment)] * 2)
    plain = diffs_dict({"a": result, "b": result}, alike)
    assert not without_a_row(plain["matrix"]["agreement"][0])


def test_definitions_have_a_unit_and_a_direction():
    for entry in definitions_json()["metrics"]:
        assert entry["better"] in ("lower", "higher", "neither")
        assert entry["definition"]
    assert len(ROWS) == len(METRICS) + 4


def test_the_check_can_fail():
    assert without_a_row({"max_abs": 1, "psnr": 2, "sample": 3}) == {"psnr"}
