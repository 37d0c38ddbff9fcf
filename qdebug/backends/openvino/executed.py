"""Describe the graph that OpenVINO actually runs in terms of its source model. Begin at `describe`.

An executed layer names the model's operations that were fused into it. Only the result of the last operation exists.
The operations between two such results become one node if a single operator can describe them, such as a convolution
with its bias, activation and requantization. Otherwise each becomes a node, and the tensors between have no values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qdebug.backends.openvino.layers import Layer
from qdebug.backends.openvino.model import (
    DTYPES,
    FoldedValues,
    OpenVINOModel,
    Port,
    elements,
    extents,
    has_reader,
    port,
)
from qdebug.model import AttrValue, Graph, Node, QuantParams, Role, TensorInfo
from qdebug.model.dtypes import code_limits, is_integer

__all__ = ["ExecutedGraph", "describe"]

_PRODUCTS = frozenset(("Convolution", "GroupConvolution", "MatMul"))
_RESHAPING_OPS = frozenset(("Reshape", "Squeeze", "Unsqueeze"))
_OPS_ON_CODES = frozenset(
    (
        *(*_PRODUCTS, "Add", "Multiply", "Subtract", "Divide", "SquaredDifference", "AvgPool", "MaxPool", "ReduceMean"),
        *("Concat", "Interpolate", "Relu", "Clamp", "PRelu", "Sigmoid", "Tanh", "HSwish", "HSigmoid", "Swish", "Gelu"),
        *("Elu", "Mish", "Exp", "Sqrt"),
    )
)
"""Operations that are described as one node with the quantization of their result, if they read codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedGraph:
    """The executed graph and its taps.

    Args:
        graph: The graph.
        taps: Tensors that executed layers compute, in order, with the operation result that holds each.
        constants: Constants of the graph that are not in the model, because OpenVINO computes them by folding.
        fused: Tensors without values, with the layer inside which each is computed.
        views: Tensors that are not recorded because they only cast recorded codes to real numbers, with the reason.
        codes: Tensors that OpenVINO computes as codes and returns as real values, with their quantization.
        inserted: Number of layers of each type that OpenVINO added.
    """

    graph: Graph
    taps: Mapping[str, Port]
    constants: Mapping[str, np.ndarray]
    fused: Mapping[str, str]
    views: Mapping[str, str]
    codes: Mapping[str, QuantParams]
    inserted: Mapping[str, int]


def describe(source: OpenVINOModel, layers: Sequence[Layer], device: str, *, is_half: bool = False) -> ExecutedGraph:
    """Describe the graph of a compiled model.

    Args:
        source: The model.
        layers: Its executed layers.
        device: Their device.
        is_half: Whether they compute in float16.
    """
    layer_ending_at = {layer.operations[-1]: layer for layer in layers if layer.operations}
    inserted_counts = Counter(layer.kind for layer in layers if not layer.operations)
    layer_beginning_at = {name: layer for layer in layers for name in layer.operations[:1]}
    return _Describer(source, layer_ending_at, layer_beginning_at, device, is_half=is_half).describe(inserted_counts)


