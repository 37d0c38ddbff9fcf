"""The wording and cells of an explanation, for the terminal report and for Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qdebug.compare.explaining.explanation import ExplainedRun, ExplainStatus, NodeExplanation, PresetMatch
from qdebug.present import numbers
from qdebug.present.rows import position
from qdebug.present.text import QUOTED, safe_text

__all__ = [
    "GROUP_TITLES",
    "NODE_TITLES",
    "ExplainedGroup",
    "group_rows",
    "groups",
    "headline",
    "known_as",
    "left_lines",
    "node_facts",
    "node_row",
    "preset_sentences",
    "rest_sentences",
    "share",
    "verdict_word",
]

GROUP_TITLES = ("nodes", "class", "witnesses", "runner-up", "op, types", "explained by", "known as")
"""Headings of the table of groups."""
NODE_TITLES = ("status", "node", "op", "arithmetic", "match", "what is left")
"""Headings of the table of nodes."""

_PROVENANCE = {"measured": 0, "source": 1, "memory": 2}
_PRESETS_SHOWN = 3
_SIZE = 140
_HAIR = 1e-9
"""Rounding error of a share in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedGroup:
    """Quantized nodes of one operator and one set of types that the same class of variants explains.

    Args:
        op: The operator.
        dtypes: Types of operands and output.
        nodes: The nodes.
        of: Number of quantized nodes with this operator and these types.
    """

    op: str
    dtypes: str
    nodes: tuple[NodeExplanation, ...]
    of: int


def share(match: float) -> str:
    """Return the percentage of right elements, with two significant digits for the wrong ones.

    Only 1 is shown as 100 %.
    """
    if match in (0, 1):
        return f"{100 * match:.0f} %"
    digits = max(0, 1 - math.floor(math.log10(100 * (1 - match)) + _HAIR))
    cut = math.floor(100 * match * 10**digits + _HAIR) / 10**digits
    return f"{cut:.{digits}f} %"


def groups(explanation: ExplainedRun) -> tuple[ExplainedGroup, ...]:
    """Group explained nodes that share operator, types and class of variants, in order of appearance."""
    found: dict[tuple[str, str, tuple[str, ...]], list[NodeExplanation]] = {}
    totals: dict[tuple[str, str], int] = {}
    for node in explanation.nodes:
        if node.kind is None:
            continue
        key = node.op, node.dtypes or ""
        totals[key] = totals.get(key, 0) + 1
        if node.status is ExplainStatus.EXPLAINED:
            found.setdefault((*key, node.variants), []).append(node)
    return tuple(
        ExplainedGroup(op=op, dtypes=dtypes, nodes=tuple(nodes), of=totals[op, dtypes])
        for (op, dtypes, _), nodes in found.items()
    )


def headline(explanation: ExplainedRun) -> str:
    """Return one sentence on how many nodes have an explanation."""
    counts = {status: len(explanation.of(status)) for status in ExplainStatus}
    quantized = counts[ExplainStatus.EXPLAINED] + counts[ExplainStatus.UNEXPLAINED] + len(explanation.not_looked_at)
    parts = []
    if quantized:
        parts.append(f"{counts[ExplainStatus.EXPLAINED]} of {_counted(quantized, 'node')} reproduced bit for bit")
    if counts[ExplainStatus.UNEXPLAINED]:
        accepted = sum(node.accepted is not None for node in explanation.nodes)
        parts.append(f"{counts[ExplainStatus.UNEXPLAINED]} unexplained{f', {accepted} accepted' if accepted else ''}")
    if counts[ExplainStatus.IN_BAND]:
        besides = " besides," if parts else ""
        band = _counted(counts[ExplainStatus.IN_BAND], "float node")
        parts.append(f"{band}{besides} within the rounding error of their sums")
    missing = counts[ExplainStatus.NO_KERNEL] + counts[ExplainStatus.NO_INPUT]
    if missing:
        parts.append(f"{missing} not examined")
    assumed = (f"{safe_text(what)} ({_counted(many, 'node')})" for what, many in explanation.assumptions.items())
    if explanation.assumptions:
        parts.append(f"assumed: {', '.join(assumed)}")
    return "; ".join(parts) or "no node computes anything"


def _status_words(status: ExplainStatus) -> str:
    """Return a status, with an explanation if it is technical."""
    means = {
        ExplainStatus.IN_BAND: "its error is within the rounding error of its sums",
        ExplainStatus.NO_KERNEL: "qdebug cannot compute it",
        ExplainStatus.NO_INPUT: "its inputs were not recorded",
        ExplainStatus.UNEXPLAINED: "no known arithmetic reproduces it",
    }
    return f"{status}: {means[status]}" if status in means else str(status)


def _counted(many: int, noun: str) -> str:
    return f"{many} {noun}" if many == 1 else f"{many} {noun}s"


