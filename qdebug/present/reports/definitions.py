"""The definition of every metric, from the one table of metrics."""

from __future__ import annotations

from dataclasses import dataclass

from qdebug.numerics.metric_table import METRICS, MetricGroup
from qdebug.present.reports.document import Document, Grid
from qdebug.present.rows import columns, metric_title

__all__ = ["MetricRow", "definitions_document", "definitions_json", "metric_rows"]


def definitions_document() -> Document:
    """Return the definitions of all metrics."""
    titles = ("metric", "in tables", "in JSON", "unit", "better", "definition")
    rows = [(row.name, row.title, row.where, row.unit, row.better, row.definition) for row in metric_rows()]
    return [Grid(titles=titles, rows=rows, names=frozenset({0}))]


def definitions_json() -> dict[str, object]:
    """Return the metric definitions as plain values."""
    metrics = [
        {"name": row.name, "in": row.where, "unit": row.unit, "better": row.better, "definition": row.definition}
        for row in metric_rows()
    ]
    return {"format": "qdebug.metrics", "version": 1, "metrics": metrics}


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A metric, with its title in tables and its object in the JSON. Either is "" if the metric is not there."""

    name: str
    title: str
    where: str
    unit: str
    better: str
    definition: str


def metric_rows() -> list[MetricRow]:
    """Return a row for each metric, and for the columns of the node table that summarize several metrics."""
    rows = [
        MetricRow(
            spec.name,
            metric_title(spec.name) if spec.group in _IN_TABLES else "",
            str(_WHERE.get(spec.group, spec.group)),
            spec.unit,
            str(spec.better),
            spec.definition,
        )
        for spec in METRICS
    ]
    for key, unit in (("clipped", "%"), ("arithmetic", "LSB"), ("constants", "LSB"), ("introduced", "LSB")):
        rows.append(MetricRow(key, columns()[key].title, "", unit, "lower", columns()[key].definition))
    return rows


_IN_TABLES = (MetricGroup.ERROR, MetricGroup.SATURATION, MetricGroup.ATTRIBUTION)
_WHERE = {
    MetricGroup.COUNTS: "metrics",
    MetricGroup.ATTRIBUTION: "nodes",
    MetricGroup.AGREEMENT: "matrix.agreement",
    MetricGroup.COMPOUNDING: "verdict.compounding",
}
"""Location in the diff JSON for groups whose names do not show it."""
