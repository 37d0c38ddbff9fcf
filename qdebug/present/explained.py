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
    "node_facts",
    "node_row",
    "preset_sentences",
    "rest_sentences",
    "share",
    "unexplained_lines",
    "verdict_word",
]

GROUP_TITLES = ("nodes", "class", "witnesses", "runner-up", "op, types", "explained by", "known as")
"""Headings of the table of groups."""
NODE_TITLES = ("status", "node", "op", "arithmetic", "match", "remaining errors")
"""Headings of the table of nodes."""

_PROVENANCE = {"measured": 0, "source": 1, "memory": 2}
_PRESETS_SHOWN = 3
_NAMES_LIMIT = 140
_SHARE_TOLERANCE = 1e-9
"""Rounding error of a share in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedGroup:
    """Quantized nodes of one operator and one set of types that the same class of variants explains.

    Args:
        op: The operator.
        dtypes: Types of operands and output.
        nodes: The nodes.
        total: Number of quantized nodes with this operator and these types.
    """

    op: str
    dtypes: str
    nodes: tuple[NodeExplanation, ...]
    total: int


def share(match: float) -> str:
    """Return the percentage of right elements, with two significant digits for the wrong ones.

    Only 1 is shown as 100 %.
    """
    if match in (0, 1):
        return f"{100 * match:.0f} %"
    digits = max(0, 1 - math.floor(math.log10(100 * (1 - match)) + _SHARE_TOLERANCE))
    truncated_percentage = math.floor(100 * match * 10**digits + _SHARE_TOLERANCE) / 10**digits
    return f"{truncated_percentage:.{digits}f} %"


def groups(explanation: ExplainedRun) -> tuple[ExplainedGroup, ...]:
    """Group explained nodes that share operator, types and class of variants, in order of appearance."""
    nodes_by_class: dict[tuple[str, str, tuple[str, ...]], list[NodeExplanation]] = {}
    totals: dict[tuple[str, str], int] = {}
    for node in explanation.nodes:
        if node.kind is None:
            continue
        key = node.op, node.dtypes or ""
        totals[key] = totals.get(key, 0) + 1
        if node.status is ExplainStatus.EXPLAINED:
            nodes_by_class.setdefault((*key, node.variants or (QUOTED.sub("''", node.words or ""),)), []).append(node)
    return tuple(
        ExplainedGroup(op=op, dtypes=dtypes, nodes=tuple(nodes), total=totals[op, dtypes])
        for (op, dtypes, _), nodes in nodes_by_class.items()
    )


def headline(explanation: ExplainedRun) -> str:
    """Return one sentence on how many nodes have an explanation."""
    node_counts = {status: len(explanation.of(status)) for status in ExplainStatus}
    quantized = (
        node_counts[ExplainStatus.EXPLAINED] + node_counts[ExplainStatus.UNEXPLAINED] + len(explanation.not_looked_at)
    )
    parts = []
    if quantized:
        parts.append(
            f"{node_counts[ExplainStatus.EXPLAINED]} of {_plural_text(quantized, 'node')} reproduced bit for bit"
        )
    if node_counts[ExplainStatus.UNEXPLAINED]:
        accepted = sum(node.accepted is not None for node in explanation.nodes)
        parts.append(
            f"{node_counts[ExplainStatus.UNEXPLAINED]} unexplained{f', {accepted} accepted' if accepted else ''}"
        )
    in_band = explanation.of(ExplainStatus.IN_BAND)
    equal_count = sum(node.band is not None and node.band.exact for node in in_band)
    for count, text in (
        (equal_count, "equal to their replay" if equal_count > 1 else "equal to its replay"),
        (
            len(in_band) - equal_count,
            f"within the rounding error of {'its' if len(in_band) - equal_count == 1 else 'their'} sums",
        ),
    ):
        if count:
            parts.append(f"{_plural_text(count, 'float node')}{' besides,' if parts else ''} {text}")
    unexamined_count = node_counts[ExplainStatus.NO_KERNEL] + node_counts[ExplainStatus.NO_INPUT]
    if unexamined_count:
        parts.append(f"{unexamined_count} not examined")
    assumed = (
        f"{safe_text(assumption)} ({_plural_text(node_count, 'node')})"
        for assumption, node_count in explanation.assumptions.items()
    )
    if explanation.assumptions:
        parts.append(f"assumed: {', '.join(assumed)}")
    return "; ".join(parts) or "no node computes anything"


def _status_words(status: ExplainStatus) -> str:
    """Return a status, with its meaning if the word is technical."""
    meanings = {
        ExplainStatus.IN_BAND: "its error is within the rounding error of its sums",
        ExplainStatus.NO_KERNEL: "qdebug cannot compute it",
        ExplainStatus.NO_INPUT: "its inputs were not recorded",
        ExplainStatus.UNEXPLAINED: "no known arithmetic reproduces it",
    }
    return f"{status}: {meanings[status]}" if status in meanings else str(status)


def _plural_text(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def preset_sentences(explanation: ExplainedRun) -> list[str]:
    """Return a sentence on the preset that fits the whole recording or most of it; empty if there is none."""
    matching_presets = explanation.presets
    if not matching_presets:
        return []
    name, missed = matching_presets[0]
    others_text = f" (so do {numbers.grouped(len(matching_presets) - 1)} more)" if len(matching_presets) > 1 else ""
    exception_text = f", but for {numbers.counted(missed, 'node')}" if missed else ""
    return [f"{safe_text(name)}{exception_text}{others_text}"]


def group_rows(explanation: ExplainedRun) -> list[tuple[str, ...]]:
    """Return the rows of the table of groups, as safe texts under `GROUP_TITLES`."""
    rows: list[tuple[str, ...]] = []
    for group in groups(explanation):
        first = group.nodes[0]
        runner = max((node.runner_up.match for node in group.nodes if node.runner_up), default=None)
        class_size = len(first.variants or first.placements)
        rows.append(
            (
                f"{len(group.nodes)} of {group.total}",
                str(class_size) if class_size else numbers.MISSING,
                numbers.grouped(sum(node.witnesses for node in group.nodes)) if class_size else numbers.MISSING,
                numbers.MISSING if runner is None else share(runner),
                f"{safe_text(group.op)} {safe_text(group.dtypes)}".strip(),
                safe_text("; ".join(filter(None, (first.words or ", ".join(first.variants[:1]), first.reason)))),
                known_as(first.presets) or ("no known backend does" if first.variants else ""),
            )
        )
    return rows


def known_as(presets: Sequence[PresetMatch]) -> str:
    """Return the names of known backends, measured ones first, and how many more there are."""
    ordered = sorted(presets, key=lambda preset: _PROVENANCE.get(preset.provenance, len(_PROVENANCE)))
    preset_names = [f"{safe_text(preset.name)} ({safe_text(preset.provenance)})" for preset in ordered[:_PRESETS_SHOWN]]
    other_count = len(ordered) - len(preset_names)
    return ", ".join(preset_names) + (f" and {other_count} more" if other_count else "")


def unexplained_lines(node: NodeExplanation) -> list[str]:
    """Return what is not explained about one node, as safe lines. The first line names the node."""
    lines = [f"{safe_text(node.node, limit=_NAMES_LIMIT)} ({safe_text(node.op)})"]
    if node.accepted is not None:
        lines.append(f"accepted: {safe_text(node.accepted)}")
    if node.reason:
        lines.append(safe_text(node.reason, limit=400))
    residual = node.residual
    if residual is not None:
        count_text = f"{numbers.grouped(residual.wrong)} of {numbers.grouped(residual.total)} codes wrong"
        lines.append(
            f"{count_text}, by at most {residual.max_lsb} LSB; {safe_text(residual.pattern)}: "
            f"{safe_text(residual.detail)}"
        )
        lines.append(f"likely: {safe_text(residual.likely)}")
    if node.match is not None and node.words:
        lines.append(f"compared with {safe_text(node.words)}: {share(node.match)} right")
    return lines


def node_row(node: NodeExplanation) -> tuple[str, ...]:
    """Return the row of one node, as safe texts under `NODE_TITLES`."""
    rest_text = node.reason or ""
    if node.residual is not None:
        count_text = f"{numbers.grouped(node.residual.wrong)} of {numbers.grouped(node.residual.total)} wrong"
        rest_text = (
            f"{count_text}, at most {node.residual.max_lsb} LSB, {node.residual.pattern}: {node.residual.detail}"
        )
    if node.accepted is not None:
        rest_text = f"accepted ({node.accepted}): {rest_text}"
    best = node.words or ", ".join(node.variants[:1])
    return (
        str(node.status),
        safe_text(node.node, limit=_NAMES_LIMIT),
        safe_text(node.op),
        safe_text(best) or numbers.MISSING,
        numbers.MISSING if node.match is None else share(node.match),
        safe_text(rest_text, limit=400),
    )


def verdict_word(explanation: ExplainedRun) -> str:
    """Return the outcome in one word."""
    if explanation.of(ExplainStatus.UNEXPLAINED):
        return "UNEXPLAINED"
    if not explanation.answered:
        return "NO ANSWER"
    return "INCOMPLETE" if explanation.shortcomings else "EXPLAINED"


def rest_sentences(explanation: ExplainedRun) -> list[str]:
    """Return why nodes were not examined, and which overflow. Reasons that differ only in quoted names share a line."""
    reasons_by_group: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for status in (ExplainStatus.NO_KERNEL, ExplainStatus.NO_INPUT):
        for node in explanation.of(status):
            reason = node.reason or "unknown reason"
            reasons_by_group.setdefault((str(status), QUOTED.sub("''", reason)), []).append((reason, node.node))
    overflows = [(node.reason, node.node) for node in explanation.of(ExplainStatus.IN_BAND) if node.reason]
    if overflows:
        reasons_by_group[str(ExplainStatus.IN_BAND), ""] = (
            overflows  # in one group, although their reasons differ in numbers
        )
    lines = []
    for (answer, _), reasons in reasons_by_group.items():
        other_count = len({reason for reason, _ in reasons}) - 1
        others_text = f"; {other_count} more of this kind" if other_count else ""
        reason, node_name = (safe_text(text, limit=300) for text in reasons[0])
        example = f"{'such as ' * (len(reasons) > 1)}{node_name}"
        lines.append(f"{len(reasons)} {answer} ({example}): {reason}{others_text}")
    return lines


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
        residual = node.residual
        facts.append(("wrong", f"{numbers.grouped(residual.wrong)} elements, by at most {residual.max_lsb} LSB"))
        facts += [("pattern", f"{residual.pattern}: {residual.detail}"), ("likely", residual.likely)]
        facts.append(("for example", f"wrong in {_elements_text(residual.elements)}"))
    if node.match is not None:
        by = "the arithmetic below" if node.words else "a replay of the node"
        facts.append(("bit equal", f"{share(node.match)} of the elements agree with {by}"))
    facts += _class_facts(node)
    if node.recorded is not None:
        fit_text = "reproduce the codes" if node.recorded.reproduces else "do not reproduce the codes"
        times = f"{node.recorded.ratio:.8g} times the quotient of the scales"
        facts.append(("recorded", f"multiplier and shift {fit_text}; their product is {times}"))
    if node.band is not None:
        exact = "equal to the replay bit for bit" if node.band.exact else _band_text(node)
        facts.append(("float", exact))
    if node.dtypes:
        facts.append(("types", node.dtypes))
    if node.elements:
        facts.append(("elements", numbers.grouped(node.elements)))
    return [(label, safe_text(text, limit=600)) for label, text in facts]


def _elements_text(elements: Sequence[Sequence[int]]) -> str:
    """Format elements by sample, as "sample 0: @16,0,0 @16,0,1". The first number of each index is the sample."""
    by_sample: dict[int, list[str]] = {}
    for sample, *index in elements:
        by_sample.setdefault(sample, []).append(f"@{position(index)}")
    return "; ".join(f"sample {sample}: {' '.join(positions)}" for sample, positions in by_sample.items())


def _class_facts(node: NodeExplanation) -> list[tuple[str, str]]:
    facts = []
    if node.words:
        facts.append(("arithmetic" if node.status is ExplainStatus.EXPLAINED else "compared with", node.words))
    label = "reproduced by" if node.status is ExplainStatus.EXPLAINED else ""
    for index, variant in enumerate(_first_variants(node.variants or node.placements)):
        facts.append((label if not index else "", variant))
    for index, preset in enumerate(node.presets):
        detail = f": {preset.detail}" if preset.detail else ""
        facts.append(("" if index else "known as", f"{preset.name} ({preset.provenance}{detail})"))
    if node.status is ExplainStatus.EXPLAINED and node.kind is not None and node.variants:
        facts.append(("of these", _pooled_text(node)))
        count_text = numbers.counted(node.witness_elements, "element")
        different = "sum or code" if node.witnesses == 1 else "different sums or codes"
        witnesses_text = f"{numbers.grouped(node.witnesses)} {different} that the runner-up gets wrong, in {count_text}"
        if node.witnesses:
            facts.append(("witnesses", witnesses_text))
    if node.placements:
        facts.append(("witnesses", f"{numbers.counted(node.witnesses, 'element')} that the runner-up gets wrong"))
    if node.runner_up is not None:
        facts.append(("runner-up", f"{share(node.runner_up.match)} of the elements by {node.runner_up.variant}"))
    if node.tried:
        facts.append(("tried", numbers.counted(node.tried, "placement" if node.placements else "arithmetic")))
    return facts


def _pooled_text(node: NodeExplanation) -> str:
    """Return how many variants fit the node alone, and how many fit it and its siblings."""
    verb = "reproduces" if node.alone == 1 else "reproduce"
    own_text = f"{_plural_text(node.alone, 'variant')} {verb} this node"
    functions_text = _plural_text(len(node.variants), "different function")
    if node.siblings == 1:
        return f"{own_text}, as {functions_text}; no other node adds evidence"
    nodes = _plural_text(node.siblings, "node")
    return f"{own_text}; {functions_text} {'fits' if len(node.variants) == 1 else 'fit'} all {nodes} of its kind"


def _first_variants(variants: Sequence[str], limit: int = 12) -> list[str]:
    if len(variants) <= limit:
        return list(variants)
    return [*variants[:limit], f"and {len(variants) - limit} more"]


def _band_text(node: NodeExplanation) -> str:
    if node.band is None or node.band.ratio is None:
        return "no bound is known for it"
    ratio = node.band.ratio
    share = f"{numbers.percent(ratio, 1.0)} of" if ratio <= 1 else f"{numbers.number(ratio)} times"
    return f"its error is {share} the rounding bound of {node.band.precision}"
