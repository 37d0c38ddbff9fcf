"""Results as flat rows: one dictionary per tensor, for data frames and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qdebug.compare.attribute.error_parts import PARTS
from qdebug.numerics.metric_table import METRICS, MetricGroup

if TYPE_CHECKING:
    from qdebug.compare.result.node_result import NodeResult
    from qdebug.numerics.stats import ErrorStats

__all__ = ["COLUMNS", "flat_row"]

_NAMES = ("node", "op", "tensor", "reference_tensor", "match", "status", "reason")
_USUAL = (
    *("sqnr_db", "max_lsb", "lsb_bias", "rel_l2", "max_abs", "mean_abs", "rmse", "max_rel", "cosine"),
    *("count", "mismatches", "nonfinite", "zero_refs", "worst_sample"),
)
_METRICS = (
    *_USUAL,
    *(m.name for m in METRICS if m.group is MetricGroup.ERROR and m.name not in {*_USUAL, "worst_index"}),
)
"""The most used metrics in their usual order, then all others of the table."""
_ERRORS = PARTS[:-1]
"""All parts but clipping, which the saturation columns cover."""
_PARTS = ("sqnr_db", "max_lsb", "rel_l2", "max_abs", "rmse")
_RAILS = tuple(m.name for m in METRICS if m.group is MetricGroup.SATURATION)
_TEXTS = ("note", "basis", "declared", "attribution_note", "judged_by", "explained", "precision")

COLUMNS: Sequence[str] = (
    "index",
    *_NAMES,
    "acknowledged",
    *_METRICS,
    "worst_index",
    *(f"{part}_{name}" for part in _ERRORS for name in _PARTS),
    "gain",
    "relative_gain",
    *(f"saturation_{name}" for name in _RAILS),
    "dtype",
    "scale",
    "zero_point",
    "scales",
    "match_reason",
    *_TEXTS,
    "findings",
)
"""Keys of a row, in order."""


def flat_row(node: NodeResult) -> dict[str, Any]:
    """Return a result as a flat dictionary with the keys `COLUMNS`. Unknown values are None, and NaN stays NaN.

    Indices are strings ("0,3,1"). `scale` and `zero_point` are set for a tensor with one of each. For a tensor with
    several, `scales` is their number.

    Args:
        node: The result.
    """
    row: dict[str, Any] = {"index": node.index}
    row |= {name: _text(getattr(node, name)) for name in (*_NAMES, "match_reason", *_TEXTS)}
    row["acknowledged"] = None if node.acknowledged is None else node.acknowledged.reason
    row |= _values(node.metrics, _METRICS, "")
    index = None if node.metrics is None else node.metrics.worst_index
    row["worst_index"] = None if index is None else ",".join(map(str, index))
    for part in _ERRORS:
        row |= _values(getattr(node, part), _PARTS, f"{part}_")
    row["gain"] = node.gain
    row["relative_gain"] = node.relative_gain
    row |= {
        f"saturation_{name}": None if node.saturation is None else getattr(node.saturation, name) for name in _RAILS
    }
    quant = node.quant
    has_one_scale = quant is not None and quant.scale.size == 1
    row["dtype"] = None if quant is None else quant.dtype
    row["scale"] = float(quant.scale[0]) if quant is not None and has_one_scale else None
    row["zero_point"] = int(quant.zero_point[0]) if quant is not None and has_one_scale else None
    row["scales"] = None if quant is None else int(quant.scale.size)
    row["findings"] = "; ".join(f"{finding.kind}: {finding.sentence}" for finding in node.findings) or None
    return {name: row[name] for name in COLUMNS}


def _values(stats: ErrorStats | None, names: Sequence[str], prefix: str) -> dict[str, Any]:
    return {f"{prefix}{name}": None if stats is None else getattr(stats, name) for name in names}


def _text(value: object) -> str | None:
    return None if value is None else str(value)
