"""The edits of a repair as settings of quantizers.

Sources: `nodes_to_exclude` and `TensorQuantOverrides` of onnxruntime.quantization (docs of `quantize_static`); NNCF,
`IgnoredScope`; AIMET, encodings of version 0.6.1; ai-edge-quantizer, `recipe.py` and `recipe_manager.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from qdebug.model import Node, QuantParams
from qdebug.numerics.encodings import aimet_encodings
from qdebug.repair.edits import Edit

__all__ = ["find_nameless_results", "quantizer_forms"]


def quantizer_forms(edits: Sequence[Edit]) -> dict[str, Any]:
    """Return edits as settings of quantizers.

    Args:
        edits: The edits.

    Returns:
        Entries by quantizer, with known names from the reference, to be merged into existing ones. Edits that a
            quantizer cannot express are left out.
    """
    names = [node.name for node in _float_nodes(edits) if _has_name(node)]
    return {
        "onnxruntime": {"nodes_to_exclude": names, "TensorQuantOverrides": _tensor_overrides(edits)},
        "nncf": {"ignored_scope": {"names": names}},
        "aimet": _aimet_settings(edits),
        "ai-edge-quantizer": _recipe_entries(edits),
    }


def find_nameless_results(edits: Sequence[Edit]) -> list[str]:
    """Return the outputs of nodes in float that have no name in their model, so that no quantizer can exclude them."""
    return [node.outputs[0] for node in _float_nodes(edits) if not _has_name(node)]


def _float_nodes(edits: Sequence[Edit]) -> list[Node]:
    return [edit.reference_node for edit in edits if edit.kind == "float" and edit.reference_node is not None]


def _has_name(node: Node) -> bool:
    """Return whether a node has a name in its model, rather than one that was derived from its operator and result."""
    derived_name = f"{node.op}:{next(filter(None, node.outputs), '')}"
    return not re.fullmatch(rf"{re.escape(derived_name)}(#\d+)?", node.name)


def _tensor_overrides(edits: Sequence[Edit]) -> dict[str, list[dict[str, Any]]]:
    overrides: dict[str, list[dict[str, Any]]] = {}
    for edit in edits:
        if (quant := edit.other_codes) is not None and edit.reference_tensor:
            overrides[edit.reference_tensor] = [_override_entry(quant)]
        if edit.kind == "per-channel" and edit.reference_weight:
            codes = next(iter(edit.codes.values()))
            overrides[edit.reference_weight] = [{"quant_type": "QInt8", "axis": codes.axis}]
    return overrides


def _override_entry(quant: QuantParams) -> dict[str, Any]:
    if quant.dtype.endswith("16"):
        return {"quant_type": "QUInt16" if quant.dtype == "uint16" else "QInt16"}
    return {"scale": float(quant.scale[0]), "zero_point": int(quant.zero_point[0])}


def _aimet_settings(edits: Sequence[Edit]) -> dict[str, Any]:
    """Return AIMET encodings. Nodes in float become float16, AIMET's only float format."""
    activations, parameters = dict[str, Any](), dict[str, Any]()
    for edit in edits:
        if (quant := edit.other_codes) is not None and edit.reference_tensor:
            activations[edit.reference_tensor] = aimet_encodings(quant)
        if edit.kind == "per-channel" and edit.reference_weight:
            parameters[edit.reference_weight] = aimet_encodings(next(iter(edit.codes.values())))
        if edit.kind == "float":
            float_encoding = [{"bitwidth": 16, "dtype": "float"}]
            activations |= {edit.reference_tensor: float_encoding} if edit.reference_tensor else {}
            parameters |= {edit.reference_weight: float_encoding} if edit.reference_weight else {}
    return {"version": "0.6.1", "activation_encodings": activations, "param_encodings": parameters}


def _recipe_entries(edits: Sequence[Edit]) -> list[dict[str, Any]]:
    """Return entries to append to a recipe of ai-edge-quantizer, in which the last matching entry wins."""
    algorithms = {
        "per-channel": _static_quantization(8),
        "16-bit": _static_quantization(16),
        "float": ("no_quantize", dict[str, Any]()),
    }
    entries = []
    for kind, (algorithm, op_config) in algorithms.items():
        for edit in edits:
            node = edit.reference_node
            name = edit.reference_tensor if kind == "16-bit" else node.outputs[0] if node is not None else ""
            if edit.kind == kind and name:
                # A regex is matched against the names of an operator's results, each followed by a semicolon.
                entry = {"regex": f"(^|;){re.escape(name)};", "operation": "*"}
                entries.append({**entry, "algorithm_key": algorithm, "op_config": op_config})
    return entries


def _static_quantization(bits: int) -> tuple[str, dict[str, Any]]:
    """Return a configuration of static quantization: results of a bit width, and 8-bit weights per channel."""
    return "min_max_uniform_quantize", {
        "activation_tensor_config": _tensor_config(bits, "TENSORWISE", symmetric=bits == 16),
        "weight_tensor_config": _tensor_config(8, "CHANNELWISE", symmetric=True),
        "compute_precision": "INTEGER",
        "explicit_dequantize": False,
        "skip_checks": False,
        "min_weight_elements": 0,
    }


def _tensor_config(bits: int, granularity: str, *, symmetric: bool) -> dict[str, Any]:
    return {"num_bits": bits, "symmetric": symmetric, "granularity": granularity, "dtype": "INT"}
