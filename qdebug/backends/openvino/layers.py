"""The layers that a compiled OpenVINO model executes, from its runtime model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from qdebug.backends.openvino.model import OpenVINOModel

__all__ = ["Layer", "layers_of"]

_HELPER_TYPES = frozenset(("Const", "Input", "Output"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One executed layer.

    Args:
        name: Its name in the runtime model.
        operations: The model's operations fused into it, in order; empty if OpenVINO added it.
        rewritten: Names of the other operations fused into it, which OpenVINO put in place of the model's, without
            their numbers. The numbers differ from one compilation to the next.
        kind: Its type, such as "FullyConnected".
        kernel: The implementation, such as "brgconv_avx2_f32".
        precision: Precision in which it computes.
        layout: Order of the dimensions of its results in memory, such as "acdb".
        result: Element type of its results.
    """

    name: str
    operations: tuple[str, ...]
    rewritten: tuple[str, ...] = ()
    kind: str
    kernel: str
    precision: str
    layout: str
    result: str

    def placement(self, device: str) -> str:
        """Return the device, kernel, precisions and layout of the layer as text."""
        return f"{device}: {self.kind} {self.kernel}, {self.precision} to {self.result}, {self.layout}"


def layers_of(compiled_model: Any, source: OpenVINOModel) -> list[Layer]:
    """Return the layers of a compiled model in the order of their execution."""
    layers = []
    for layer in compiled_model.get_runtime_model().get_ordered_ops():
        facts = layer.get_rt_info()
        facts_text = {name: str(facts[name].astype(str)) if name in facts else "" for name in _FACT_KEYS}
        if facts_text["layerType"] in _HELPER_TYPES:
            continue
        operations, rewritten = _split_names(facts_text["originalLayersNames"], source)
        layers.append(
            Layer(
                name=layer.get_friendly_name(),
                operations=tuple(operations),
                rewritten=tuple(rewritten),
                kind=facts_text["layerType"],
                kernel=facts_text["primitiveType"],
                precision=facts_text["runtimePrecision"],
                layout=facts_text["outputLayouts"],
                result=facts_text["outputPrecisions"],
            )
        )
    return layers


_FACT_KEYS = (
    "originalLayersNames",
    "layerType",
    "primitiveType",
    "runtimePrecision",
    "outputLayouts",
    "outputPrecisions",
)


_MOVED_SUFFIX = re.compile(r"(_original|\.\d+)$")
"""Suffix that OpenVINO adds to an operation's name when it inserts a dequantization or an output cast after it."""


_NUMBER = re.compile(r"\d+")


def _split_names(text: str, source: OpenVINOModel) -> tuple[list[str], list[str]]:
    """Split a list of names at commas. Names may contain commas themselves.

    Returns:
        The names of the model's operations, and the other names without their numbers.
    """
    parts, names, others, start = text.split(","), [], [], 0
    while start < len(parts):
        for end in range(len(parts), start, -1):
            name = ",".join(parts[start:end])
            if name not in source.operations:
                name = _MOVED_SUFFIX.sub("", name)
            operation = source.operations.get(name)
            if operation is not None:
                if operation.get_type_name() not in ("Constant", "Parameter", "Result"):
                    names.append(name)
                start = end - 1
                break
        else:
            others.append(_NUMBER.sub("", parts[start]))
        start += 1
    return names, others
