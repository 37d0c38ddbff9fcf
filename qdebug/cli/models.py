"""Model files given in place of recordings: record them first, and report that on stderr."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from qdebug.byte_size import byte_size
from qdebug.cli.failures import say
from qdebug.cli.interrupts import Interrupts
from qdebug.cli.output import progress
from qdebug.cli.parser import TakesArguments, natural, positive, size
from qdebug.cli.record import BackendChoice, add_shape, backend_choice, batch_clause
from qdebug.cli.sources import command, open_source
from qdebug.errors import UsageError
from qdebug.present.text import safe_text
from qdebug.running.model_files import is_model, record_runs

if TYPE_CHECKING:
    from qdebug.running.fitted_inputs import GivenInputs
    from qdebug.running.model_runs import ModelRun, RecordedModel

__all__ = ["ModelOptions", "add_models", "record_models", "record_unoptimized"]


class ModelOptions(Protocol):
    """The values of the arguments that `add_models` adds, and the files."""

    @property
    def reference(self) -> Path:
        """A recording or a model file."""

    @property
    def backends(self) -> Sequence[Path]:
        """Recordings or model files."""

    @property
    def inputs(self) -> Path | None:
        """Arrays for the inputs of the reference."""

    @property
    def samples(self) -> int | None:
        """Length of the leading axis of samples."""

    @property
    def seed(self) -> int | None:
        """Seed of random inputs."""

    @property
    def shape(self) -> Sequence[tuple[str, tuple[int, ...]]]:
        """Shapes of the reference's inputs."""

    @property
    def ref_backend(self) -> BackendChoice | None:
        """Backend of the reference."""

    @property
    def run_on(self) -> Sequence[BackendChoice]:
        """Backends of the backends' models."""

    @property
    def runs_limit(self) -> int | None:
        """Maximum size of the folder of recordings in bytes."""

    @property
    def untrusted(self) -> bool:
        """Whether files may only be read in a guarded process, and models may not be read at all."""


def add_models(parser: TakesArguments) -> None:
    """Add the options for model files to a group of arguments."""
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", help="one array per model input (default: random)")
    parser.add_argument("--samples", type=positive, metavar="N", help="run N samples: the leading axis of the inputs")
    parser.add_argument("--seed", type=natural, metavar="N", help="seed of random inputs (default: 0)")
    add_shape(parser)
    parser.add_argument(
        "--runs-limit",
        type=size,
        metavar="SIZE",
        help=(
            "size limit of qdebug-runs/; above it, reproducible recordings older than a day are removed (default: 5GB)"
        ),
    )
    parser.add_argument(
        "--ref-backend",
        type=backend_choice,
        metavar="NAME[:key=value,...]",
        help="backend that runs REF (default: the first runtime that reads it; ONNX Runtime with opt=none)",
    )
    parser.add_argument(
        "--backend",
        type=backend_choice,
        action="append",
        default=[],
        dest="run_on",
        metavar="NAME[:key=value,...]",
        help="backend that runs BACKEND (default: the first runtime that reads it); repeat it for further BACKENDs, "
        "or to run one model on several",
    )


def record_models(options: ModelOptions) -> tuple[Path, list[Path]]:
    """Record the model files among a command's files. Return recordings for all of the files.

    Args:
        options: The arguments.

    Raises:
        UsageError: There are options for models without a model, or the numbers of backends and models do not match.
        QdebugError: A model cannot be recorded.
    """
    models = [path for path in (options.reference, *options.backends) if is_model(path)]
    if not models:
        _refuse_options(options, tuple(_GIVEN_VALUES), "all of these are recordings")
        return options.reference, list(options.backends)
    if options.untrusted:
        raise UsageError(
            f"{str(models[0])!r} is a model file; --untrusted supports only recordings.",
            hint=f"Record it first; see {command('qdebug', 'record', models[0], '--help')}.",
        )
    reference = options.reference
    if not is_model(reference):
        _refuse_options(
            options,
            ("--ref-backend", "--samples", "--seed", "--shape"),
            f"{str(reference)!r} is a recording with its own inputs",
        )
    backends = _choices_by_path(options)
    recorded_reference, recordings = record_runs(
        _make_model_run(reference, options.ref_backend, reference=True)
        if is_model(reference)
        else open_source(reference),
        [_make_model_run(path, choice, reference=False) for path, choice in backends if is_model(path)],
        _record_with_progress,
        title=reference.name,
        inputs=options.inputs,
        samples=options.samples,
        seed=options.seed or 0,
        shapes=dict(options.shape),
    )
    _prune(options.runs_limit)
    remaining = iter(recordings)
    return recorded_reference or reference, [next(remaining) if is_model(path) else path for path, _ in backends]


_GIVEN_VALUES: Mapping[str, Callable[[ModelOptions], object]] = MappingProxyType(
    {
        "--inputs": lambda options: options.inputs,
        "--samples": lambda options: options.samples,
        "--seed": lambda options: options.seed,
        "--shape": lambda options: options.shape or None,
        "--runs-limit": lambda options: options.runs_limit,
        "--ref-backend": lambda options: options.ref_backend,
        "--backend": lambda options: options.run_on or None,
    }
)
"""Value of each option; None if it was not given."""


