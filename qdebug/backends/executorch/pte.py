"""Read ExecuTorch program files (.pte): their instructions as a graph, and the results of a run from its ETDump.

A program is a list of instructions on numbered values: calls to kernels, and calls to delegates, which run a part of
the network as a unit. ETDump holds the tensors that each instruction wrote, in the order of its output arguments.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.backends.executorch.ops import SCALAR_TYPES, LoadedProgram, convert_errors
from qdebug.backends.torch.delegated import PORTABLE
from qdebug.backends.torch.ops import Names, dtype_of_number, node_arguments, quant_of_arguments
from qdebug.errors import BackendError, UsageError
from qdebug.model import Graph, Node, Role, TensorInfo
from qdebug.model.dtypes import logical_dtype

__all__ = ["DELEGATE_DOMAIN", "Pte", "read_trace"]

DELEGATE_DOMAIN = "executorch.delegate"
"""Domain of nodes that call a delegate. Their operator is the delegate's name."""


@dataclass(frozen=True, slots=True)
class _TensorRef:
    """A reference to a tensor by the number of its value in the program."""

    index: int


class Pte:
    """A program file.

    Args:
        content: The file's bytes.
        name: Its name.
        method: The method to run.

    Raises:
        UsageError: It is not a program, or does not have that method.
        BackendError: It contains control flow.
    """

    def __init__(self, content: bytes, name: str, method: str) -> None:
        self.content, self.name = content, name
        self._program, self._plan = _parse_program(content, name, method)
        self._names = Names()
        self._name_of_value: dict[int, str] = {}
        self._infos: dict[str, TensorInfo] = {}
        self._constants: dict[str, int | np.ndarray] = {}
        """For each constant, the index of its value in the program, or the number that a call passes as a tensor."""
        self.skipped: dict[str, str] = {}
        self._written_names: list[tuple[tuple[str, ...], ...]] = []
        """The names of the tensors that each instruction writes, one tuple per output argument."""
        inputs = [
            self._declare(index, f"input_{position}", Role.INPUT)
            for position, index in enumerate(self._tensor_inputs())
        ]
        nodes = list(self._make_nodes())
        outputs = list(
            dict.fromkeys(self._name_of_value[index] for index in self._plan.outputs if index in self._name_of_value)
        )
        for output in outputs:
            if self._infos[output].role is Role.ACTIVATION:
                self._infos[output] = replace(self._infos[output], role=Role.OUTPUT)
        self.graph = Graph(nodes, tensors=self._infos.values(), inputs=inputs, outputs=outputs, name=method)

    @property
    def constants(self) -> Sequence[str]:
        """Names of the constants."""
        return tuple(self._constants)

    def with_shapes(self) -> Pte:
        """Return the model itself, since its file states shapes."""
        return self

    def constant(self, name: str) -> np.ndarray:
        """Return the elements of a constant."""
        value = self._constants[name]
        if isinstance(value, np.ndarray):
            return value
        tensor = self._plan.values[value].val
        buffer = self._program.constant_buffer[tensor.data_buffer_idx].storage
        dtype = logical_dtype(SCALAR_TYPES[tensor.scalar_type.name])
        order = list(tensor.dim_order)
        stored_shape = [tensor.sizes[axis] for axis in order]
        elements = np.frombuffer(buffer, dtype, count=int(np.prod(stored_shape, dtype=np.int64)))
        return elements.reshape(stored_shape).transpose(np.argsort(order)) if order else elements.reshape(())

    @property
    def output_names(self) -> tuple[str, ...]:
        """Name of each output in the program's order; "" if the output is not a tensor."""
        return tuple(self._name_of_value.get(index, "") for index in self._plan.outputs)

    @property
    def delegates(self) -> Mapping[str, int]:
        """Number of calls to each delegate."""
        calls: dict[str, int] = {}
        for node in self.graph.nodes:
            if node.domain == DELEGATE_DOMAIN:
                calls[node.op] = calls.get(node.op, 0) + 1
        return calls

    @property
    def traced_bytes(self) -> int:
        """Maximum bytes that a run writes to the buffer of ETDump."""
        total = 0
        for instruction in self._plan.chains[0].instructions:
            for index in getattr(instruction.instr_args, "args", ()):
                total += sum(self._byte_count(flat_index) for flat_index in self._flatten_value(index))
        return total + sum(self._byte_count(index) for index in self._plan.outputs)

    def _byte_count(self, index: int) -> int:
        value = self._plan.values[index].val
        if type(value).__name__ != "Tensor":
            return 0
        kind = SCALAR_TYPES.get(value.scalar_type.name)
        width = 8 if kind is None else logical_dtype(kind).itemsize
        return width * int(np.prod(value.sizes, dtype=np.int64)) + 64

    def _flatten_value(self, index: int) -> list[int]:
        value = self._plan.values[index].val
        return list(value.items) if type(value).__name__ in _LIST_KINDS else [index]

    # -- the graph ---------------------------------------------------------------------------------------------------

    def _tensor_inputs(self) -> list[int]:
        for position, index in enumerate(self._plan.inputs):
            kind = type(self._plan.values[index].val).__name__
            if kind != "Tensor":
                raise BackendError(
                    f"Input {position} of {self.name!r} is of kind {kind}, not a tensor, so it cannot be fed.",
                    hint="Export the program with that input fixed, or as a tensor.",
                )
        return list(self._plan.inputs)

    def _declare(self, index: int, name: str, role: Role = Role.ACTIVATION) -> str:
        tensor = self._plan.values[index].val
        name = self._names.unique(name)
        self._name_of_value[index] = name
        dtype = SCALAR_TYPES.get(tensor.scalar_type.name)
        is_dynamic = tensor.shape_dynamism.name != "STATIC" if hasattr(tensor, "shape_dynamism") else False
        shape = (
            None if is_dynamic and role is not Role.INPUT else tuple(None if is_dynamic else n for n in tensor.sizes)
        )
        self._infos[name] = TensorInfo(name=name, shape=shape, dtype=dtype, role=role)
        return name

    def _read_tensor(self, index: int) -> str:
        """Return the name of a tensor that an instruction reads. Constants and states are declared when first read."""
        if index not in self._name_of_value:
            tensor = self._plan.values[index].val
            qualified_name = (
                getattr(tensor.extra_tensor_info, "fully_qualified_name", None) if tensor.extra_tensor_info else None
            )
            if tensor.data_buffer_idx and tensor.allocation_info is None:
                name = self._declare(index, qualified_name or f"constant_{index}", Role.CONSTANT)
                if self._infos[name].dtype is None:
                    self.skipped[name] = f"its elements are {tensor.scalar_type.name.lower()}"
                else:
                    self._constants[name] = index
            else:
                name = self._declare(index, qualified_name or f"state_{index}")
                self.skipped[name] = "ExecuTorch does not show the values of a state before a run"
        return self._name_of_value[index]

    def _make_nodes(self) -> Iterator[Node]:
        for instruction in self._plan.chains[0].instructions:
            call = instruction.instr_args
            kind = type(call).__name__
            node: Node | None = None
            if kind == "KernelCall":
                node = self._make_kernel_node(call)
            elif kind == "DelegateCall":
                node = self._make_delegate_node(call)
            elif kind == "FreeCall":
                self._written_names.append(())
            else:
                raise BackendError(
                    f"The program {self.name!r} has control flow ({kind}), whose branches are not recorded.",
                    hint="Export it without control flow, or record the branches as separate programs.",
                )
            if node is not None:
                yield node

    def _make_kernel_node(self, call: Any) -> Node:
        operator = self._plan.operators[call.op_index]
        schema = _find_schema(operator.name, operator.overload)
        title = self._names.unique(operator.name.rpartition("::")[2].strip("_"))
        pairs = zip(schema.arguments, map(self._value_of, call.args), strict=False)
        all_arguments = {argument.name: value for argument, value in pairs}
        input_arguments = {
            argument.name: all_arguments[argument.name] for argument in schema.arguments if not argument.is_out
        }
        output_names = [argument.name for argument in schema.arguments if argument.is_out] or [
            argument.name for argument in schema.arguments if argument.alias_info and argument.alias_info.is_write
        ]
        parsed_arguments = node_arguments(schema, input_arguments, node=title, name_of=self._name_of_ref)
        input_dtypes = [self._infos[name].dtype or "" for name in parsed_arguments.inputs if name in self._infos]
        for name, number in parsed_arguments.numbers.items():
            dtype = dtype_of_number(input_dtypes, number)
            self._constants[name] = number.astype(dtype)
            self._infos[name] = TensorInfo(name=name, shape=(), dtype=dtype, role=Role.CONSTANT)
        input_name = self._name_of_ref(input_arguments.get("input"))
        outputs = self._declare_outputs([_tensor_indices(all_arguments[name]) for name in output_names], title)
        if input_name is not None and "::dequantize" in operator.name:
            self._note_quant(input_name, operator.name, input_arguments)
        if outputs and "::quantize" in operator.name:
            self._note_quant(outputs[0], operator.name, input_arguments)
        return Node(
            name=title,
            op=operator.name,
            inputs=parsed_arguments.inputs,
            outputs=outputs,
            attrs=parsed_arguments.attrs,
            placement=PORTABLE,
        )

    def _declare_outputs(self, output_groups: Sequence[Sequence[int]], title: str) -> tuple[str, ...]:
        names: list[tuple[str, ...]] = []
        for group in output_groups:
            inner_names: list[str] = []
            for index in group:
                is_first = not names and not inner_names
                inner_names.append(
                    self._declare(index, title if is_first else f"{title}:{sum(map(len, names)) + len(inner_names)}")
                )
            names.append(tuple(inner_names))
        self._written_names.append(tuple(names))
        return tuple(name for group in names for name in group)

    def _make_delegate_node(self, call: Any) -> Node:
        """Translate a delegate call.

        Its arguments are its inputs, followed by its outputs, which no earlier instruction has written.
        """
        kind = self._plan.delegates[call.delegate_index].id
        title = self._names.unique(kind)
        inputs: list[str] = []
        outputs: list[str] = []
        groups: list[tuple[str, ...]] = []
        for index in call.args:
            value = self._plan.values[index].val
            if type(value).__name__ != "Tensor":
                groups.append(())
                continue
            is_output = index not in self._name_of_value and not (
                value.data_buffer_idx and value.allocation_info is None
            )
            if is_output:
                name = self._declare(index, f"{title}:{len(outputs)}" if outputs else title)
                outputs.append(name)
                groups.append((name,))
            else:
                inputs.append(self._read_tensor(index))
                groups.append(())
        self._written_names.append(tuple(groups))
        return Node(
            name=title,
            op=kind,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            domain=DELEGATE_DOMAIN,
            placement=kind,
        )

    def _value_of(self, index: int) -> Any:
        """Return a value of the program as a Python object. A tensor becomes a `_TensorRef`."""
        value = self._plan.values[index].val
        kind = type(value).__name__
        if kind == "Tensor":
            return _TensorRef(index)
        if kind in ("TensorList", "OptionalTensorList"):
            return [None if item < 0 else _TensorRef(item) for item in value.items]
        if kind == "IntList":
            return [self._value_of(item) for item in value.items]
        if kind in ("BoolList", "DoubleList"):
            return list(value.items)
        for field in ("int_val", "double_val", "bool_val", "string_val"):
            if hasattr(value, field):
                return getattr(value, field)
        return None

    def _name_of_ref(self, value: Any) -> str | None:
        return self._read_tensor(value.index) if isinstance(value, _TensorRef) else None

    # -- scales ------------------------------------------------------------------------------------------------------

    def _resolve_constants(self, operator_arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments with the arrays of constants in place of references."""
        resolved_arguments = {}
        for name, value in operator_arguments.items():
            constant_name = self._name_of_ref(value)
            resolved_arguments[name] = self.constant(constant_name) if constant_name in self._constants else value
        return resolved_arguments

    def _note_quant(self, name: str, op: str, operator_arguments: Mapping[str, Any]) -> None:
        """Note the scale of codes that an operator reads or writes."""
        info = self._infos[name]
        quant = quant_of_arguments(
            op, self._resolve_constants({**operator_arguments, "input": None}), info.dtype or "", info.shape
        )
        if quant is not None and info.quant is None:
            self._infos[name] = replace(info, quant=quant)

    # -- a run -------------------------------------------------------------------------------------------------------

    def tensors(self, events: Sequence[Any], buffer: bytes) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the results of a run, instruction by instruction.

        Args:
            events: Debug events of one run, from ETDump.
            buffer: The bytes of the elements.
        """
        by_instruction: dict[int, list[Any]] = {}
        for event in events:
            if event.chain_index == 0:
                by_instruction.setdefault(event.instruction_id, []).append(event.debug_entry)
        for number, groups in enumerate(self._written_names):
            for names, entry in zip(groups, by_instruction.get(number, ()), strict=False):
                entry_tensors = entry.tensor_list.tensors if entry.tensor_list is not None else [entry.tensor]
                for name, tensor in zip(names, entry_tensors, strict=False):
                    if (array := _read_elements(tensor, buffer)) is not None:
                        yield name, array


_LIST_KINDS = ("TensorList", "OptionalTensorList")


def _tensor_indices(value: Any) -> list[int]:
    parts = value if isinstance(value, list) else [value]
    return [part.index for part in parts if isinstance(part, _TensorRef)]


def _parse_program(content: bytes, name: str, method: str) -> tuple[Any, Any]:
    """Return a program and the plan for one of its methods."""
    if content[4:6] != b"ET":
        raise UsageError(
            f"The file {name!r} is not an ExecuTorch program.",
            hint="Give a .pte file that to_executorch().save() wrote.",
        )
    hint = "Export the program again with the installed version of executorch, or copy the file again."
    with convert_errors(f"The program {name!r} cannot be read", hint):
        from executorch.exir._serialize._program import deserialize_pte_binary

        program = deserialize_pte_binary(content).program
    plan_by_name = {execution_plan.name: execution_plan for execution_plan in program.execution_plan}
    if method not in plan_by_name:
        raise UsageError(
            f"The program {name!r} has no method {method!r}; it has: {', '.join(plan_by_name)}.",
            hint="Write --backend executorch:method=NAME with one of these.",
        )
    return program, plan_by_name[method]


def _find_schema(name: str, overload: str) -> Any:
    """Return the schema of an operator.

    Raises:
        BackendError: PyTorch does not have the operator.
    """
    with convert_errors(
        f"Operator {name!r} of the program is not registered",
        "Register it and its kernel in the process that records: python -c 'import MY_OPERATORS; from qdebug.cli.main "
        "import main; main()' record MODEL.pte --backend executorch --inputs X.npz -o OUT.h5",
    ):
        import executorch.exir  # registers operators of ExecuTorch
        import executorch.kernels.quantized  # noqa: F401  registers quantized_decomposed
        import torch

        namespace, _, base_name = name.partition("::")
        operator = getattr(getattr(torch.ops, namespace), base_name)
        return getattr(operator, overload or "default")._schema  # noqa: SLF001  torch.fx reads it too


def _read_elements(tensor: Any, buffer: bytes) -> np.ndarray | None:
    """Return the elements of a tensor in ETDump; None if there are none."""
    kind = None if tensor is None else SCALAR_TYPES.get(tensor.scalar_type.name)
    if kind is None:
        return None
    dtype, shape = logical_dtype(kind), tuple(tensor.sizes)
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.zeros(shape, dtype)
    if tensor.offset is None or tensor.offset < 0:
        return None
    byte_strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
    return np.array(np.ndarray(shape, dtype, buffer, tensor.offset, byte_strides))


def read_trace(program: LoadedProgram) -> tuple[list[list[Any]], bytes]:
    """Return the debug events of each run of a program, and the bytes of the elements that they refer to.

    Raises:
        BackendError: The runtime lacks a tracer, or traced nothing.
    """
    with tempfile.TemporaryDirectory(prefix="qdebug-") as folder:
        etdump, buffer = Path(folder) / "run.etdp", Path(folder) / "run.bin"
        program.write_trace(str(etdump), str(buffer))
        runs: list[list[Any]] = []
        if etdump.is_file() and etdump.stat().st_size:
            with convert_errors("ExecuTorch's trace cannot be read", _TRACER_HINT):
                from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

                dump = deserialize_from_etdump_flatcc(etdump.read_bytes())
            blocks = [[event.debug_event for event in run.events or () if event.debug_event] for run in dump.run_data]
            runs = [block for block in blocks if block]
        if not runs:
            raise BackendError(
                "ExecuTorch's trace of the run is empty: its runtime was built without the event tracer.",
                hint=_TRACER_HINT,
            )
        return runs, buffer.read_bytes() if buffer.is_file() else b""


_TRACER_HINT = (
    "Install executorch 1.5 or newer for Linux or macOS, whose wheels have the tracer; or write --taps outputs, or "
    "record the exported program: qdebug record MODEL.pt2 --backend executorch:delegate=portable."
)