def preset_sentences(explanation: ExplainedRun) -> list[str]:
    """Return sentences on the preset that fits the whole recording, or most of it, or none."""
    known = explanation.presets
    if not known:
        return []
    name, missed = known[0]
    others = f" (so do {numbers.grouped(len(known) - 1)} more)" if len(known) > 1 else ""
    but = f", but for {numbers.counted(missed, 'node')}" if missed else ""
    return [f"{safe_text(name)}{but}{others}"]


def group_rows(explanation: ExplainedRun) -> list[tuple[str, ...]]:
    """Return the rows of the table of groups, as safe texts under `GROUP_TITLES`."""
    rows: list[tuple[str, ...]] = []
    for group in groups(explanation):
        first = group.nodes[0]
        runner = max((node.runner_up.match for node in group.nodes if node.runner_up), default=None)
        searched = bool(first.variants)
        rows.append(
            (
                f"{len(group.nodes)} of {group.of}",
                str(len(first.variants)) if searched else numbers.MISSING,
                numbers.grouped(sum(node.witnesses for node in group.nodes)) if searched else numbers.MISSING,
                numbers.MISSING if runner is None else share(runner),
                f"{safe_text(group.op)} {safe_text(group.dtypes)}".strip(),
                safe_text("; ".join(filter(None, (first.words or ", ".join(first.variants[:1]), first.reason)))),
                known_as(first.presets),
            )
        )
    return rows


def known_as(presets: Sequence[PresetMatch]) -> str:
    """Name the first known backends, measured ones first, and state how many more there are."""
    ordered = sorted(presets, key=lambda preset: _PROVENANCE.get(preset.provenance, len(_PROVENANCE)))
    named = [f"{safe_text(preset.name)} ({safe_text(preset.provenance)})" for preset in ordered[:_PRESETS_SHOWN]]
    others = len(ordered) - len(named)
    return ", ".join(named) + (f" and {others} more" if others else "")


def left_lines(node: NodeExplanation) -> list[str]:
    """Return the unexplained part of one node as safe lines. The first line names the node."""
    lines = [f"{safe_text(node.node, limit=_SIZE)} ({safe_text(node.op)})"]
    if node.accepted is not None:
        lines.append(f"accepted: {safe_text(node.accepted)}")
    if node.reason:
        lines.append(safe_text(node.reason, limit=400))
    left = node.residual
    if left is not None:
        wrong = f"{numbers.grouped(left.wrong)} of {numbers.grouped(left.total)} codes wrong"
        lines.append(f"{wrong}, by at most {left.max_lsb} LSB; {safe_text(left.pattern)}: {safe_text(left.detail)}")
        lines.append(f"likely: {safe_text(left.likely)}")
    if node.match is not None and node.words:
        lines.append(f"compared with {safe_text(node.words)}: {share(node.match)} right")
    return lines


def node_row(node: NodeExplanation) -> tuple[str, ...]:
    """Return the row of one node, as safe texts under `NODE_TITLES`."""
    left = node.reason or ""
    if node.residual is not None:
        wrong = f"{numbers.grouped(node.residual.wrong)} of {numbers.grouped(node.residual.total)} wrong"
        left = f"{wrong}, at most {node.residual.max_lsb} LSB, {node.residual.pattern}: {node.residual.detail}"
    if node.accepted is not None:
        left = f"accepted ({node.accepted}): {left}"
    best = node.words or ", ".join(node.variants[:1])
    return (
        str(node.status),
        safe_text(node.node, limit=_SIZE),
        safe_text(node.op),
        safe_text(best) or numbers.MISSING,
        numbers.MISSING if node.match is None else share(node.match),
        safe_text(left, limit=400),
    )


def verdict_word(explanation: ExplainedRun) -> str:
    """Return the outcome in one word."""
    if explanation.of(ExplainStatus.UNEXPLAINED):
        return "UNEXPLAINED"
    if not explanation.answered:
        return "NO ANSWER"
    return "INCOMPLETE" if explanation.shortcomings else "EXPLAINED"


