"""What every metric means, printed from the one table that defines them."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from qdebug.numerics.metric_table import METRICS
from qdebug.view.rows import columns, metric_title

__all__ = ["definitions_json", "definitions_markdown", "definitions_report"]


def definitions_report() -> RenderableType:
    """Make the table of metric definitions."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for title in ("metric", "in tables", "unit", "better"):
        table.add_column(title, no_wrap=True)
    table.add_column("definition")
    for spec in METRICS:
        table.add_row(
            Text(spec.name),
            Text(metric_title(spec.name)),
            Text(spec.unit),
            Text(str(spec.better)),
            Text(spec.definition),
        )
    for key, unit in (("saturated", "%"), ("introduced", "LSB")):
        column = columns()[key]
        table.add_row(Text(key), Text(column.title), Text(unit), Text("lower"), Text(column.definition))
    return table


def definitions_markdown() -> str:
    """Give the metric definitions as a Markdown table."""
    lines = ["| metric | unit | better | definition |", "|---|---|---|---|"]
    lines += [
        f"| {spec.name} | {spec.unit} | {spec.better} | {spec.definition.replace('|', chr(92) + '|')} |"
        for spec in METRICS
    ]
    return "\n".join(lines) + "\n"


def definitions_json() -> dict[str, object]:
    """Give the metric definitions as plain values."""
    metrics = [
        {"name": spec.name, "unit": spec.unit, "better": str(spec.better), "definition": spec.definition}
        for spec in METRICS
    ]
    return {"format": "qdebug.metrics", "version": 1, "metrics": metrics}
