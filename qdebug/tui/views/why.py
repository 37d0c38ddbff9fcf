"""The arithmetic that reproduces the node, its alternatives, and the pattern of the remaining errors."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from qdebug.compare.result.result import NodeResult
from qdebug.plural import plural
from qdebug.present import numbers
from qdebug.present.answer import explain_share, remedy_line, remedy_to_try, share_of
from qdebug.present.detail import precision_sentence
from qdebug.present.rows import clipping_words, judged_words
from qdebug.present.text import safe_text
from qdebug.tui.drawing.glyphs import wrap
from qdebug.tui.drawing.look import Look
from qdebug.tui.nodes.rows import explain_status
from qdebug.tui.nodes.walk import own_share
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import DrawnView, Line, Scene, acknowledgement_text, heading

__all__ = ["WhyView"]

_LABEL_WIDTH = 14
_MAX_REASON_LENGTH, _MAX_OUTPUTS = 1000, 3
"""Maximum number of characters of a reason, and maximum number of outputs shown for tried edits."""
_REPLAYED_NOTE = "a replay does what the backend declares, so this counts neither as added here nor as unexplained"

_FACTS_IN_HEADING = frozenset({"node", "tensor"})
"""Facts that the heading already shows. Repeating long names would push the findings off the screen."""

Fact = tuple[str, str, str]
"""Label, text and style."""


class WhyView(DrawnView):
    """The reasons why the node differs, as lines that scroll."""

    view = ScreenId.WHY
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "tensor", tooltip="open the tensor of the node"),
        Binding(
            "v", "screen.form", "all nodes", tooltip="budget: how much each node contributes to the outputs' error"
        ),
    ]
    is_list = True

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._top = 0
        self._node_key: object = None
        self._line_count = 0
        self._visible_count = 1

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the findings."""
        if self._node_key != (scene.backend, scene.row):
            self._node_key, self._top = (scene.backend, scene.row), 0
        lines: list[Line] = []
        for label, text, style in _all_facts(scene):
            for at, line in enumerate(wrap(scene.glyphs.transliterate(text), max(width - _LABEL_WIDTH - 2, 10))):
                lines.append([(("" if at else label).rjust(_LABEL_WIDTH) + "  ", "muted"), (line, style)])
        self._line_count, self._visible_count = len(lines), max(height - 2, 1)
        self._top = min(self._top, max(self._line_count - self._visible_count, 0))
        hidden_count = self._line_count - self._top - self._visible_count
        more_text = f"j for {plural(hidden_count, 'more line')}" if hidden_count > 0 else "the end" if self._top else ""
        return [heading(scene, width, more_text), [], *lines[self._top : self._top + self._visible_count]]

    def move(self, scene: Scene, lines: int) -> str:
        """Scroll."""
        top = min(max(self._top + lines, 0), max(self._line_count - self._visible_count, 0))
        if top == self._top and lines > 0:
            search_note = ", so far: its arithmetic is being looked for" if _is_searching(scene) else ""
            return f"the explanation ends here{search_note}"
        if top == self._top:
            return "the explanation begins here"
        self._top = top
        return ""


def _all_facts(scene: Scene) -> list[Fact]:
    result = scene.outcome
    if result is None:
        missing = scene.plan_row.missing
        return [("", "not compared yet" if missing is None else f"not compared: {safe_text(missing)}", "muted")]
    return [
        *_diagnosis_facts(scene, result),
        *_comparison_facts(result, scene.navigator.samples),
        *_search_facts(scene),
    ]


def _diagnosis_facts(scene: Scene, result: NodeResult) -> list[Fact]:
    """Return the node's fault, its share of the output's error, and the tried edits."""
    fault = scene.table.diagnosis.get(scene.row)
    reason = fault.why if fault is not None else explain_status(result)
    facts: list[Fact] = [("why", safe_text(reason, limit=_MAX_REASON_LENGTH), "accent")] if reason else []
    if fault is None or scene.result is None:
        return facts
    facts.append(("share", explain_share(share_of(fault)), "plain"))
    chosen = remedy_to_try(scene.result, fault)
    others = [remedy for remedy in fault.remedies if remedy.nodes == 1 and remedy is not chosen]
    labelled_remedies = [*([("try (X)", chosen)] if chosen is not None else []), *(("or", each) for each in others)]
    return [
        *facts,
        *(
            (label, remedy_line(remedy, scene.result, max_outputs=_MAX_OUTPUTS), "fine")
            for label, remedy in labelled_remedies
        ),
    ]


