"""ExecuTorch's operators, tensors and runtime as a recording needs them.

A node has its operator's own name. Tensors among its arguments are its inputs, in the order of the operator's schema;
all other arguments are its attributes, those with default values included.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.backends.native_output import collected
from qdebug.errors import BackendError
from qdebug.model import AttrValue, QuantParams
from qdebug.model.dtypes import LOGICAL_DTYPES, is_integer, logical_dtype

__all__ = [
    "SCALAR_TYPES",
    "Arguments",
    "Loaded",
    "Names",
    "arguments",
    "array_of",
    "dtype_of",
    "errors",
    "quant_stated",
]

SCALAR_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "BYTE": "uint8",
        "CHAR": "int8",
        "SHORT": "int16",
        "INT": "int32",
        "LONG": "int64",
        "HALF": "float16",
        "FLOAT": "float32",
        "DOUBLE": "float64",
        "BOOL": "bool",
        "BFLOAT16": "bfloat16",
        "UINT16": "uint16",
        "UINT32": "uint32",
        "UINT64": "uint64",
    }
)
"""Logical dtype by ExecuTorch's name of a scalar type."""


class Names:
    """Names that were given so far."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, name: str) -> str:
        """Return the name, with a number after it if it is taken."""
        found, number = name, 0
        while found in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Arguments of an operator.

    Args:
        inputs: Names of the tensors that it reads; "" for one that is left out.
        attrs: All other arguments that are numbers, text, or lists of these.
    """

    inputs: tuple[str, ...]
    attrs: dict[str, AttrValue] = field(default_factory=dict)


def arguments(schema: Any, given: Mapping[str, Any], name_of: Callable[[Any], str | None]) -> Arguments:
    """Return the arguments of a call as a node has them.

    Args:
        schema: The operator's schema.
        given: Arguments by name; those that are left out have their default values.
        name_of: Returns the name of a tensor; None for anything else.
    """
    inputs: list[str] = []
    attrs: dict[str, AttrValue] = {}
    for argument in schema.arguments:
        if argument.is_out:
            continue
        value = given.get(argument.name, argument.default_value if argument.has_default_value() else None)
        if (name := name_of(value)) is not None:
            inputs.append(name)
        elif "Tensor" in str(argument.type):
            parts = value if isinstance(value, list | tuple) else (value,)
            inputs.extend(name_of(part) or "" for part in parts)
            if isinstance(value, bool | int | float):
                attrs[argument.name] = value
        elif (said := _attr(value)) is not None:
            attrs[argument.name] = said
    while inputs and not inputs[-1]:
        inputs.pop()
    return Arguments(inputs=tuple(inputs), attrs=attrs)


def _attr(value: Any) -> AttrValue | None:
    """Return an argument as an attribute; None if it is none: devices, layouts, extents that vary."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        kinds = {type(each) for each in value}
        same = len(kinds) <= 1 and kinds <= {bool, int, float, str}
        return tuple(value) if same else None
    return dtype_of(value) if str(value).startswith("torch.") else None


def quant_stated(given: Mapping[str, Any], dtype: str | None) -> QuantParams | None:
    """Return the scale that a quantize or dequantize operator of `quantized_decomposed` is called with.

    Args:
        given: Its arguments by name, constants among them as arrays.
        dtype: Logical dtype of the codes.
    """
    scale = given.get("scale", given.get("scales"))
    zero = given.get("zero_point", given.get("zero_points"))
    if not isinstance(scale, int | float | np.ndarray) or dtype is None or not is_integer(dtype):
        return None
    scales = np.asarray(scale, getattr(scale, "dtype", np.float64))
    zeros = np.asarray(0 if zero is None else zero)
    axis = given.get("axis")
    if scales.ndim > 1 or zeros.size not in (1, scales.size) or (scales.size > 1 and not isinstance(axis, int)):
        return None
    low, high = given.get("quant_min"), given.get("quant_max")
    return QuantParams(
        dtype=dtype,
        scale=scales,
        zero_point=zeros.astype(np.int64),
        axis=axis if scales.size > 1 else None,
        qmin=low if isinstance(low, int) else None,
        qmax=high if isinstance(high, int) else None,
    )


def dtype_of(dtype: Any) -> str | None:
    """Return the logical name of a torch dtype; None if a recording has no such elements."""
    name = str(dtype).removeprefix("torch.")
    return name if name in LOGICAL_DTYPES else None


def array_of(tensor: Any) -> np.ndarray:
    """Return a copy of the elements of a tensor, in their own dtype."""
    import torch

    plain = tensor.detach().contiguous()
    dtype = logical_dtype(dtype_of(plain.dtype) or "")
    if dtype.isbuiltin == 1:
        return np.array(plain.numpy())
    bits = {1: torch.uint8, 2: torch.int16}[plain.element_size()]
    return np.array(plain.view(bits).numpy()).view(dtype)


def _tensor_of(array: np.ndarray) -> Any:
    import torch

    held = np.array(array, order="C")
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(held)
    return torch.from_numpy(held.view({1: np.uint8, 2: np.int16}[array.dtype.itemsize])).view(
        getattr(torch, array.dtype.name)
    )


@contextmanager
def errors(what: str, hint: str) -> Iterator[None]:
    """Turn exceptions of ExecuTorch into one sentence, with what its native code printed; keep both quiet else.

    Args:
        what: What failed.
        hint: What to do then.
    """
    printed: list[str] = []
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with collected(printed, quiet=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecations inside PyTorch
            yield
    except (BackendError, KeyboardInterrupt):
        raise
    except Exception as error:  # whatever PyTorch and ExecuTorch raise
        native = [line.partition("] ")[2] for line in printed if ".cpp:" in line and "cpuinfo" not in line]
        said = "; ".join((" ".join(str(error).split()) or type(error).__name__, *dict.fromkeys(native)))
        said = said if len(said) <= 300 else f"{said[:297]}..."
        raise BackendError(f"{what}: {said.rstrip('.')}.", hint=hint) from error
    finally:
        logging.disable(before)


_RUNS = "Check that the program runs in executorch.runtime itself."


class Loaded:
    """A program that is loaded into the runtime.

    Args:
        content: The bytes of a .pte file.
        method: The method that is run.
        traced: Bytes of the buffer that ETDump has for what instructions write; 0 for a run without trace.
    """

    def __init__(self, content: bytes, method: str, *, traced: int = 0) -> None:
        with errors("ExecuTorch refused the program", _RUNS):
            import executorch.kernels.quantized  # noqa: F401  registers its kernels
            from executorch.runtime import Runtime, Verification

            self._program = Runtime.get().load_program(
                content, verification=Verification.Minimal, enable_etdump=bool(traced), debug_buffer_size=traced
            )
            self._method = self._program.load_method(method)

    def run(self, feed: Sequence[np.ndarray]) -> list[np.ndarray | None]:
        """Run once and return the outputs; None for one that is no tensor.

        Args:
            feed: The inputs.

        Raises:
            BackendError: ExecuTorch failed.
        """
        import torch

        with errors("ExecuTorch failed", _RUNS):
            made = self._method.execute([_tensor_of(array) for array in feed])
            return [
                array_of(each) if isinstance(each, torch.Tensor) and dtype_of(each.dtype) is not None else None
                for each in made
            ]

    def write_trace(self, etdump: str, buffer: str) -> None:
        """Write what ETDump has of the runs so far into two files; a runtime without tracer writes none."""
        with errors("ExecuTorch failed to write its trace", _RUNS):
            self._program.write_etdump_result_to_file(etdump, buffer)