class _Describer:
    """Builds the graph, layer by layer.

    Args:
        source: The model.
        layer_ending_at: The layer that ends at each operation.
        layer_beginning_at: The layer that begins at each operation.
        device: The device of the layers.
        is_half: Whether they compute in float16.
    """

    def __init__(
        self,
        source: OpenVINOModel,
        layer_ending_at: Mapping[str, Layer],
        layer_beginning_at: Mapping[str, Layer],
        device: str,
        *,
        is_half: bool,
    ) -> None:
        self._source, self._device, self._layer_beginning_at = source, device, layer_beginning_at
        final_operations = [
            result.input_value(0).get_node().get_friendly_name() for result in source.model.get_results()
        ]
        self._layer_ending_at: dict[str, Layer | None] = {**dict.fromkeys(final_operations), **layer_ending_at}
        self._folded = FoldedValues(source, is_half=is_half)
        self._nodes: dict[str, Node] = {}
        self._infos: dict[str, TensorInfo] = {}
        self._constants: dict[str, np.ndarray] = {}
        self._exposed_quants: dict[str, QuantParams] = {}
        self._layer_of_fused: dict[str, str] = {}
        self._view_reasons: dict[str, str] = {}
        self._placement = ""
        self._layer_title = ""
        self._origin: tuple[str, ...] = ()

    def describe(self, inserted_counts: Mapping[str, int]) -> ExecutedGraph:
        """Build the whole graph."""
        taps: dict[str, Port] = {}
        for name, operation in self._source.operations.items():
            if operation.get_type_name() == "Parameter":
                self._note_scale(operation, None)
            if name not in self._layer_ending_at or operation.get_type_name() in ("Constant", "Parameter"):
                continue
            layer = self._layer_ending_at[name]
            self._placement = layer.placement(self._device) if layer is not None else ""
            self._layer_title = f"{layer.kind} {layer.name!r}" if layer is not None else repr(name)
            self._origin = layer.operations if layer is not None and len(layer.operations) > 1 else ()
            self._note_scale(operation, layer)
            self._add_layer_result(operation)
            if self._casts_codes(operation):
                self._view_reasons[self._source.name_of(operation.output(0))] = (
                    f"{self._layer_title} passes codes on as real numbers"
                )
                continue
            taps |= {self._source.name_of(value): port(value) for value in operation.outputs() if has_reader(value)}
        graph = self._source.make_graph(list(self._nodes.values()), list(self._infos.values()))
        return ExecutedGraph(
            graph=graph,
            taps=taps,
            constants=self._constants,
            fused=self._layer_of_fused,
            views=self._view_reasons,
            codes=self._exposed_quants,
            inserted=inserted_counts,
        )

    def _casts_codes(self, operation: Any) -> bool:
        """Return whether an operation casts codes to real numbers without a scale, and is not an output."""
        if operation.get_type_name() != "Convert" or self._source.name_of(operation.output(0)) in self._source.outputs:
            return False
        info = self._infos.get(self._source.name_of(operation.input_value(0)))
        return info is not None and info.quant is not None and operation.get_output_element_type(0).is_real()

    def _add_layer_result(self, operation: Any) -> None:
        """Add the nodes that compute the result of a layer's last operation."""
        value = operation.output(0)
        if operation.get_output_size() > 1 and any(map(has_reader, operation.outputs()[1:])):
            self._add_model_node(operation)
            return
        name = self._source.name_of(value)
        codes = self._codes_of(value)
        if codes is not None and operation.get_type_name() != "Convert":
            self._add_layer_node(operation, Node(name="", op="DequantizeLinear", inputs=(codes,), outputs=(name,)))
            return
        is_quantized = name in self._infos
        data = self._quantized_data(operation) if is_quantized else None
        if name in self._exposed_quants and data is None and (dequantized := self._find_dequantized(value)) is not None:
            data = self._quantized_data(dequantized[0].get_node())
        if is_quantized and data is None:
            self._add_model_node(operation)
        elif data is None:
            self._add_computing_node(operation, operation, name, is_quantized=False)
        elif self._is_inner(data) and self._reads_codes(data.get_node()):
            self._add_computing_node(operation, data.get_node(), name, is_quantized=True)
        elif self._is_inner(data) and (clamp := self._find_clamp_of_codes(data.get_node())) is not None:
            self._add_layer_node(operation, replace(clamp, outputs=(name,)))
        else:
            node = Node(name="", op="QuantizeLinear", inputs=(self._operand_name(data),), outputs=(name,))
            self._add_layer_node(operation, node)

    def _reads_codes(self, operation: Any) -> bool:
        """Return whether an operation is a product or reads only codes. An activation is judged by its producer."""
        if operation.get_type_name() not in _OPS_ON_CODES:
            return False
        data = operation.input_value(0)
        if _activation_attrs(operation) and self._is_inner(data) and not self._is_read_as_codes(data):
            return self._reads_codes(data.get_node())
        bias = self._find_bias(operation)
        product = operation if bias is None else bias[0].get_node()
        if product.get_type_name() in _PRODUCTS:
            return not any(map(self._is_read_as_real_numbers, product.input_values()))
        values = [value for value in operation.input_values() if value.get_element_type().is_real()]
        has_settings = operation.get_type_name() in ("Interpolate", "PRelu")
        data_values = [value for value in values if not has_settings or self._constant_elements(value) is None]
        return bool(data_values) and all(map(self._is_read_as_codes, data_values))

    def _is_read_as_codes(self, value: Any) -> bool:
        """Return whether layers read a result as codes, although it is real in the model."""
        while _keeps_shape(value.get_node()) and not self._has_result(value):
            value = value.get_node().input_value(0)
        if value.get_node().get_type_name() != "Parameter" and not self._has_result(value):
            return self._codes_of(value) is not None or self._coded_constant(value) is not None
        info = self._infos.get(self._source.name_of(value))
        return info is not None and info.quant is not None

    def _is_read_as_real_numbers(self, value: Any) -> bool:
        """Return whether a result is not constant and is a tensor of real numbers, which another layer computes."""
        is_tensor = self._has_result(value) and value.get_node().get_type_name() != "Constant"
        return is_tensor and not self._is_read_as_codes(value)

    def _find_clamp_of_codes(self, operation: Any) -> Node | None:
        """Return the Clamp of codes as which OpenVINO runs a Minimum of a Maximum, or the reverse, with constants."""
        bounds: dict[str, float] = {}
        value = operation.output(0)
        while value.get_node().get_type_name() in {"Maximum", "Minimum"} - set(bounds) and self._is_inner(value):
            limits = [self._constant_elements(operand) for operand in value.get_node().input_values()]
            constant = next((limit for limit in limits if limit is not None and limit.size == 1), None)
            data_operands = [value.get_node().input_value(at) for at, limit in enumerate(limits) if limit is None]
            if constant is None or len(data_operands) != 1:
                return None
            bounds[value.get_node().get_type_name()] = float(constant.item())
            value = data_operands[0]
        if len(bounds) < 2 or not bounds["Maximum"] <= bounds["Minimum"] or not self._is_read_as_codes(value):
            return None
        attrs: dict[str, AttrValue] = {"min": bounds["Maximum"], "max": bounds["Minimum"]}
        return Node(name="", op="Clamp", inputs=(self._operand_name(value),), attrs=attrs)

    def _add_computing_node(self, last_operation: Any, operation: Any, name: str, *, is_quantized: bool) -> None:
        """Add a node that computes a tensor: a product with its bias and activation, or another operation.

        Args:
            last_operation: The last operation of the layer.
            operation: The last operation before the quantizing operations.
            name: The tensor.
            is_quantized: Whether it holds codes.
        """
        product, activation = operation, _activation_attrs(operation)
        data = operation.input_value(0)
        if activation and self._is_inner(data) and not self._is_read_as_codes(data):
            product = data.get_node()
        bias = self._find_bias(product)
        if bias is not None:
            product = bias[0].get_node()
        is_clamped = is_quantized and product is not operation and product.get_type_name() in _OPS_ON_CODES
        if is_clamped or (product.get_type_name() in _PRODUCTS and (product is not operation or is_quantized)):
            attrs = {**self._source.make_node(product).attrs, **activation}
            inputs = [self._operand_name(value) for value in product.input_values()]
            inputs += [bias[1]] if bias is not None else []
            op = product.get_type_name()
            self._add_layer_node(
                last_operation, Node(name="", op=op, inputs=tuple(inputs), outputs=(name,), attrs=attrs)
            )
        elif not is_quantized or operation.get_type_name() in _OPS_ON_CODES:
            self._add_model_node(operation, last_operation=last_operation, outputs=(name,))
        else:
            data = self._operand_name(operation.output(0))
            self._add_layer_node(last_operation, Node(name="", op="QuantizeLinear", inputs=(data,), outputs=(name,)))

    def _add_layer_node(self, operation: Any, node: Node) -> None:
        """Add a node that describes a whole layer."""
        name = operation.get_friendly_name()
        self._nodes[name] = replace(node, name=name, placement=self._placement, origin=self._origin)

    def _add_model_node(
        self, operation: Any, *, last_operation: Any = None, outputs: tuple[str, ...] | None = None
    ) -> None:
        """Add an operation as a node of its own, as in the model."""
        node = self._source.make_node(operation)
        values = operation.input_values()
        if node.op in _RESHAPING_OPS:  # the output shape determines the operation
            values = [values[0], *(value for value in values[1:] if self._has_result(value))]
        inputs = tuple(self._operand_name(value) for value in values)
        name = node.name if last_operation is None else last_operation.get_friendly_name()
        self._nodes[name] = replace(
            node,
            name=name,
            inputs=inputs,
            outputs=outputs or node.outputs,
            placement=self._placement,
            origin=self._origin,
        )

    def _operand_name(self, value: Any) -> str:
        """Return the name of an operand. If no layer ends at its producer, add a node for it."""
        name = self._source.name_of(value)
        coded_constant = self._coded_constant(value)
        if coded_constant is not None:
            return coded_constant
        operation = value.get_node()
        title = operation.get_friendly_name()
        if operation.get_type_name() in ("Constant", "Parameter") or title in self._layer_ending_at:
            return name
        if self._folded.has(title):
            if self._add_arranged_constant(value) or self._add_arranged_codes(value):
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
            return self._operand_name(operation.input_value(0))
        codes = self._codes_of(value) or self._codes_kept_by(operation)
        if codes is not None:
            return codes
        if title not in self._nodes:
            if operation.get_output_size() == 1:
                self._add_computing_node(operation, operation, _inner_name(name), is_quantized=False)
            else:
                outputs = (
                    _inner_name(self._source.name_of(output)) if has_reader(output) else ""
                    for output in operation.outputs()
                )
                self._add_model_node(operation, outputs=tuple(outputs))
            self._layer_of_fused |= {output: self._layer_title for output in self._nodes[title].outputs if output}
        return _inner_name(name)

    def _add_arranged_constant(self, value: Any) -> bool:
        """Add a node that rearranges a constant, and its result as a constant.

        Return False if the value is not a rearranged constant, or its scales cannot be described.
        """
        operation, name = value.get_node(), self._source.name_of(value)
        if operation.get_type_name() not in _RESHAPING_OPS:
            return False
        data = operation.input_value(0)
        coded_constant = self._coded_constant(data)
        if coded_constant is None and data.get_node().get_type_name() != "Constant":
            return False
        source = coded_constant or self._source.name_of(data)
        array = self._folded.values(operation.get_friendly_name())
        dtype = DTYPES[value.get_element_type().get_type_name()]
        quant = None
        if coded_constant is not None:
            info = self._infos[coded_constant]
            codes, quant, dtype = self._source.constant(coded_constant), info.quant, info.dtype or ""
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

    def _add_arranged_codes(self, value: Any) -> bool:
        """Add a constant whose codes are rearranged after dequantization. Return False if the value is not one.

        Scales are rearranged like the codes, and must end up along a single dimension.
        """
        operations, source = [], value
        while source.get_node().get_type_name() in (*_RESHAPING_OPS, "Transpose"):
            operations.append(source.get_node())
            source = source.get_node().input_value(0)
        coded_constant = self._coded_constant(source) if operations else None
        quant = None if coded_constant is None else self._infos[coded_constant].quant
        if coded_constant is None or quant is None:
            return False
        codes = self._source.constant(coded_constant)
        shape_of_scales = [-1 if axis == quant.axis else 1 for axis in range(codes.ndim)]
        arrays = [
            codes,
            *(
                np.broadcast_to(parameter.reshape(shape_of_scales), codes.shape)
                for parameter in (quant.scale, quant.zero_point)
            ),
        ]
        for operation in reversed(operations):
            if operation.get_type_name() == "Transpose":
                order = self._constant_elements(operation.input_value(1))
                if order is None:
                    return False
                arrays = [array.transpose(order.astype(int)) for array in arrays]
            else:
                shape = tuple(size or 0 for size in extents(operation.output(0)) or ())
                arrays = [array.reshape(shape) for array in arrays]
        arranged_array, scale, zero = arrays
        varying_axes = [
            axis
            for axis in range(scale.ndim)
            if any(np.any(parameter != parameter.take([0], axis)) for parameter in (scale, zero))
        ]
        index = tuple(slice(None) if axis in varying_axes else 0 for axis in range(scale.ndim))
        if len(varying_axes) > 1:
            return False
        arranged_quant = replace(
            quant, scale=scale[index], zero_point=zero[index], axis=varying_axes[0] if varying_axes else None
        )
        name = self._source.name_of(value)
        self._constants[name] = arranged_array
        self._infos[name] = TensorInfo(
            name=name, shape=arranged_array.shape, dtype=quant.dtype, role=Role.CONSTANT, quant=arranged_quant
        )
        return True

    def _has_result(self, value: Any) -> bool:
        """Return whether a result is a tensor of the graph."""
        operation = value.get_node()
        return (
            operation.get_type_name() in ("Constant", "Parameter")
            or operation.get_friendly_name() in self._layer_ending_at
        )

    def _is_inner(self, value: Any) -> bool:
        """Return whether a result stays inside a layer: no more than one operation reads more than its shape."""
        title = value.get_node().get_friendly_name()
        readers = [reader.get_node().get_type_name() for reader in value.get_target_inputs()]
        is_inside = not self._has_result(value) and not self._folded.has(title)
        return is_inside and readers.count("ShapeOf") >= len(readers) - 1

    # Biases

    def _find_bias(self, operation: Any) -> tuple[Any, str] | None:
        """Return the product to which an addition adds a bias, and the bias; None for other additions."""
        if operation.get_type_name() != "Add":
            return None
        for data_operand, summand in (operation.input_values(), operation.input_values()[::-1]):
            data = self._skip_unit_factor(data_operand)
            product = data.get_node()
            if product.get_type_name() in _PRODUCTS and self._is_inner(data):
                size = (extents(data) or (None,))[1 if product.get_type_name() != "MatMul" else -1]
                is_unsupported = product.get_type_name() == "MatMul" and len(extents(data) or ()) != 2
                bias = None if is_unsupported else self._bias_constant(summand, size)
                return None if bias is None else (data, bias)
        return None

    def _skip_unit_factor(self, value: Any) -> Any:
        """Return the other operand if a result is a multiplication by 1, else the result itself."""
        operation = value.get_node()
        if operation.get_type_name() != "Multiply" or operation.get_friendly_name() in self._layer_ending_at:
            return value
        for data, operand in (operation.input_values(), operation.input_values()[::-1]):
            factor = self._constant_elements(operand)
            if factor is not None and factor.size and bool(np.all(factor == 1)):
                return data
        return value

    def _bias_constant(self, value: Any, size: int | None) -> str | None:
        """Return the one-dimensional constant of a bias, looking through operations that only rearrange it."""
        value = self._skip_unit_factor(value)
        while value.get_node().get_type_name() in _RESHAPING_OPS:
            coded_constant = self._coded_constant(value)
            if coded_constant is not None:
                return coded_constant
            value = value.get_node().input_value(0)
        coded_constant = self._coded_constant(value)
        if coded_constant is not None:
            return coded_constant
        title = value.get_node().get_friendly_name()
        is_constant = value.get_node().get_type_name() == "Constant"
        if not is_constant and not self._folded.has(title):
            return None
        array = elements(value.get_node()) if is_constant else self._folded.values(title)
        if array.size != size:
            return None
        name = self._source.name_of(value)
        if array.ndim != 1:
            name = f"{name} flat"
            self._constants[name] = array.reshape(-1)
            info = TensorInfo(name=name, shape=(array.size,), dtype=str(array.dtype), role=Role.CONSTANT)
            self._infos[name] = info
        return name

    # Quantization

    def _coded_constant(self, value: Any) -> str | None:
        """Return the constant whose codes are dequantized to a result, and note its scale; None for other results."""
        dequantized = self._find_dequantized(value)
        if dequantized is None or dequantized[0].get_node().get_type_name() != "Constant":
            return None
        codes, quant = dequantized
        name = self._source.name_of(codes)
        self._infos[name] = replace(self._source.tensor_info(name, codes), quant=quant)
        return name

    def _codes_of(self, value: Any) -> str | None:
        """Return the codes that are dequantized to a result, if a layer computes them or they are an input."""
        dequantized = self._find_dequantized(value)
        if dequantized is None:
            return None
        codes, quant = dequantized
        name = self._source.name_of(codes)
        if codes.get_node().get_friendly_name() in self._layer_ending_at:
            return name if name in self._infos else None
        if codes.get_node().get_type_name() == "Parameter":
            return name if name in self._infos and self._infos[name].quant == quant else None
        data = self._quantized_data(codes.get_node())
        input_info = None if data is None else self._infos.get(self._source.name_of(data))
        has_same_scale = input_info is not None and input_info.quant is not None and input_info.quant == quant
        # Quantizing dequantized codes with their own scale gives the same codes.
        return input_info.name if input_info is not None and has_same_scale else None

    def _codes_kept_by(self, operation: Any) -> str | None:
        """Return the tensor of codes that a FakeQuantize leaves unchanged; None if it changes them."""
        if operation.get_type_name() != "FakeQuantize":
            return None
        data = self._operand_name(operation.input_value(0))
        info = self._infos.get(data)
        if info is None or info.quant is None:
            return None
        grid = self._fake_quantize_grid(operation, info.quant.dtype)
        return data if grid == info.quant else None

    def _find_dequantized(self, value: Any) -> tuple[Any, QuantParams] | None:
        """Return the codes that a Convert, a Subtract and a Multiply dequantize to a result, and their quantization."""
        scale = zero = None
        rank = len(extents(value) or ())
        for _ in range(_MAX_DEQUANTIZE_OPS):
            operation = value.get_node()
            kind = operation.get_type_name()
            if kind == "Convert":
                codes = operation.input_value(0)
                dtype = DTYPES.get(codes.get_element_type().get_type_name(), "")
                is_real = operation.get_output_element_type(0).is_real()
                if scale is None or not is_real or not is_integer(dtype) or len(extents(codes) or ()) != rank:
                    return None
                if _is_truncating_cast(codes.get_node()):
                    return None
                return _quant_of(codes, dtype, scale, zero)
            if kind not in ("Multiply", "Subtract"):
                return None
            parameter = self._constant_elements(operation.input_value(1))
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

    def _constant_elements(self, value: Any) -> np.ndarray | None:
        """Return the elements of a constant, folded or not."""
        operation = value.get_node()
        if operation.get_type_name() == "Constant":
            return elements(operation) if operation.get_element_type().get_type_name() in DTYPES else None
        name = operation.get_friendly_name()
        return self._folded.values(name) if self._folded.has(name) else None

    def _note_scale(self, operation: Any, layer: Layer | None) -> None:
        """Note the scale of a layer's quantized result: from its reader, else from its quantizer."""
        value = operation.output(0)
        name = self._source.name_of(value)
        dtype = DTYPES.get(value.get_element_type().get_type_name(), "")
        if not is_integer(dtype):
            self._note_exposed_codes(operation, layer)
            return
        quant = None
        for reader in value.get_target_inputs():
            quant = quant or self._scale_of_reader(reader.get_node(), value)
        quant = quant or self._scale_of_producer(operation, dtype)
        if quant is not None:
            self._infos[name] = replace(self._source.tensor_info(name, value), quant=quant)

    def _note_exposed_codes(self, operation: Any, layer: Layer | None) -> None:
        """Note the scale of a result that a layer computes as codes, although it holds real values in the model."""
        value = operation.output(0)
        dtype = DTYPES.get(layer.result, "") if layer is not None else ""
        dequantized = None if is_integer(dtype) else self._find_dequantized(value)
        if layer is not None and (dequantized is not None or operation.get_type_name() == "FakeQuantize"):
            dtype = dtype if is_integer(dtype) else self._dtype_read_by_layers(value)
        has_one_result = operation.get_output_size() == 1 or operation.get_type_name() == "MaxPool"
        name = self._source.name_of(value)
        if dtype not in ("int8", "uint8") or not has_one_result or name in self._source.outputs:
            return
        quant = None if dequantized is None or dequantized[1].dtype != dtype else dequantized[1]
        if operation.get_type_name() == "FakeQuantize":
            quant = self._fake_quantize_grid(operation, dtype, must_equal_input=False)
        elif operation.get_type_name() in _SCALE_KEEPING_OPS:
            data = self._operand_name(operation.input_value(0))
            info = self._infos.get(data)
            quant = info.quant if info is not None and info.quant is not None and info.quant.dtype == dtype else None
        if quant is not None and not quant.per_channel:
            self._exposed_quants[name] = quant
            self._infos[name] = replace(self._source.tensor_info(name, value), dtype=dtype, quant=quant)

    def _dtype_read_by_layers(self, value: Any) -> str:
        """Return the dtype of the codes that a layer reads in place of a real result of the model; "" for none."""
        reader_names = [reader.get_node().get_friendly_name() for reader in value.get_target_inputs()]
        dtypes = [
            DTYPES.get(self._layer_beginning_at[title].precision, "")
            for title in reader_names
            if title in self._layer_beginning_at
        ]
        return next((dtype for dtype in dtypes if is_integer(dtype)), "")

    def _fake_quantize_grid(self, operation: Any, dtype: str, *, must_equal_input: bool = True) -> QuantParams | None:
        """Return the quantization by a FakeQuantize; None unless it has 256 levels and a single range that includes 0.

        Args:
            operation: The FakeQuantize.
            dtype: Logical dtype of the codes.
            must_equal_input: Whether its ranges of input and output must be equal.
        """
        bounds = [self._constant_elements(value) for value in operation.input_values()[1:]]
        if any(bound is None or bound.size != 1 for bound in bounds):
            return None
        input_low, input_high, output_low, output_high = (
            float(bound.reshape(())) for bound in bounds if bound is not None
        )
        levels, (qmin, qmax) = int(operation.get_attributes()["levels"]), code_limits(dtype)
        if (
            (must_equal_input and (input_low, input_high) != (output_low, output_high))
            or not output_low <= 0 <= output_high
            or output_low == output_high
            or levels != 256
        ):
            return None
        scale = np.array((output_high - output_low) / (levels - 1), np.float32)
        zero = round((qmin or 0) - output_low / float(scale))
        if not (qmin or 0) <= zero <= (qmax or 0):
            return None
        return QuantParams(dtype=dtype, scale=scale, zero_point=np.array(zero))

    def _scale_of_reader(self, reader: Any, codes: Any) -> QuantParams | None:
        for _ in range(_MAX_DEQUANTIZE_OPS):
            dequantized = self._find_dequantized(reader.output(0))
            if dequantized is not None:
                return dequantized[1] if port(dequantized[0]) == port(codes) else None
            readers = list(reader.output(0).get_target_inputs())
            if reader.get_type_name() not in ("Convert", "Subtract") or len(readers) != 1:
                return None
            reader = readers[0].get_node()
        return None

    def _scale_of_producer(self, operation: Any, dtype: str) -> QuantParams | None:
        """Return the scale with which a FakeQuantize and a Convert compute codes."""
        if operation.get_type_name() != "Convert":
            return None
        quantizer = operation.input_value(0).get_node()
        if quantizer.get_type_name() != "FakeQuantize":
            return None
        bounds = [self._constant_elements(value) for value in quantizer.input_values()[1:]]
        input_low, input_high, output_low, output_high = (
            None if bound is None or bound.size != 1 else float(bound.reshape(())) for bound in bounds
        )
        if (
            input_low is None
            or input_high is None
            or output_low is None
            or output_high is None
            or output_high <= output_low
            or input_high <= input_low
        ):
            return None
        scale = np.array((input_high - input_low) / (output_high - output_low), np.float32)
        lowest_code, highest_code = code_limits(dtype)
        zero = round(output_low - input_low / float(scale))
        if lowest_code is None or highest_code is None or not lowest_code <= zero <= highest_code:
            return None
        return QuantParams(
            dtype=dtype, scale=scale, zero_point=np.array(zero), qmin=round(output_low), qmax=round(output_high)
        )

    def _quantized_data(self, operation: Any) -> Any:
        """Return the data that a FakeQuantize, or a Convert after one, quantizes; None for other operations."""
        if operation.get_type_name() == "FakeQuantize":
            info = self._infos.get(self._source.name_of(operation.output(0)))
            quant = None if info is None else info.quant
            has_same_grid = quant is not None and self._fake_quantize_grid(operation, quant.dtype) is not None
            return operation.input_value(0) if has_same_grid else None
        if operation.get_type_name() != "Convert":
            return None
        quantizer = operation.input_value(0).get_node()
        if quantizer.get_type_name() != "FakeQuantize" or quantizer.get_friendly_name() in self._layer_ending_at:
            return None
        return quantizer.input_value(0)


