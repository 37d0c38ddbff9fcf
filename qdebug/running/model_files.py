"""Recognize model files that are given in place of recordings, and record the reference before the backends.

Commands without a model import this module too, so heavy modules are imported in the functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from qdebug.regular_file import open_binary

if TYPE_CHECKING:
    from qdebug.model import Recording
    from qdebug.running.fitted_inputs import GivenInputs
    from qdebug.running.model_runs import ModelRun

__all__ = ["MODEL_ENDINGS", "RecordsRun", "holds_recording", "is_model", "record_runs"]

MODEL_ENDINGS = frozenset({".onnx", ".tflite", ".pt2", ".pte", ".pt", ".pth", ".xml", ".pb"})
"""File name suffixes of models."""
_HDF5 = b"\x89HDF\r\n\x1a\n"


def is_model(path: Path) -> bool:
    """Return whether a file is a model by its suffix, and not a recording by its content.

    Args:
        path: The file. The result is False if it cannot be read.
    """
    return path.suffix.lower() in MODEL_ENDINGS and holds_recording(path) is False


def holds_recording(path: Path) -> bool | None:
    """Return whether a file begins like a recording, or like the list of several; None if it cannot be read."""
    try:
        with open_binary(path) as file:
            start = file.read(64)
    except OSError:
        return None
    return start.startswith(_HDF5) or start.lstrip()[:1] == b"{"


class RecordsRun(Protocol):
    """Records a run and returns its recording, as `record_model` does."""

    def __call__(self, run: ModelRun, given: GivenInputs, *, may_adapt: bool) -> Path:
        """Record a run. With `may_adapt`, the inputs belong to another model and may be changed to fit."""


def record_runs(
    reference: ModelRun | Recording,
    backends: Sequence[ModelRun],
    record: RecordsRun,
    *,
    title: str,
    inputs: str | Path | None = None,
    samples: int | None = None,
    seed: int = 0,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> tuple[Path | None, list[Path]]:
    """Record a reference and the backends' models, which get the reference's inputs.

    Args:
        reference: The model and its backend, or its recording.
        backends: The backends' models, each with its backend.
        record: Records one run.
        title: Name of the reference in messages.
        inputs: An .npz file of the inputs, or None for random values, within the code range of a quantized model.
        samples: Length of the leading axis of samples, or None for none.
        seed: Seed of random values.
        shapes: Shapes of the reference's inputs chosen by the user, by input.

    Returns:
        The reference's recording (None if a recording was given), and the backends' recordings.

    Raises:
        QdebugError: A model cannot be recorded, or the inputs cannot be read.
    """
    from qdebug.recording.reading.opening import opened_recording
    from qdebug.running.fitted_inputs import input_ranges, load_recorded_inputs, make_given_inputs
    from qdebug.running.model_runs import ModelRun, model_graph

    recorded_reference = None
    files = [Path(inputs)] if inputs is not None else []
    reference_run: Recording | Path
    if isinstance(reference, ModelRun):
        ranges_by_backend = (input_ranges(model_graph(run)) for run in backends if inputs is None)
        ranges = next(filter(None, ranges_by_backend), {})
        given_inputs = make_given_inputs(inputs, samples=samples, seed=seed, ranges=ranges, shapes=shapes)
        recorded_reference = record(reference, replace(given_inputs, files=tuple(files)), may_adapt=False)
        files.append(reference.model)
        if not backends:
            return recorded_reference, []
        reference_run = recorded_reference
    else:
        reference_run = reference
        # For a recording in memory, Path() cannot be read, so no sources are noted and the runs are never pruned.
        files.append(getattr(reference, "path", Path()))
    with opened_recording(reference_run) as recording:
        given_by_reference = load_recorded_inputs(recording, title=title, extra=inputs)
    given_by_reference = replace(given_by_reference, files=tuple(files))
    return recorded_reference, [
        record(run, _with_shapes(given_by_reference, run, shapes or {}), may_adapt=True) for run in backends
    ]


def _with_shapes(given_inputs: GivenInputs, run: ModelRun, shapes: Mapping[str, tuple[int, ...]]) -> GivenInputs:
    """Return inputs with only those of the shapes chosen for the reference that a backend's model accepts too."""
    if not shapes:
        return given_inputs
    from qdebug.running.feeds import has_shape_of
    from qdebug.running.model_runs import model_graph

    graph = model_graph(run)
    model_shapes = {name: graph.tensors[name].shape for name in graph.inputs if name in shapes}
    fitting_shapes = {
        name: shapes[name] for name, shape in model_shapes.items() if shape is None or has_shape_of(shapes[name], shape)
    }
    return replace(given_inputs, shapes=fitting_shapes)
