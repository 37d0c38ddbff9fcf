"""Single operators on codes that OpenVINO rewrites: the adapter explains as many as a harness that knows no adapter."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("openvino.opset13", reason="needs the extra openvino")
pytest.importorskip("onnx", reason="needs the extra onnx")

_SPEC = importlib.util.spec_from_file_location("rewritten", Path(__file__).parents[1] / "rewritten.py")
rewritten = sys.modules["rewritten"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(rewritten)

BACKEND, SHORT_BACKEND = (rewritten.backend_choice(f"openvino:precision={name}") for name in ("f32", "bf16"))
OPEN = {
    "clip": "OpenVINO cuts the bounds to whole codes of the input",
    "resize": "its interpolation in float32 is not known",
}
FAST = ("depthwise conv", "add, relu", "concat", "hard swish", "max pool", "clip")


@pytest.mark.parametrize(
    "title",
    [title if title in FAST else pytest.param(title, marks=pytest.mark.slow) for title in rewritten.OPERATORS],
)
def test_the_adapter_explains_what_a_harness_explains(title):
    adapter, harness = rewritten.explained(rewritten.OPERATORS[title], BACKEND)
    assert adapter.elements == harness.elements
    if title not in OPEN:
        assert adapter.status == harness.status == "explained"
    else:
        assert adapter.status == harness.status == "unexplained"
        assert adapter.residual.likely == harness.residual.likely


def test_a_product_of_two_that_reads_short_floats_is_examined_as_the_harness_examines_it():
    adapter, harness = rewritten.explained(rewritten.OPERATORS["matmul of two"], SHORT_BACKEND)
    assert adapter.status == harness.status
    assert (adapter.elements, adapter.match) == (harness.elements, pytest.approx(harness.match, abs=0.01))
