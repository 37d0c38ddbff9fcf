"""Faults seeded by graph surgery, run on ONNX Runtime and compared with the healthy net: is the faulty node named?"""

from __future__ import annotations

import itertools

import pytest
from sweeps import sweep

from qdebug.compare.result.result import Status

pytest.importorskip("onnxruntime")

FLOAT = (
    *("wrong_channel", "bias_dropped", "activation_removed", "activation_bypassed", "pads_shifted"),
    *("stride_doubled", "stale_row", "empty_row"),
)
INT8 = (
    *("zero_point_dropped", "scale_doubled", "written_scale_doubled", "output_clamped", "wrong_channel"),
    *("padded_with_zero", "pads_shifted", "scales_rolled", "axis_swapped"),
)
IMPOSSIBLE = {
    # a shape that changes does not fit the next layer
    *((net, form, "stride_doubled") for net, form in (("digits", "float"), ("swift_f0", "float"))),
    # its zero points are 0 wherever it pads
    *(
        ("digits", f"{form}.{per}", "padded_with_zero")
        for form in ("qdq", "qoperator")
        for per in ("channel", "tensor")
    ),
    # scales of channels that a form does not have, or an axis that it does not name
    *(
        ("digits", f"{form}.tensor", kind)
        for form in ("qdq", "qoperator")
        for kind in ("scales_rolled", "axis_swapped")
    ),
    ("digits", "qoperator.channel", "axis_swapped"),
    *(("cls", form, kind) for form in ("qdq", "qoperator") for kind in ("scales_rolled", "axis_swapped")),
}
"""Net, form and kind of faults that no node can have."""

NETS = {
    "digits": {"float": FLOAT, **{f"{f}.{p}": INT8 for f in ("qdq", "qoperator") for p in ("channel", "tensor")}},
    "cls": {"float": FLOAT, "qdq": INT8, "qoperator": INT8},
    "swift_f0": {"float": FLOAT},
}
SEEDS = (0, 1)
CASES = [
    (net, form, kind, seed)
    for net, forms in NETS.items()
    for form, kinds in forms.items()
    for kind in kinds
    if (net, form, kind) not in IMPOSSIBLE
    for seed in SEEDS
]
QUICK = [case for case in CASES if case[0] == "digits" and case[1] in ("float", "qdq.channel") and case[3] == 0]


@pytest.mark.parametrize(("net", "form", "kind", "seed"), QUICK, ids=str)
def test_the_faulty_node_is_named_on_the_digits_net(request, net, form, kind, seed):
    outcome = request.getfixturevalue(net).seed(form, kind, seed)
    assert outcome.expected
    assert outcome.origin_right, outcome.row()
    assert outcome.first_right, outcome.row()
    assert outcome.result.status is Status.DIVERGED
    assert outcome.result.exit_code != 0


@pytest.mark.parametrize("form", NETS["digits"])
def test_the_healthy_digits_net_has_no_origin(digits, form):
    verdict = digits.healthy(form).verdict
    assert (verdict.status, verdict.origin) in ((Status.IDENTICAL, None), (Status.WITHIN, None))


@pytest.mark.slow
@pytest.mark.parametrize(("net", "form"), [(net, form) for net in ("cls", "swift_f0") for form in NETS[net]])
def test_healthy_nets_have_no_origin(request, net, form):
    verdict = request.getfixturevalue(net).healthy(form).verdict
    assert (verdict.status, verdict.origin) in ((Status.IDENTICAL, None), (Status.WITHIN, None))


@pytest.mark.slow
def test_the_faulty_node_is_named_in_95_of_100_cases(request, capsys):
    outcomes = [request.getfixturevalue(net).seed(form, kind, seed) for net, form, kind, seed in CASES]
    wrong = [outcome for outcome in outcomes if not outcome.origin_right]
    late = [outcome for outcome in outcomes if not outcome.first_right]
    with capsys.disabled():
        print(f"\norigin right in {len(outcomes) - len(wrong)} of {len(outcomes)} cases")
        print(f"first divergence right in {len(outcomes) - len(late)} of {len(outcomes)} cases")
        for row in dict.fromkeys(outcome.row() for outcome in (*wrong, *late)):
            print(row)
    assert len(outcomes) >= 40
    assert all(outcome.expected for outcome in outcomes)
    assert len(wrong) <= 0.05 * len(outcomes)
    assert len(late) <= 0.05 * len(outcomes)


@pytest.mark.parametrize(
    ("form", "seed"), sweep(itertools.product(("float", "qdq.channel", "qoperator.tensor"), range(3)), 3)
)
def test_of_two_faults_the_first_is_where_it_diverges_and_one_is_the_origin(digits, form, seed):
    (first, second), result = digits.seed_two(form, "wrong_channel", seed)
    assert result.verdict.first_divergence in first
    assert result.verdict.origin in first | second


def test_an_answer_counts_as_right_for_few_nodes_alone(digits):
    """The check can fail: the nodes that are right are those with the fault, not whatever comes after."""
    outcome = digits.seed("float", "wrong_channel", 0)
    compared = {node.node for node in outcome.result.nodes}
    assert len(outcome.expected) == 1 < len(compared)
    assert outcome.expected <= compared
