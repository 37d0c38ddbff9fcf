"""Facts about a tensor besides its values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from qdebug.model.json_object import JsonObject
from qdebug.model.quant import QuantParams

__all__ = ["Role", "TensorInfo"]


class Role(StrEnum):
    """The role of a tensor in its graph.

    Examples:
        >>> qdebug.open_recording("int8.h5").graph.tensors["x"].role
        <Role.INPUT: 'input'>
    """

    ACTIVATION = "activation"
    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo(JsonObject):
    """Facts about one named tensor of a graph.

    Args:
        name: Its name, exactly as in the framework.
        shape: Extent of each dimension, None for extents that vary; None altogether if unknown.
        dtype: Logical dtype of the stored elements (the codes, if quantized); None if unknown.
        role: Its role in the graph.
        layout: Order of its dimensions ("NCHW", "NHWC", "NCHW16c"), or None if unknown.
        quant: Quantization of codes; None if the elements are real numbers.
        stands_for: Name of the source model's tensor whose values this tensor holds in a different form (as codes or
            dequantized), if the structure of the model reveals it.

    Examples:
        >>> qdebug.TensorInfo(name="x", shape=(None, 8), dtype="int8").shape
        (None, 8)
    """

    json_keys = "name dtype shape layout quant"

    name: str
    shape: tuple[int | None, ...] | None = None
    dtype: str | None = None
    role: Role = Role.ACTIVATION
    layout: str | None = None
    quant: QuantParams | None = None
    stands_for: str | None = None
