"""Model files in place of recordings: they are recorded first, and what was done is said on stderr."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from qdebug.cli.failures import say
from qdebug.cli.interrupts import Interrupts
from qdebug.cli.output import progress
from qdebug.cli.parser import TakesArguments, natural, positive, size
from qdebug.cli.record import BackendChoice, add_shape, backend_choice
from qdebug.cli.sources import command, open_source
from qdebug.errors import UsageError
from qdebug.present.text import safe_text
from qdebug.running.model_files import is_model, record_runs

if TYPE_CHECKING:
    from qdebug.running.fitted_inputs import GivenInputs
    from qdebug.running.model_runs import ModelRun, RecordedModel

__all__ = ["ModelOptions", "add_models", "recorded", "recorded_as_written"]


class ModelOptions(Protocol):
    """The arguments that `add_models` adds, and the files that they are about."""

    @property
    def reference(self) -> Path:
        """A recording or a model file."""

    @property
    def backends(self) -> Sequence[Path]:
        """Recordings or model files."""

    @property
    def inputs(self) -> Path | None:
        """One array per input of the reference."""

    @property
    def samples(self) -> int | None:
        """Length of the leading axis of samples."""

    @property
    def seed(self) -> int | None:
        """Seed of random inputs."""

    @property
    def shape(self) -> Sequence[tuple[str, tuple[int, ...]]]:
        """Shapes of inputs of the reference."""

    @property
    def ref_backend(self) -> BackendChoice | None:
        """What runs the reference."""

    @property
    def run_on(self) -> Sequence[BackendChoice]:
        """What runs the backends' models."""

    @property
    def runs_limit(self) -> int | None:
        """Bytes that the folder of recordings may hold."""

    @property
    def untrusted(self) -> bool:
        """Whether nothing may be run or read outside a guarded process."""


def add_models(parser: TakesArguments) -> None:
    """Add the options for model files, of a group of arguments."""
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", help="one array per model input (default: random)")
    parser.add_argument("--samples", type=positive, metavar="N", help="run N samples: the leading axis of the inputs")
    parser.add_argument("--seed", type=natural, metavar="N", help="seed of random inputs (default: 0)")
    add_shape(parser)
    parser.add_argument(
        "--runs-limit",
        type=size,
        metavar="SIZE",
        help="room for qdebug-runs/: above it recordings older than a day that can be made again go (default: 5GB)",
    )
    parser.add_argument(
        "--ref-backend",
        type=backend_choice,
        metavar="NAME[:key=value,...]",
        help="what runs REF (default: the first runtime that reads it; ONNX Runtime with opt=none)",
    )
    parser.add_argument(
        "--backend",
        type=backend_choice,
        action="append",
        default=[],
        dest="run_on",
        metavar="NAME[:key=value,...]",
        help="what runs BACKEND (default: the first runtime that reads it); again for each further BACKEND, or to run "
        "one model on several",
    )


def recorded(options: ModelOptions) -> tuple[Path, list[Path]]:
    """Record what is a model file among the files of a command; return the recordings in the place of all.

    Args:
        options: The arguments.

    Raises:
        UsageError: Options for models without a model, or numbers of backends and models that do not fit.
        QdebugError: A model cannot be recorded.
    """
    models = [path for path in (options.reference, *options.backends) if is_model(path)]
    if not models:
        _refuse(options, tuple(_GIVEN), "all of these are recordings")
        return options.reference, list(options.backends)
    if options.untrusted:
        raise UsageError(
            f"{str(models[0])!r} is a model, and --untrusted runs none.",
            hint=f"Record it first: {command('qdebug', 'record', models[0], '--help')} says how.",
        )
    reference = options.reference
    if not is_model(reference):
        _refuse(
            options,
            ("--ref-backend", "--samples", "--seed", "--shape"),
            f"{str(reference)!r} is a recording with its own inputs",
        )
    backends = _chosen(options)
    made, recordings = record_runs(
        _run(reference, options.ref_backend, reference=True) if is_model(reference) else open_source(reference),
        [_run(path, choice, reference=False) for path, choice in backends if is_model(path)],
        _record,
        title=reference.name,
        inputs=options.inputs,
        samples=options.samples,
        seed=options.seed or 0,
        shapes=dict(options.shape),
    )
    _prune(options.runs_limit)
    left = iter(recordings)
    return made or reference, [next(left) if is_model(path) else path for path, _ in backends]


