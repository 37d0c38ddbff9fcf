"""The verdict in full, with what it rests on: limits, coverage, fidelity, outputs."""

from __future__ import annotations

from collections.abc import Sequence

from qdebug.errors import QdebugError
from qdebug.present.text import safe_text
from qdebug.tui.drawing.cells import wrap
from qdebug.tui.drawing.draw import Piece
from qdebug.tui.drawing.glyphs import GlyphSet
from qdebug.tui.panels.chrome import Compared, verdict_lines

__all__ = ["verdict_text"]

_LABEL = 12
_MOST = 1000


def verdict_text(now: Compared, width: int, glyphs: GlyphSet) -> Sequence[Sequence[Piece]]:
    """Return all that is said of a comparison as a whole, no word left out.

    Args:
        now: The comparison.
        width: Cells of a line.
        glyphs: Characters to draw with.
    """
    lines: list[Sequence[Piece]] = [[("Verdict", "accent"), ("   esc closes, j k scroll", "muted")], []]
    lines += verdict_lines(now, width, _MOST, glyphs)
    for label, text in _facts(now):
        lines.append([])
        for at, line in enumerate(wrap(glyphs.plain(text), max(width - _LABEL - 2, 10))):
            lines.append([(("" if at else label).rjust(_LABEL) + "  ", "muted"), (line, "plain")])
    return lines


def _facts(now: Compared) -> list[tuple[str, str]]:
    if isinstance(now.failure, QdebugError) and now.failure.hint:
        return [("hint", safe_text(now.failure.hint, limit=_MOST))]
    result = now.result
    if result is None:
        return []
    from qdebug.present import sentences

    facts = [("missing", safe_text(said, limit=_MOST)) for said in result.shortcomings]
    facts.append(("limits", sentences.limits_sentence(result.limits)))
    facts.append(("compared", sentences.coverage_sentence(result)))
    facts += [("output", said) for said in sentences.ranking_sentences(result.outputs)]
    facts += [("compounding", said) for said in sentences.compounding_sentences(result.verdict.compounding)]
    for side, info in (("reference", result.reference), ("backend", result.backend)):
        facts.append((side, f"{sentences.run_facts(info)}; fidelity {sentences.fidelity_sentence(info)}"))
    return facts