_SCALE_KEEPING_OPS = frozenset(("MaxPool", "Reshape", "Squeeze", "Unsqueeze", "Transpose"))
"""Operations whose result has the scale of their input."""

_MAX_DEQUANTIZE_OPS = 4
"""Maximum number of operations that dequantize codes."""


def _quant_of(codes: Any, dtype: str, scale: np.ndarray, zero: np.ndarray | None) -> tuple[Any, QuantParams] | None:
    """Return codes and their quantization; None if scales vary along several axes or are not valid."""
    zero = np.zeros(1) if zero is None else zero
    varying_axes = [axis for axis, extent in enumerate(scale.shape) if extent > 1]
    if len(varying_axes) > 1 or (zero.size > 1 and zero.shape != scale.shape):
        return None
    rank = len(extents(codes) or ())
    axis = varying_axes[0] + rank - scale.ndim if varying_axes else None
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


_INTEGER_OPS = frozenset(("FakeQuantize", "Round", "Floor", "Ceiling", "Clamp", "Minimum", "Maximum"))
"""Operations that may precede a Convert to codes, since they round or clamp to the range of codes."""


def _is_truncating_cast(operation: Any) -> bool:
    """Return whether an operation casts real numbers to integers by truncation, rather than computing codes."""
    if operation.get_type_name() != "Convert" or not operation.get_input_element_type(0).is_real():
        return False
    return operation.input_value(0).get_node().get_type_name() not in _INTEGER_OPS


def _inner_name(name: str) -> str:
    """Name a tensor without values. Under the model's name, a recording of another runtime may have values."""
    return f"{name} (fused)"


def _keeps_shape(operation: Any) -> bool:
    """Return whether an operation is a reshape that leaves the shape unchanged."""
    if operation.get_type_name() not in _RESHAPING_OPS:
        return False
    input_shape, output_shape = extents(operation.input_value(0)), extents(operation.output(0))
    return input_shape is not None and input_shape == output_shape and input_shape.count(None) <= 1


def _activation_attrs(operation: Any) -> dict[str, AttrValue]:
    """Return an activation as attributes of the product before it; empty for other operations."""
    if operation.get_type_name() == "Relu":
        return {"activation": "Relu", "activation_params": ()}
    if operation.get_type_name() == "Clamp":
        attrs = operation.get_attributes()
        return {"activation": "Clip", "activation_params": (float(attrs["min"]), float(attrs["max"]))}
    return {}
