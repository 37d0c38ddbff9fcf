"""The answer of a comparison in words: PASS or FAIL, the headline, where, why, what to try, what was ruled out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from qdebug.compare.result.diagnosis import Diagnosis, FaultClass, Remedy
from qdebug.compare.result.finding import FindingKind, JudgedBy, apart
from qdebug.compare.result.node_result import NodeResult, breaks_limit, is_beyond
from qdebug.compare.result.result import RunComparison, Status
from qdebug.plural import agreeing, plural
from qdebug.present import numbers
from qdebug.present.text import QUOTED, safe_text, shorten

__all__ = [
    "BAR",
    "headline",
    "level_change",
    "node_title",
    "ordered_outputs",
    "remedy_line",
    "ruled_out_line",
    "share_bar",
    "share_of",
    "share_text",
    "verdict_word",
]

BAR = 20
"""Characters of the bar of a whole error."""

_NAME = 60
_WHY = 400
_OUTPUTS = 3
_MOSTLY = 0.5
"""Share of an output's error from which on it is mostly one node's."""

_KINDS: Mapping[str, str] = MappingProxyType(
    {
        FindingKind.NONFINITE: "infinity or NaN",
        FindingKind.PRECISION: "too few digits",
        FindingKind.SELECTION: "other elements are selected",
        FindingKind.STALE: "wrong buffer",
        FindingKind.SCALE: "scale",
        FindingKind.ZERO_POINT: "zero point",
        FindingKind.SATURATION: "clipping",
        FindingKind.DEAD_ZONE: "dead zone",
        FindingKind.WEIGHT: "weight",
        FindingKind.BIAS: "bias",
        FindingKind.CONSTANT: "constant",
        FindingKind.ATTRIBUTE: "attribute",
        FindingKind.OPERATOR: "operator",
        FindingKind.MISSING_NODE: "missing node",
        FindingKind.INPUT: "inputs differ",
    }
)
"""What is wrong, by the kind of what was found."""
_CLASSES: Mapping[FaultClass, str] = MappingProxyType(
    {
        FaultClass.KERNEL: "kernel",
        FaultClass.MODEL: "model",
        FaultClass.QUANTIZATION: "quantization",
        FaultClass.NUMERIC: "numbers",
        FaultClass.REFERENCE: "the reference is wrong",
        FaultClass.RECORDING: "inputs differ",
        FaultClass.UNKNOWN: "beyond its limit",
    }
)
_CLAUSE = re.compile(r";| \(|\. |, and rounding|: that reproduces")
"""Where the first clause of a reason ends."""
_CLAUSE_MOST = 140


def verdict_word(result: RunComparison) -> str:
    """Return PASS, FAIL, INCOMPLETE or FAIL, INCOMPLETE, as the exit code has it."""
    failed = result.status in (Status.ACCUMULATED, Status.DIVERGED, Status.NONFINITE)
    words = ["FAIL"] if failed else []
    words += ["INCOMPLETE"] if result.exit_code == 3 else []
    return ", ".join(words) or "PASS"


def headline(result: RunComparison) -> str:
    """Return the verdict in a sentence: the status, and what a person wants to know first."""
    many = sum(node.status is not Status.INCOMPARABLE for node in result.nodes)
    tensors = f"all {plural(many, 'compared tensor', number=numbers.grouped(many))}" if many != 1 else "the one tensor"
    samples = plural(result.coverage.samples, "sample") if result.coverage.samples else ""
    where = f", in {samples}" if samples else ""
    if result.status is Status.IDENTICAL:
        return f"identical: {tensors}{where}"
    if result.status is Status.WITHIN:
        excused = sum(breaks_limit(node) and node.status is not Status.INCOMPARABLE for node in result.nodes)
        limits = "its limit" if many - excused == 1 else "their limits"
        if excused:
            within = (
                f"{numbers.grouped(many - excused)} of {plural(many, 'compared tensor', number=numbers.grouped(many))}"
            )
            return f"within: {within} {agreeing(many - excused, 'is')} within {limits}, {excused} acknowledged{where}"
        return f"within: {tensors} {agreeing(many, 'is')} within {limits}{where}"
    said = f"{result.status}: "
    if result.status is Status.ACCUMULATED:
        return said + _lost(result)
    if result.status is Status.INCOMPLETE or not result.diagnosis:
        return said + (safe_text(result.shortcomings[0], limit=_WHY) if result.shortcomings else _beyond(result))
    first, others = result.diagnosis[0], len(result.diagnosis) - 1
    said += f"{_phrase(first)}: {_clause(first)}"
    if others:
        said += f"; {plural(others, 'more fault')}"
    return "; ".join(filter(None, (said, _worst_output(result), _beyond(result))))


def _clause(fault: Diagnosis) -> str:
    """Return the first clause of why a node is at fault."""
    end = _CLAUSE.search(QUOTED.sub(lambda name: "x" * len(name[0]), fault.why))  # a name may hold any sign
    return shorten(safe_text(fault.why[: end.start() if end else None].strip(), limit=_WHY), _CLAUSE_MOST)


def _worst_output(result: RunComparison) -> str:
    """Say what is left of the worst output; "" if none has an SQNR."""
    known = [
        (node.metrics.sqnr_db, node.tensor)
        for node in result.nodes
        if node.tensor in result.network_outputs and node.metrics is not None and node.metrics.sqnr_db is not None
    ]
    if not known:
        return ""
    level, name = min(known, key=lambda each: (not math.isnan(each[0]), each[0]))
    if level == math.inf:
        return ""
    floor = result.limits.get("min_output_sqnr")
    limit = f" (limit {floor:g})" if isinstance(floor, int | float) and math.isfinite(floor) else ""
    return f"output {safe_text(name, limit=_NAME)} {numbers.metric('sqnr_db', level)} dB{limit}"


def _beyond(result: RunComparison) -> str:
    beyond, many = sum(map(is_beyond, result.nodes)), len(result.nodes)
    return f"{numbers.grouped(beyond)} of {plural(many, 'tensor', number=numbers.grouped(many))} beyond the limit"


def _lost(result: RunComparison) -> str:
    """Say what makes an output fall short though no node is beyond its limit."""
    first = next(iter(result.diagnosis), None)
    if first is not None and not result.verdict.short:
        return f"{_phrase(first)}: {_clause(first)}; no output that it leads to was compared"
    output = next((node for node in result.nodes if node.tensor in result.verdict.short[:1]), None)
    level = None if output is None or output.metrics is None else output.metrics.sqnr_db
    floor = result.limits.get("min_output_sqnr")
    place = "an output" if output is None else f"output {safe_text(output.tensor, limit=_NAME)}"
    of = "too little" if level is None else f"{apart(level, floor if isinstance(floor, int | float) else 0.0)} dB"
    limit = f" (limit {floor:g})" if isinstance(floor, int | float) else ""
    right = any(each.fault is FaultClass.KERNEL for each in result.ruled_out) and all(map(_is_proved, result.nodes))
    clause = "; no kernel is wrong" if right else ""
    if first is None:
        return f"{place} has {of}{limit}, though no node is beyond its limit"
    if first.fault is FaultClass.QUANTIZATION:
        mostly = f", mostly at {_titled(first)}" if (share_of(first) or 0.0) >= _MOSTLY else ""
        return f"quantization{mostly}; {place} has {of}{limit}{clause}"
    return f"{_phrase(first)}: {_clause(first)}; {place} has {of}{limit}{clause}"


def _is_proved(node: NodeResult) -> bool:
    """Tell whether nothing speaks against a node's arithmetic, and something could."""
    return node.reproduced is not False and node.judged_by is not JudgedBy.NONE


