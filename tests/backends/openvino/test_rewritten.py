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

BACKEND = rewritten.backend_choice("openvino:precision=f32")
OPEN = {
    "clip": "OpenVINO cuts the bounds to whole codes of the input",
    "resize": "its interpolation in float32 is not known",
}
LIKELY = {  # the clamp became Max and Min, so its bounds are not known beside the codes
    "clip": "an activation's range, or a clamp merged with another, does not match the graph",
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
        assert adapter.residual.likely == LIKELY.get(title, harness.residual.likely)