def _comparison_facts(result: NodeResult, samples: int) -> list[Fact]:
    """Return the comparison's facts about the source of the error."""
    facts: list[Fact] = []
    stats = result.metrics
    if stats is not None:
        bias = "" if stats.lsb_bias is None else f", mean with sign {numbers.number(stats.lsb_bias)} LSB"
        samples_text = f" of {numbers.grouped(samples)} samples" if samples > 1 else ""
        count_text = f"{numbers.mismatches(stats)} of {numbers.grouped(stats.count)} elements{samples_text} differ"
        size_text = f"by at most {numbers.number(stats.max_abs)}"  # in the tensor's own unit if it is not quantized
        size_text = size_text if stats.max_lsb is None else f"by at most {numbers.number(stats.max_lsb)} LSB"
        if stats.estimated:
            size_text = f"SQNR about {numbers.metric('sqnr_db', stats.sqnr_db)} dB"
        facts.append(("whole error", f"{count_text}, {size_text}{bias}", "plain"))
    share = own_share(result)
    if share is not None:
        own_text, rest_text = numbers.percent(share, 1.0), numbers.percent(1 - share, 1.0)
        facts.append(("of that", f"{own_text} is added here, {rest_text} comes in", "plain"))
    if result.constants is not None and result.constants.max_abs:
        size = numbers.number(result.constants.rel_l2)
        facts.append(
            ("constants", f"rel L2 {size} of its result, by weights (rounded to codes), bias or attributes", "plain")
        )
    judged_text = judged_words(result)
    if judged_text is not None:
        facts.append(("judged", f"arithmetic, {judged_text}", "plain"))
    clipping_text = clipping_words(result)
    if clipping_text is not None:
        facts.append(("clipping", clipping_text, "plain"))
    if result.precision:
        facts.append(("digits", precision_sentence(result.precision), "accent"))
    if result.attribution_note:
        facts.append(("own error", f"not known: {safe_text(result.attribution_note)}", "unknown"))
    if result.declared:
        facts.append(("but", f"{safe_text(result.declared)}; {_REPLAYED_NOTE}", "fail"))
    if result.acknowledged is not None:
        facts.append(("acknowledged", acknowledgement_text(result.acknowledged), "plain"))
    return facts


def _is_computed(scene: Scene) -> bool:
    """Return whether a node of the graph computes the tensor. Inputs are not computed by a node."""
    return not scene.plan_row.tensor or scene.opened.backend_graph.producer(scene.plan_row.tensor) is not None


def _is_searching(scene: Scene) -> bool:
    """Return whether the search for an arithmetic is still running."""
    is_answered = scene.ready is not None and (scene.ready.explanations is not None or scene.ready.problem)
    return scene.outcome is not None and _is_computed(scene) and not is_answered


def _search_facts(scene: Scene) -> list[Fact]:
    """Return the result of the search for an arithmetic."""
    result, ready = scene.outcome, scene.ready
    if not _is_computed(scene):
        return [("arithmetic", "none: no node of the graph computes this tensor", "muted")]
    if ready is None or ready.explanations is None:
        if result is not None and result.explained is not None:
            search_note = "; still searching for others that fit .." if _is_searching(scene) else ""
            return [("arithmetic", f"reproduced bit for bit: {safe_text(result.explained)}{search_note}", "fine")]
        if ready is not None and ready.problem:
            return [("arithmetic", safe_text(ready.problem), "fail")]
        return [("arithmetic", "looking for one that reproduces every element ..", "muted")]
    from qdebug.present.explained import node_facts

    facts: list[Fact] = [("", "", "plain")]
    explanations = [
        explanation for explanation in ready.explanations if explanation.tensor == scene.plan_row.tensor
    ] or list(ready.explanations)
    for node in explanations:
        facts += [(label, text, "plain") for label, text in node_facts(node) if label not in _FACTS_IN_HEADING]
    return facts if explanations else [("arithmetic", "nothing is known about this node", "unknown")]
