"""Registry of kernels, and the execution of one node. Begin at `kernel` and `run_node`.

A kernel is a pure function of a `Call`. It never changes its inputs, but its results may share memory with them. It is
registered by domain and operator in the module of its family; families are imported when the first kernel is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from qdebug.errors import KernelError, NoInputError, NoKernelError, RefusedSizeError
from qdebug.model import AttrValue, Node, operators
from qdebug.replay import extents
from qdebug.replay.precision import is_real
from qdebug.replay.variant import Arithmetic
from qdebug.replay.within import normalize_axis

__all__ = [
    "REAL",
    "Call",
    "CostOf",
    "Kernel",
    "Moved",
    "find_kernel",
    "has_kernel",
    "keeps_channels_last",
    "kernel",
    "known_kernels",
    "refuse_large",
    "run_node",
]

REAL = "qdebug.real"
"""The domain of real-valued kernels for operators on codes, under the same operator names."""

Kernel = Callable[["Call"], np.ndarray | tuple[np.ndarray, ...]]
"""A function that computes the outputs of a call. A bare array stands for a single output."""

CostOf = Callable[["Call"], extents.Cost]
"""Estimates the cost of a call before it is computed."""

_FAMILIES = (
    "activation",
    "attention",
    "boxes",
    "constant",
    "conv",
    "elementwise",
    "experts",
    "indexing",
    "linear",
    "movement",
    "normalization",
    "pool",
    "qlinear",
    "qonnx",
    "quark",
    "quantize",
    "real_codes",
    "recurrent",
    "reduction",
    "resize",
    "sampling",
)

Moved = Callable[[str, tuple[int, ...], bool], "np.ndarray | None"]
"""Returns how far a disturbed replay moves an operand, in codes.

It is called with the operand's name, its shape, and whether it is quantized at run time. None leaves the operand
unmoved.
"""

_PROVIDER = "qdebug.backends:replay_kernel"
"""Module and function that return a framework's kernel for an operator and domain without a kernel here, or None.

