"""A recorder that counts tensors into histograms without storing values. Its result is a profile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.errors import OutputExistsError, RecordingError
from qdebug.model import Graph, QuantParams, RunInfo
from qdebug.model.dtypes import is_float, logical_name
from qdebug.model.kept import Kept
from qdebug.numerics.range_histogram import BINS
from qdebug.recording.recorder import Recorder
from qdebug.recording.scale_profile import ScaleProfile, TensorCounter, profile_of_run, write_profile
from qdebug.recording.writing.sinks import MemorySink
from qdebug.recording.writing.write import Place

__all__ = ["ProfileRecorder", "unprofiled_reason"]


def unprofiled_reason(dtype: str, quant: QuantParams | None) -> str | None:
    """Return why a tensor does not get a histogram; None if it gets one.

    Args:
        dtype: Logical dtype of its elements.
        quant: Its quantization; None for real numbers.
    """
    if quant is None and not is_float(dtype):
        return f"its elements are {dtype}, not quantized codes"
    return None


class _CountingSink(MemorySink):
    """Counts values instead of storing them."""

    counts = True

    def __init__(self, bins: int, *, per_channel: bool) -> None:
        super().__init__()
        self._bins, self._per_channel = bins, per_channel
        self._counters: dict[str, TensorCounter] = {}
        self._samples: set[int] = set()
        self.unprofiled_reasons: dict[str, str] = {}
        self.array_count = 0
        self.profile: ScaleProfile | None = None

    @property
    def events(self) -> int:
        """Number of counted arrays."""
        return self.array_count

    def append(
        self,
        name: str,
        array: np.ndarray | Kept,
        place: Place = (0, 0),
        *,
        constant: bool = False,
        quant: QuantParams | None = None,
    ) -> None:
        """Count the values of a tensor. Constants are left out."""
        self._check_open()
        if constant or isinstance(array, Kept):
            return
        self._samples.add(place[0])
        reason = unprofiled_reason(logical_name(array.dtype), quant)
        if reason is not None:
            self.unprofiled_reasons[name] = reason
            return
        if name not in self._counters:
            self._counters[name] = TensorCounter(self._bins, per_channel=self._per_channel)
        self._counters[name].add(array, quant)
        self.array_count += 1

    def close(self, graph: Graph, info: RunInfo) -> None:
        """Make the profile from the counts."""
        self._check_open()
        self._open = False
        self.profile = profile_of_run(
            self._counters, graph, info, bins=self._bins, samples=len(self._samples), left_out=self.unprofiled_reasons
        )


class ProfileRecorder(Recorder):
    """Counts the tensors of a run into histograms, without storing values.

    It is used like a `Recorder`. Constants are left out. A quantized tensor must be put with its scale. `qdebug scales
    choose` reads the profile. A tensor takes about 16 kB, regardless of the number of samples.

    Args:
        path: The profile to write: JSON if the name ends in .json, else HDF5; None keeps it in memory, as `profile`.
        backend: Name of the backend.
        bins: Maximum number of bins of a histogram.
        per_channel: Whether to count each channel too.
        force: Replace the file if it exists.
        **facts: Further arguments of `Recorder` about the run: `graph`, `model`, `model_sha256`, `taps`, `versions`,
            `options`, `cpu_flags`.

    Raises:
        OutputExistsError: The file exists and `force` is not set.
        UsageError: An argument has a wrong type.

    Examples:
        >>> with qdebug.ProfileRecorder("profile.h5", backend="my-npu") as recorder:
        ...     recorder.put("x", np.linspace(-1, 1, 100, dtype=np.float32))
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        backend: str,
        bins: int = BINS,
        per_channel: bool = False,
        force: bool = False,
        **facts: Any,
    ) -> None:
        self._target = None if path is None else Path(path)
        if self._target is not None and self._target.exists() and not force:
            raise OutputExistsError(
                f"The file {str(path)!r} already exists.", hint="Pass force=True to replace it, or name another file."
            )
        self._counting_sink = _CountingSink(bins, per_channel=per_channel)
        super().__init__(None, backend=backend, sink=self._counting_sink, **facts)

    @property
    def profile(self) -> ScaleProfile:
        """The profile, once the recorder is closed.

        Raises:
            RecordingError: It is still open, or was discarded.
        """
        if self._counting_sink.profile is None:
            raise RecordingError("The profile is not finished.", hint="Close the recorder first.")
        return self._counting_sink.profile

    def close(self, *, complete: bool = True) -> None:
        """Finish counting, and write the profile if a path was given.

        Raises:
            RecordingError: Nothing was put, or the file cannot be written.
        """
        super().close(complete=complete)
        if self._target is not None and self._counting_sink.profile is not None:
            write_profile(self._counting_sink.profile, self._target)
