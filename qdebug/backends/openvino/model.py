"""Read model files with OpenVINO: its IR, and ONNX and LiteRT files that OpenVINO converts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.backends.onnx.tensor import unpack
from qdebug.backends.protocol import check_shapes
from qdebug.errors import BackendError, UsageError
from qdebug.model import AttrValue, Graph, Node, Role, TensorInfo
from qdebug.regular_file import open_binary

__all__ = [
    "DTYPES",
    "SUFFIXES",
    "FoldedValues",
    "OpenVINOModel",
    "OpenVINOReader",
    "Port",
    "convert_errors",
    "elements",
    "extents",
    "has_reader",
    "port",
    "reader",
]

SUFFIXES = (".xml", ".onnx", ".tflite")
"""File suffixes that OpenVINO reads."""

DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "boolean": "bool",
        **{f"{kind[0]}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
        "f16": "float16",
        "f32": "float32",
        "f64": "float64",
        "bf16": "bfloat16",
        "i4": "int4",
        "u4": "uint4",
        "u2": "uint2",
        "f8e4m3": "float8_e4m3fn",
        "f8e5m2": "float8_e5m2",
        "f8e8m0": "float8_e8m0fnu",
        "f4e2m1": "float4_e2m1fn",
    }
)
"""Logical dtypes by OpenVINO's name of an element type. Types without a known numeric format are left out."""

_NON_NODE_OPS = frozenset(("Parameter", "Constant"))
_BODY_OPS = frozenset(("If", "Loop", "TensorIterator"))

Port = tuple[str, int]
"""An operation's name and the index of one of its results."""


