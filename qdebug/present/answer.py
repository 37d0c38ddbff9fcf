"""The answer of a comparison in words: PASS or FAIL, headline, faults, remedies, and ruled-out faults."""

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
    "advice_line",
    "gain_of",
    "headline",
    "left_in_float",
    "level_change",
    "node_title",
    "ordered_outputs",
    "remedy_line",
    "remedy_to_try",
    "ruled_out_line",
    "share_bar",
    "share_of",
    "share_text",
    "shared_output",
    "verdict_word",
]

BAR = 20
"""Length of the bar for a share of 100 %, in characters."""

_NAME_LIMIT = 60
_REASON_LIMIT = 400
_MIN_MOSTLY_SHARE = 0.5
"""Minimum share of an output's error for which the error is "mostly" at one node."""

_KIND_NAMES: Mapping[str, str] = MappingProxyType(
    {
        FindingKind.NONFINITE: "infinity or NaN",
        FindingKind.PRECISION: "too few digits",
        FindingKind.ONE_SIDED: "one-sided error",
        FindingKind.ROUNDING: "another rounding",
        FindingKind.SELECTION: "other elements are selected",
        FindingKind.CACHE: "cache row changed",
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
"""Names of faults by kind of finding."""
_CLASS_NAMES: Mapping[FaultClass, str] = MappingProxyType(
    {
        FaultClass.KERNEL: "kernel",
        FaultClass.MODEL: "model",
        FaultClass.QUANTIZATION: "quantization",
        FaultClass.NUMERIC: "numbers",
        FaultClass.REFERENCE: "the reference recording is wrong",
        FaultClass.RECORDING: "inputs differ",
        FaultClass.UNKNOWN: "beyond its limit",
    }
)
_NARROW_DTYPES = ("float16", "bfloat16", "float8")
"""Float types whose largest number a result may exceed."""
_CLAUSE_END = re.compile(r";| \(|\. ")
"""Where the first clause of a reason ends."""
_CLAUSE_LIMIT = 140
_OR = ", or "
_FIRST_NODES = re.compile(r"^the (first \d+) nodes(?= in float)")
_MULTIPLY_ADDS = re.compile(r"([\d.]+) % of the multiply-adds in float")


def verdict_word(result: RunComparison) -> str:
    """Return PASS, FAIL, INCOMPLETE or FAIL, INCOMPLETE, consistent with the exit code."""
    has_failed = result.status in (Status.ACCUMULATED, Status.DIVERGED, Status.NONFINITE)
    words = ["FAIL"] if has_failed else []
    words += ["INCOMPLETE"] if result.exit_code == 3 else []
    return ", ".join(words) or "PASS"


def headline(result: RunComparison) -> str:
    """Return the verdict in one sentence: the status and its most important fact."""
    compared_count = sum(node.status is not Status.INCOMPARABLE for node in result.nodes)
    tensors = (
        f"all {plural(compared_count, 'compared tensor', number=numbers.grouped(compared_count))}"
        if compared_count != 1
        else "the one tensor"
    )
    samples = plural(result.coverage.samples, "sample") if result.coverage.samples else ""
    samples_text = f", in {samples}" if samples else ""
    if result.status is Status.IDENTICAL:
        return f"identical: {tensors}{samples_text}"
    if result.status is Status.WITHIN:
        excused_count = sum(breaks_limit(node) and node.status is not Status.INCOMPARABLE for node in result.nodes)
        limits = "its limit" if compared_count - excused_count == 1 else "their limits"
        if excused_count:
            total = plural(compared_count, "compared tensor", number=numbers.grouped(compared_count))
            count_text = f"{numbers.grouped(compared_count - excused_count)} of {total}"
            verb = agreeing(compared_count - excused_count, "is")
            return f"within: {count_text} {verb} within {limits}, {excused_count} acknowledged{samples_text}"
        return f"within: {tensors} {agreeing(compared_count, 'is')} within {limits}{samples_text}"
    text = f"{result.status}: "
    if result.status is Status.ACCUMULATED:
        return text + _loss_text(result)
    if result.status is Status.INCOMPLETE or not result.diagnosis:
        return text + (
            safe_text(result.shortcomings[0], limit=_REASON_LIMIT)
            if result.shortcomings
            else _count_beyond_text(result)
        )
    first, other_count = result.diagnosis[0], len(result.diagnosis) - 1
    text += f"{_fault_text(first)}: {_first_clause(first)}"
    if other_count:
        text += f"; {plural(other_count, 'more fault')}"
    return "; ".join(filter(None, (text, _worst_output_text(result), _count_beyond_text(result))))


def _first_clause(fault: Diagnosis) -> str:
    """Return the first clause of a fault's reason."""
    why = fault.why.removeprefix(f"in {fault.op} {fault.node!r}, which has no partner, ")  # the headline names the node
    end = _CLAUSE_END.search(QUOTED.sub(lambda name: "x" * len(name[0]), why))  # a name may contain any character
    clause = safe_text(why[: end.start() if end else None].strip(), limit=_REASON_LIMIT)
    if len(clause) > _CLAUSE_LIMIT:  # name only the first of several possible causes
        clause = clause.partition(_OR)[0]
    return shorten(clause, _CLAUSE_LIMIT)


def _worst_output_text(result: RunComparison) -> str:
    """Return the SQNR of the worst output, or "" if none has one."""
    levels = [
        (node.metrics.sqnr_db, node.tensor, node.metrics)
        for node in result.nodes
        if node.tensor in result.network_outputs and node.metrics is not None and node.metrics.sqnr_db is not None
    ]
    if not levels:
        return ""
    level, name, stats = min(levels, key=lambda each: (not math.isnan(each[0]), each[0]))
    if level == math.inf:
        return ""
    if math.isnan(level):
        return f"{stats.nonfinite} of {stats.count} elements of output {safe_text(name, limit=_NAME_LIMIT)} not finite"
    floor = result.limits.get("min_output_sqnr")
    limit = f" (limit {floor:g})" if isinstance(floor, int | float) and math.isfinite(floor) else ""
    return f"output {safe_text(name, limit=_NAME_LIMIT)} {numbers.metric('sqnr_db', level)} dB{limit}"


def _count_beyond_text(result: RunComparison) -> str:
    count_beyond, total = sum(map(is_beyond, result.nodes)), len(result.nodes)
    return (
        f"{numbers.grouped(count_beyond)} of {plural(total, 'tensor', number=numbers.grouped(total))} beyond the limit"
    )


def _loss_text(result: RunComparison) -> str:
    """Return why an output is below its limit although no node exceeds its own limit."""
    first = next(iter(result.diagnosis), None)
    if first is not None and not result.verdict.short:
        return f"{_fault_text(first)}: {_first_clause(first)}; no output that depends on it was compared"
    output = next((node for node in result.nodes if node.tensor in result.verdict.short[:1]), None)
    level = None if output is None or output.metrics is None else output.metrics.sqnr_db
    floor = result.limits.get("min_output_sqnr")
    output_text = "an output" if output is None else f"output {safe_text(output.tensor, limit=_NAME_LIMIT)}"
    level_text = (
        "too little" if level is None else f"{apart(level, floor if isinstance(floor, int | float) else 0.0)} dB"
    )
    limit = f" (limit {floor:g})" if isinstance(floor, int | float) else ""
    are_kernels_right = any(entry.fault is FaultClass.KERNEL for entry in result.ruled_out) and all(
        map(_is_arithmetic_confirmed, result.nodes)
    )
    clause = "; no kernel is wrong" if are_kernels_right else ""
    if first is None:
        return f"{output_text} has {level_text}{limit}, although no node is beyond its limit"
    if first.fault is FaultClass.QUANTIZATION:
        mostly = f", mostly at {_op_and_node(first)}" if (share_of(first) or 0.0) >= _MIN_MOSTLY_SHARE else ""
        return f"quantization{mostly}; {output_text} has {level_text}{limit}{clause}"
    return f"{_fault_text(first)}: {_first_clause(first)}; {output_text} has {level_text}{limit}{clause}"


def _is_arithmetic_confirmed(node: NodeResult) -> bool:
    """Return whether a node was judged and its arithmetic is not known to be wrong."""
    return node.reproduced is not False and node.judged_by is not JudgedBy.NONE


def _fault_text(fault: Diagnosis) -> str:
    """Name a fault and its node."""
    fault_name = _KIND_NAMES.get(str(fault.kind), _CLASS_NAMES[fault.fault])
    others_text = f" and {plural(len(fault.nodes) - 1, 'more node')}" if len(fault.nodes) > 1 else ""
    return f"{fault_name} at {_op_and_node(fault)}{others_text}"


def _op_and_node(fault: Diagnosis) -> str:
    op = "" if fault.op == "Input" else f"{safe_text(fault.op, limit=_NAME_LIMIT)} "
    return f"{op}{node_title(fault)}"


def node_title(fault: Diagnosis, *, limit: int = _NAME_LIMIT) -> str:
    """Return the source model's name of a fault's node, with the backend's name if that differs."""
    backend_name = safe_text(fault.node, limit=limit)
    if fault.model_node is None or fault.model_node == fault.node:
        return backend_name
    if fault.node.startswith(fault.model_node):  # a suffix added by a rewrite means nothing to a reader
        return safe_text(fault.model_node, limit=limit)
    return f"{safe_text(fault.model_node, limit=limit)} ({backend_name})"


def share_of(fault: Diagnosis) -> float | None:
    """Return the fault's known share of an output."""
    return next((share for share in fault.share.values() if share is not None), None)


def shared_output(result: RunComparison) -> str:
    """Return the output to whose error the shares of the diagnosis refer, or ""."""
    shares = [item for fault in result.diagnosis for item in fault.share.items()]
    return min(shares, key=lambda item: item[1] is None, default=("", None))[0]


def share_text(share: float | None) -> str:
    """Format a share of an output's error in percent."""
    if share is None:
        return numbers.MISSING
    return f"{100 * share:.0f} %" if share >= 0.005 else "<1 %"


def explain_share(share: float | None) -> str:
    """Return a fault's share of an output's error as a phrase, which says what a share above 100 % means."""
    text = f"{share_text(share)} of the output's error"
    if share is None or share <= 1.005:
        return text
    return f"{text}: its error alone makes {share:.1f}x the output's squared error; other errors cancel the excess"


def share_bar(share: float | None) -> str:
    """Draw a bar for a share of an output's error."""
    return "" if share is None else "#" * round(min(share, 1.0) * BAR)


def level_change(fault: Diagnosis) -> str:
    """Format the SQNR before and after a node."""
    levels = (fault.before_db, fault.after_db)
    level_before, level_after = ("equal" if level == math.inf else numbers.metric("sqnr_db", level) for level in levels)
    return level_after if fault.before_db is None else f"{level_before} -> {level_after}"


def remedy_line(remedy: Remedy, result: RunComparison, *, max_outputs: int, is_brief: bool = False) -> str:
    """Return an edit that was tried, the SQNR of some outputs before and after it, and its cost.

    The first is the output to whose error the report's shares refer; the worst of the others follow.

    Args:
        remedy: The remedy.
        result: Its comparison.
        max_outputs: Maximum number of outputs.
        is_brief: Whether to use fewer words.
    """
    levels = {node.tensor: node.metrics.sqnr_db for node in result.nodes if node.metrics is not None}
    floor = result.limits.get("min_output_sqnr")
    changes, is_below_floor = [], False
    first_output = shared_output(result)
    ordered_gains = sorted(
        remedy.gain_db.items(), key=lambda item: (item[0] != first_output, _finite_level(levels.get(item[0])))
    )
    for name, gain in ordered_gains[:max_outputs]:
        level, output_text = (
            levels.get(name),
            "" if len(result.network_outputs) == 1 else f"{safe_text(name, limit=_NAME_LIMIT)} ",
        )
        if level is None or not math.isfinite(level):
            changes.append(f"{output_text}{gain:+.1f} dB")
            continue
        is_below_floor |= isinstance(floor, int | float) and level + gain < floor
        new_level = "identical" if gain == math.inf else f"{level + gain:.1f} dB"
        changes.append(f"{output_text}{level:.1f} -> {new_level}")
    limit_text = f" (still below {floor:g})" if is_below_floor else ""
    what, cost = safe_text(remedy.what, limit=200), remedy.cost
    if is_brief:
        what, limit_text = _FIRST_NODES.sub(r"\1", what), f" (< {floor:g})" if is_below_floor else ""
        cost = _MULTIPLY_ADDS.sub(lambda share: f"{_brief_share(share[1])} % of MACs", cost)
    return f"{what}: {', '.join(changes)}{limit_text}; {cost}"


def _brief_share(share: str) -> str:
    """Return a percentage without decimals from 10 on."""
    return f"{float(share):.0f}" if float(share) >= 10 else share


def _finite_level(level: float | None) -> float:
    """Return an output's SQNR, or infinity if it is unknown."""
    return math.inf if level is None or math.isnan(level) else level


def gain_of(remedy: Remedy, fault: Diagnosis) -> float:
    """Return a remedy's gain in dB for the output to which a fault contributes, or else for the first output."""
    gains = [remedy.gain_db[name] for name in fault.share if name in remedy.gain_db]
    return next(iter([*gains, *remedy.gain_db.values()]), 0.0)


def remedy_to_try(result: RunComparison, fault: Diagnosis) -> Remedy | None:
    """Return the remedy with the largest gain among those that edit the node of a fault; None without one."""
    remedies = [remedy for remedy in fault.remedies if remedy.nodes is not None]
    remedies += [
        remedy
        for other in result.diagnosis
        for remedy in other.remedies
        # A set of nodes in float holds the first nodes of the diagnosis.
        if other is not fault and remedy.edit.startswith("float ") and fault in result.diagnosis[: remedy.nodes]
    ]
    return max(remedies, key=lambda remedy: gain_of(remedy, fault), default=None)


def left_in_float(result: RunComparison) -> tuple[float, int, str] | None:
    """Return the share of the error that is left if the first nodes are in float, their number, and a label.

    Returns None if this was not tried. If a node is beyond its limit, one node in float is no answer to the verdict.
    """
    remedies = (remedy for fault in result.diagnosis for remedy in fault.remedies if remedy.edit.startswith("float "))
    in_float = max(remedies, key=lambda remedy: remedy.nodes or 0, default=None)
    if in_float is None or not in_float.nodes:
        return None
    is_first = in_float in result.diagnosis[0].remedies
    if in_float.nodes == 1 and not (is_first and result.status is Status.ACCUMULATED):
        return None
    nodes_text = "is" if in_float.nodes == 1 else f"{in_float.nodes} are"
    gain = in_float.gain_db.get(shared_output(result), 0.0)
    return 10 ** (-gain / 10), in_float.nodes, f"left if the first {nodes_text} in float"


def advice_line(result: RunComparison) -> str:
    """Return advice on the first fault if no edit was tried, without promising a gain, or ""."""
    if not result.diagnosis or any(fault.remedies for fault in result.diagnosis):
        return ""
    first = result.diagnosis[0]
    if first.fault is FaultClass.REFERENCE:
        return "record the reference again and copy each tensor when it is computed, or compare with another runtime"
    if first.fault is FaultClass.RECORDING:
        return "record both runs with the same inputs"
    narrow = next((kind for kind in _NARROW_DTYPES if f"largest {kind}" in first.why), None)
    if first.kind is FindingKind.NONFINITE and narrow is not None:
        return f"compute {node_title(first)} in float32, or keep its inputs in the range of {narrow} (not replayed)"
    return ""


def ruled_out_line(result: RunComparison, *, max_entries: int | None = None) -> str:
    """Return which faults were ruled out, at most `max_entries` of them, or "" if there are none."""
    # Readers expect the recording to be right, so do not mention that.
    entries = [entry for entry in result.ruled_out if entry.fault is not FaultClass.RECORDING]
    return "; ".join(safe_text(entry.sentence) for entry in entries[:max_entries])


def ordered_outputs(result: RunComparison) -> Sequence[str]:
    """Return the network's outputs, those with scores first, and among these the worst first."""
    scores = [output.tensor for output in result.outputs]
    levels = {node.tensor: node.metrics.sqnr_db for node in result.nodes if node.metrics is not None}

    def sort_key(name: str) -> tuple[bool, float]:
        level = levels.get(name)
        return name not in scores, float("inf") if level is None else level

    return sorted(result.network_outputs, key=sort_key)
