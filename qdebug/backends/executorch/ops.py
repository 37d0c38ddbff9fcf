"""ExecuTorch's runtime: its names of dtypes, its errors in one sentence, and loaded programs."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

import numpy as np

from qdebug.backends.native_output import capture_native_output
from qdebug.backends.torch.ops import array_of, tensor_of, unreadable_reason
from qdebug.errors import BackendError

__all__ = ["SCALAR_TYPES", "LoadedProgram", "convert_errors"]

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
"""Logical dtypes by ExecuTorch's names of scalar types."""


@contextmanager
def convert_errors(action: str, hint: str) -> Iterator[None]:
    """Raise ExecuTorch's exceptions as a BackendError that includes native output. Otherwise, drop that output.

    Args:
        action: The failed action.
        hint: A suggested remedy.
    """
    output_lines: list[str] = []
    level_before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with capture_native_output(output_lines, drop_on_success=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hide PyTorch's own deprecation warnings
            yield
    except (BackendError, KeyboardInterrupt):
        raise
    except Exception as error:  # PyTorch and ExecuTorch raise many types of exceptions
        native_lines = [line.partition("] ")[2] for line in output_lines if ".cpp:" in line and "cpuinfo" not in line]
        message = "; ".join((" ".join(str(error).split()) or type(error).__name__, *dict.fromkeys(native_lines)))
        message = message if len(message) <= 300 else f"{message[:297]}..."
        raise BackendError(f"{action}: {message.rstrip('.')}.", hint=hint) from error
    finally:
        logging.disable(level_before)


_RUN_HINT = "Check that the program runs in executorch.runtime itself."


class LoadedProgram:
    """A program loaded into the runtime.

    Args:
        content: The bytes of a .pte file.
        method: The method to run.
        trace_bytes: Size in bytes of ETDump's buffer for instruction results; 0 to run without tracing.
    """

    def __init__(self, content: bytes, method: str, *, trace_bytes: int = 0) -> None:
        with convert_errors("ExecuTorch refused the program", _RUN_HINT):
            import executorch.kernels.quantized  # noqa: F401  registers its kernels
            from executorch.runtime import Runtime, Verification

            self._program = Runtime.get().load_program(
                content,
                verification=Verification.Minimal,
                enable_etdump=bool(trace_bytes),
                debug_buffer_size=trace_bytes,
            )
            self._method = self._program.load_method(method)

    def run(self, feed: Sequence[np.ndarray]) -> list[np.ndarray | None]:
        """Run once and return copies of the outputs; None for outputs that are not tensors.

        Args:
            feed: The inputs.

        Raises:
            BackendError: ExecuTorch failed.
        """
        import torch

        with convert_errors("ExecuTorch failed", _RUN_HINT):
            results = self._method.execute([tensor_of(array) for array in feed])
            return [
                array_of(result).copy()
                if isinstance(result, torch.Tensor) and unreadable_reason(result) is None
                else None
                for result in results
            ]

    def write_trace(self, etdump: str, buffer: str) -> None:
        """Write the ETDump of all runs so far to two files. A runtime without a tracer writes nothing."""
        with convert_errors("ExecuTorch failed to write its trace", _RUN_HINT):
            self._program.write_etdump_result_to_file(etdump, buffer)