def _phrase(fault: Diagnosis) -> str:
    """Name a fault and its node."""
    what = _KINDS.get(str(fault.kind), _CLASSES[fault.fault])
    more = f" and {plural(len(fault.nodes) - 1, 'more node')}" if len(fault.nodes) > 1 else ""
    return f"{what} at {_titled(fault)}{more}"


def _titled(fault: Diagnosis) -> str:
    op = "" if fault.op == "Input" else f"{safe_text(fault.op, limit=_NAME)} "
    return f"{op}{node_title(fault)}"


def node_title(fault: Diagnosis, *, limit: int = _NAME) -> str:
    """Return what the source model calls the node of a fault, with the backend's name where it is another one."""
    own = safe_text(fault.node, limit=limit)
    if fault.model_node is None or fault.model_node == fault.node:
        return own
    if fault.node.startswith(fault.model_node):  # a suffix that a rewrite added tells a reader nothing
        return safe_text(fault.model_node, limit=limit)
    return f"{safe_text(fault.model_node, limit=limit)} ({own})"


def share_of(fault: Diagnosis) -> float | None:
    """Return the share of the output that it is known of."""
    return next((share for share in fault.share.values() if share is not None), None)


def share_text(share: float | None) -> str:
    """Write a share of an output's error in percent."""
    if share is None:
        return numbers.MISSING
    return f"{100 * share:.0f} %" if share >= 0.005 else "<1 %"


def share_bar(share: float | None) -> str:
    """Draw a share of an output's error."""
    return "" if share is None else "#" * round(min(share, 1.0) * BAR)


def level_change(fault: Diagnosis) -> str:
    """Write the SQNR before and after a node."""
    levels = (fault.before_db, fault.after_db)
    before, after = ("equal" if each == math.inf else numbers.metric("sqnr_db", each) for each in levels)
    return after if fault.before_db is None else f"{before} -> {after}"


def remedy_line(remedy: Remedy, result: RunComparison, *, most: int) -> str:
    """Say what was tried, what the outputs become by it, and what it costs.

    Args:
        remedy: What was tried.
        result: The comparison that it is a remedy of.
        most: Most outputs.
    """
    now = {node.tensor: node.metrics.sqnr_db for node in result.nodes if node.metrics is not None}
    floor = result.limits.get("min_output_sqnr")
    changes, short = [], False
    for name, gain in list(remedy.gain_db.items())[:most]:
        level, named = now.get(name), "" if len(result.network_outputs) == 1 else f"{safe_text(name, limit=_NAME)} "
        if level is None or not math.isfinite(level):
            changes.append(f"{named}{gain:+.1f} dB")
            continue
        short |= isinstance(floor, int | float) and level + gain < floor
        then = "identical" if gain == math.inf else f"{level + gain:.1f} dB"
        changes.append(f"{named}{level:.1f} -> {then}")
    still = f" (below {floor:g})" if short else ""
    return f"{safe_text(remedy.what, limit=200)}: {', '.join(changes)}{still}; {remedy.cost}"


def ruled_out_line(result: RunComparison, *, most: int | None = None) -> str:
    """Say what was looked for and is not there, or the first of it; "" if nothing was."""
    shown = [each for each in result.ruled_out if each.fault is not FaultClass.RECORDING]  # it is said if it is unusual
    return "; ".join(safe_text(each.sentence) for each in shown[:most])


def ordered_outputs(result: RunComparison) -> Sequence[str]:
    """List the network's outputs, those first that hold scores a person looks at, then the worst."""
    scores = [each.tensor for each in result.outputs]
    levels = {node.tensor: node.metrics.sqnr_db for node in result.nodes if node.metrics is not None}

    def key(name: str) -> tuple[bool, float]:
        level = levels.get(name)
        return name not in scores, float("inf") if level is None else level

    return sorted(result.network_outputs, key=key)
