"""Describe the graph that OpenVINO actually runs in terms of its source model. Begin at `describe`.

An executed layer names the model's operations that were fused into it. Only the result of the last operation exists.
The part between two such results becomes one node if a single operator can describe it (a convolution with its bias,
activation and codes). Otherwise it is described by the model's operations, with tensors without values between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qdebug.backends.openvino.layers import Layer
from qdebug.backends.openvino.model import DTYPES, Folded, OpenVINOModel, Port, elements, extents, port, used
from qdebug.model import AttrValue, Graph, Node, QuantParams, Role, TensorInfo
from qdebug.model.dtypes import code_limits, is_integer

__all__ = ["Executed", "describe"]

_PRODUCTS = frozenset(("Convolution", "GroupConvolution", "MatMul"))
_ARRANGES = frozenset(("Reshape", "Squeeze", "Unsqueeze"))
_ON_CODES = frozenset(
    (
        *(*_PRODUCTS, "Add", "Multiply", "Subtract", "Divide", "SquaredDifference", "AvgPool", "MaxPool", "ReduceMean"),
        *("Concat", "Interpolate", "Relu", "Clamp", "PRelu", "Sigmoid", "Tanh", "HSwish", "HSigmoid", "Swish", "Gelu"),
        *("Elu", "Mish", "Exp", "Sqrt"),
    )
)
"""Operations that form one node with the quantization of their result, if they read codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """The executed graph and its taps.

    Args:
        graph: The graph.
        taps: Tensors that executed layers compute, in order, with the results of the model's operations.
        constants: Constants of the graph that are not in the model, because OpenVINO folds them.
        fused: The layer that computes each tensor without values.
        views: Tensors whose recorded codes are read as real numbers, and their producers.
        codes: Tensors that OpenVINO computes as codes and returns as real values, and their quantization.
        inserted: Number of layers of each type that OpenVINO added.
    """

    graph: Graph
    taps: Mapping[str, Port]
    constants: Mapping[str, np.ndarray]
    fused: Mapping[str, str]
    views: Mapping[str, str]
    codes: Mapping[str, QuantParams]
    inserted: Mapping[str, int]


def describe(source: OpenVINOModel, layers: Sequence[Layer], device: str, *, half: bool = False) -> Executed:
    """Describe the graph of a compiled model.

    Args:
        source: The model.
        layers: Its executed layers.
        device: Their device.
        half: Whether they compute in float16.
    """
    ends = {layer.operations[-1]: layer for layer in layers if layer.operations}
    inserted = Counter(layer.kind for layer in layers if not layer.operations)
    readers = {name: layer for layer in layers for name in layer.operations[:1]}
    return _Describer(source, ends, readers, device, half=half).describe(inserted)


