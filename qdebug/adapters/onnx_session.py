"""ONNX Runtime sessions: settings, errors in one sentence, values of every element type."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.adapters.onnx_tensor import ELEMENT_TYPES, RUNTIME_TYPES, unpack
from qdebug.errors import BackendError, UsageError

__all__ = ["LEVELS", "Session", "Settings"]

LEVELS: Mapping[str, str] = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
"""ONNX Runtime's name of each optimization level."""

_SILENT = 4  # log severity "fatal": what matters comes back as an exception
_ELEMENT_NUMBERS = {name: number for number, name in ELEMENT_TYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user chose about a session.

    Args:
        level: One of `LEVELS`.
        threads: Threads inside an operator; 0 for ONNX Runtime's own choice.
        provider: Execution provider.
    """

    level: str = "all"
    threads: int = 0
    provider: str = "CPUExecutionProvider"

    def options(self, level: str = "") -> Any:
        """Make session options as production would, at the chosen or another level."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = _SILENT
        options.intra_op_num_threads = self.threads
        options.graph_optimization_level = getattr(
            onnxruntime.GraphOptimizationLevel, LEVELS[level or self.level], None
        )
        return options

    def saving(self, target: Path) -> Any:
        """Make session options that also save the optimized graph, with its weights in a file beside it."""
        options = self.options()
        options.optimized_model_filepath = str(target)
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", f"{target.stem}.weights"
        )
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
        return options

    def lean(self) -> Any:
        """Make session options that run a graph as it is and hand memory back at once."""
        options = self.options("none")
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        return options

    def check_provider(self) -> None:
        """Check that the provider is part of this ONNX Runtime.

        Raises:
            UsageError: It is not.
        """
        import onnxruntime

        available = onnxruntime.get_available_providers()
        if self.provider not in available:
            raise UsageError(
                f"This ONNX Runtime has no provider {self.provider!r}; it has: {', '.join(available)}.",
                hint="Choose one of these, or install the onnxruntime build that has it.",
            )


class Session:
    """One loaded model.

    Args:
        model: Path of a model file, or a serialized model.
        settings: What the user chose.
        options: Session options made from them.
        data_folder: Folder of external data, for a serialized model.

    Raises:
        BackendError: ONNX Runtime refused the model.
    """

    def __init__(
        self, model: Path | bytes, settings: Settings, options: Any, *, data_folder: Path | None = None
    ) -> None:
        import onnxruntime

        if data_folder is not None:
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", str(data_folder.resolve())
            )
        with _errors("ONNX Runtime refused the model"):
            self._session = onnxruntime.InferenceSession(
                model if isinstance(model, bytes) else str(model), options, providers=[settings.provider]
            )
        self.types: Mapping[str, str] = {value.name: value.type for value in self._session.get_outputs()}

    def run(self, feed: Mapping[str, np.ndarray], names: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
        """Run once and give the outputs asked for, one at a time.

        Args:
            feed: One array per input.
            names: Outputs that hold numbers, see `types`.

        Yields:
            Name and elements; the array is valid until the next one is asked for.

        Raises:
            BackendError: ONNX Runtime failed.
        """
        with _errors("ONNX Runtime failed to run the model"):
            values = self._session.run_with_ort_values(
                list(names), {name: _value(array) for name, array in feed.items()}
            )
        values.reverse()
        for name in names:
            value = values.pop()
            yield name, _array(value)

    def profile(self) -> Path:
        """Stop profiling and give the file that holds the profile."""
        return Path(self._session.end_profiling())


def _value(array: np.ndarray) -> Any:
    import onnxruntime

    array = np.asarray(array, order="C")
    if array.dtype.isbuiltin == 1:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    number = _ELEMENT_NUMBERS[array.dtype.name]
    bits = array.view(f"u{array.dtype.itemsize}")
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, number)


def _array(value: Any) -> np.ndarray:
    """View a value's memory; numpy's own conversion lacks the short float and packed types."""
    dtype = RUNTIME_TYPES[value.data_type()]
    shape = tuple(value.shape())
    size = value.tensor_size_in_bytes()
    if size == 0:
        return unpack(b"", dtype, shape)
    buffer = (ctypes.c_ubyte * size).from_address(value.data_ptr())
    buffer.owner = value  # the memory lives as long as the view
    return unpack(buffer, dtype, shape)


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """Turn ONNX Runtime's exceptions, which share no base of their own, into one sentence."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    kinds: tuple[type[Exception], ...] = (RuntimeError, ValueError)
    kinds += tuple(kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception))
    try:
        yield
    except kinds as error:
        text = " ".join(str(error).split())
        text = text.split(" : ", 3)[-1] if text.startswith("[ONNXRuntimeError]") else text
        text = text if len(text) <= 300 else f"{text[:297]}..."
        raise BackendError(
            f"{what}: {text.rstrip('.')}.", hint="Check that the model loads in ONNX Runtime itself."
        ) from error