It is found by name when the first such operator is looked up, so that the set of operators with a kernel does not
depend on other imports.
"""
_PROVIDED: dict[tuple[str, str], Kernel | None] = {}
_KERNELS: dict[tuple[str, str], Kernel] = {}
_COSTS: dict[tuple[str, str], CostOf] = {}
_RANKS: dict[tuple[str, str], tuple[int, ...]] = {}
_KINDS: dict[tuple[str, str], tuple[str, ...]] = {}
_KIND_WORDS = {"b": "booleans", "i": "integers", "f": "real numbers", "c": "complex numbers"}
_LOADED: set[str] = set()
_DOMAINS = {"ai.onnx": ""}
_FAILURES_OF_DATA = (ValueError, ArithmeticError, MemoryError)
"""Exceptions that shapes and values can cause. Any other exception in a kernel is a bug and propagates."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call:
    """The arguments of a kernel.

    Args:
        inputs: Arrays in the operator's order; None where an optional input is left out.
        attrs: The node's attributes.
        opset: Version of the operator's operator set.
        outputs: Number of requested outputs, skipped ones included.
        op: The operator.
        node: The node's name, for error messages.
        arithmetic: Choices of quantized arithmetic.
        moved: Like `Moved`, but called with an operand's position instead of its name; None without disturbance.
    """

    inputs: tuple[np.ndarray | None, ...]
    attrs: Mapping[str, AttrValue] = field(default_factory=lambda: MappingProxyType({}))
    opset: int = 1
    outputs: int = 1
    op: str = ""
    node: str = ""
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    moved: Callable[[int, tuple[int, ...], bool], np.ndarray | None] | None = None

    def array(self, position: int) -> np.ndarray:
        """Return a required input.

        Raises:
            KernelError: The node leaves it out.
        """
        value = self.optional(position)
        if value is None:
            raise NoInputError(f"Node {self.node!r} ({self.op}) has no input {position}, which its operator requires.")
        return value

    def optional(self, position: int) -> np.ndarray | None:
        """Return an optional input, or None if the node leaves it out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def all_inputs(self) -> tuple[np.ndarray, ...]:
        """Return the inputs of an operator that takes any number of inputs."""
        return tuple(self.array(position) for position in range(len(self.inputs)))

    def integer(self, name: str, default: int = 0) -> int:
        """Return an integer attribute."""
        value = self.attrs.get(name, default)
        return (
            int(value)
            if isinstance(value, (int, float, np.integer))
            else self._raise_wrong_attribute(name, "an integer")
        )

    def real(self, name: str, default: float = 0.0) -> float:
        """Return a real attribute."""
        value = self.attrs.get(name, default)
        return (
            float(value)
            if isinstance(value, (int, float, np.number))
            else self._raise_wrong_attribute(name, "a number")
        )

    def text(self, name: str, default: str = "") -> str:
        """Return a text attribute."""
        value = self.attrs.get(name, default)
        return value if isinstance(value, str) else self._raise_wrong_attribute(name, "a text")

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """Return a text attribute that must be one of several values. An empty text stands for the default."""
        value = self.text(name, default) or default
        return value if value in choices else self._raise_wrong_attribute(name, f"one of {', '.join(choices)}")

    def axis(self, rank: int, default: int = 0) -> int:
        """Return the attribute `axis`, counted from the first of `rank` axes.

        Raises:
            ValueError: The axis does not exist.
        """
        return normalize_axis(self.integer("axis", default), rank)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return an attribute that lists integers; None if the node lacks it."""
        value = self.attrs.get(name)
        if value is None:
            return None
        if isinstance(value, (str, bool)):
            self._raise_wrong_attribute(name, "a list of integers")
        return tuple(int(item) for item in np.asarray(value).reshape(-1))

    def shape(self, position: int) -> tuple[int, ...]:
        """Return the shape of a required input."""
        return self.array(position).shape

    def extents(self, position: int) -> tuple[int, ...]:
        """Return a required input that lists integers: the sizes of a shape, pads or axes.

        Raises:
            ValueError: The input is not a list of integers.
        """
        array = self.array(position)
        if array.ndim != 1 or array.dtype.kind == "c":
            raise ValueError(f"input {position} is {array.dtype} of rank {array.ndim}; expected a list of integers")
        return tuple(int(number) for number in array)

    def whole(self, position: int) -> int:
        """Return a required input that is a single integer.

        Raises:
            ValueError: The input is not an integer, or has several elements.
        """
        array = self.array(position)
        if array.size != 1 or array.dtype.kind == "c":
            raise ValueError(f"input {position} is {array.dtype} of {array.size} elements; expected one integer")
        return int(array.reshape(()))

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the inputs that are given."""
        return [array.shape for array in self.inputs if array is not None]

    def _raise_wrong_attribute(self, name: str, expected: str) -> NoReturn:
        value = self.attrs.get(name)
        raise KernelError(f"Attribute {name!r} of node {self.node!r} ({self.op}) is {value!r}; expected {expected}.")


def kernel(
    *ops: str,
    domain: str = "",
    cost: CostOf | None = None,
    ranks: tuple[int, ...] = (),
    kinds: tuple[str, ...] = (),
) -> Callable[[Kernel], Kernel]:
    """Register a function as the kernel of operators of a domain.

    Args:
        ops: The operators.
        domain: Their domain.
        cost: Estimates the cost of a call; None if the output is no larger than the broadcast inputs.
        ranks: Minimum rank of each input by position; any rank for positions beyond the list or omitted inputs.
        kinds: Allowed dtypes of each input by position, as numpy's letters: `f` includes all real types, `V` means
            integers of less than 8 bits. Any dtype is allowed if empty, for positions beyond the list, and for omitted
            inputs.
    """

    def register(function: Kernel) -> Kernel:
        for op in ops:
            _KERNELS[_DOMAINS.get(domain, domain), op] = function
            if cost is not None:
                _COSTS[_DOMAINS.get(domain, domain), op] = cost
            _RANKS[_DOMAINS.get(domain, domain), op] = ranks
            _KINDS[_DOMAINS.get(domain, domain), op] = kinds
        return function

    return register


def known_kernels() -> tuple[tuple[str, str], ...]:
    """Return (domain, operator) for every kernel, sorted."""
    _load_families()
    return tuple(sorted(_KERNELS))


def has_kernel(op: str, domain: str = "") -> bool:
    """Return whether an operator has a kernel and can be replayed."""
    return _look_up_kernel(op, domain) is not None


def _look_up_kernel(op: str, domain: str) -> Kernel | None:
    _load_families()
    key = _DOMAINS.get(domain, domain), op
    if key in _KERNELS:
        return _KERNELS[key]
    if key not in _PROVIDED:
        module, _, function = _PROVIDER.partition(":")
        _PROVIDED[key] = getattr(import_module(module), function)(op, key[0])
    return _PROVIDED[key]


def find_kernel(node: Node) -> Kernel:
    """Return the kernel of a node.

    Raises:
        NoKernelError: Its operator has no kernel.
    """
    function = _look_up_kernel(node.op, node.domain)
    if function is None:
        title = f"{node.domain}::{node.op}" if node.domain else node.op
        raise NoKernelError(
            f"No kernel is known for the operator {title} of node {node.name!r}.",
            hint="Record this model with the framework that runs it, such as --backend onnxruntime.",
        )
    return function


def run_node(
    node: Node,
    values: Mapping[str, np.ndarray],
    opset: Mapping[str, int] | None = None,
    *,
    arithmetic: Arithmetic | None = None,
    moved: Moved | None = None,
    defaults: dict[str, AttrValue | None] | None = None,
) -> dict[str, np.ndarray]:
    """Compute one node.

    Args:
        node: The node.
        values: Arrays by tensor name, at least the node's inputs.
        opset: Version of each operator set by domain; the newest by default.
        arithmetic: Choices of quantized arithmetic; ONNX's own by default.
        moved: Returns how far kernels of the domain `REAL` move an operand; None moves nothing.
        defaults: Receives the default of each attribute that the kernel reads and the node omits, or None for a
            default that is not a plain value; filled even if the node cannot be computed.

    Returns:
        The node's named outputs by tensor name.

    Raises:
        NoKernelError: There is no kernel for the operator.
        RefusedSizeError: Memory or work is out of proportion to the recorded tensors, or memory ran out.
        KernelError: The inputs or attributes do not match the operator, or an input has no values.
    """
    compute = find_kernel(node)
    missing = [name for name in node.inputs if name and name not in values]
    if missing:
        raise KernelError(f"Input {missing[0]!r} of node {node.name!r} ({node.op}) has no values.")
    inputs = [values[name] if name else None for name in node.inputs]
    try:
        last = keeps_channels_last(node)
        plain = _make_call(node, inputs, opset)
        call = replace(
            plain,
            attrs=node.attrs if defaults is None else _RecordingAttrs(node.attrs, defaults),
            arithmetic=arithmetic or Arithmetic(),
            moved=None if moved is None else lambda position, *operand: moved(node.inputs[position], *operand),
        )
        # Overflow and invalid operations have defined results (infinities, NaN), which are compared too.
        with np.errstate(all="ignore"):
            _refuse_dtypes(node, plain)
            _refuse_large(node, plain)
            result = compute(call)
    except _FAILURES_OF_DATA as error:
        raise _kernel_error(node, inputs, error) from error
    arrays = result if isinstance(result, tuple) else (result,)
    if len(arrays) < len(node.outputs) and any(node.outputs[len(arrays) :]):
        raise KernelError(
            f"Node {node.name!r} ({node.op}) has {len(node.outputs)} outputs, but its kernel computes {len(arrays)}."
        )
    outputs = {name: np.asarray(array) for name, array in zip(node.outputs, arrays, strict=False) if name}
    if not last:
        return outputs
    return {name: np.moveaxis(array, 1, -1) if array.ndim > 2 else array for name, array in outputs.items()}


def refuse_large(node: Node, inputs: Sequence[np.ndarray | None], opset: Mapping[str, int] | None = None) -> None:
    """Refuse a node whose cost is out of proportion to the recorded tensors.

    Args:
        node: The node; a node without a kernel is not refused.
        inputs: In the operator's order; None where an input is left out.
        opset: Version of each operator set by domain.

    Raises:
        RefusedSizeError: The cost exceeds the limits.
        KernelError: Its inputs and attributes do not match its operator.
    """
    try:
        with np.errstate(all="ignore"):
            _refuse_large(node, _make_call(node, inputs, opset))
    except _FAILURES_OF_DATA as error:
        raise _kernel_error(node, inputs, error) from error


def _refuse_large(node: Node, call: Call) -> None:
    _load_families()
    key = _DOMAINS.get(node.domain, node.domain), node.op
    for position, (array, min_rank) in enumerate(zip(call.inputs, _RANKS.get(key, ()), strict=False)):
        if array is not None and array.ndim < min_rank:
            raise KernelError(
                f"Node {node.name!r} ({node.op}) has input {position} of rank {array.ndim}; "
                f"expected at least {min_rank}."
            )
    estimate, shapes = _COSTS.get(key), call.shapes()
    extents.refuse_excessive_cost(node, shapes, extents.default_cost(*shapes) if estimate is None else estimate(call))


def _refuse_dtypes(node: Node, call: Call) -> None:
    """Refuse dtypes that the kernel does not support."""
    allowed = _KINDS.get((_DOMAINS.get(node.domain, node.domain), node.op), ())
    for position, (array, kinds) in enumerate(zip(call.inputs, allowed, strict=False)):
        if array is None or not kinds or ("f" if is_real(array.dtype) else array.dtype.kind) in kinds:
            continue
        expected = " or ".join(words for kind, words in _KIND_WORDS.items() if kind in kinds)
        raise KernelError(f"Node {node.name!r} ({node.op}) has input {position} of {array.dtype}; expected {expected}.")


def _make_call(node: Node, inputs: Sequence[np.ndarray | None], opset: Mapping[str, int] | None) -> Call:
    """Return the call of a node, with the channels of its data where its kernel expects them."""
    arrays = list(inputs)
    if keeps_channels_last(node) and arrays and arrays[0] is not None and arrays[0].ndim > 2:
        arrays[0] = np.moveaxis(arrays[0], -1, 1)
    return Call(
        inputs=tuple(arrays),
        attrs=node.attrs,
        opset=_opset_version(node.domain, opset or {}),
        outputs=len(node.outputs),
        op=node.op,
        node=node.name,
    )


def _kernel_error(node: Node, inputs: Sequence[np.ndarray | None], error: Exception) -> KernelError:
    shapes = _describe_shapes(inputs)
    if isinstance(error, MemoryError):
        return RefusedSizeError(f"Node {node.name!r} ({node.op}) runs out of memory on inputs {shapes}.")
    why = str(error).rstrip(".")
    return KernelError(f"Node {node.name!r} ({node.op}) cannot be replayed on inputs {shapes}: {why}.")


class _RecordingAttrs(Mapping[str, AttrValue]):
    """Attributes that record the default of each missing attribute that a kernel reads."""

    def __init__(self, attrs: Mapping[str, AttrValue], requested: dict[str, AttrValue | None]) -> None:
        self._attrs, self._requested = attrs, requested

    def __getitem__(self, name: str) -> AttrValue:
        return self._attrs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._attrs)

    def __len__(self) -> int:
        return len(self._attrs)

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str) and name not in self._attrs:
            self._requested.setdefault(name, None)
        return name in self._attrs

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute. If it is missing, record its default."""
        if name not in self._attrs:
            self._requested[name] = default
            return default
        return self._attrs[name]


def keeps_channels_last(node: Node) -> bool:
    """Return whether a node is channels-last but its kernel is channels-second, like all real-valued kernels."""
    if "channels_last" not in node.attrs or not Call(inputs=(), attrs=node.attrs).integer("channels_last"):
        return False
    return operators.of(node.op).real is None and operators.has_channels_second(node.op)


def _opset_version(domain: str, opset: Mapping[str, int]) -> int:
    plain = _DOMAINS.get(domain, domain)
    return opset.get(plain, opset.get("ai.onnx", 1000) if not plain else 1000)


def _describe_shapes(inputs: Sequence[np.ndarray | None]) -> str:
    return ", ".join("none" if array is None else f"{array.dtype}{list(array.shape)}" for array in inputs)


def _load_families() -> None:
    if _LOADED:
        return
    for family in _FAMILIES:
        import_module(f"qdebug.replay.kernels.{family}")
    _LOADED.update(_FAMILIES)
