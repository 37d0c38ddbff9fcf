"""JUnit XML: a case for each tensor, an outcome that CI understands, nothing skipped without a reason."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from qdebug.compare.result.limits import Acknowledgement
from qdebug.compare.result.result import Status
from qdebug.present.reports.junit import diff_junit


def parsed(results):
    return ET.fromstring(diff_junit(results).encode())  # noqa: S314  our own text


def outcomes(root):
    return {
        case.get("name"): next((child.tag for child in case if child.tag != "system-out"), "passed")
        for case in root.iter("testcase")
    }


@pytest.fixture
def nodes(made):
    known = Acknowledgement(node="x", reason="old kernel")
    gone = Acknowledgement(node="x", reason="old", expires="2020-01-01", expired=True)
    return [
        made.node(0, Status.IDENTICAL),
        made.node(1),
        made.node(2, Status.DIVERGED),
        made.node(3, Status.NONFINITE, reason="2 are NaN"),
        made.node(4, Status.DIVERGED, acknowledged=known),
        made.node(5, Status.DIVERGED, acknowledged=gone),
        made.node(6, Status.INCOMPARABLE, reason="another shape"),
    ]


def test_each_tensor_is_a_case_with_its_outcome(nodes, made):
    root = parsed({"int8.h5": made.result(nodes, shortcomings=("1 tensor could not be compared",))})
    assert outcomes(root) == {
        "conv0 > conv0_q": "passed",
        "conv1 > conv1_q": "passed",
        "conv2 > conv2_q": "failure",
        "conv3 > conv3_q": "failure",
        "conv4 > conv4_q": "skipped",
        "conv5 > conv5_q": "failure",
        "conv6 > conv6_q": "error",
        "completeness": "error",
    }
    suite = root.find("testsuite")
    counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": 8, "failures": 3, "errors": 2, "skipped": 1}
    assert {name: int(root.get(name)) for name in counts} == counts
    assert "old kernel" in next(root.iter("skipped")).get("message")
    failure = next(root.iter("failure"))
    assert failure.get("message") == "SQNR 8 dB is below 20 dB"
    assert failure.get("type") == "diverged"
    assert "max LSB: 5.00" in failure.text


def test_what_may_be_missing_is_skipped_and_not_passed(made):
    root = parsed({"a": made.result([made.node(0), made.node(1, Status.INCOMPARABLE, reason="shape")])})
    assert outcomes(root) == {"conv0 > conv0_q": "passed", "conv1 > conv1_q": "skipped", "completeness": "passed"}


def test_several_backends_are_several_suites(made):
    root = parsed({"a.h5": made.result([made.node(0)]), "b.h5": made.result([made.node(0, Status.DIVERGED)])})
    assert [suite.get("name") for suite in root] == ["qdebug a.h5", "qdebug b.h5"]
    assert root.get("tests") == "4"
    assert root.get("failures") == "1"


@pytest.mark.parametrize("name", ["<a&b>", "]]>", "\x00\x08", "\ufffe\uffff", "\ud800", "a\nb", '"', "x" * 5000])
def test_any_name_gives_valid_xml(name, made):
    root = parsed({name: made.result([made.node(0, Status.DIVERGED, node=name, tensor=name, reason=name)])})
    assert len(list(root.iter("testcase"))) == 2
    assert all(text.isprintable() for case in root.iter("testcase") for text in case.attrib.values())


def test_the_same_result_gives_the_same_bytes(nodes, made):
    assert diff_junit({"a": made.result(nodes)}) == diff_junit({"a": made.result(nodes)})


def test_an_output_that_is_wrong_though_no_node_is_fails_by_itself(nodes, made):
    result = made.result(nodes[:2])
    result = replace(result, verdict=replace(result.verdict, status=Status.ACCUMULATED, sentence="'y' has 12 dB."))
    root = parsed({"int8.h5": result})
    assert outcomes(root) == {**outcomes(parsed({"int8.h5": made.result(nodes[:2])})), "outputs": "failure"}
    (failure,) = root.iter("failure")
    assert (failure.get("type"), failure.get("message")) == (
        "accumulated",
        "accumulated: an output has too little, although no node is beyond its limit",
    )
    assert root.get("failures") == "1"
