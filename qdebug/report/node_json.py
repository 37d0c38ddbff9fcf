"""One compared node in full, as JSON: the document of the whole comparison with the other nodes left out."""

from __future__ import annotations

from typing import Any

from qdebug.compare.result.result import DiffResult, json_safe
from qdebug.model import TensorInfo
from qdebug.numerics.stats import WorstElement
from qdebug.report.profile import profile_dict
from qdebug.view.detail import NodeDetail

__all__ = ["with_detail"]


def with_detail(result: DiffResult, detail: NodeDetail) -> dict[str, Any]:
    """Give a comparison as plain values, with one node only and all that is known of it.

    Args:
        result: The comparison; verdict and coverage stay those of the whole.
        detail: The node.
    """
    plain = result.to_dict()
    inputs = [
        {"tensor": tensor, "status": None if node is None else str(node.status)} for tensor, node in detail.inputs
    ]
    node = {
        **detail.result.to_dict(),
        "reference_info": _info(detail.reference),
        "backend_info": _info(detail.backend),
        "inputs": inputs,
        "worst_elements": [_element(element) for element in detail.worst],
        "detail": None if detail.profile is None else profile_dict(detail.profile),
    }
    plain["nodes"] = [json_safe(node)]
    return plain


def _info(info: TensorInfo | None) -> dict[str, Any] | None:
    if info is None:
        return None
    return {
        "name": info.name,
        "dtype": info.dtype,
        "shape": None if info.shape is None else list(info.shape),
        "layout": info.layout,
        "quant": None if info.quant is None else info.quant.to_dict(),
    }


def _element(element: WorstElement) -> dict[str, Any]:
    return {
        "index": list(element.index),
        "sample": element.sample,
        "step": element.step,
        "reference": element.reference,
        "backend": element.backend,
        "difference": element.difference,
        "lsb": element.lsb,
        "reference_code": element.reference_code,
        "backend_code": element.backend_code,
    }
