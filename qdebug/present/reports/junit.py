"""The comparison as JUnit XML: one suite for each backend, one case for each compared or missing tensor.

A tensor beyond its limit is a failure, and a tensor that should have been compared but could not be is an error. A
tensor that is acknowledged or allowed to be missing is skipped with a reason, so that it does not count as tested.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePath

from qdebug.compare.result.node_result import breaks_limit, is_excused
from qdebug.compare.result.result import NodeResult, RunComparison, Status
from qdebug.present import numbers, sentences
from qdebug.present.answer import headline
from qdebug.present.reports.comparison import comparison_facts
from qdebug.present.text import safe_text

__all__ = ["diff_junit"]

_TEXT_LIMIT = 2000
_NONCHARACTER_ESCAPES = str.maketrans({"\ufffe": "\\ufffe", "\uffff": "\\uffff"})
"""Escapes of the code points that XML 1.0 does not allow and that `safe_text` does not escape."""


def diff_junit(results: Mapping[str, RunComparison]) -> str:
    """Return comparisons as JUnit XML.

    Args:
        results: One comparison for each backend, by displayed name.
    """
    root = ET.Element("testsuites", name="qdebug")
    identity_counts = Counter(map(_suite_name, results.values()))
    for name, result in results.items():
        suite_name = _suite_name(result)
        _add_suite(root, suite_name if suite_name and identity_counts[suite_name] == 1 else name, result)
    totals = {key: sum(int(suite.get(key, 0)) for suite in root) for key in ("tests", "failures", "errors", "skipped")}
    root.attrib.update({key: str(value) for key, value in totals.items()})
    ET.indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(root, encoding='unicode')}\n"


def _suite_name(result: RunComparison) -> str:
    """Return the name of a backend's suite: its model and its runtime, which stay the same from run to run.

    The name of a recording may contain a hash of its contents. With that name, a test would have no history.
    """
    run = result.backend
    return f"{PurePath(run.model).name} on {run.backend}" if run.model else ""


def _add_suite(root: ET.Element, name: str, result: RunComparison) -> None:
    suite = ET.SubElement(root, "testsuite", name=_xml_text(f"qdebug {name}"))
    properties = ET.SubElement(suite, "properties")
    for key, value in (
        ("verdict", str(result.status)),
        ("headline", headline(result)),
        ("sentence", result.verdict.sentence),
        ("first_divergence", result.first_divergence),
        ("origin", result.origin),
        *((fact.label, fact.text) for fact in comparison_facts(result).facts if fact.label),
    ):
        ET.SubElement(properties, "property", name=key, value="" if value is None else _xml_text(value))
    for node in result.nodes:
        _add_case(suite, name, node, incomplete=bool(result.shortcomings))
    if result.status is Status.ACCUMULATED:  # the comparison fails although no node fails
        case = ET.SubElement(suite, "testcase", classname=_xml_text(name), name="outputs")
        failure = ET.SubElement(case, "failure", message=_xml_text(headline(result)), type=str(result.status))
        failure.text = _xml_text(result.verdict.sentence)
    completeness_case = ET.SubElement(suite, "testcase", classname=_xml_text(name), name="completeness")
    if result.shortcomings:  # a test case has a single outcome, so its text lists all shortcomings
        error = ET.SubElement(completeness_case, "error", message=_xml_text(result.shortcomings[0]), type="incomplete")
        error.text = _xml_text("; ".join(result.shortcomings))
    ET.SubElement(completeness_case, "system-out").text = _xml_text(sentences.coverage_sentence(result))
    path_by_outcome = {
        "tests": "testcase",
        "failures": "testcase/failure",
        "errors": "testcase/error",
        "skipped": "testcase/skipped",
    }
    for key, path in path_by_outcome.items():
        suite.set(key, str(len(suite.findall(path))))


def _add_case(suite: ET.Element, name: str, node: NodeResult, *, incomplete: bool) -> None:
    label = node.node if node.node == node.tensor else f"{node.node} > {node.tensor}"
    case = ET.SubElement(suite, "testcase", classname=_xml_text(f"{name}.{node.op}"), name=_xml_text(label))
    reason = _xml_text(node.reason or node.status)
    if is_excused(node) and (breaks_limit(node) or node.status is Status.INCOMPARABLE):
        acknowledgement = f"acknowledged: {node.acknowledged.reason}" if node.acknowledged else ""
        ET.SubElement(case, "skipped", message=_xml_text(f"{acknowledgement} ({reason})"))
    elif breaks_limit(node):
        ET.SubElement(case, "failure", message=reason, type=str(node.status)).text = _metrics_text(node)
    elif node.status is Status.INCOMPARABLE:
        ET.SubElement(case, "error" if incomplete else "skipped", message=reason)
    else:
        ET.SubElement(case, "system-out").text = _metrics_text(node)


def _metrics_text(node: NodeResult) -> str:
    stats = node.metrics
    if stats is None:
        return _xml_text(node.reason or "")
    figures = {
        **{f"found {number}, {finding.kind}": finding.sentence for number, finding in enumerate(node.findings, 1)},
        "SQNR": f"{numbers.metric('sqnr_db', stats.sqnr_db)} dB",
        "max LSB": numbers.number(stats.max_lsb),
        "rel L2": numbers.number(stats.rel_l2),
        "max abs": numbers.number(stats.max_abs),
        "mismatches": f"{numbers.mismatches(stats)} of {numbers.grouped(stats.count)}",
        "reference tensor": node.reference_tensor,
    }
    return "\n".join(_xml_text(f"{label}: {value}") for label, value in figures.items())


def _xml_text(value: object) -> str:
    return safe_text(value, limit=_TEXT_LIMIT).translate(_NONCHARACTER_ESCAPES)
