"""The rules of a chip: what a file may say, what it breaks, and where errors in a file are."""

import jsonschema
import numpy as np
import pytest

from qdebug.errors import UsageError
from qdebug.lint.chip_rules import find_breaches, find_rules
from qdebug.lint.replay import LintModel
from qdebug.lint.rewrites import lint
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.present.reports.lint import lint_document
from qdebug.present.reports.schema import load_schema

HEAD = 'format = "qdebug.rules"\nversion = 1\n'


def rules(tmp_path, text):
    path = tmp_path / "npu.toml"
    path.write_text(HEAD + text)
    return find_rules(str(path))


def net(*, weight_scale=0.5, channels=1, dtype="int8", zero_point=0, least=-128, op="QLinearConv"):
    """Return a model with a quantizer, a convolution of codes and a Relu on codes."""
    infos, values = [], {}

    def constant(name, array):
        values[name, 0, 0] = np.asarray(array)
        infos.append(TensorInfo(name=name, role=Role.CONSTANT))

    scale = np.full(channels, weight_scale, np.float32)
    axis = 0 if channels > 1 else None
    constant("xs", np.float32(0.25))
    constant("xz", np.asarray(zero_point, dtype))
    constant("w", np.full((channels, 1, 1, 1), least, np.int8))
    infos[-1] = TensorInfo(name="w", role=Role.CONSTANT, quant=QuantParams(dtype="int8", scale=scale, axis=axis))
    constant("ws", scale if channels > 1 else scale[0])
    constant("wz", np.zeros(channels if channels > 1 else (), np.int8))
    quant = QuantParams(dtype=dtype, scale=np.float32(0.25), zero_point=zero_point)
    infos += [TensorInfo(name=name, dtype=dtype, quant=quant) for name in ("q", "c", "r")]
    infos.append(TensorInfo(name="x", dtype="float32", shape=(1, 1, 2, 2), role=Role.INPUT))
    nodes = [
        Node(name="quantizer", op="QuantizeLinear", inputs=("x", "xs", "xz"), outputs=("q",)),
        Node(name="conv", op=op, inputs=("q", "xs", "xz", "w", "ws", "wz", "xs", "xz"), outputs=("c",)),
        Node(name="relu", op="Relu", inputs=("c",), outputs=("r",)),
    ]
    graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=["r"], opset={"": 17})
    values["x", 0, 0] = np.zeros((1, 1, 2, 2), np.float32)
    return LintModel(title="net", graph=graph, recording=MemoryRecording(graph, values), raw=True, copies_codes=False)


def broken(model, chip):
    return {(breach.rule, breach.node, breach.tensor) for breach in find_breaches(model, chip)}


@pytest.mark.parametrize(
    ("text", "wrong", "right", "expected"),
    [
        ("[weights]\npower_of_two = true", {"weight_scale": 0.3}, {}, {("weights.power_of_two", "conv", "w")}),
        ("[weights]\ncodes = [-127, 127]", {}, {"least": -127}, {("weights.codes", "conv", "w")}),
        ("[weights]\nper_channel = false", {"channels": 3}, {}, {("weights.per_channel", "conv", "w")}),
        ('[weights]\nper_channel = ["Gemm"]', {"channels": 3}, {}, {("weights.per_channel", "conv", "w")}),
        ('[weights]\ndtypes = ["int4"]', {}, None, {("weights.dtypes", "conv", "w")}),
        ('operators = ["Conv"]', {}, None, {("operators", "relu", "")}),
        (
            '[activations]\ndtypes = ["int8"]',
            {"dtype": "uint8"},
            {},
            {
                ("activations.dtypes", node, tensor)
                for node, tensor in (("quantizer", "q"), ("conv", "c"), ("relu", "r"))
            },
        ),
        (
            "[activations]\nzero_point = 0",
            {"zero_point": 3},
            {},
            {("activations.zero_point", node, tensor) for node, tensor in (("conv", "c"), ("relu", "r"))},
        ),
    ],
)
def test_each_rule_names_the_place_that_breaks_it_and_no_other(tmp_path, text, wrong, right, expected):
    chip = rules(tmp_path, text)
    assert broken(net(**wrong), chip) == expected
    assert right is None or not broken(net(**right), chip)


def test_operators_count_by_what_they_compute(tmp_path):
    for names in ('["Conv", "Relu"]', '["CONV_2D", "RELU"]'):
        assert not broken(net(), rules(tmp_path, f"operators = {names}"))
    assert not broken(net(), rules(tmp_path, '[weights]\nper_channel = ["Conv"]'))


def test_a_zero_point_that_a_quantizer_breaks_has_a_witness(tmp_path):
    """The chip takes codes with the zero point 3 for codes with 0, so each value is 3 steps of 0.25 off."""
    report = lint(net(zero_point=3), chip=rules(tmp_path, "[activations]\nzero_point = 0"))
    (finding,) = report.findings
    assert (finding.kind, finding.tensor) == ("asymmetric", "q")
    assert abs(finding.witness.before - finding.witness.after) == pytest.approx(0.75)
    assert (report.rules, report.exit_code, len(report.breaches)) == ("npu", 1, 2)
    jsonschema.validate(report.to_dict(), load_schema("lint"))
    assert "the rules of npu are broken in 2 places" in lint_document(report)[0].text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[weights]\n# why\ndtypes = ["int7"]', "line 5: weights.dtypes names an unknown type 'int7'"),
        ('[weights]\ndtypes = ["float16"]', "line 4: weights.dtypes names an unknown type 'float16'"),
        ('operators = ["Covn"]', "line 3: operators names an unknown operator 'Covn'"),
        ("[weigths]", "line 3: weigths means nothing"),
        ("[activations]\ncodes = [0, 1]", "line 4: activations.codes means nothing"),
        ("[weights]\ncodes = [1, 0]", r"line 4: weights.codes is \[1, 0\]"),
        ("[biases]\npower_of_two = 1", "line 4: biases.power_of_two is 1"),
        ("[biases]\nzero_point = {int8 = true}", "line 4: biases.zero_point is"),
        ("weights = 3", "line 3: weights is not a table"),
        ("[weights", "is not valid TOML"),
    ],
)
def test_an_error_in_a_file_names_its_line_and_key(tmp_path, text, said):
    with pytest.raises(UsageError, match=said):
        rules(tmp_path, text)


def test_the_rules_of_known_runtimes_are_files_of_the_same_form():
    litert, tflm, tensorrt = map(find_rules, ("litert", "tflm", "tensorrt"))
    assert litert.weights.zero_point("int8") == tflm.weights.zero_point("int8") == 0
    assert litert.activations.zero_point("int8") is None
    assert tensorrt.activations.zero_point("uint8") == 0
    with pytest.raises(UsageError, match="'tensort' are not known"):
        find_rules("tensort")