_GIVEN: Mapping[str, Callable[[ModelOptions], object]] = MappingProxyType(
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
"""What was given for each option; None if nothing."""


def recorded_as_written(model: Path, recording: Path) -> Path:
    """Return the recording of a model's run in which nodes are those of the model file, as its edits need them.

    A runtime that rewrites the model before it runs it has other nodes. Then it is run again without that, on the
    recorded inputs, if it can be.

    Args:
        model: The model.
        recording: A recording of it.

    Raises:
        QdebugError: The model cannot be read or recorded.
    """
    from qdebug.backends import editable_tensors, load_backend
    from qdebug.running.fitted_inputs import recorded_inputs
    from qdebug.running.model_runs import ModelRun, keeps_nodes

    run = open_source(recording)
    graph, info = run.graph, run.info
    made = {name for node in graph.nodes for name in node.outputs if name and graph.tensors[name].quant is not None}
    if made <= editable_tensors(model):
        return recording
    backend = load_backend(info.backend)
    if not keeps_nodes(backend) or info.options.get("opt") == "none":
        return recording
    known = {option.name for option in backend.options}
    options = {name: str(value) for name, value in info.options.items() if name in known} | {"opt": "none"}
    say(f"{info.backend} rewrote {safe_text(model.name)}, and its own nodes are changed: recording it with opt=none")
    given = recorded_inputs(run, title=recording.name)
    return _record(ModelRun(model=model, backend=info.backend, options=options), given, adapt=False)


def _refuse(options: ModelOptions, names: Sequence[str], why: str) -> None:
    """Refuse options that would have no effect."""
    name = next((name for name in names if _GIVEN[name](options) is not None), None)
    if name is not None:
        raise UsageError(f"{name} is for model files, and {why}.", hint=f"Leave out {name}.")


def _chosen(options: ModelOptions) -> list[tuple[Path, BackendChoice | None]]:
    """Return each backend's file with what runs it, where that is chosen.

    Raises:
        UsageError: There are more choices than one for each of several models, or fewer.
    """
    paths, choices = list(options.backends), list(options.run_on)
    models = [path for path in paths if is_model(path)]
    if len(choices) > 1 and len(paths) == len(models) == 1:
        return [(paths[0], choice) for choice in choices]
    if len(choices) not in (0, 1, len(models)):
        raise UsageError(
            f"{len(choices)} times --backend for {len(models)} model files.",
            hint="Give --backend once for all of them, or once for each.",
        )
    left = iter(choices if len(choices) == len(models) else choices * len(models))
    return [(path, next(left, None) if is_model(path) else None) for path in paths]


def _run(path: Path, choice: BackendChoice | None, *, reference: bool) -> ModelRun:
    from qdebug.running.model_runs import ModelRun, choose_backend

    if choice is None:
        return choose_backend(path, reference=reference)
    return ModelRun(model=path, backend=choice.name, options=choice.options)


def _record(run: ModelRun, given: GivenInputs, *, adapt: bool) -> Path:
    from qdebug.running.model_runs import record_model

    begun = monotonic()
    with progress(f"recording {safe_text(run.model.name, limit=40)}") as note, Interrupts() as interrupts:
        done = record_model(run, given, adapt=adapt, on_progress=interrupts.checked(note), on_tensor=interrupts.check)
    _tell(done, monotonic() - begun, own_inputs=not adapt)
    return done.path


def _prune(limit: int | None) -> None:
    """Remove recordings of earlier runs that can be made again, where the folder is too large, and say so."""
    from qdebug.present import numbers
    from qdebug.running.model_runs import RUNS
    from qdebug.running.runs_folder import RUNS_LIMIT, prune

    gone = prune(RUNS, limit=RUNS_LIMIT if limit is None else limit)
    if gone:
        many = numbers.counted(len(gone), "recording")
        freed = numbers.byte_size(sum(each.size for each in gone))
        say(f"{RUNS}/: removed {many} older than a day that can be made again, {freed} (--runs-limit)")


def _tell(done: RecordedModel, seconds: float, *, own_inputs: bool) -> None:
    """Say what was recorded, where it is, and with which inputs if they are not those of another run."""
    how = "used again" if done.reused else f"recorded in {seconds:.1f} s"
    model = done.run.model
    say(f"{safe_text(model)} on {safe_text(done.run.title)}: {how}: {command(done.path)}")
    if done.changes:
        say(f"  inputs: {safe_text(done.changes, limit=2000)}")
    if done.random is not None and own_inputs:
        template = command("qdebug", "record", model, "--example-inputs", "x.npz")
        say(f"  INPUTS ARE RANDOM ({safe_text(done.random)})")
        say(f"  hint: Put real values into a template and add --inputs x.npz: {template}")
