"""The arithmetic that reproduces the node, its alternatives, and the pattern of the remaining errors."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from qdebug.compare.result.result import NodeResult
from qdebug.plural import plural
from qdebug.present import numbers
from qdebug.present.answer import remedy_line, share_of, share_text
from qdebug.present.detail import precision_sentence
from qdebug.present.rows import judged_words
from qdebug.present.text import safe_text
from qdebug.tui.drawing.glyphs import wrap
from qdebug.tui.drawing.look import Look
from qdebug.tui.nodes.rows import why
from qdebug.tui.nodes.walk import own_share
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import DrawnView, Line, Scene, accepted, heading

__all__ = ["WhyView"]

_LABEL = 14
_MOST, _OUTPUTS = 1000, 3
"""Maximum number of characters of a reason, and maximum number of outputs shown for tried edits."""
_REPLAYED = "a replay does as the backend declares, so that this counts neither as added here nor as unexplained"

_ABOVE = frozenset({"node", "tensor"})
"""Facts that the heading already shows. Repeating long names would push the findings off the screen."""

Fact = tuple[str, str, str]
"""Label, text and style."""


class WhyView(DrawnView):
    """The reasons why the node differs, as lines that scroll."""

    view = ScreenId.WHY
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open", "tensor", tooltip="open the tensor of the node"),
        Binding("v", "screen.form", "all nodes", tooltip="budget: which nodes make how much of the outputs' error"),
    ]
    lists = True

    def __init__(self, look: Look | None = None) -> None:
        super().__init__(look)
        self._top = 0
        self._of: object = None
        self._lines = 0
        self._room = 1

    def draw(self, scene: Scene, width: int, height: int) -> list[Line]:
        """Draw the findings."""
        if self._of != (scene.backend, scene.row):
            self._of, self._top = (scene.backend, scene.row), 0
        lines: list[Line] = []
        for label, text, style in _facts(scene):
            for at, line in enumerate(wrap(scene.glyphs.plain(text), max(width - _LABEL - 2, 10))):
                lines.append([(("" if at else label).rjust(_LABEL) + "  ", "muted"), (line, style)])
        self._lines, self._room = len(lines), max(height - 2, 1)
        self._top = min(self._top, max(self._lines - self._room, 0))
        hidden = self._lines - self._top - self._room
        more = f"j for {plural(hidden, 'more line')}" if hidden > 0 else "the end" if self._top else ""
        return [heading(scene, width, more), [], *lines[self._top : self._top + self._room]]

    def move(self, scene: Scene, lines: int) -> str:
        """Scroll."""
        top = min(max(self._top + lines, 0), max(self._lines - self._room, 0))
        if top == self._top and lines > 0:
            searching = ", so far: its arithmetic is being looked for" if _searching(scene) else ""
            return f"the explanation ends here{searching}"
        if top == self._top:
            return "the explanation begins here"
        self._top = top
        return ""


def _facts(scene: Scene) -> list[Fact]:
    result = scene.outcome
    if result is None:
        missing = scene.planned.missing
        return [("", "not compared yet" if missing is None else f"not compared: {safe_text(missing)}", "muted")]
    return [*_of_diagnosis(scene, result), *_of_diff(result, scene.navigator.samples), *_of_search(scene)]


def _of_diagnosis(scene: Scene, result: NodeResult) -> list[Fact]:
    """Return the node's fault, its share of the output's error, and the tried edits."""
    fault = scene.table.diagnosis.get(scene.row)
    reason = fault.why if fault is not None else why(result)
    facts: list[Fact] = [("why", safe_text(reason, limit=_MOST), "accent")] if reason else []
    if fault is None or scene.result is None:
        return facts
    facts.append(("share", f"{share_text(share_of(fault))} of the output's error", "plain"))
    tried = [remedy for remedy in fault.remedies if remedy.nodes == 1]
    lines = [remedy_line(remedy, scene.result, most=_OUTPUTS) for remedy in tried]
    return [*facts, *(("try (X)", line, "fine") for line in lines)]


def _of_diff(result: NodeResult, samples: int) -> list[Fact]:
    """Return the comparison's facts about the source of the error."""
    facts: list[Fact] = []
    stats = result.metrics
    if stats is not None:
        bias = "" if stats.lsb_bias is None else f", mean with sign {numbers.number(stats.lsb_bias)} LSB"
        of_all = f" of {numbers.grouped(samples)} samples" if samples > 1 else ""
        differ = f"{numbers.grouped(stats.mismatches)} of {numbers.grouped(stats.count)} elements{of_all} differ"
        most = f"by at most {numbers.number(stats.max_abs)}"  # in the units of the tensor, where it has no steps
        most = most if stats.max_lsb is None else f"by at most {numbers.number(stats.max_lsb)} LSB"
        facts.append(("whole error", f"{differ}, {most}{bias}", "plain"))
    share = own_share(result)
    if share is not None:
        own, rest = numbers.percent(share, 1.0), numbers.percent(1 - share, 1.0)
        facts.append(("of that", f"{own} is added here, {rest} comes in", "plain"))
    if result.constants is not None and result.constants.max_abs:
        size = numbers.number(result.constants.rel_l2)
        facts.append(
            ("constants", f"rel L2 {size} of its result, by weights (rounded to codes), bias or attributes", "plain")
        )
    judged = judged_words(result)
    if judged is not None:
        facts.append(("judged", f"arithmetic, {judged}", "plain"))
    if result.precision:
        facts.append(("digits", precision_sentence(result.precision), "accent"))
    if result.attribution_note:
        facts.append(("own error", f"not known: {safe_text(result.attribution_note)}", "unknown"))
    if result.declared:
        facts.append(("but", f"{safe_text(result.declared)}; {_REPLAYED}", "fail"))
    if result.acknowledged is not None:
        facts.append(("acknowledged", accepted(result.acknowledged), "plain"))
    return facts


def _computed(scene: Scene) -> bool:
    """Return whether a node of the graph computes the tensor. Inputs are not computed by a node."""
    return not scene.planned.tensor or scene.opened.backend_graph.producer(scene.planned.tensor) is not None


def _searching(scene: Scene) -> bool:
    """Return whether the search for an arithmetic is still running."""
    is_answered = scene.ready is not None and (scene.ready.explained is not None or scene.ready.problem)
    return scene.outcome is not None and _computed(scene) and not is_answered


def _of_search(scene: Scene) -> list[Fact]:
    """Return the result of the search for an arithmetic."""
    result, ready = scene.outcome, scene.ready
    if not _computed(scene):
        return [("arithmetic", "none: no node of the graph computes this tensor", "muted")]
    if ready is None or ready.explained is None:
        if result is not None and result.explained is not None:
            more = "; others that fit as well are being looked for .." if _searching(scene) else ""
            return [("arithmetic", f"reproduced bit for bit: {safe_text(result.explained)}{more}", "fine")]
        if ready is not None and ready.problem:
            return [("arithmetic", safe_text(ready.problem), "fail")]
        return [("arithmetic", "looking for one that reproduces every element ..", "muted")]
    from qdebug.present.explained import node_facts

    facts: list[Fact] = [("", "", "plain")]
    mine = [explanation for explanation in ready.explained if explanation.tensor == scene.planned.tensor] or list(
        ready.explained
    )
    for node in mine:
        facts += [(label, text, "plain") for label, text in node_facts(node) if label not in _ABOVE]
    return facts if mine else [("arithmetic", "nothing can be said of this node", "unknown")]