class _Describer:
    """Builds the graph, layer by layer.

    Args:
        source: The model.
        ends: The layer that ends at each operation.
        begins: The layer that begins at each operation.
        device: The device of the layers.
        half: Whether they compute in float16.
    """

    def __init__(
        self,
        source: OpenVINOModel,
        ends: Mapping[str, Layer],
        begins: Mapping[str, Layer],
        device: str,
        *,
        half: bool,
    ) -> None:
        self._source, self._device, self._begins = source, device, begins
        finals = [result.input_value(0).get_node().get_friendly_name() for result in source.model.get_results()]
        self._ends: dict[str, Layer | None] = {**dict.fromkeys(finals), **ends}
        self._folded = Folded(source, half=half)
        self._nodes: dict[str, Node] = {}
        self._infos: dict[str, TensorInfo] = {}
        self._constants: dict[str, np.ndarray] = {}
        self._handed_out: dict[str, QuantParams] = {}
        self._fused: dict[str, str] = {}
        self._views: dict[str, str] = {}
        self._placed = ""
        self._layer = ""
        self._origin: tuple[str, ...] = ()

    def describe(self, inserted: Mapping[str, int]) -> Executed:
        """Build the whole graph."""
        taps: dict[str, Port] = {}
        for name, operation in self._source.operations.items():
            if operation.get_type_name() == "Parameter":
                self._read_scale(operation, None)
            if name not in self._ends or operation.get_type_name() in ("Constant", "Parameter"):
                continue
            layer = self._ends[name]
            self._placed = layer.placed(self._device) if layer is not None else ""
            self._layer = f"{layer.kind} {layer.name!r}" if layer is not None else repr(name)
            self._origin = layer.operations if layer is not None and len(layer.operations) > 1 else ()
            self._read_scale(operation, layer)
            self._end(operation)
            if self._casts_codes(operation):
                self._views[self._source.named(operation.output(0))] = f"{self._layer} passes codes on as real numbers"
                continue
            taps |= {self._source.named(value): port(value) for value in operation.outputs() if used(value)}
        graph = self._source.as_graph(list(self._nodes.values()), list(self._infos.values()))
        return Executed(
            graph=graph,
            taps=taps,
            constants=self._constants,
            fused=self._fused,
            views=self._views,
            codes=self._handed_out,
            inserted=inserted,
        )

    def _casts_codes(self, operation: Any) -> bool:
        """Return whether an operation casts codes to real numbers without a scale, and is not an output."""
        if operation.get_type_name() != "Convert" or self._source.named(operation.output(0)) in self._source.outputs:
            return False
        info = self._infos.get(self._source.named(operation.input_value(0)))
        return info is not None and info.quant is not None and operation.get_output_element_type(0).is_real()

    def _end(self, operation: Any) -> None:
        """Add the nodes up to the result of a layer's last operation."""
        value = operation.output(0)
        if operation.get_output_size() > 1 and any(map(used, operation.outputs()[1:])):
            self._plain(operation)
            return
        name = self._source.named(value)
        codes = self._codes(value)
        if codes is not None and operation.get_type_name() != "Convert":
            self._add(operation, Node(name="", op="DequantizeLinear", inputs=(codes,), outputs=(name,)))
            return
        quantized = name in self._infos
        data = self._quantized_data(operation) if quantized else None
        if name in self._handed_out and data is None and (found := self._dequantized(value)) is not None:
            data = self._quantized_data(found[0].get_node())
        if quantized and data is None:
            self._plain(operation)
        elif data is None:
            self._computed(operation, operation, name, quantized=False)
        elif self._is_inner(data) and self._reads_codes(data.get_node()):
            self._computed(operation, data.get_node(), name, quantized=True)
        else:
            node = Node(name="", op="QuantizeLinear", inputs=(self._operand(data),), outputs=(name,))
            self._add(operation, node)

    def _reads_codes(self, operation: Any) -> bool:
        """Return whether an operation, or the one before an activation, is a product or reads only codes."""
        if operation.get_type_name() not in _ON_CODES:
            return False
        inner = operation.input_value(0)
        if _activation(operation) and self._is_inner(inner) and not self._is_read_as_codes(inner):
            return self._reads_codes(inner.get_node())
        if operation.get_type_name() in _PRODUCTS or self._bias(operation) is not None:
            return True
        values = [value for value in operation.input_values() if value.get_element_type().is_real()]
        settings = operation.get_type_name() in ("Interpolate", "PRelu")
        varying = [value for value in values if not settings or self._known(value) is None]
        return bool(varying) and all(map(self._is_read_as_codes, varying))

    def _is_read_as_codes(self, value: Any) -> bool:
        """Return whether an operation reads codes in place of the model's real values."""
        while _keeps_shape(value.get_node()) and not self._has_result(value):
            value = value.get_node().input_value(0)
        if value.get_node().get_type_name() != "Parameter" and not self._has_result(value):
            return self._codes(value) is not None or self._coded_constant(value) is not None
        info = self._infos.get(self._source.named(value))
        return info is not None and info.quant is not None

    def _computed(self, end: Any, operation: Any, name: str, *, quantized: bool) -> None:
        """Add a product with its bias and activation, or another operation, whose result is a tensor.

        Args:
            end: The last operation of the layer.
            operation: The last one before the quantizing operations.
            name: The tensor.
            quantized: Whether it holds codes.
        """
        product, activation = operation, _activation(operation)
        inner = operation.input_value(0)
        if activation and self._is_inner(inner) and not self._is_read_as_codes(inner):
            product = inner.get_node()
        bias = self._bias(product)
        if bias is not None:
            product = bias[0].get_node()
        clamped = quantized and product is not operation and product.get_type_name() in _ON_CODES
        if clamped or (product.get_type_name() in _PRODUCTS and (product is not operation or quantized)):
            attrs = {**self._source.node(product).attrs, **activation}
            inputs = [self._operand(value) for value in product.input_values()]
            inputs += [bias[1]] if bias is not None else []
            op = product.get_type_name()
            self._add(end, Node(name="", op=op, inputs=tuple(inputs), outputs=(name,), attrs=attrs))
        elif not quantized or operation.get_type_name() in _ON_CODES:
            self._plain(operation, end=end, outputs=(name,))
        else:
            inner = self._operand(operation.output(0))
            self._add(end, Node(name="", op="QuantizeLinear", inputs=(inner,), outputs=(name,)))

    def _add(self, operation: Any, node: Node) -> None:
        """Add a node that stands for a whole layer."""
        name = operation.get_friendly_name()
        self._nodes[name] = replace(node, name=name, placement=self._placed, origin=self._origin)

    def _plain(self, operation: Any, *, end: Any = None, outputs: tuple[str, ...] | None = None) -> None:
        """Add an operation in its form in the model."""
        node = self._source.node(operation)
        values = operation.input_values()
        if node.op in _ARRANGES:  # the output shape determines the operation
            values = [values[0], *(each for each in values[1:] if self._has_result(each))]
        inputs = tuple(self._operand(value) for value in values)
        name = node.name if end is None else end.get_friendly_name()
        self._nodes[name] = replace(
            node,
            name=name,
            inputs=inputs,
            outputs=outputs or node.outputs,
            placement=self._placed,
            origin=self._origin,
        )

    def _operand(self, value: Any) -> str:
        """Return the name of an operand, and add its producer if no layer ends there."""
        name = self._source.named(value)
        coded = self._coded_constant(value)
        if coded is not None:
            return coded
        operation = value.get_node()
        title = operation.get_friendly_name()
        if operation.get_type_name() in ("Constant", "Parameter") or title in self._ends:
            return name
        if self._folded.has(title):
            if self._arranged_constant(value) or self._arranged_codes(value):
                return name
            self._constants[name] = self._folded.values(title)
            self._infos[name] = TensorInfo(
                name=name,
                shape=self._folded.values(title).shape,
                dtype=DTYPES.get(value.get_element_type().get_type_name()),
                role=Role.CONSTANT,
            )
            return name
        if _keeps_shape(operation):
            return self._operand(operation.input_value(0))
        codes = self._codes(value) or self._same_codes(operation)
        if codes is not None:
            return codes
        if title not in self._nodes:
            if operation.get_output_size() == 1:
                self._computed(operation, operation, _inner_name(name), quantized=False)
            else:
                outputs = (_inner_name(self._source.named(each)) if used(each) else "" for each in operation.outputs())
                self._plain(operation, outputs=tuple(outputs))
            self._fused |= {each: self._layer for each in self._nodes[title].outputs if each}
        return _inner_name(name)

    def _arranged_constant(self, value: Any) -> bool:
        """Add a node that rearranges a constant, and its result as a constant.

        Return False if the value is not constant.
        """
        operation, name = value.get_node(), self._source.named(value)
        if operation.get_type_name() not in _ARRANGES:
            return False
        data = operation.input_value(0)
        coded = self._coded_constant(data)
        if coded is None and data.get_node().get_type_name() != "Constant":
            return False
        source = coded or self._source.named(data)
        array = self._folded.values(operation.get_friendly_name())
        dtype = DTYPES[value.get_element_type().get_type_name()]
        quant = None
        if coded is not None:
            info = self._infos[coded]
            codes, quant, dtype = self._source.constant(coded), info.quant, info.dtype or ""
            if quant is not None and quant.axis not in (None, 0):
                return False
            if quant is not None and quant.per_channel and array.shape[:1] != quant.scale.shape:
                quant = None
            array = codes.reshape(array.shape)
        self._constants[name] = array
        self._infos[name] = TensorInfo(name=name, shape=array.shape, dtype=dtype, role=Role.CONSTANT, quant=quant)
        title = operation.get_friendly_name()
        self._nodes[title] = Node(name=title, op=operation.get_type_name(), inputs=(source,), outputs=(name,))
        return True

    def _arranged_codes(self, value: Any) -> bool:
        """Add a constant of codes that is rearranged after dequantization. Return False if the value is not one.

        Scales are rearranged like the codes, and must end up along a single dimension.
        """
        chain, source = [], value
        while source.get_node().get_type_name() in (*_ARRANGES, "Transpose"):
            chain.append(source.get_node())
            source = source.get_node().input_value(0)
        coded = self._coded_constant(source) if chain else None
        quant = None if coded is None else self._infos[coded].quant
        if coded is None or quant is None:
            return False
        codes = self._source.constant(coded)
        line = [-1 if axis == quant.axis else 1 for axis in range(codes.ndim)]
        arrays = [codes, *(np.broadcast_to(a.reshape(line), codes.shape) for a in (quant.scale, quant.zero_point))]
        for operation in reversed(chain):
            if operation.get_type_name() == "Transpose":
                order = self._known(operation.input_value(1))
                if order is None:
                    return False
                arrays = [array.transpose(order.astype(int)) for array in arrays]
            else:
                shape = tuple(extent or 0 for extent in extents(operation.output(0)) or ())
                arrays = [array.reshape(shape) for array in arrays]
        arranged, scale, zero = arrays
        wide = [axis for axis in range(scale.ndim) if any(np.any(a != a.take([0], axis)) for a in (scale, zero))]
        first = tuple(slice(None) if axis in wide else 0 for axis in range(scale.ndim))
        if len(wide) > 1:
            return False
        arranged_quant = replace(quant, scale=scale[first], zero_point=zero[first], axis=wide[0] if wide else None)
        name = self._source.named(value)
        self._constants[name] = arranged
        self._infos[name] = TensorInfo(
            name=name, shape=arranged.shape, dtype=quant.dtype, role=Role.CONSTANT, quant=arranged_quant
        )
        return True

    def _has_result(self, value: Any) -> bool:
        """Return whether a result is a tensor of the graph."""
        operation = value.get_node()
        return operation.get_type_name() in ("Constant", "Parameter") or operation.get_friendly_name() in self._ends

    def _is_inner(self, value: Any) -> bool:
        """Return whether a result stays inside a layer: apart from its shape, nothing outside reads it."""
        title = value.get_node().get_friendly_name()
        readers = [each.get_node().get_type_name() for each in value.get_target_inputs()]
        is_inside = not self._has_result(value) and not self._folded.has(title)
        return is_inside and readers.count("ShapeOf") >= len(readers) - 1

    # Biases

    def _bias(self, operation: Any) -> tuple[Any, str] | None:
        """Return the product to which an addition adds a bias, and the bias; None for other additions."""
        if operation.get_type_name() != "Add":
            return None
        for scaled, summand in (operation.input_values(), operation.input_values()[::-1]):
            data = self._without_factor(scaled)
            product = data.get_node()
            if product.get_type_name() in _PRODUCTS and self._is_inner(data):
                size = (extents(data) or (None,))[1 if product.get_type_name() != "MatMul" else -1]
                flat = product.get_type_name() == "MatMul" and len(extents(data) or ()) != 2
                bias = None if flat else self._flat_constant(summand, size)
                return None if bias is None else (data, bias)
        return None

    def _without_factor(self, value: Any) -> Any:
        """Return the operand, looking through multiplications by 1."""
        operation = value.get_node()
        if operation.get_type_name() != "Multiply" or operation.get_friendly_name() in self._ends:
            return value
        for data, operand in (operation.input_values(), operation.input_values()[::-1]):
            factor = self._known(operand)
            if factor is not None and factor.size and bool(np.all(factor == 1)):
                return data
        return value

    def _flat_constant(self, value: Any, size: int | None) -> str | None:
        """Return the one-dimensional constant of a bias, looking through operations that only rearrange it."""
        value = self._without_factor(value)
        while value.get_node().get_type_name() in _ARRANGES:
            coded = self._coded_constant(value)
            if coded is not None:
                return coded
            value = value.get_node().input_value(0)
        coded = self._coded_constant(value)
        if coded is not None:
            return coded
        title = value.get_node().get_friendly_name()
        constant = value.get_node().get_type_name() == "Constant"
        if not constant and not self._folded.has(title):
            return None
        array = elements(value.get_node()) if constant else self._folded.values(title)
        if array.size != size:
            return None
        name = self._source.named(value)
        if array.ndim != 1:
            name = f"{name} flat"
            self._constants[name] = array.reshape(-1)
            info = TensorInfo(name=name, shape=(array.size,), dtype=str(array.dtype), role=Role.CONSTANT)
            self._infos[name] = info
        return name

    # Quantization

    def _coded_constant(self, value: Any) -> str | None:
        """Return the constant of codes that is dequantized to a result, and note its scale."""
        dequantized = self._dequantized(value)
        if dequantized is None or dequantized[0].get_node().get_type_name() != "Constant":
            return None
        codes, quant = dequantized
        name = self._source.named(codes)
        self._infos[name] = replace(self._source.described(name, codes), quant=quant)
        return name

    def _codes(self, value: Any) -> str | None:
        """Return the tensor of codes that is dequantized to a result, if a layer computes it or it is an input."""
        dequantized = self._dequantized(value)
        if dequantized is None:
            return None
        codes, quant = dequantized
        name = self._source.named(codes)
        if codes.get_node().get_friendly_name() in self._ends:
            return name if name in self._infos else None
        if codes.get_node().get_type_name() == "Parameter":
            return name if name in self._infos and self._infos[name].quant == quant else None
        data = self._quantized_data(codes.get_node())
        before = None if data is None else self._infos.get(self._source.named(data))
        same = before is not None and before.quant is not None and before.quant == quant
        return before.name if before is not None and same else None  # codes of the same scale again

    def _same_codes(self, operation: Any) -> str | None:
        """Return the tensor of codes that a FakeQuantize leaves unchanged; None if it changes them."""
        if operation.get_type_name() != "FakeQuantize":
            return None
        data = self._operand(operation.input_value(0))
        info = self._infos.get(data)
        if info is None or info.quant is None:
            return None
        grid = self._grid(operation, info.quant.dtype)
        return data if grid == info.quant else None

    def _dequantized(self, value: Any) -> tuple[Any, QuantParams] | None:
        """Return the codes that are dequantized to a result, and their scale: Convert, Subtract, Multiply."""
        scale = zero = None
        rank = len(extents(value) or ())
        for _ in range(_CHAIN):
            operation = value.get_node()
            kind = operation.get_type_name()
            if kind == "Convert":
                codes = operation.input_value(0)
                dtype = DTYPES.get(codes.get_element_type().get_type_name(), "")
                real = operation.get_output_element_type(0).is_real()
                if scale is None or not real or not is_integer(dtype) or len(extents(codes) or ()) != rank:
                    return None
                if _is_cast(codes.get_node()):
                    return None
                return _quant_of(codes, dtype, scale, zero)
            if kind not in ("Multiply", "Subtract"):
                return None
            parameter = self._known(operation.input_value(1))
            if parameter is None or (kind == "Multiply") is not (scale is None):
                return None
            if kind == "Multiply":
                scale = parameter
            elif zero is None:
                zero = parameter
            else:
                return None
            value = operation.input_value(0)
        return None

    def _known(self, value: Any) -> np.ndarray | None:
        """Return the elements of a constant, folded or not."""
        operation = value.get_node()
        if operation.get_type_name() == "Constant":
            return elements(operation) if operation.get_element_type().get_type_name() in DTYPES else None
        name = operation.get_friendly_name()
        return self._folded.values(name) if self._folded.has(name) else None

    def _read_scale(self, operation: Any, layer: Layer | None) -> None:
        """Note the scale of a layer's quantized result: from its reader, else from its quantizer."""
        value = operation.output(0)
        name = self._source.named(value)
        dtype = DTYPES.get(value.get_element_type().get_type_name(), "")
        if not is_integer(dtype):
            self._note_codes_handed_out(operation, layer)
            return
        quant = None
        for reader in value.get_target_inputs():
            quant = quant or self._scale_of_reader(reader.get_node(), value)
        quant = quant or self._scale_of_maker(operation, dtype)
        if quant is not None:
            self._infos[name] = replace(self._source.described(name, value), quant=quant)

    def _note_codes_handed_out(self, operation: Any, layer: Layer | None) -> None:
        """Note the scale of a result that a layer computes as codes, although it holds real values in the model."""
        value = operation.output(0)
        dtype = DTYPES.get(layer.result, "") if layer is not None else ""
        real = None if is_integer(dtype) else self._dequantized(value)
        if layer is not None and (real is not None or operation.get_type_name() == "FakeQuantize"):
            dtype = dtype if is_integer(dtype) else self._dtype_read(value)
        single = operation.get_output_size() == 1 or operation.get_type_name() == "MaxPool"
        name = self._source.named(value)
        if dtype not in ("int8", "uint8") or not single or name in self._source.outputs:
            return
        quant = None if real is None or real[1].dtype != dtype else real[1]
        if operation.get_type_name() == "FakeQuantize":
            quant = self._grid(operation, dtype, same=False)
        elif operation.get_type_name() in _KEEPS_CODES:
            data = self._operand(operation.input_value(0))
            info = self._infos.get(data)
            quant = info.quant if info is not None and info.quant is not None and info.quant.dtype == dtype else None
        if quant is not None and not quant.per_channel:
            self._handed_out[name] = quant
            self._infos[name] = replace(self._source.described(name, value), dtype=dtype, quant=quant)

    def _dtype_read(self, value: Any) -> str:
        """Return the dtype of the codes, if OpenVINO passes codes to a layer that reads real values in the model."""
        titles = [reader.get_node().get_friendly_name() for reader in value.get_target_inputs()]
        dtypes = [DTYPES.get(self._begins[title].precision, "") for title in titles if title in self._begins]
        return next((dtype for dtype in dtypes if is_integer(dtype)), "")

    def _grid(self, operation: Any, dtype: str, *, same: bool = True) -> QuantParams | None:
        """Return the codes of a FakeQuantize's result; None if it has several ranges.

        Args:
            operation: The FakeQuantize.
            dtype: Logical dtype of the codes.
            same: Whether its result must equal its input up to rounding.
        """
        bounds = [self._known(value) for value in operation.input_values()[1:]]
        if any(each is None or each.size != 1 for each in bounds):
            return None
        low, high, first, last = (float(each.reshape(())) for each in bounds if each is not None)
        levels, (least, most) = int(operation.get_attributes()["levels"]), code_limits(dtype)
        if (same and (low, high) != (first, last)) or not first <= 0 <= last or first == last or levels != 256:
            return None
        scale = np.array((last - first) / (levels - 1), np.float32)
        zero = round((least or 0) - first / float(scale))
        if not (least or 0) <= zero <= (most or 0):
            return None
        return QuantParams(dtype=dtype, scale=scale, zero_point=np.array(zero))

    def _scale_of_reader(self, reader: Any, codes: Any) -> QuantParams | None:
        for _ in range(_CHAIN):
            dequantized = self._dequantized(reader.output(0))
            if dequantized is not None:
                return dequantized[1] if port(dequantized[0]) == port(codes) else None
            after = list(reader.output(0).get_target_inputs())
            if reader.get_type_name() not in ("Convert", "Subtract") or len(after) != 1:
                return None
            reader = after[0].get_node()
        return None

    def _scale_of_maker(self, operation: Any, dtype: str) -> QuantParams | None:
        """Return the scale with which a FakeQuantize and a Convert compute codes."""
        if operation.get_type_name() != "Convert":
            return None
        quantizing = operation.input_value(0).get_node()
        if quantizing.get_type_name() != "FakeQuantize":
            return None
        bounds = [self._known(value) for value in quantizing.input_values()[1:]]
        low, high, first, last = (
            None if each is None or each.size != 1 else float(each.reshape(())) for each in bounds
        )
        if low is None or high is None or first is None or last is None or last <= first or high <= low:
            return None
        scale = np.array((high - low) / (last - first), np.float32)
        least, most = code_limits(dtype)
        zero = round(first - low / float(scale))
        if least is None or most is None or not least <= zero <= most:
            return None
        return QuantParams(dtype=dtype, scale=scale, zero_point=np.array(zero), qmin=round(first), qmax=round(last))

    def _quantized_data(self, operation: Any) -> Any:
        """Return the data that a FakeQuantize and a Convert quantize; None if they do not quantize."""
        if operation.get_type_name() == "FakeQuantize":
            info = self._infos.get(self._source.named(operation.output(0)))
            quant = None if info is None else info.quant
            same = quant is not None and self._grid(operation, quant.dtype) is not None
            return operation.input_value(0) if same else None
        if operation.get_type_name() != "Convert":
            return None
        quantizing = operation.input_value(0).get_node()
        if quantizing.get_type_name() != "FakeQuantize" or quantizing.get_friendly_name() in self._ends:
            return None
        return quantizing.input_value(0)


