"""Model files in place of recordings: which files are models, and in what order they are recorded and fed.

Nothing is imported that a command line without a model does not need.
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

__all__ = ["MODEL_ENDINGS", "RecordsRun", "is_model", "record_runs"]

MODEL_ENDINGS = frozenset({".onnx", ".tflite", ".pt2", ".pte", ".pt", ".pth", ".xml", ".pb"})
"""Endings of the names of model files."""
_HDF5 = b"\x89HDF\r\n\x1a\n"


def is_model(path: Path) -> bool:
    """Tell whether a file is a model by its name and no recording by its content, which the name says nothing of.

    Args:
        path: As the user wrote it; a file that cannot be read is none.
    """
    if path.suffix.lower() not in MODEL_ENDINGS:
        return False
    try:
        with open_binary(path) as file:
            start = file.read(64)
    except OSError:
        return False
    return not start.startswith(_HDF5) and start.lstrip()[:1] != b"{"


class RecordsRun(Protocol):
    """Records a run and returns its recording, as `record_model` does."""

    def __call__(self, run: ModelRun, given: GivenInputs, *, adapt: bool) -> Path:
        """Record a run; where `adapt`, the inputs are those of another model and may be changed to fit."""


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
        reference: The model and what runs it, or its recording.
        backends: The backends' models and what runs them.
        record: Records one run.
        title: What the reference is called in a message.
        inputs: An .npz file of the inputs; random values if None, within what the codes of a quantized model reach.
        samples: Length of the leading axis of samples; None for none.
        seed: Seed of random values.
        shapes: Shapes of the reference's inputs that the user chose, by input.

    Returns:
        The reference's recording, None if it is one already, and the backends' recordings.

    Raises:
        QdebugError: A model cannot be recorded, or the inputs cannot be read.
    """
    from qdebug.recording.reading.opening import opened_recording
    from qdebug.running.fitted_inputs import given_inputs, input_ranges, recorded_inputs
    from qdebug.running.model_runs import ModelRun, model_graph

    made = None
    files = [Path(inputs)] if inputs is not None else []
    recorded: Recording | Path
    if isinstance(reference, ModelRun):
        found = (input_ranges(model_graph(run)) for run in backends if inputs is None)
        ranges = next(filter(None, found), {})
        given = given_inputs(inputs, samples=samples, seed=seed, ranges=ranges, shapes=shapes)
        made = record(reference, replace(given, files=tuple(files)), adapt=False)
        files.append(reference.model)
        if not backends:
            return made, []
        recorded = made
    else:
        recorded = reference
        files.append(getattr(reference, "path", Path()))  # of what is in no file nothing can be made again
    with opened_recording(recorded) as recording:
        fed = recorded_inputs(recording, title=title, extra=inputs)
    fed = replace(fed, files=tuple(files))
    return made, [record(run, _shaped(fed, run, shapes or {}), adapt=True) for run in backends]


def _shaped(given: GivenInputs, run: ModelRun, shapes: Mapping[str, tuple[int, ...]]) -> GivenInputs:
    """Return inputs with those shapes that were chosen for the reference and that a backend's model takes as well."""
    if not shapes:
        return given
    from qdebug.running.feeds import fits
    from qdebug.running.model_runs import model_graph

    graph = model_graph(run)
    known = {name: graph.tensors[name].shape for name in graph.inputs if name in shapes}
    taken = {name: shapes[name] for name, shape in known.items() if shape is None or fits(shapes[name], shape)}
    return replace(given, shapes=taken)