def rest_sentences(explanation: ExplainedRun) -> list[str]:
    """Return why nodes were skipped, grouping reasons that differ only in quoted names, and overflows."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for status in (ExplainStatus.NO_KERNEL, ExplainStatus.NO_INPUT):
        for node in explanation.of(status):
            reason = node.reason or "unknown reason"
            found.setdefault((str(status), QUOTED.sub("''", reason)), []).append((reason, node.node))
    beyond = [(node.reason, node.node) for node in explanation.of(ExplainStatus.IN_BAND) if node.reason]
    if beyond:
        found[str(ExplainStatus.IN_BAND), ""] = beyond  # one group, although the numbers in the reasons differ
    said = []
    for (answer, _), reasons in found.items():
        others = len({reason for reason, _ in reasons}) - 1
        also = f"; {others} more of this kind" if others else ""
        reason, node_name = (safe_text(text, limit=300) for text in reasons[0])
        which = f"{'such as ' * (len(reasons) > 1)}{node_name}"
        said.append(f"{len(reasons)} {answer} ({which}): {reason}{also}")
    return said


def node_facts(node: NodeExplanation) -> list[tuple[str, str]]:
    """Return everything known about one node, as pairs of a label and a safe text."""
    facts = [("node", f"{node.node} ({node.op})"), ("tensor", node.tensor), ("status", _status_words(node.status))]
    if node.reason:
        facts.append(("because", node.reason))
    if node.assumed:
        facts.append(("assumed", node.assumed))
    if node.accepted is not None:
        facts.append(("accepted", node.accepted))
    if node.residual is not None:
        left = node.residual
        facts.append(("wrong", f"{numbers.grouped(left.wrong)} elements, by at most {left.max_lsb} LSB"))
        facts += [("pattern", f"{left.pattern}: {left.detail}"), ("likely", left.likely)]
        facts.append(("for example", f"wrong in {_places(left.elements)}"))
    if node.match is not None:
        by = "the arithmetic below" if node.words else "a replay of the node"
        facts.append(("bit equal", f"{share(node.match)} of the elements agree with {by}"))
    facts += _class_facts(node)
    if node.recorded is not None:
        fits = "reproduce the codes" if node.recorded.reproduces else "do not reproduce the codes"
        times = f"{node.recorded.ratio:.8g} times the quotient of the scales"
        facts.append(("recorded", f"multiplier and shift {fits}; their product is {times}"))
    if node.band is not None:
        exact = "equal to the replay bit for bit" if node.band.exact else _band(node)
        facts.append(("float", exact))
    if node.dtypes:
        facts.append(("types", node.dtypes))
    if node.elements:
        facts.append(("elements", numbers.grouped(node.elements)))
    return [(label, safe_text(text, limit=600)) for label, text in facts]


def _places(elements: Sequence[Sequence[int]]) -> str:
    """Write elements as "sample 0: @16,0,0 @16,0,1", by the sample that each index begins with."""
    by_sample: dict[int, list[str]] = {}
    for sample, *index in elements:
        by_sample.setdefault(sample, []).append(f"@{position(index)}")
    return "; ".join(f"sample {sample}: {' '.join(found)}" for sample, found in by_sample.items())


def _class_facts(node: NodeExplanation) -> list[tuple[str, str]]:
    facts = []
    if node.words:
        facts.append(("arithmetic" if node.status is ExplainStatus.EXPLAINED else "compared with", node.words))
    label = "reproduced by" if node.status is ExplainStatus.EXPLAINED else ""
    for at, variant in enumerate(_shortened(node.variants)):
        facts.append((label if not at else "", variant))
    for at, preset in enumerate(node.presets):
        detail = f": {preset.detail}" if preset.detail else ""
        facts.append(("" if at else "known as", f"{preset.name} ({preset.provenance}{detail})"))
    if node.status is ExplainStatus.EXPLAINED and node.kind is not None and node.variants:
        facts.append(("of these", _pooled(node)))
        held = numbers.counted(node.witness_elements, "element")
        different = "sum or code" if node.witnesses == 1 else "different sums or codes"
        said = f"{numbers.grouped(node.witnesses)} {different} that the runner-up gets wrong, in {held}"
        if node.witnesses:
            facts.append(("witnesses", said))
    if node.runner_up is not None:
        facts.append(("runner-up", f"{share(node.runner_up.match)} of the elements by {node.runner_up.variant}"))
    if node.tried:
        facts.append(("tried", f"{numbers.grouped(node.tried)} {'arithmetic' if node.tried == 1 else 'arithmetics'}"))
    return facts


def _pooled(node: NodeExplanation) -> str:
    """Return the candidates left by the node's own evidence, and those left by its siblings."""
    verb = "reproduces" if node.alone == 1 else "reproduce"
    both = f"{_counted(node.alone, 'variant')} {verb} this node"
    left = _counted(len(node.variants), "different function")
    if node.siblings == 1:
        return f"{both}, as {left}; no other node adds evidence"
    nodes = _counted(node.siblings, "node")
    return f"{both}; {left} {'fits' if len(node.variants) == 1 else 'fit'} all {nodes} of its kind"


def _shortened(variants: Sequence[str], most: int = 12) -> list[str]:
    if len(variants) <= most:
        return list(variants)
    return [*variants[:most], f"and {len(variants) - most} more"]


def _band(node: NodeExplanation) -> str:
    if node.band is None or node.band.ratio is None:
        return "no bound is known for it"
    ratio = node.band.ratio
    share = f"{numbers.percent(ratio, 1.0)} of" if ratio <= 1 else f"{numbers.number(ratio)} times"
    return f"its error is {share} the rounding bound of {node.band.precision}"
