"""Record model files so that they can be compared: choose a backend, make inputs, reuse earlier recordings.

The name of a recording consists of its model, its backend and a hash of everything that the run depends on: the model
file and the companion files it names, the inputs, the backend and its options, package versions and the processor.
Equal names mean the same run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from qdebug.backends import BACKENDS, READERS, installed_backends, load_backend, load_reader
from qdebug.backends.protocol import Backend, OnProgress, fixes_shapes, open_run
from qdebug.errors import BackendError, MissingExtraError, QdebugError, RecordingError, UsageError
from qdebug.model import Graph
from qdebug.recording.environment import cpu_flags, machine, package_versions
from qdebug.recording.reading.opening import opened_recording
from qdebug.regular_file import open_binary
from qdebug.running.feeds import ArrayFeeds
from qdebug.running.fitted_inputs import (
    CHANGES,
    INPUTS,
    RANDOM,
    GivenInputs,
    fit_inputs,
    random_inputs,
    random_inputs_note,
)
from qdebug.running.input_shapes import Shape, choose_shapes
from qdebug.running.record import record_feeds
from qdebug.running.runs_folder import file_hash, mark_used, note_sources

__all__ = [
    "RUNS",
    "ModelRun",
    "RecordedModel",
    "choose_backend",
    "companion_files",
    "content_hashes",
    "example_inputs",
    "keeps_nodes",
    "model_graph",
    "record_model",
]

RUNS = Path("qdebug-runs")
"""Folder for the recordings that a comparison of model files makes."""

_HASH_LENGTH = 10
"""Number of hexadecimal digits of the hash in a recording's name: 40 bits distinguish thousands of runs."""
_MAX_STEM = 60
"""Maximum number of characters of the model's name in a recording's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRun:
    """A model file and its backend.

    Args:
        model: The model file.
        backend: Name of the backend.
        options: Options of the backend.
    """

    model: Path
    backend: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The backend in the format of `--backend`."""
        options_text = ",".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.backend}:{options_text}" if options_text else self.backend


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedModel:
    """The recording of a model file.

    Args:
        path: The recording.
        run: The model and its backend.
        is_reused: Whether the recording existed already.
        random: A warning if the inputs are random, else None.
        changes_text: How the inputs were changed to fit the model, and which shapes are defaults; "" if neither.
    """

    path: Path
    run: ModelRun
    is_reused: bool
    random: str | None
    changes_text: str = ""


def choose_backend(model: Path, *, reference: bool) -> ModelRun:
    """Choose the first installed backend that runs a model file, with frameworks before the interpreter.

    Args:
        model: The model file.
        reference: Whether the run is the reference. If so, graph optimization is turned off if the backend has that
            option.

    Raises:
        UsageError: No installed backend runs files with this suffix.
    """
    suffix = model.suffix.lower()
    candidates: list[tuple[tuple[bool, int], str, Backend]] = []
    for name in (*BACKENDS, *installed_backends()):
        try:
            backend = load_backend(name)
        except (MissingExtraError, BackendError):  # an error only if the user asks for this backend
            continue
        suffixes = getattr(backend, "models", (".onnx",))
        if suffix in suffixes:
            rank = bool(getattr(backend, "runs_recordings", False)), suffixes.index(suffix)
            candidates.append((rank, name, backend))
    if not candidates:
        raise UsageError(
            f"No installed backend runs the model file {model.name!r}.",
            hint="List the backends and how to install them: qdebug record --list-backends.",
        )
    _, name, backend = min(candidates, key=lambda candidate: candidate[0])
    return ModelRun(model=model, backend=name, options={"opt": "none"} if reference and keeps_nodes(backend) else {})


def keeps_nodes(backend: Backend) -> bool:
    """Return whether a backend can run the nodes of a model file unoptimized, with its option opt=none."""
    return any(spec.name == "opt" and "none" in (spec.choices or ()) for spec in backend.options)