class OpenVINOModel:
    """A model that OpenVINO has read.

    Args:
        path: The file.
        model: The `openvino.Model`.
        sha256: Hash of the file in hexadecimal; for an IR, it includes the weights.
    """

    def __init__(self, path: Path, model: Any, sha256: str) -> None:
        self.path = path
        self.name = path.name
        self.sha256 = sha256
        self.model = model
        self.operations: Mapping[str, Any] = MappingProxyType(_operations_by_name(model))
        """Operations by name, in topological order, without operations that only mark outputs."""
        self.names: Mapping[Port, str] = MappingProxyType(_tensor_names(self.operations.values()))
        """Names of tensors."""
        self.inputs: Sequence[str] = tuple(self.names[port(value)] for value in model.inputs)
        results = [result.input_value(0) for result in model.get_results()]
        self.outputs: Sequence[str] = tuple(dict.fromkeys(self.names[port(value)] for value in results))
        self.output_ports: Mapping[str, Port] = MappingProxyType(
            {self.names[port(value)]: port(value) for value in results}
        )
        self._constants = {
            self.names[name, 0]: operation
            for name, operation in self.operations.items()
            if operation.get_type_name() == "Constant"
        }
        self.unreadable: Mapping[str, str] = MappingProxyType(
            {
                self.names[port(value)]: f"its elements are {value.get_element_type().get_type_name()}"
                for operation in self.operations.values()
                for value in operation.outputs()
                if value.get_element_type().get_type_name() not in DTYPES
            }
        )
        """Tensors that cannot be recorded, with the reason."""

    @cached_property
    def graph(self) -> Graph:
        """The model's graph before anything is fused."""
        return self.make_graph(
            [self.make_node(operation) for operation in self.operations.values() if _is_node(operation)]
        )

    @cached_property
    def constants(self) -> Sequence[str]:
        """Names of the constants, in the model's order."""
        return self.constants_of(self.graph)

    def constants_of(self, graph: Graph) -> Sequence[str]:
        """Return the names of this model's constants that a graph has and that can be read."""
        return tuple(name for name in self._constants if graph.is_constant(name) and name not in self.unreadable)

    def fixed(self, shapes: Mapping[str, tuple[int, ...]]) -> OpenVINOModel:
        """Return the model with free dimensions of its inputs fixed.

        Args:
            shapes: The shapes, by input.

        Raises:
            InputError: A name is not an input, or a shape does not match the model.
            BackendError: OpenVINO refuses the resulting shapes.
        """
        check_shapes([self.input_info(self.names[port(value)], value) for value in self.model.inputs], shapes)
        values = {self.names[port(value)]: value for value in self.model.inputs}
        with convert_errors(f"OpenVINO refused these shapes for the model {self.name!r}"):
            self.model.reshape({values[name]: list(shape) for name, shape in shapes.items()})
            return OpenVINOModel(self.path, self.model, self.sha256)

    def with_shapes(self) -> OpenVINOModel:
        """Return the model itself, since its file states shapes."""
        return self

    def constant(self, name: str) -> np.ndarray:
        """Return the elements of one constant.

        Raises:
            UsageError: The constant does not exist, or its element type is unknown.
        """
        if name not in self._constants or name in self.unreadable:
            reason = f": {self.unreadable[name]}" if name in self.unreadable else ""
            raise UsageError(f"Model {self.name!r} has no constant {name!r} that can be read{reason}.")
        return elements(self._constants[name])

    @property
    def stateful(self) -> bool:
        """Whether a run may depend on earlier runs."""
        return any(operation.get_type_name() in ("ReadValue", "Assign") for operation in self.operations.values())

    @property
    def bodies(self) -> Sequence[str]:
        """Names of the operations that run subgraphs, whose tensors are not recorded."""
        return [name for name, operation in self.operations.items() if operation.get_type_name() in _BODY_OPS]

    def name_of(self, value: Any) -> str:
        """Return the name of an operation's result."""
        return self.names[port(value)]

    def make_node(self, operation: Any) -> Node:
        """Describe one operation."""
        return Node(
            name=operation.get_friendly_name(),
            op=operation.get_type_name(),
            inputs=tuple(self.name_of(value) for value in operation.input_values()),
            outputs=tuple(self.name_of(value) if has_reader(value) else "" for value in operation.outputs()),
            attrs=_attrs(operation),
        )

    def make_graph(self, nodes: Sequence[Node], extra_infos: Sequence[TensorInfo] = ()) -> Graph:
        """Return a graph of nodes between this model's inputs and outputs.

        Args:
            nodes: The nodes.
            extra_infos: Descriptions of tensors that override the model's, or are not in it.
        """
        infos = {info.name: info for info in extra_infos}
        names = {*self.inputs, *self.outputs, *(name for node in nodes for name in (*node.inputs, *node.outputs))}
        for operation in self.operations.values():
            for value in operation.outputs():
                name = self.name_of(value)
                if name in names and name not in infos:
                    infos[name] = self.tensor_info(name, value)
        return Graph(
            nodes,
            tensors=infos.values(),
            inputs=self.inputs,
            outputs=self.outputs,
            name=self.model.get_friendly_name(),
        )

    def input_info(self, name: str, value: Any) -> TensorInfo:
        """Describe an input. Free extents are None."""
        dtype = DTYPES.get(value.get_element_type().get_type_name())
        return TensorInfo(name=name, shape=extents(value), dtype=dtype, role=Role.INPUT)

    def tensor_info(self, name: str, value: Any) -> TensorInfo:
        """Describe an operation's result. The shape is None if an extent varies."""
        constant = value.get_node().get_type_name() == "Constant"
        roles = ((name in self.inputs, Role.INPUT), (name in self.outputs, Role.OUTPUT), (constant, Role.CONSTANT))
        shape = extents(value)
        return TensorInfo(
            name=name,
            shape=None if shape is None or None in shape else shape,
            dtype=DTYPES.get(value.get_element_type().get_type_name()),
            role=next((role for is_role, role in roles if is_role), Role.ACTIVATION),
        )