_KEEPS_CODES = frozenset(("MaxPool", "Reshape", "Squeeze", "Unsqueeze", "Transpose"))
"""Operations whose result has the same codes as their input."""

_CHAIN = 4
"""Maximum number of operations from codes to their real values."""


def _quant_of(codes: Any, dtype: str, scale: np.ndarray, zero: np.ndarray | None) -> tuple[Any, QuantParams] | None:
    """Return codes and their quantization; None for scales along several axes."""
    zero = np.zeros(1) if zero is None else zero
    wide = [axis for axis, extent in enumerate(scale.shape) if extent > 1]
    if len(wide) > 1 or (zero.size > 1 and zero.shape != scale.shape):
        return None
    rank = len(extents(codes) or ())
    axis = wide[0] + rank - scale.ndim if wide else None
    try:
        quant = QuantParams(
            dtype=dtype,
            scale=scale.reshape(-1).astype(np.float32),
            zero_point=zero.reshape(-1).astype(np.float64),
            axis=axis,
        )
    except ValueError:
        return None
    return codes, quant


_GIVES_WHOLE = frozenset(("FakeQuantize", "Round", "Floor", "Ceiling", "Clamp", "Minimum", "Maximum"))
"""Operations that may precede a Convert to codes, since they round or clamp to the range of codes."""


def _is_cast(operation: Any) -> bool:
    """Return whether an operation is a cast of the model that truncates real numbers, rather than producing codes."""
    if operation.get_type_name() != "Convert" or not operation.get_input_element_type(0).is_real():
        return False
    return operation.input_value(0).get_node().get_type_name() not in _GIVES_WHOLE


def _inner_name(name: str) -> str:
    """Return a name for a tensor without values, since a recording could have values under the model's name."""
    return f"{name} (fused)"


def _keeps_shape(operation: Any) -> bool:
    """Return whether an operation that arranges elements leaves the shape unchanged."""
    if operation.get_type_name() not in _ARRANGES:
        return False
    before, after = extents(operation.input_value(0)), extents(operation.output(0))
    return before is not None and before == after and before.count(None) <= 1


def _activation(operation: Any) -> dict[str, AttrValue]:
    """Return an activation as an attribute of the preceding product; empty for other operations."""
    if operation.get_type_name() == "Relu":
        return {"activation": "Relu", "activation_params": ()}
    if operation.get_type_name() == "Clamp":
        attrs = operation.get_attributes()
        return {"activation": "Clip", "activation_params": (float(attrs["min"]), float(attrs["max"]))}
    return {}
