"""Make a profile from recordings and earlier profiles, or from the run of a model whose values are not stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.backends import check_model_file, load_backend
from qdebug.compare.measure.recordings import with_understood_graph
from qdebug.errors import UsageError
from qdebug.model import Recording
from qdebug.numerics.range_histogram import BINS
from qdebug.recording.environment import recorded_facts
from qdebug.recording.profile_recorder import ProfileRecorder
from qdebug.recording.scale_profile import (
    ScaleProfile,
    TensorCounter,
    is_profile,
    profile_of_run,
    read_profile,
    write_profile,
)
from qdebug.running.feeds import ArrayFeeds, read_inputs
from qdebug.scales.values import TensorValues
from qdebug.session import opened_recording

__all__ = ["profile_files", "profile_model", "profile_recording", "write_profile"]

OnTensor = Callable[[int, int, str], None]
"""Called with the number of finished tensors, the total, and the name of the next one."""


def profile_files(
    paths: Sequence[Path], *, bins: int = BINS, per_channel: bool = False, progress: OnTensor | None = None
) -> ScaleProfile:
    """Return the combined profile of the values in several files. Their order does not matter.

    Args:
        paths: Recordings and profiles, at least one.
        bins: Maximum number of bins of a histogram.
        per_channel: Whether to count each channel too.
        progress: Progress callback.

    Raises:
        RecordingError: A file cannot be read.
        UsageError: No tensor in the files can be profiled, or the profiles are incompatible.
    """
    parts = []
    for path in paths:
        if is_profile(path):
            parts.append(read_profile(path))
            continue
        with opened_recording(path) as recording:
            parts.append(profile_recording(recording, bins=bins, per_channel=per_channel, progress=progress))
    merged_profile = reduce(ScaleProfile.merge, parts)
    if not merged_profile.tensors:
        raise UsageError(
            "No tensor could be profiled: no tensor has values, or all values are integers.",
            hint="Record all values: qdebug record MODEL --backend NAME --inputs X.npz -o OUT.h5 --keep full.",
        )
    return merged_profile


def profile_recording(
    recording: Recording, *, bins: int = BINS, per_channel: bool = False, progress: OnTensor | None = None
) -> ScaleProfile:
    """Return the profile of one recording: every real or quantized tensor except constants.

    Args:
        recording: The recording.
        bins: Maximum number of bins of a histogram.
        per_channel: Whether to count each channel too.
        progress: Progress callback.
    """
    recording = with_understood_graph(recording)
    names = [name for name in recording.names if not recording.graph.is_constant(name)]
    counters: dict[str, TensorCounter] = {}
    left_out: dict[str, str] = {}
    for finished_count, name in enumerate(names):
        if progress is not None:
            progress(finished_count, len(names), name)
        values = TensorValues(name, recording)
        reason = values.missing_reason()
        if reason is not None:
            left_out[name] = reason
            continue
        counters[name] = TensorCounter(bins, per_channel=per_channel)
        for values_part, quant in values.parts():
            counters[name].add(values_part, quant)
    return profile_of_run(
        counters, recording.graph, recording.info, bins=bins, samples=recording.samples, left_out=left_out
    )


def profile_model(
    model: Path,
    *,
    backend: str,
    inputs: Path | Mapping[str, np.ndarray],
    options: Mapping[str, str] | None = None,
    samples: int | None = None,
    taps: str = "faithful",
    bins: int = BINS,
    per_channel: bool = False,
    progress: OnTensor | None = None,
) -> ScaleProfile:
    """Run a model and return the profile of its tensors, without storing values in memory or on disk.

    Args:
        model: A model file.
        backend: Name of the backend.
        inputs: An .npz file or a mapping: one array per model input.
        options: Options of the backend.
        samples: Number of samples along the leading axis of the inputs, or None if they are one sample.
        taps: Which tensors are tapped, and how.
        bins: Maximum number of bins of a histogram.
        per_channel: Whether to count each channel too.
        progress: Progress callback.

    Raises:
        UsageError: No such model or backend, or unknown options.
        InputError: Inputs do not fit the model.
        MissingExtraError: A package that the backend needs is not installed.
        BackendError: The backend failed.
    """
    check_model_file(model)
    loaded_backend = load_backend(backend)
    arrays = read_inputs(inputs)
    with closing(loaded_backend.open(model, options=options or {}, taps=taps, weights=False)) as run:
        feeds = ArrayFeeds(arrays, run.inputs, samples=samples)
        facts: dict[str, Any] = {**recorded_facts(run.facts)}
        facts["cpu_flags"] = facts["cpu_flags"] or None
        recorder = ProfileRecorder(None, graph=run.graph, bins=bins, per_channel=per_channel, **facts)
        with recorder:
            run.record(feeds, recorder, progress)
    return recorder.profile
