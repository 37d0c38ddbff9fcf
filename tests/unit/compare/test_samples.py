"""One sample among many: what is wrong with it alone shows, and that there is no other is said."""

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node
from qdebug.present.reports.comparison import diff_markdown
from qdebug.present.reports.junit import diff_junit
from qdebug.present.reports.schema import load_schema

RNG = np.random.default_rng(0)
SAMPLES = 500
VALUES = RNG.normal(size=(SAMPLES, 1, 32)).astype(np.float32)
NOISE = (0.02 * RNG.normal(size=VALUES.shape)).astype(np.float32)


def run(values, *, samples=SAMPLES, x=VALUES):
    graph = Graph(
        [Node(name="node", op="Unheard", inputs=("x",), outputs=("y",))], inputs=("x",), outputs=("y",), opset={"": 17}
    )
    held = {("x", at, 0): x[at] for at in range(samples)} | {("y", at, 0): values[at] for at in range(samples)}
    return MemoryRecording(graph, held)


def changed(factor, at=17):
    values = VALUES + NOISE
    values[at] *= np.float32(factor)
    return values


NEAR = VALUES * np.float32(1 + 1e-4)
"""Inputs that are not equal, but for all that is known the same: the error of the node may have come with them."""


@pytest.mark.parametrize("factor", [0, -1])
def test_a_sample_that_is_dead_or_of_the_other_sign_is_seen_among_many(factor):
    assert qdebug.diff(run(VALUES), run(VALUES + NOISE, x=NEAR)).exit_code == 0
    result = qdebug.diff(run(VALUES), run(changed(factor), x=NEAR))
    assert (result.status, result.exit_code) == ("diverged", 1)
    assert result["node"].metrics.sqnr_db > 16
    assert "the error of sample 17 is" in result["node"].reason
    assert [sample.sample for sample in result["node"].samples if sample.status == "diverged"] == [17]


def test_a_nearly_silent_sample_is_no_worse_for_that():
    quiet = VALUES.copy()
    quiet[17] *= np.float32(1e-3)
    result = qdebug.diff(run(quiet), run(quiet + NOISE, x=NEAR))
    assert [sample.sample for sample in result["node"].samples if sample.sqnr_db < 0] == [17]
    assert (result.status, result["node"].samples[17].status) == ("within", "within")


@pytest.mark.parametrize("samples", [1, 3])
def test_one_sample_is_said_in_the_headline_and_in_every_format(samples):
    pair = [run(VALUES, samples=samples) for _ in range(2)]
    for result in (qdebug.diff(*pair), qdebug.diff(pair[0], run(VALUES * np.float32(1 + 1e-6), samples=samples))):
        assert ("in 1 sample" in result.verdict.sentence) is (samples == 1)
        assert result.to_dict()["coverage"]["samples"] == samples
        said = "1 sample" if samples == 1 else "3 samples"
        for text in (str(result), diff_markdown(result), diff_junit({"int8": result})):
            assert said in text
    assert "samples" in load_schema("diff")["$defs"]["Coverage"]["properties"]
