"""The probe on ONNX Runtime: names are asserted for processors that the arithmetic was measured on, alone."""

import pytest

from qdebug.probe.run import run_probe
from qdebug.recording.environment import cpu_flags

pytest.importorskip("onnxruntime")

MEASURED = "avx512_vnni"


def probed(**more):
    result = run_probe("onnxruntime", **more)
    assert result.exit_code == 0
    assert {entry.status for entry in result.entries} <= {"explained", "unfused"}
    return result


def named(result):
    return {score.name for score in result.scores if score.stands}


def unfused(result):
    """Return the titles, without their types, of what is left in floating point."""
    return {entry.title.rpartition(" ")[0] for entry in result.entries if entry.status == "unfused"}


@pytest.mark.slow
def test_element_wise_kinds_are_explained():
    result = probed(kinds=("add", "quantize", "concat", "lookup"))
    # HardSwish has no operator on codes, so that the runtime leaves it in floating point.
    assert unfused(result) <= {"lookup HardSwish", "lookup Tanh"}
    assert all(entry.match == 1.0 for entry in result.entries if entry.status == "explained")
    if MEASURED not in cpu_flags():
        pytest.skip(f"the runtime's arithmetic was measured with {MEASURED} alone, which this processor lacks")
    assert "ort-mlas" in named(result)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["extended", "all"])
def test_every_kind_is_explained_and_the_arithmetic_named(level):
    result = probed(options={"opt": level})
    # What has no operator on codes the runtime leaves in floating point.
    assert unfused(result) <= {"sub", "requantize", "reduce_mean", "resize", "resize channels last", "lookup HardSwish"}
    if MEASURED not in cpu_flags():
        pytest.skip(f"the runtime's arithmetic was measured with {MEASURED} alone, which this processor lacks")
    assert named(result) == {"ort-mlas"}
    conv = next(entry for entry in result.entries if entry.title == "conv uint8 x int8")
    assert "ort-mlas-avx2-nonvnni" in conv.conflicts
