"""The lines around the panels: the names of the runs, the verdict, the status line and the footer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from rich.cells import cell_len

from qdebug.compare.result.node_result import NodeResult, Status, is_beyond
from qdebug.errors import QdebugError
from qdebug.plural import agreeing
from qdebug.present import numbers
from qdebug.present.rows import metric_title
from qdebug.present.text import QUOTED, safe_text
from qdebug.tui.drawing.draw import Piece
from qdebug.tui.drawing.glyphs import GlyphSet, cut_start, wrap
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.nodes.rows import explain_status, shown_sample
from qdebug.tui.reading.messages import Opened

if TYPE_CHECKING:
    from qdebug.compare.result.diagnosis import Diagnosis
    from qdebug.compare.result.result import RunComparison
    from qdebug.model import RunInfo

__all__ = [
    "NO_TENSORS",
    "BackendState",
    "banner",
    "status",
    "too_small",
    "verdict_lines",
    "verdict_text",
]

NO_TENSORS = "nothing to show: the recordings share no tensor"
"""Shown if there are no rows."""

_MORE_SUFFIX = " (1 v)"
"""Suffix of a truncated verdict: the keys that show the whole verdict from any screen."""

Line = list[Piece]


class BackendState:
    """State of the comparison with one backend.

    Args:
        titles: Names of its two recordings.
    """

    def __init__(self, titles: tuple[str, str]) -> None:
        self.titles = titles
        self.opened: Opened | None = None
        self.navigator: Navigator | None = None
        self.constants: Navigator | None = None
        self.result: RunComparison | None = None
        self.failure: BaseException | None = None
        self.names_shown_at = 0.0
        self.stage = "reading both graphs"

    @property
    def seconds_waited(self) -> int:
        """Whole seconds since the names appeared on the screen."""
        return int(monotonic() - self.names_shown_at)


def banner(
    titles: tuple[str, str],
    opened: Opened | None,
    width: int,
    glyphs: GlyphSet,
    *,
    position_text: str = "",
    place: str = "qdebug",
) -> list[Line]:
    """Return the names of the two runs, with warnings about the recordings.

    Args:
        titles: Names of the two files.
        opened: Run facts; None while they are being read.
        width: Cells of the line.
        glyphs: Characters for drawing.
        position_text: Position among several backends; "" if there is only one.
        place: The first word of the line, which is the screen's name if tabs are hidden.
    """
    facts = (None, None) if opened is None else (opened.reference, opened.backend)
    warnings = [] if opened is None else _warnings(opened)
    if position_text:
        warnings.insert(0, f"backend {position_text}, b next")
    warning_text = "  ".join(warnings)
    run_width = max(width - len(f" {place}   vs  ") - len(warning_text) - 2, 10) // 2
    runs = [_run_title(*pair) for pair in zip(titles, facts, strict=True)]
    if any(cell_len(run) > run_width for run in runs):  # file names matter more than runtimes
        runs = [safe_text(title) for title in titles]
    names = [glyphs.fit(run, run_width).rstrip() for run in runs]
    line: Line = [(f" {place} ", "title"), (f" {names[0]}", "accent"), ("  vs  ", "muted"), (names[1], "accent")]
    return [[*line, (f"  {warning_text}", "fail")] if warning_text else line]


def _run_title(title: str, info: RunInfo | None) -> str:
    return safe_text(title) if info is None else f"{safe_text(title)} ({safe_text(info.backend, limit=30)})"


def _warnings(opened: Opened) -> list[str]:
    from qdebug.model import Fidelity  # already imported by the recordings

    warnings = []
    for side, info in (("reference", opened.reference), ("backend", opened.backend)):
        if info.fidelity is Fidelity.DIFFERS:
            warnings.append(f"{side}: recording CHANGED the result")
        if info.fidelity is Fidelity.NONDETERMINISTIC:
            warnings.append(f"{side}: results CHANGE from run to run")
        if not info.complete:
            warnings.append(f"{side}: unfinished" if opened.is_writing else f"{side}: INCOMPLETE")
    return warnings


def verdict_lines(
    state: BackendState, width: int, height: int, glyphs: GlyphSet, *, is_reason_shown: bool = False
) -> list[Line]:
    """Return the verdict, marked "so far" until all pairs are compared.

    Args:
        state: The comparison on the screen.
        width: Cells per line.
        height: Number of lines.
        glyphs: Characters for drawing.
        is_reason_shown: Whether the reason for the first divergence is shown in full below.
    """
    navigator, result, is_answered = state.navigator, state.result, False
    if state.failure is not None:
        word, text, is_bad = " ERROR ", safe_text(state.failure, limit=300), True
    elif navigator is None:
        return [[(" READING ", "accent"), ("opening both recordings ..", "muted")]]
    elif state.opened is None:
        count_text = numbers.grouped(navigator.table.size)
        seconds_text = f" {state.seconds_waited} s" if state.seconds_waited else ""
        return [[(" READING ", "accent"), (f"{state.stage}, {count_text} tensors ..{seconds_text}", "muted")]]
    elif result is not None and not state.opened.is_writing:
        from qdebug.present.answer import headline, verdict_word
        from qdebug.present.sentences import verdict_sentence

        word = f" {verdict_word(result)} "
        is_bad = word.startswith(" FAIL")
        is_answered = bool(result.diagnosis) or not is_bad
        text = headline(result) if is_answered else verdict_sentence(result)
    else:
        word, is_bad = " SO FAR ", navigator.table.first_divergence() is not None
        text = _progress_text(navigator, state.opened, (width - len(word) - 1) * height)
    text_width = max(width - len(word) - 1, 10)
    is_short = height <= _SHORT_HEIGHT and not is_answered and (is_reason_shown or cell_len(text) > text_width * height)
    if is_short and navigator and result is not None and result.first_divergence:
        text = _short_verdict(navigator, result, text_width * height, is_reason_shown=is_reason_shown)
    final_result = None if state.opened is None or state.opened.is_writing else result
    text = _with_short_names(text, text_width, height)
    text_lines, advice_lines = wrap(glyphs.transliterate(text), text_width), list[tuple[str, str]]()
    if final_result is not None and navigator is not None and height > _SHORT_HEIGHT:
        from qdebug.present.reports.short import outputs_line

        room = height - min(len(text_lines), _SHORT_HEIGHT)
        fault = navigator.table.diagnosis.get(navigator.cursor)
        advice_lines = _advice_lines(final_result, fault, text_width)[:room]
        outputs_text = outputs_line(final_result)
        if outputs_text and len(advice_lines) < room:
            advice_lines.insert(0, ("out", outputs_text))
    line_count = max(height - len(advice_lines), 1)
    if len(text_lines) > line_count:
        remainder = glyphs.fit_end(" ".join(text_lines[line_count - 1 :]), text_width - len(_MORE_SUFFIX))
        text_lines = [*text_lines[: line_count - 1], f"{remainder}{_MORE_SUFFIX}"]
    style = "fail" if is_bad else "fine"
    verdict: list[Line] = [
        [(word if not at else " " * len(word), "accent"), (wrapped_line, style)]
        for at, wrapped_line in enumerate(text_lines)
    ]
    for label, line in advice_lines:
        is_cut = cell_len(line) > text_width
        line_text = (
            f"{glyphs.fit_end(line, text_width - len(_MORE_SUFFIX))}{_MORE_SUFFIX}"
            if is_cut
            else glyphs.transliterate(line)
        )
        verdict.append([(f" {label}".ljust(len(word)), "muted"), (line_text, "plain")])
    return verdict


def _advice_lines(result: RunComparison, fault: Diagnosis | None, width: int) -> list[tuple[str, str]]:
    """Return labelled lines: the reason of a fault, and the edit of its node with the largest gain, else of all nodes.

    Args:
        result: The comparison.
        fault: The fault of the node under the cursor; None for the first fault of the diagnosis.
        width: Cells per line. What to try is said in fewer words if it does not fit.
    """
    if not result.diagnosis:
        return []
    from qdebug.present.answer import advice_line, gain_of, node_title, remedy_line, remedy_to_try

    first = fault or result.diagnosis[0]
    edited, best = first, remedy_to_try(result, first)
    if best is None:
        gains = [(gain_of(remedy, each), each, remedy) for each in result.diagnosis for remedy in each.remedies]
        _, edited, best = max(gains, key=lambda gain: gain[0], default=(0.0, first, None))
    lines = [("why", f"{node_title(first, limit=_FAULT_NAME_WIDTH)}: {safe_text(first.why, limit=_MAX_TEXT_LENGTH)}")]
    if best is None:
        advice = advice_line(result)
    else:  # "this node" would be that under the cursor
        is_elsewhere = best.nodes == 1 and edited is not fault
        owner = f"{node_title(edited, limit=_FAULT_NAME_WIDTH)}: " if is_elsewhere else ""
        versions = (remedy_line(best, result, max_outputs=1, is_brief=is_brief) for is_brief in (False, True))
        advice, brief_advice = (f"{owner}{line}" for line in versions)
        advice = advice if cell_len(advice) <= width else brief_advice
    return [*lines, ("try", advice)] if advice else lines


_NAME_WIDTHS = (32, 24, 16)
"""Widths to which names in a verdict are cut, tried in order until it fits; the last one only for a single line."""
_MIN_NAME_WIDTH, _MAX_NAME_WIDTH = 12, 56
_FAULT_NAME_WIDTH = 24
"""Cells for a node in front of the reason of its fault."""
_VERDICT_PREFIX = "diverges at "
_MIN_NODE_WIDTH = 8
"""Minimum cells for the node on the status line, next to the position in the list."""
_FILTER_WIDTH = 16
"""Cells for the active filter on the status line."""
_SHORT_HEIGHT = 2
"""Number of lines up to which a verdict starts with the name of the first divergence."""


def _with_short_names(text: str, width: int, height: int) -> str:
    """Cut the beginnings of names in a verdict that is too long, so that the fault stays visible."""
    shortened = text
    for max_width in _NAME_WIDTHS[: len(_NAME_WIDTHS) - (height > 1)]:
        if len(wrap(shortened, width)) <= max(height, 1):
            break
        shortened = QUOTED.sub(lambda name, max_width=max_width: f"'{cut_start(name[1], max_width)}'", text)  # type: ignore[misc]
    return shortened


def _short_verdict(navigator: Navigator, result: RunComparison, max_length: int, *, is_reason_shown: bool) -> str:
    """Return a verdict that starts with the first divergence and its reason.

    The name is cut first, then the end of the line.
    """
    row = navigator.table.first_divergence()
    first = None if row is None else navigator.table.results[row]
    if first is None or first.node != result.first_divergence:  # an earlier node may be incomparable
        first = next(node for node in result.nodes if node.node == result.first_divergence)
    why = safe_text(first.reason) if first.reason else ""
    head = (
        "diverges first here"
        if is_reason_shown and why
        else f"{_VERDICT_PREFIX}{_name_with_reason(first.node, max_length - len(_VERDICT_PREFIX), why)}"
    )
    return ". ".join([head, *_short_clauses(navigator, result, first)]) + f".{_MORE_SUFFIX}"


def _short_clauses(navigator: Navigator, result: RunComparison, first: NodeResult) -> Iterator[str]:
    """Yield short clauses: tensors beyond the limit, the origin of the error, and missing tensors."""
    compared_nodes = [node for node in result.nodes if node.status is not Status.INCOMPARABLE]
    count_beyond = sum(map(is_beyond, compared_nodes))
    if count_beyond:
        count = f"{numbers.grouped(count_beyond)} of {numbers.grouped(len(compared_nodes))} compared tensors"
        yield f"{count} {agreeing(count_beyond, 'is')} beyond the limit"
    if result.origin is not None and result.origin != first.node:
        yield f"The error of the output comes from {safe_text(result.origin)!r}"
    if result.verdict.worst_sample is not None and navigator.samples > 1:
        yield f"Of {navigator.samples} samples, sample {result.verdict.worst_sample} comes out worst"
    if result.shortcomings:
        yield f"Incomplete: {safe_text('; '.join(result.shortcomings), limit=_MAX_TEXT_LENGTH)}"


def _name_with_reason(name: str, max_length: int, why: str) -> str:
    """Return a name and a reason. If space is short, the name's beginning is cut before the reason's end."""
    min_reason_width = len(re.split(r"[,;] ", why)[0]) + len(": ") + len(_MORE_SUFFIX) + 1 if why else 0
    if len(name) + len(": ") + len(why) < max_length:
        min_reason_width = 0
    shown_name = cut_start(safe_text(name), min(max(max_length - min_reason_width, _MIN_NAME_WIDTH), _MAX_NAME_WIDTH))
    return f"{shown_name}: {why}" if why else shown_name


def _progress_text(navigator: Navigator, opened: Opened, max_length: int) -> str:
    table = navigator.table
    count_text = f"{numbers.grouped(table.compared)} of {numbers.grouped(table.comparable)} compared"
    if opened.is_writing:
        count_text += ", still being recorded"
    first = table.first_divergence()
    if first is None and table.comparable and not table.pending and not opened.is_writing:
        return f"{count_text}, no divergence; summing up .."
    if first is None:
        return f"{count_text}, no divergence"
    result = table.results[first]
    why = safe_text(result.reason) if result is not None and result.reason else ""
    beginning = f"{count_text}, first divergence at "
    return beginning + _name_with_reason(table.names[first], max_length - len(beginning), why)


def status(
    navigator: Navigator | None,
    message: str,
    width: int,
    glyphs: GlyphSet,
    *,
    height: int = 1,
    with_reason: bool = True,
    shows_elements: bool = False,
    shows_list: bool = True,
) -> list[Line]:
    """Return the status line: the last message, else the node under the cursor, with the list position on the right.

    Args:
        navigator: The table and the cursor; None while names are being read.
        message: Response to the last key; "" without one.
        width: Cells of the line.
        glyphs: Characters for drawing.
        height: Number of lines; a message longer than one line uses all of them.
        with_reason: Whether to include the reason for the node's status; not needed if it is shown above.
        shows_elements: Whether the screen shows the elements of one sample.
        shows_list: Whether the screen shows the node list and thus its order.
    """
    if cell_len(message) >= width and height > 1:
        lines = wrap(glyphs.transliterate(safe_text(message, limit=1000)), width - 2, max_lines=height)
        return [[(f" {line}", "accent")] for line in lines]
    if navigator is None or not navigator.table.size:
        return [[(_fit_sentence(message, width - 1, glyphs), "accent")]]
    result = navigator.table.results[navigator.cursor]
    sample_shown = (
        shown_sample(result, navigator.sample, navigator.table.worst_sample) if shows_elements else navigator.sample
    )
    sample = "all samples" if sample_shown is None else f"sample {sample_shown}"
    sample = sample if sample_shown is None or navigator.sample is not None else f"all, sample {sample_shown} shown"
    parts = [_position_text(navigator, shows_list=shows_list)]
    if navigator.filter:  # on every screen, since keys that move between nodes obey it everywhere
        parts.append(f"filter {glyphs.fit_end(safe_text(navigator.filter), _FILTER_WIDTH)}".rstrip())
    if navigator.samples > 1 or navigator.sample is not None:
        parts.append(sample)
    if shows_list and (navigator.sort != "order" or navigator.reversed):
        parts.append("by " + (metric_title(navigator.metric) if navigator.sort == "metric" else navigator.sort))
    right_text = glyphs.transliterate("  ".join(parts)) + " "
    if cell_len(right_text) > width - _MIN_NODE_WIDTH:
        right_text = right_text.replace(sample, sample.removesuffix(" shown"))
    if cell_len(message) > width - cell_len(right_text) - 2:  # leave out the position in the list
        right_text = glyphs.transliterate("  ".join(parts[1:])) + " "
    message_width = max(width - cell_len(right_text) - 2, 4)
    if message and cell_len(message) > message_width:  # the message takes precedence over the position
        return [[(_fit_sentence(message, width - 1, glyphs), "accent")]]
    if message:
        return [[(_fit_sentence(message, message_width, glyphs), "accent"), (" " + right_text, "muted")]]
    return [
        [
            (
                _fit_sentence(_row_text(navigator, message_width, with_reason=with_reason), message_width, glyphs),
                "plain",
            ),
            (" " + right_text, "muted"),
        ]
    ]


def _fit_sentence(text: str, width: int, glyphs: GlyphSet) -> str:
    """Return a sentence in exactly width + 1 cells, cutting its end."""
    return glyphs.fit(f" {glyphs.fit_end(glyphs.transliterate(safe_text(text)), width)}", width + 1)


def _position_text(navigator: Navigator, *, shows_list: bool) -> str:
    """Return the position of the cursor. Compared tensors are numbered from 0 as in a report, lines from 1."""
    size, lines = numbers.grouped(navigator.table.size), numbers.grouped(navigator.lines)
    if navigator.table.first_number:
        return f"constant {navigator.line + 1} of {size}"
    if navigator.filter and shows_list:
        count_text = f"{lines} shown of {size}"
        if not navigator.lines:
            return f"none of {size} fits"
        return (
            f"hidden, {count_text}"
            if navigator.line < 0
            else f"line {numbers.grouped(navigator.line + 1)} of {count_text}"
        )
    if shows_list and (navigator.sort != "order" or navigator.reversed):
        return f"line {numbers.grouped(navigator.line + 1)} of {lines}"
    table, number = navigator.table, navigator.table.compared_number(navigator.cursor)
    if number is None:
        return f"not one of the {numbers.grouped(table.comparable)} compared"
    return f"#{numbers.grouped(number)} of 0..{numbers.grouped(table.comparable - 1)}"


def _row_text(navigator: Navigator, max_length: int, *, with_reason: bool) -> str:
    """Return the status of the node under the cursor, with its reason unless the verdict states it."""
    table, row = navigator.table, navigator.cursor
    missing = table.rows[row].missing
    word = table.status_word(row, navigator.sample) if missing is None else safe_text(missing)
    if table.acknowledged[row]:
        word += ", acknowledged"
    result = table.results[row]
    with_reason = with_reason and row != table.first_divergence()
    reason = explain_status(result) if navigator.sample is None and with_reason else None
    note = navigator.trail.notes.get(row)
    suffix = f" ({safe_text(note)})" if note else ""
    return _name_with_reason(
        table.names[row], max_length, f"{word}{suffix}" + (f", {safe_text(reason)}" if reason else "")
    )


def too_small(width: int, height: int, min_size: tuple[int, int]) -> Sequence[Line]:
    """Return a message that the terminal is too small.

    Args:
        width: Its cells.
        height: Its lines.
        min_size: The smallest sufficient size.
    """
    text = f"{width}x{height} is too small: {min_size[0]}x{min_size[1]} is needed. q quits."
    return [[(line, "plain")] for line in wrap(text, max(width, 1))]


_LABEL_WIDTH = 12
_MAX_TEXT_LENGTH = 1000


def verdict_text(state: BackendState, width: int, glyphs: GlyphSet) -> Sequence[Sequence[Piece]]:
    """Return the whole verdict of a comparison.

    Args:
        state: The comparison.
        width: Cells per line.
        glyphs: Characters for drawing.
    """
    lines: list[Sequence[Piece]] = [[("Verdict", "accent"), ("   esc closes, j k scroll", "muted")], []]
    lines += (
        verdict_lines(state, width, _SHORT_HEIGHT, glyphs)
        if state.result is None
        else _headline_lines(state.result, width, glyphs)
    )
    for label, text in _verdict_facts(state):
        lines += [[]] if label else []
        for at, line in enumerate(wrap(glyphs.transliterate(text), max(width - _LABEL_WIDTH - 2, 10))):
            lines.append([(("" if at else label).rjust(_LABEL_WIDTH) + "  ", "muted"), (line, "plain")])
    return lines


def _verdict_facts(state: BackendState) -> list[tuple[str, str]]:
    if isinstance(state.failure, QdebugError) and state.failure.hint:
        return [("hint", safe_text(state.failure.hint, limit=_MAX_TEXT_LENGTH))]
    result = state.result
    if result is None:
        return []
    from qdebug.present.reports.comparison import comparison_facts, coverage  # already imported
    from qdebug.present.reports.short import answer
    from qdebug.present.sentences import verdict_sentence

    missing = [("missing", safe_text(shortcoming, limit=_MAX_TEXT_LENGTH)) for shortcoming in result.shortcomings]
    facts = (*answer(result).facts, *comparison_facts(result).facts, *coverage(result).facts)
    sentence = [("verdict", verdict_sentence(result))]
    return [*missing, *_fault_facts(result), *sentence, *((fact.label, fact.text) for fact in facts)]


def _headline_lines(result: RunComparison, width: int, glyphs: GlyphSet) -> list[Sequence[Piece]]:
    from qdebug.present.answer import headline, verdict_word

    style = "fail" if result.exit_code == 1 else "fine"
    text = f"{verdict_word(result)}  {headline(result)}"
    return [[(f" {line}", style)] for line in wrap(glyphs.transliterate(text), max(width - 2, 10))]


def _fault_facts(result: RunComparison) -> Iterator[tuple[str, str]]:
    """Yield each node of the diagnosis with its share of the output's error and why it is at fault."""
    from qdebug.present.answer import node_title, share_of, share_text

    for at, fault in enumerate(result.diagnosis):
        text = f"{share_text(share_of(fault))}  {node_title(fault)}: {safe_text(fault.why, limit=_MAX_TEXT_LENGTH)}"
        yield "" if at else "where", text
