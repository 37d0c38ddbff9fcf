"""The comparison as JUnit XML: one suite for each backend, one case for each compared or missing tensor.

A tensor beyond its limit is a failure, one that cannot be compared an error; a tensor that is acknowledged or allowed
to be missing is skipped with a reason, so that it does not count as tested.
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

_LIMIT = 2000
_NO_CHARACTERS = str.maketrans({"\ufffe": "\\ufffe", "\uffff": "\\uffff"})
"""Code points that XML 1.0 does not allow, besides those that `safe_text` shows as escapes."""


def diff_junit(results: Mapping[str, RunComparison]) -> str:
    """Return comparisons as JUnit XML.

    Args:
        results: One comparison for each backend, by displayed name.
    """
    root = ET.Element("testsuites", name="qdebug")
    identity_counts = Counter(map(_identity, results.values()))
    for name, result in results.items():
        identity = _identity(result)
        _suite(root, identity if identity and identity_counts[identity] == 1 else name, result)
    totals = {key: sum(int(suite.get(key, 0)) for suite in root) for key in ("tests", "failures", "errors", "skipped")}
    root.attrib.update({key: str(value) for key, value in totals.items()})
    ET.indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(root, encoding='unicode')}\n"


def _identity(result: RunComparison) -> str:
    """Return the name of a backend's suite: its model and its runtime, which stay the same from run to run.

    The name of a recording may contain a hash of its contents, and with it, tests would have no history.
    """
    run = result.backend
    return f"{PurePath(run.model).name} on {run.backend}" if run.model else ""


def _suite(root: ET.Element, name: str, result: RunComparison) -> None:
    suite = ET.SubElement(root, "testsuite", name=_safe(f"qdebug {name}"))
    properties = ET.SubElement(suite, "properties")
    for key, value in (
        ("verdict", str(result.status)),
        ("headline", headline(result)),
        ("sentence", result.verdict.sentence),
        ("first_divergence", result.first_divergence),
        ("origin", result.origin),
        *((fact.label, fact.text) for fact in comparison_facts(result).facts if fact.label),
    ):
        ET.SubElement(properties, "property", name=key, value="" if value is None else _safe(value))
    for node in result.nodes:
        _case(suite, name, node, incomplete=bool(result.shortcomings))
    if result.status is Status.ACCUMULATED:  # the comparison fails although no node does
        case = ET.SubElement(suite, "testcase", classname=_safe(name), name="outputs")
        failure = ET.SubElement(case, "failure", message=_safe(headline(result)), type=str(result.status))
        failure.text = _safe(result.verdict.sentence)
    completeness_case = ET.SubElement(suite, "testcase", classname=_safe(name), name="completeness")
    if result.shortcomings:  # a test case has one outcome, so its text names all failures
        error = ET.SubElement(completeness_case, "error", message=_safe(result.shortcomings[0]), type="incomplete")
        error.text = _safe("; ".join(result.shortcomings))
    ET.SubElement(completeness_case, "system-out").text = _safe(sentences.coverage_sentence(result))
    path_by_outcome = {
        "tests": "testcase",
        "failures": "testcase/failure",
        "errors": "testcase/error",
        "skipped": "testcase/skipped",
    }
    for key, path in path_by_outcome.items():
        suite.set(key, str(len(suite.findall(path))))


def _case(suite: ET.Element, name: str, node: NodeResult, *, incomplete: bool) -> None:
    label = node.node if node.node == node.tensor else f"{node.node} > {node.tensor}"
    case = ET.SubElement(suite, "testcase", classname=_safe(f"{name}.{node.op}"), name=_safe(label))
    reason = _safe(node.reason or node.status)
    if is_excused(node) and (breaks_limit(node) or node.status is Status.INCOMPARABLE):
        acknowledgement = f"acknowledged: {node.acknowledged.reason}" if node.acknowledged else ""
        ET.SubElement(case, "skipped", message=_safe(f"{acknowledgement} ({reason})"))
    elif breaks_limit(node):
        ET.SubElement(case, "failure", message=reason, type=str(node.status)).text = _figures(node)
    elif node.status is Status.INCOMPARABLE:
        ET.SubElement(case, "error" if incomplete else "skipped", message=reason)
    else:
        ET.SubElement(case, "system-out").text = _figures(node)


def _figures(node: NodeResult) -> str:
    stats = node.metrics
    if stats is None:
        return _safe(node.reason or "")
    figures = {
        **{f"found {number}, {finding.kind}": finding.sentence for number, finding in enumerate(node.findings, 1)},
        "SQNR": f"{numbers.metric('sqnr_db', stats.sqnr_db)} dB",
        "max LSB": numbers.number(stats.max_lsb),
        "rel L2": numbers.number(stats.rel_l2),
        "max abs": numbers.number(stats.max_abs),
        "mismatches": f"{numbers.mismatches(stats)} of {numbers.grouped(stats.count)}",
        "reference tensor": node.reference_tensor,
    }
    return "\n".join(_safe(f"{label}: {value}") for label, value in figures.items())


def _safe(value: object) -> str:
    return safe_text(value, limit=_LIMIT).translate(_NO_CHARACTERS)