def record_unoptimized(model: Path, recording: Path) -> Path:
    """Return a recording whose nodes are the model file's nodes, as needed for editing the model.

    A runtime that rewrites the model has different nodes. If possible, it is run again without optimization on the
    recorded inputs.

    Args:
        model: The model.
        recording: A recording of it.

    Raises:
        QdebugError: The model cannot be read or recorded.
    """
    from qdebug.backends import editable_tensors, load_backend
    from qdebug.running.fitted_inputs import load_recorded_inputs
    from qdebug.running.model_runs import ModelRun, keeps_nodes

    run = open_source(recording)
    graph, info = run.graph, run.info
    quantized_tensors = {
        name for node in graph.nodes for name in node.outputs if name and graph.tensors[name].quant is not None
    }
    if quantized_tensors <= editable_tensors(model):
        return recording
    backend = load_backend(info.backend)
    if not keeps_nodes(backend) or info.options.get("opt") == "none":
        return recording
    option_names = {option.name for option in backend.options}
    options = {name: str(value) for name, value in info.options.items() if name in option_names} | {"opt": "none"}
    say(f"{info.backend} rewrote {safe_text(model.name)} and changed its nodes; recording it again with opt=none")
    inputs = load_recorded_inputs(run, title=recording.name)
    return _record_with_progress(ModelRun(model=model, backend=info.backend, options=options), inputs, may_adapt=False)


def _refuse_options(options: ModelOptions, names: Sequence[str], reason: str) -> None:
    """Reject options that would have no effect."""
    name = next((name for name in names if _GIVEN_VALUES[name](options) is not None), None)
    if name is not None:
        raise UsageError(f"{name} is for model files, but {reason}.", hint=f"Leave out {name}.")


def _choices_by_path(options: ModelOptions) -> list[tuple[Path, BackendChoice | None]]:
    """Return each backend's file with the backend chosen for it, if any.

    Raises:
        UsageError: The number of choices is neither one nor the number of models.
    """
    paths, choices = list(options.backends), list(options.run_on)
    models = [path for path in paths if is_model(path)]
    if len(choices) > 1 and len(paths) == len(models) == 1:
        return [(paths[0], choice) for choice in choices]
    if len(choices) not in (0, 1, len(models)):
        raise UsageError(
            f"There are {len(choices)} --backend options for {len(models)} model files.",
            hint="Give --backend once for all of them, or once for each.",
        )
    remaining = iter(choices if len(choices) == len(models) else choices * len(models))
    return [(path, next(remaining, None) if is_model(path) else None) for path in paths]


def _make_model_run(path: Path, choice: BackendChoice | None, *, reference: bool) -> ModelRun:
    from qdebug.running.model_runs import ModelRun, choose_backend

    if choice is None:
        return choose_backend(path, reference=reference)
    return ModelRun(model=path, backend=choice.name, options=choice.options)


def _record_with_progress(run: ModelRun, given: GivenInputs, *, may_adapt: bool) -> Path:
    from qdebug.running.model_runs import record_model

    start = monotonic()
    with progress(f"recording {safe_text(run.model.name, limit=40)}") as note, Interrupts() as interrupts:
        recorded_model = record_model(
            run, given, may_adapt=may_adapt, on_progress=interrupts.wrap_progress(note), on_tensor=interrupts.check
        )
    _report_recording(recorded_model, monotonic() - start, own_inputs=not may_adapt)
    return recorded_model.path


def _prune(limit: int | None) -> None:
    """If the folder is too large, remove older recordings that can be created again, and report it."""
    from qdebug.present import numbers
    from qdebug.running.model_runs import RUNS
    from qdebug.running.runs_folder import RUNS_LIMIT, prune

    removed_recordings = prune(RUNS, limit=RUNS_LIMIT if limit is None else limit)
    if removed_recordings:
        count_text = numbers.counted(len(removed_recordings), "recording")
        freed_text = byte_size(sum(recording.size for recording in removed_recordings))
        say(f"{RUNS}/: removed {count_text} older than a day that can be recorded again, {freed_text} (--runs-limit)")


def _report_recording(recorded_model: RecordedModel, seconds: float, *, own_inputs: bool) -> None:
    """Print the path and duration of a recording, and a warning if it used new random inputs."""
    outcome_text = "used again" if recorded_model.is_reused else f"recorded in {seconds:.1f} s"
    model = recorded_model.run.model
    say(f"{safe_text(model)} on {safe_text(recorded_model.run.title)}: {outcome_text}: {command(recorded_model.path)}")
    batch_text = batch_clause(open_source(recorded_model.path))
    if batch_text and own_inputs:
        say(f"  inputs: {batch_text}")
    if recorded_model.changes_text:
        say(f"  inputs: {safe_text(recorded_model.changes_text, limit=2000)}")
    if recorded_model.random is not None and own_inputs:
        template_command = command("qdebug", "record", model, "--example-inputs", "x.npz")
        say(f"  INPUTS ARE RANDOM ({safe_text(recorded_model.random)})")
        say(f"  hint: Write a template, put real values into it, and add --inputs x.npz: {template_command}")