class OpenVINOReader:
    """Reader of OpenVINO IR files."""

    suffixes = SUFFIXES

    def open(self, path: Path) -> OpenVINOModel:
        """Read a model file.

        Raises:
            UsageError: The file is missing, or OpenVINO cannot read files of this kind.
            BackendError: OpenVINO refused it.
        """
        import openvino

        if path.suffix.lower() not in SUFFIXES:
            raise UsageError(
                f"OpenVINO cannot read {path.name!r}; it reads files that end in: {', '.join(SUFFIXES)}.",
                hint="Give a file of one of these kinds.",
            )
        digest = hashlib.sha256()
        weights = path.with_suffix(".bin")
        for file in (path, weights) if path.suffix.lower() == ".xml" and weights.exists() else (path,):
            try:
                with open_binary(file) as stream:
                    while block := stream.read(1 << 20):
                        digest.update(block)
            except OSError as error:
                reason = error.strerror or error
                raise UsageError(
                    f"The model file {str(file)!r} cannot be read: {reason}.", hint="Check the path."
                ) from error
        with convert_errors(f"OpenVINO refused the model {path.name!r}"):
            return OpenVINOModel(path, openvino.Core().read_model(path), digest.hexdigest())


reader = OpenVINOReader()
"""The reader that `qdebug.backends` loads for .xml files."""


def elements(constant: Any) -> np.ndarray:
    """Return the elements of a Constant in their logical dtype."""
    dtype = DTYPES[constant.get_element_type().get_type_name()]
    shape, data = tuple(constant.get_output_shape(0)), constant.get_data()
    return unpack(np.ascontiguousarray(data).view(np.uint8).reshape(-1) if data.size else b"", dtype, shape)


def extents(value: Any) -> tuple[int | None, ...] | None:
    """Return the shape of a result, with None for each extent that varies; None if the rank varies."""
    shape = value.get_partial_shape()
    if shape.rank.is_dynamic:
        return None
    return tuple(None if dimension.is_dynamic else dimension.get_length() for dimension in shape)


def has_reader(value: Any) -> bool:
    """Return whether a result of an operation has a reader."""
    return bool(value.get_target_inputs())


@contextmanager
def convert_errors(failure: str) -> Iterator[None]:
    """Raise OpenVINO's exceptions as a BackendError with a short message."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError) as error:
        text = _essential_text(str(error)) or f"{type(error).__name__} without a message"
        text = text if len(text) <= 300 else f"{text[:297]}..."
        raise BackendError(
            f"{failure}: {text.rstrip('.')}.", hint="Check that the model compiles in OpenVINO itself."
        ) from error


def _essential_text(text: str) -> str:
    """Return the essential part of a message, without OpenVINO's source locations."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "Summary:" in lines:
        lines = lines[lines.index("Summary:") + 1 :]
    else:
        lines = [line for line in lines if not line.startswith(("Exception from ", "FrontEnd API failed"))]
    return " ".join(line.removeprefix("-- ") for line in lines)


def port(value: Any) -> Port:
    """Return the name of the operation that computes a result, and the result's index."""
    return value.get_node().get_friendly_name(), value.get_index()


def _operations_by_name(model: Any) -> dict[str, Any]:
    """Return the operations by name, without Result nodes. Repeated names are made unique in the model."""
    operations_by_name: dict[str, Any] = {}
    for operation in model.get_ordered_ops():
        if operation.get_type_name() == "Result":
            continue
        name, number = operation.get_friendly_name(), 1
        title = name
        while title in operations_by_name:
            number += 1
            title = f"{name}#{number}"
        if title != name:
            operation.set_friendly_name(title)
        operations_by_name[title] = operation
    return operations_by_name


def _is_node(operation: Any) -> bool:
    return operation.get_type_name() not in _NON_NODE_OPS


