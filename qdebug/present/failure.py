"""Why a comparison failed, in a few lines that fit into a test report."""

from __future__ import annotations

from qdebug.compare.result.node_result import breaks_limit, is_beyond
from qdebug.compare.result.result import NodeResult, RunComparison
from qdebug.present import numbers, sentences
from qdebug.present.shell import command
from qdebug.present.text import safe_text

__all__ = ["failure_lines", "open_command"]

_NEIGHBOURS = 2
_LIMIT_ARGUMENTS = "min_sqnr=, max_lsb=, atol= or rtol="


def failure_lines(result: RunComparison, *, files: tuple[object, object] | None = None) -> list[str]:
    """Return the verdict, the first divergence with its neighbours, the limits, the coverage and a command.

    Args:
        result: The comparison.
        files: Files of the reference and of the backend, if both are in files.
    """
    lines = [f"{str(result.status).upper()}: {sentences.verdict_sentence(result)}"]
    first = next((position for position, node in enumerate(result.nodes) if is_beyond(node)), None)
    if first is not None:
        shown = range(max(0, first - _NEIGHBOURS), min(len(result.nodes), first + _NEIGHBOURS + 1))
        lines += ["", *_neighbour_table([(position == first, result.nodes[position]) for position in shown])]
        for node in (result.nodes[position] for position in shown):
            if is_beyond(node) and node.reason:
                lines += [f"  {safe_text(node.node, limit=60)}: {safe_text(node.reason, limit=400)}"]
    lines += ["", f"limits: {sentences.limits_sentence(result.limits, ways=_LIMIT_ARGUMENTS)}"]
    lines.append(f"coverage: {sentences.coverage_sentence(result)}")
    if files is not None:
        lines.append(f"open it: {open_command(result, files)}")
    return [numbers.plain_digits(line) for line in lines]


def open_command(result: RunComparison, files: tuple[object, object]) -> str:
    """Return the command that opens a comparison at its first divergence, quoted for the shell and safe to print.

    Args:
        result: The comparison.
        files: Files of the reference and of the backend.
    """
    words = ["qdebug", "tui", *map(str, files)]
    if result.first_divergence is not None:
        words += ["--node", result.first_divergence]
    return command(*words)


def _neighbour_table(rows: list[tuple[bool, NodeResult]]) -> list[str]:
    cells = [("", "status", "node", "op", "SQNR dB", "max LSB")]
    for is_first, node in rows:
        status = f"{node.status}{' (acknowledged)' if breaks_limit(node) and not is_beyond(node) else ''}"
        stats = node.metrics
        sqnr, max_lsb = (None, None) if stats is None else (stats.sqnr_db, stats.max_lsb)
        names = safe_text(node.node, limit=60), safe_text(node.op, limit=24)
        cells.append(
            (">" if is_first else "", status, *names, numbers.metric("sqnr_db", sqnr), numbers.number(max_lsb))
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells]
