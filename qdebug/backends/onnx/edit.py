"""Edit nodes of a quantized ONNX model: float weights, more scales, wider codes, a corrected bias.

The model must be in QDQ form, with QuantizeLinear and DequantizeLinear around the nodes of the float network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qdebug.backends.onnx.write import node_proto
from qdebug.backends.protocol import NewPart, NodeEdit
from qdebug.errors import BackendError
from qdebug.model import QuantParams, operators
from qdebug.numerics.affine import quantize

if TYPE_CHECKING:
    import onnx

__all__ = ["edit", "replace_parts", "tensors"]

_Q, _DQ = "QuantizeLinear", "DequantizeLinear"
_OPS_WITH_BIAS = ("Conv", "ConvTranspose", "Gemm")
_CONTRIB = "com.microsoft"
_WIDE_OPSET, _AXIS_OPSET = 21, 13
"""First versions of the standard operator set whose QuantizeLinear supports 16-bit codes, and scales along an axis.

The QuantizeLinear of com.microsoft always supports both.
"""


def edit(model: Path, edits: Sequence[NodeEdit], out: Path) -> None:
    """Write a copy of a model with the given nodes changed.

    Args:
        model: The quantized model.
        edits: The changes.
        out: The file to write.

    Raises:
        BackendError: The model cannot be read or written, or does not have such a node in QDQ form.
    """
    proto = _load(model)
    editor = _Editor(proto)
    for node_edit in edits:
        editor.apply(node_edit)
    _save(proto, editor, out, check=True)


def replace_parts(model: Path, parts: Sequence[NewPart], out: Path) -> None:
    """Write a copy of a model in which new nodes compute some tensors.

    Args:
        model: The model.
        parts: The new nodes.
        out: The file to write.

    Raises:
        BackendError: The model cannot be read or written, or needs another version of an operator set.
    """
    proto = _load(model)
    editor = _Editor(proto)
    for number, part in enumerate(parts):
        editor.replace_part(part, f"fixed{number}/")
    _save(proto, editor, out, check=False)  # the checker rejects some models that run


def _save(proto: onnx.ModelProto, editor: _Editor, out: Path, *, check: bool) -> None:
    import onnx

    editor.drop_unread()
    try:
        if check:
            onnx.checker.check_model(proto)
        onnx.save(proto, out)
    except Exception as error:
        raise BackendError(f"The changed model cannot be written: {error}") from error


def tensors(model: Path) -> frozenset[str]:
    """Return the names of the tensors that a model's nodes compute. An edit names its node by one of them.

    Args:
        model: The quantized model.

    Raises:
        BackendError: The model cannot be read.
    """
    return frozenset(name for node in _load(model, weights=False).graph.node for name in node.output if name)


def _load(model: Path, *, weights: bool = True) -> onnx.ModelProto:
    import onnx

    try:
        return onnx.load(model, load_external_data=weights)
    except Exception as error:  # protobuf raises many types of exceptions
        raise BackendError(f"{model.name!r} cannot be read as an ONNX model: {error}") from error


class _Editor:
    """Edits a model in place.

    Args:
        proto: The model.
    """

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._proto, self._graph = proto, proto.graph
        self._constants = {entry.name: entry for entry in proto.graph.initializer}
        self._constant_count = 0
        self._opset = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 1)

    def apply(self, node_edit: NodeEdit) -> None:
        """Change one node."""
        compute_node, quantizer = self._find_node_and_quantizer(node_edit)
        if node_edit.weight is not None:
            self._set_weight(compute_node, node_edit)
        if node_edit.wide_sum:
            self._unsign_weight(compute_node)
        if node_edit.bias is not None:
            self._set_bias(compute_node, node_edit.bias, node_edit.bias_codes)
        if node_edit.quant is not None and quantizer is not None:
            self._requantize(quantizer, node_edit.quant)
        if node_edit.keep_float and quantizer is not None:
            self._bypass(quantizer, self._insert_clamp(quantizer, node_edit.clamp))

    def replace_part(self, part: NewPart, prefix: str) -> None:
        """Compute a tensor by new nodes. The names of new tensors, nodes and constants get a prefix."""
        from onnx import helper, numpy_helper

        versions = {
            "" if entry.domain == "ai.onnx" else entry.domain: entry.version for entry in self._proto.opset_import
        }
        for domain, version in part.opset.items():
            if versions.setdefault(domain, version) != version:
                name = domain or "ai.onnx"
                raise BackendError(
                    f"The model has version {versions[domain]} of the operator set {name!r}, not {version}.",
                    hint="Convert both models to one operator set.",
                )
        del self._proto.opset_import[:]
        self._proto.opset_import.extend(helper.make_opsetid(*entry) for entry in versions.items())
        position, producer = next(
            (entry for entry in enumerate(self._graph.node) if part.tensor in entry[1].output), (0, None)
        )
        if producer is None:
            raise BackendError(f"No node of the model computes {part.tensor!r}.")
        old_outputs = [f"{prefix}{name}, replaced" if name == part.tensor else name for name in producer.output]
        del producer.output[:]
        producer.output.extend(old_outputs)
        names = {"": "", **part.leaves, part.result: part.tensor}
        for node in reversed(part.nodes):
            inputs, outputs = (
                tuple(names.get(name, f"{prefix}{name}") for name in old_names)
                for old_names in (node.inputs, node.outputs)
            )
            try:
                new_node = node_proto(replace(node, name=f"{prefix}{node.name}", inputs=inputs, outputs=outputs))
            except (TypeError, ValueError) as error:
                raise BackendError(f"Node {node.name!r} cannot be written: {error}.") from error
            self._graph.node.insert(position + 1, new_node)
        self._graph.initializer.extend(
            numpy_helper.from_array(np.asarray(array), f"{prefix}{name}") for name, array in part.constants.items()
        )

    def drop_unread(self) -> None:
        """Drop nodes and constants that are not read."""
        read_names = {entry.name for entry in self._graph.output}
        for node in reversed(list(self._graph.node)):
            if read_names.isdisjoint(node.output):
                self._graph.node.remove(node)
            else:
                read_names.update(node.input)
        for entry in [entry for entry in self._graph.initializer if entry.name not in read_names]:
            self._graph.initializer.remove(entry)

    # -- lookup ------------------------------------------------------------------------------------------------------

    def _producer(self, tensor: str) -> Any:
        return next((node for node in self._graph.node if tensor in node.output), None)

    def _readers(self, tensor: str) -> list[Any]:
        return [node for node in self._graph.node if tensor in node.input]

    def _find_node_and_quantizer(self, node_edit: NodeEdit) -> tuple[Any, Any]:
        """Return the node that an edit refers to, and the quantizer of its result (None without one)."""
        quantizer = self._producer(node_edit.tensor)
        if quantizer is None:
            raise BackendError(
                f"The model has no tensor {node_edit.tensor!r}; it is not the recorded model, or it is not in the "
                "QDQ format.",
                hint="Record the quantized model as it is: --backend onnxruntime:opt=none.",
            )
        if quantizer.op_type != _Q:
            if node_edit.quant is not None:
                raise BackendError(
                    f"{node_edit.tensor!r} is computed by {quantizer.op_type}, whose codes cannot be changed."
                )
            return quantizer, None
        compute_node = self._producer(quantizer.input[0])
        needs_product = node_edit.wide_sum or any(value is not None for value in (node_edit.weight, node_edit.bias))
        while (
            compute_node is not None
            and needs_product
            and (len(compute_node.input) == 1 or operators.of(compute_node.op_type).activation)
        ):
            compute_node = self._producer(compute_node.input[0])
        if compute_node is None and needs_product:
            raise BackendError(f"The model does not compute the input that {node_edit.tensor!r} is rounded from.")
        return compute_node, quantizer

    # -- changes -----------------------------------------------------------------------------------------------------

    def _add_constant(self, array: np.ndarray, title: str) -> str:
        from onnx import numpy_helper

        self._constant_count += 1
        name = f"qdebug/{title}/{self._constant_count}"
        proto = numpy_helper.from_array(np.ascontiguousarray(array), name)
        self._graph.initializer.append(proto)
        self._constants[name] = proto
        return name

    def _constant_value(self, name: str) -> np.ndarray:
        from onnx import numpy_helper

        if name not in self._constants:
            raise BackendError(f"{name!r} is not a constant of the model.")
        return np.asarray(numpy_helper.to_array(self._constants[name]))

    def _insert(self, next_node: Any, node: Any) -> None:
        self._graph.node.insert(list(self._graph.node).index(next_node), node)

    def _set_weight(self, compute_node: Any, node_edit: NodeEdit) -> None:
        weight, codes = np.asarray(node_edit.weight, np.float32), node_edit.codes
        if codes is None:
            compute_node.input[1] = self._add_constant(weight, "weight")
            return
        shape = () if codes.axis is None else (codes.scale.size,)
        names = [
            self._add_constant(quantize(weight, codes), "weight"),
            self._add_constant(codes.scale.reshape(shape).astype(np.float32), "scale"),
            self._add_constant(codes.zero_point.reshape(shape).astype(codes.dtype), "zero"),
        ]
        compute_node.input[1] = self._insert_dequantize(compute_node, names, codes.axis)

    def _set_bias(self, compute_node: Any, real_bias: np.ndarray, codes: QuantParams | None) -> None:
        """Write a bias, in codes or in float."""
        if compute_node.op_type not in _OPS_WITH_BIAS:
            raise BackendError(f"{compute_node.op_type} {compute_node.name!r} takes no bias.")
        values = np.asarray(real_bias, np.float32)
        if len(compute_node.input) < 3 or not compute_node.input[2]:
            del compute_node.input[2:]
            compute_node.input.append("")
            values = values.ravel()
        if codes is None:
            compute_node.input[2] = self._add_constant(values, "bias")
            return
        shape = () if codes.axis is None else codes.scale.shape
        names = [
            self._add_constant(quantize(values, codes), "bias"),
            self._add_constant(codes.scale.reshape(shape).astype(np.float32), "scale"),
            self._add_constant(codes.zero_point.reshape(shape).astype(codes.dtype), "zero"),
        ]
        compute_node.input[2] = self._insert_dequantize(compute_node, names, codes.axis)

    def _unsign_weight(self, compute_node: Any) -> None:
        """Convert a weight to unsigned codes: sums of two uint8 * int8 products overflow 16 bits on some processors.

        https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html, "When to use reduce-range".
        """
        reader = self._producer(compute_node.input[1])
        if reader is None or reader.op_type != _DQ:
            raise BackendError(f"The weight of {compute_node.op_type} {compute_node.name!r} is not quantized.")
        codes, scales = self._constant_value(reader.input[0]), self._constant_value(reader.input[1])
        if codes.dtype == np.uint8:  # an earlier edit converted it already
            return
        if codes.dtype != np.int8:
            raise BackendError(
                f"The weight of {compute_node.op_type} {compute_node.name!r} has codes of {codes.dtype}, not int8."
            )
        zero = self._constant_value(reader.input[2]) if len(reader.input) > 2 else np.zeros(scales.shape, np.int8)
        unsigned_arrays = [(array.astype(np.int16) + 128).astype(np.uint8) for array in (codes, zero)]
        names = [
            self._add_constant(unsigned_arrays[0], "weight"),
            reader.input[1],
            self._add_constant(unsigned_arrays[1], "zero"),
        ]
        axis = next((attribute.i for attribute in reader.attribute if attribute.name == "axis"), None)
        compute_node.input[1] = self._insert_dequantize(compute_node, names, axis if scales.size > 1 else None)

    def _insert_dequantize(self, next_node: Any, names: Sequence[str], axis: int | None) -> str:
        """Insert a DequantizeLinear for constants before a node, and return its result."""
        from onnx import helper

        output = f"{names[0]}/real"
        node = helper.make_node(_DQ, names, [output], name=output)
        if axis is not None:
            node.attribute.append(helper.make_attribute("axis", axis))
            self._use_contrib_before(node, min_opset=_AXIS_OPSET)
        self._insert(next_node, node)
        return output

    def _use_contrib_before(self, node: Any, *, min_opset: int) -> None:
        """Move a node to the com.microsoft domain if the model's operator set is older than the given version."""
        if self._opset >= min_opset:
            return
        node.domain = _CONTRIB
        if not any(entry.domain == _CONTRIB for entry in self._proto.opset_import):
            self._proto.opset_import.add(domain=_CONTRIB, version=1)

    def _requantize(self, quantizer: Any, quant: QuantParams) -> None:
        """Change the codes of a quantizer, and adapt all its readers."""
        scale = self._add_constant(np.asarray(quant.scale[0], np.float32), "scale")
        zero = self._add_constant(np.asarray(quant.zero_point[0], quant.dtype), "zero")
        is_wide = np.dtype(quant.dtype).itemsize > 1
        for node in (quantizer, *self._readers(quantizer.output[0])):
            if node.op_type not in (_Q, _DQ):
                raise BackendError(f"The codes of {node.op_type} {node.name!r} cannot be changed.")
            node.input[1] = scale
            if len(node.input) > 2:
                node.input[2] = zero
            else:
                node.input.append(zero)
            if is_wide:
                self._use_contrib_before(node, min_opset=_WIDE_OPSET)

    def _insert_clamp(self, quantizer: Any, clamp: tuple[float | None, float | None]) -> str:
        """Return a result without quantization, clamped as by the Relu or Clip that the quantizer may have absorbed."""
        from onnx import helper

        if clamp == (None, None):
            return str(quantizer.input[0])
        bounds = ["" if end is None else self._add_constant(np.asarray(end, np.float32), "bound") for end in clamp]
        output = f"{quantizer.output[0]}/real"
        self._insert(quantizer, helper.make_node("Clip", [quantizer.input[0], *bounds], [output], name=output))
        return output

    def _bypass(self, quantizer: Any, unrounded: str) -> None:
        """Redirect all readers of the dequantized codes to the unrounded values."""
        for reader in self._readers(quantizer.output[0]):
            if reader.op_type != _DQ:
                raise BackendError(f"{reader.op_type} {reader.name!r} needs codes, but the edit makes its input real.")
            for node in self._readers(reader.output[0]):
                for slot, name in enumerate(node.input):
                    if name == reader.output[0]:
                        node.input[slot] = unrounded
            if any(output.name == reader.output[0] for output in self._graph.output):
                from onnx import helper

                name = reader.output[0]
                self._insert(reader, helper.make_node("Identity", [unrounded], [name], name=f"{name}/real"))
                self._graph.node.remove(reader)