def _tensor_names(operations: Any) -> dict[Port, str]:
    """Name each result as in the model, or else after its operation. Repeated names are numbered."""
    names: dict[Port, str] = {}
    unnamed_values: list[Any] = []
    used_names: set[str] = set()
    for operation in operations:
        for value in operation.outputs():
            free_names = [name for name in sorted(value.get_names()) if name not in used_names]
            if free_names:
                names[port(value)] = free_names[0]
                used_names.add(free_names[0])
            else:
                unnamed_values.append(value)
    for value in unnamed_values:
        name, index = port(value)
        has_one_result = value.get_node().get_output_size() == 1
        base_name = title = name if has_one_result else f"{name}:{index}"
        number = 1
        while title in used_names:
            number += 1
            title = f"{base_name}#{number}"
        used_names.add(title)
        names[name, index] = title
    return names


def _attrs(operation: Any) -> dict[str, AttrValue]:
    """Return the attributes that are numbers, strings, or lists of these."""
    try:
        attributes = operation.get_attributes()
    except (RuntimeError, ValueError, TypeError):  # some attributes have no equivalent in Python
        return {}
    attrs: dict[str, AttrValue] = {}
    for name, value in attributes.items():
        if isinstance(value, bool | int | float | str):
            attrs[name] = value
        elif isinstance(value, list | tuple):
            for kind in (int, float, str):
                if all(type(item) is kind for item in value):
                    attrs[name] = tuple(value)
                    break
    return attrs


class FoldedValues:
    """Values of operations that do not depend on an input of the model, computed on demand.

    Operations with several results are left out.

    Args:
        source: The model.
        is_half: Whether OpenVINO computes in float16, in which case it rounds constants before folding.
    """

    def __init__(self, source: OpenVINOModel, *, is_half: bool = False) -> None:
        self._is_half = is_half
        self._parameters = source.model.get_parameters()
        self._names: set[str] = set()
        self._values: dict[str, np.ndarray] = {}
        self._operations = source.operations
        names_independent: set[str] = set()
        for name, operation in source.operations.items():
            inputs = operation.input_values()
            is_folded = [
                value.get_node().get_friendly_name() in names_independent or _is_constant(value) for value in inputs
            ]
            is_known_shape = operation.get_type_name() == "ShapeOf" and operation.input(0).get_partial_shape().is_static
            if not is_known_shape and (
                not inputs or not all(is_folded) or operation.get_type_name() in _UNFOLDABLE_OPS
            ):
                continue
            names_independent.add(name)
            if operation.get_output_size() == 1 and operation.get_output_element_type(0).get_type_name() in DTYPES:
                self._names.add(name)

    def has(self, name: str) -> bool:
        """Return whether an operation's values are known, since it depends on no input."""
        return name in self._names

    def values(self, name: str) -> np.ndarray:
        """Return the values of an operation."""
        if name not in self._values:
            import openvino
            from openvino.passes import ConstantFolding, ConvertFP32ToFP16, Manager

            part_model = openvino.Model([self._operations[name].output(0)], self._parameters, "part").clone()
            manager = Manager()
            is_single = self._operations[name].get_output_element_type(0).get_type_name() == "f32"
            if self._is_half and is_single:
                manager.register_pass(ConvertFP32ToFP16())
            manager.register_pass(ConstantFolding())
            manager.run_passes(part_model)
            folded_node = part_model.get_results()[0].input_value(0).get_node()
            if folded_node.get_type_name() == "Constant":
                values = elements(folded_node)
                self._values[name] = values.astype(np.float32) if self._is_half and is_single else values
            else:  # OpenVINO folds no operation that is marked as not foldable: run it
                whole_model = openvino.Model([self._operations[name].output(0)], [], "whole")
                compiled_model = openvino.Core().compile_model(whole_model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
                self._values[name] = np.array(compiled_model({})[0])
        return self._values[name]


_UNFOLDABLE_OPS = frozenset(("RandomUniform", "Multinomial", "ReadValue"))


def _is_constant(value: Any) -> bool:
    return bool(value.get_node().get_type_name() == "Constant")
