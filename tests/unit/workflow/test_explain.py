"""A run by any known arithmetic is explained, and the backend is among those named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.analysis.explanation import ExplainStatus
from qdebug.replay.arithmetic_file import read_arithmetic
from qdebug.replay.presets import PRESETS
from qdebug.session import open_recording
from qdebug.workflow.explain import arithmetic_text, explain
from qdebug.workflow.record import record_run

DATA = Path(qdebug.__file__).parent / "data"
NARROWED = ("conv", "linear")


def run(tmp_path, arithmetic):
    """Compute the int8 digits net on four digits."""
    with np.load(DATA / "digits.inputs.npz") as data:
        feeds = {name: data[name][:4] for name in data.files}
    out = tmp_path / "run.h5"
    options = {"arithmetic": str(arithmetic)}
    record_run(DATA / "digits.int8.h5", backend="interpreter", options=options, inputs=feeds, samples=4, out=out)
    return out


@pytest.mark.parametrize("name", PRESETS)
def test_every_known_backend_is_named(tmp_path, name):
    found = explain(run(tmp_path, name))
    assert not found.of(ExplainStatus.UNEXPLAINED)
    for node in found.nodes:
        if node.kind in NARROWED and node.kind in PRESETS[name].states:
            assert name in [preset.name for preset in node.presets], node.node


@pytest.mark.parametrize("name", ["glow-cpu", "tflite-reference"])
def test_what_is_written_computes_the_same(tmp_path, name):
    first = run(tmp_path, name)
    found = explain(first)
    file = tmp_path / "found.toml"
    file.write_text(arithmetic_text(found), encoding="utf-8")
    assert read_arithmetic(file).arithmetic.variants
    (tmp_path / "again").mkdir()
    second, recorded = open_recording(run(tmp_path / "again", file)), open_recording(first)
    for node in found.nodes:
        for sample in range(4):
            np.testing.assert_array_equal(second.load(node.tensor, sample), recorded.load(node.tensor, sample))


def test_one_node_has_the_evidence_of_its_siblings(tmp_path):
    path = run(tmp_path, "glow-cpu")
    whole = {node.tensor: node for node in explain(path).nodes}
    alone = explain(path, node="conv1_quant").nodes
    assert [node.node for node in alone] == ["conv1_quant"]
    assert alone[0].variants == whole[alone[0].tensor].variants
    assert alone[0].siblings == whole[alone[0].tensor].siblings > 1