def model_graph(run: ModelRun) -> Graph:
    """Return the graph of a model file, or the graph that the backend runs if there is no reader for the format.

    Args:
        run: The model and its backend.

    Raises:
        UsageError: Unknown options, or a model that the backend does not run.
        QdebugError: The file is not such a model.
    """
    if run.model.suffix.lower() in READERS:
        return load_reader(run.model).graph
    backend = load_backend(run.backend)
    with closing(backend.open(run.model, options=run.options, taps="outputs", weights=False)) as backend_run:
        return backend_run.graph


def example_inputs(
    run: ModelRun, *, samples: int | None = None, seed: int = 0, shapes: Mapping[str, Shape] | None = None
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return random arrays for the inputs of a model, by name, as a template for real ones.

    Args:
        run: The model and its backend.
        samples: Length of a leading axis of samples, or None for none.
        seed: Seed of the random values.
        shapes: Shapes chosen by the user, by input.

    Returns:
        The arrays, and a clause for each input with a default shape.

    Raises:
        UsageError: Unknown options, or a model that the backend does not run.
        InputError: An input of the model does not hold numbers, or a shape does not fit it.
        BackendError: The backend rejected the model.
    """
    backend = load_backend(run.backend)
    with closing(backend.open(run.model, options=run.options, taps="outputs", weights=False)) as backend_run:
        chosen_shapes, fill_notes = choose_shapes(
            backend_run.inputs, chosen_shapes=shapes, extent_names=backend_run.facts.extent_names
        )
        return random_inputs(backend_run.inputs, samples=samples, seed=seed, shapes=chosen_shapes), fill_notes


def record_model(
    run: ModelRun,
    given: GivenInputs,
    *,
    may_adapt: bool = False,
    folder: Path = RUNS,
    on_progress: OnProgress | None = None,
    on_tensor: Callable[[], None] | None = None,
) -> RecordedModel:
    """Record a model, or find an existing recording of exactly the same run.

    Args:
        run: The model and its backend.
        given: The inputs.
        may_adapt: Whether the inputs belong to another model, and may be quantized, cast and moved to a different
            layout.
        folder: Folder of recordings, created if missing.
        on_progress: Called with (done, total, label).
        on_tensor: Called before each tensor is recorded. An exception ends the run and leaves nothing behind.

    Raises:
        UsageError: Unknown options, or a model that the backend does not run.
        InputError: The inputs do not fit the model.
        MissingExtraError: A package that the backend needs is not installed.
        BackendError: The backend failed.
        RecordingError: The recording cannot be written.
    """
    recording_path = folder / _file_name(run, given)
    is_reused = _is_finished(recording_path)
    if is_reused:
        mark_used(recording_path)
    else:
        try:
            _record_to_file(
                run, given, recording_path, may_adapt=may_adapt, on_progress=on_progress, on_tensor=on_tensor
            )
        except QdebugError as error:
            error.name_subject(str(run.model))
            raise
        option_files = (Path(value) for value in run.options.values() if Path(value).is_file())
        note_sources(recording_path, [run.model, *companion_files(run.model), *option_files, *given.files])
    with opened_recording(recording_path) as recording:
        info = recording.info
    return RecordedModel(
        path=recording_path,
        run=run,
        is_reused=is_reused,
        random=random_inputs_note(info),
        changes_text=str(info.options.get(CHANGES, "")),
    )


def _record_to_file(
    run: ModelRun,
    given_inputs: GivenInputs,
    recording_path: Path,
    *,
    may_adapt: bool,
    on_progress: OnProgress | None,
    on_tensor: Callable[[], None] | None,
) -> None:
    backend = load_backend(run.backend)
    shapes = given_inputs.shapes if fixes_shapes(backend) else {}
    with closing(open_run(backend, run.model, options=run.options, shapes=shapes)) as backend_run:
        names = backend_run.facts.extent_names
        arrays, changes = fit_inputs(given_inputs, backend_run.inputs, may_adapt=may_adapt, extent_names=names)
        if given_inputs.shapes and not shapes:
            changes.append(
                f"backend {backend.name!r} runs arrays of any shape, so --shape does not fix dimensions of the model"
            )
        feeds = ArrayFeeds(arrays, backend_run.inputs, samples=given_inputs.samples)
        facts: dict[str, str | bool] = {INPUTS: given_inputs.origin_text, RANDOM: given_inputs.is_random}
        if changes:
            facts[CHANGES] = "; ".join(changes)
        _make_folder(recording_path.parent)
        try:
            record_feeds(
                backend_run,
                feeds,
                recording_path,
                force=True,
                on_progress=on_progress,
                on_tensor=on_tensor,
                further_facts=facts,
            )
        except KeyboardInterrupt:
            recording_path.unlink(missing_ok=True)  # or the next command would reuse the partial run as a whole one
            raise


def _is_finished(path: Path) -> bool:
    """Return whether a file is a complete recording."""
    if not path.exists():
        return False
    try:
        with opened_recording(path) as recording:
            return recording.info.complete
    except QdebugError:
        return False


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordingError(
            f"The folder {str(folder)!r} for recordings cannot be created: {error.strerror or error}.",
            hint="Run the command in a folder that you may write to.",
        ) from error


def _file_name(run: ModelRun, given_inputs: GivenInputs) -> str:
    """Return the file name of a run, with a hash of everything that the run depends on."""
    packages = BACKENDS[run.backend].packages if run.backend in BACKENDS else ()
    names = [package.partition(".")[0].replace("_", "-") for package in packages]
    entry_point = installed_backends().get(run.backend)
    facts = {
        "model": run.model.name,
        "files": content_hashes(run.model),
        "backend": run.backend,
        "options": {name: [value, *_hash_of_file_option(value)] for name, value in run.options.items()},
        "inputs": given_inputs.origin_text if given_inputs.arrays is None else _hash_arrays(given_inputs.arrays),
        "samples": given_inputs.samples,
        "shapes": {name: list(shape) for name, shape in given_inputs.shapes.items()},
        "versions": package_versions(*names)
        | ({} if entry_point is None or entry_point.dist is None else {"": entry_point.dist.version}),
        "machine": {**machine(), "flags": list(cpu_flags())},
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", run.model.stem)[-_MAX_STEM:].strip("._-") or "model"
    return f"{stem}-{run.backend}-{digest[:_HASH_LENGTH]}.h5"


def _hash_of_file_option(value: str) -> list[str]:
    """Return the hash of the file that an option's value names; empty if it does not name a file."""
    path = Path(value)
    return [file_hash(path)] if path.is_file() else []


def _hash_arrays(arrays: Mapping[str, np.ndarray]) -> list[tuple[str, str, list[int], str]]:
    return [
        (name, array.dtype.name, list(array.shape), hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest())
        for name, array in arrays.items()
    ]


def content_hashes(model: Path) -> list[tuple[str, str]]:
    """Return name and hash of a model file and of its companion files.

    Raises:
        UsageError: The model file cannot be read.
    """
    try:
        return [(file.name, file_hash(file)) for file in (model, *companion_files(model)) if file.exists()]
    except OSError as error:
        raise UsageError(
            f"The model file {str(model)!r} cannot be read: {error.strerror or error}.",
            hint="Check path and permissions.",
        ) from error


def companion_files(model: Path) -> list[Path]:
    """Return the files that belong to a model file.

    These are the weights of an OpenVINO model, or the external data files named by an ONNX file.
    """
    return [model.with_suffix(".bin")] if model.suffix.lower() == ".xml" else _find_external_data(model)


def _find_external_data(model: Path) -> list[Path]:
    if model.suffix.lower() != ".onnx":
        return []
    with open_binary(model) as file:
        content = file.read()
    if b"location" not in content:  # key of the entry that names a file of external data
        return []
    siblings = sorted(path for path in model.parent.iterdir() if path.is_file() and path != model)
    return [path for path in siblings if path.name.encode() in content]
