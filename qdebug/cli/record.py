"""qdebug record: run a model and record every tensor."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qdebug.byte_size import byte_size
from qdebug.cli.failures import say
from qdebug.cli.interrupts import Interrupts
from qdebug.cli.output import check_target, emit, progress
from qdebug.cli.parser import Parser, TakesArguments, add_common, add_untrusted, natural, options_from, positive
from qdebug.cli.sources import command, open_source
from qdebug.errors import UsageError
from qdebug.regular_file import near_file

if TYPE_CHECKING:
    from qdebug.model import Recording, RunInfo

__all__ = ["BackendChoice", "RecordOptions", "add_shape", "backend_choice", "batch_clause", "fill_parser", "run"]

_TAPS = ("faithful", "all", "outputs")

_DESCRIPTION = """\
Run a model on a backend and record every tensor in one HDF5 file, with the graph,
weights, scales, zero points, versions and processor flags. The file is enough to
debug the run without the model or the hardware.

MODEL is a model file, or a recording whose graph and weights the interpreter replays.
The inputs are one array per model input, saved with numpy.savez. --example-inputs
writes a template for them without recording. With --samples N the leading axis of
each array is samples; with --steps N the next axis is the steps of a stateful
network.

With --steps, states are fed back: the output at one step is the input at the next.
Name them with --state OUT=IN; otherwise they are paired by names such as "h_out" and
"h" with equal shapes. The array of a state is its initial value, without an axis of
steps; the default is zeros. A state whose array has an axis of steps is read from the
array instead.

The model also runs without taps, and the outputs are compared bit for bit. If
recording changed the result, the recording says so (fidelity)."""

_EPILOG = """\
examples:
  qdebug record net.onnx --example-inputs x.npz       random arrays, to be replaced by real values
  qdebug record net.onnx --backend onnxruntime:opt=none --inputs x.npz -o ref.h5
  qdebug record net.int8.onnx --backend onnxruntime --inputs x.npz --samples 8 -o int8.h5
  qdebug record net.onnx --backend onnxruntime --inputs x.npz --keep elements:4096 -o part.h5
  qdebug record step.onnx --backend onnxruntime --inputs x.npz --steps 50 --state hn=h0 -o lstm.h5
  qdebug record net.tflite --backend litert:kernels=reference --inputs x.npz -o lite.h5
  qdebug record int8.h5 --backend interpreter --inputs x.npz -o replay.h5
  qdebug record --list-backends"""


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """The value of `--backend NAME[:key=value,...]`."""

    name: str
    options: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """Arguments of `qdebug record`."""

    model: Path
    backend: BackendChoice | None
    inputs: Path | None
    output: Path | None
    example_inputs: Path | None
    seed: int
    shape: list[tuple[str, tuple[int, ...]]]
    samples: int | None
    steps: int | None
    state: list[str]
    taps: str
    weights: bool
    keep: list[str]
    keep_every: int
    max_bytes: str | None
    force: bool


def backend_choice(text: str) -> BackendChoice:
    """Parse a backend's name and options.

    Args:
        text: NAME or NAME:key=value,key=value.

    Raises:
        argparse.ArgumentTypeError: An option has no value, or comes twice.
    """
    name, _, options_text = text.partition(":")
    options: dict[str, str] = {}
    for option_text in filter(None, options_text.split(",")):
        key, equals_sign, value = option_text.partition("=")
        if not equals_sign or not key:
            raise argparse.ArgumentTypeError(
                f"{option_text!r} is not an option; expected {name or 'NAME'}:key=value,key=value"
            )
        if key in options:
            raise argparse.ArgumentTypeError(f"the option {key!r} is given twice")
        options[key] = value
    if not name:
        raise argparse.ArgumentTypeError("the name of the backend is missing; expected NAME[:key=value,...]")
    return BackendChoice(name, options)


def shape_choice(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse the shape of an input.

    Args:
        text: NAME=1x3x48x192.

    Raises:
        argparse.ArgumentTypeError: The text has another form.
    """
    name, _, shape_text = text.rpartition("=")
    extents = shape_text.split("x")
    if not name or not all(extent.isascii() and extent.isdecimal() and 0 < len(extent) < 10 for extent in extents):
        raise argparse.ArgumentTypeError(f"{text!r} is not an input shape; expected NAME=1x3x48x192")
    return name, tuple(map(int, extents))


def add_shape(parser: TakesArguments) -> None:
    """Add `--shape`, for free dimensions of a model's inputs."""
    parser.add_argument(
        "--shape",
        type=shape_choice,
        action="append",
        default=[],
        metavar="NAME=1x3x48x192",
        help="fix the free dimensions of input NAME before the model is compiled (a runtime may then choose "
        "other kernels); random values get this shape (default: batch 1, otherwise 32); may be given several times",
    )


class _ListBackends(argparse.Action):
    """Print the backends and their options and stop, as --help does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        emit(_backends_text())
        parser.exit(0)


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model file or a recording")
    parser.add_argument(
        "--backend",
        type=backend_choice,
        metavar="NAME[:key=value,...]",
        help="the backend and its options, see --list-backends (default: the first installed one that runs MODEL)",
    )
    parser.add_argument("--list-backends", action=_ListBackends, nargs=0, help="list backends and their options")
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", help="one array per model input")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT.h5", help="the recording to write")
    parser.add_argument(
        "--example-inputs",
        type=Path,
        metavar="FILE.npz",
        help="write random arrays for the model's inputs to FILE.npz, as a template, and do not record",
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of --example-inputs (default: 0)")
    add_shape(parser)
    parser.add_argument("--force", action="store_true", help="overwrite OUT.h5 if it exists")
    parser.add_argument("--samples", type=positive, metavar="N", help="run N samples: the leading axis of the inputs")
    parser.add_argument("--steps", type=positive, metavar="N", help="run N steps: the next leading axis of the inputs")
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="OUT=IN",
        help="feed output OUT back into input IN at the next step; may be given several times. By default, states are "
        "paired by name and shape, and the pairs are printed",
    )
    parser.add_argument(
        "--taps",
        choices=_TAPS,
        default="faithful",
        help="faithful (default): every tensor of the executed graph, without changing the result; all: every tensor "
        "of the source graph, which may change what the backend fuses; outputs: only the outputs",
    )
    parser.add_argument(
        "--no-weights", action="store_false", dest="weights", help="do not record constants; the file is smaller"
    )
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="[RULE=]HOW",
        help="how much of each tensor to keep: full, stats (only statistics), sketch (statistics, and projections that "
        "estimate errors), elements:N (statistics, N elements at the same positions in every run, and the largest) "
        "or none. RULE is a name pattern, op:OPERATOR or >SIZE; @FILE has rules, one per line; may be given several "
        "times; the last matching rule applies",
    )
    parser.add_argument(
        "--keep-every", type=positive, default=1, metavar="N", help="keep every Nth sample (default: 1, all)"
    )
    parser.add_argument(
        "--max-bytes",
        metavar="SIZE",
        help="after SIZE of values (such as 2G), keep only statistics and some elements",
    )
    add_untrusted(parser, "model")
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Record a run and print a summary."""
    options = options_from(RecordOptions, arguments)
    if options.example_inputs is not None:
        return _write_example_inputs(options, options.example_inputs)
    if options.inputs is None or options.output is None:
        raise _missing_options_error(options)
    backend = options.backend or _choose_backend(options.model)
    from qdebug.model import Fidelity
    from qdebug.present.text import safe_text
    from qdebug.recording.keep_policy import policy_of
    from qdebug.running.record import record_run

    keep = policy_of(options.keep, every=options.keep_every, max_bytes=options.max_bytes)
    earlier_identity = _file_identity(options.output)
    try:
        with progress("recording") as note, Interrupts() as interrupts:
            summary = record_run(
                options.model,
                backend=backend.name,
                options=backend.options,
                inputs=options.inputs,
                out=options.output,
                samples=options.samples,
                steps=options.steps,
                taps=options.taps,
                weights=options.weights,
                force=options.force,
                on_progress=interrupts.wrap_progress(note),
                on_tensor=interrupts.check,
                keep=keep,
                states=options.state,
                shapes=dict(options.shape),
            )
        recording = open_source(options.output)
        emit(_summary(recording, options.output))
        batch_text = batch_clause(recording)
        if batch_text and options.inputs is not None:
            say(f"inputs: {batch_text}")
        for line in _unrecorded_lines(recording.info):
            say(line)
        if summary.states:
            say(f"states fed back: {safe_text(', '.join(summary.states))}")
        if "note" in recording.info.options:
            say(f"note: {safe_text(recording.info.options['note'])}")
        say(f"next: {command('qdebug', 'info', options.output)}")
        say(f"      qdebug diff REF.h5 {command(options.output)}   (REF.h5: the recording to compare with)")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interrupted_text(options.output, earlier_identity)) from None
    return 3 if summary.fidelity is Fidelity.DIFFERS else 0


def _choose_backend(model: Path) -> BackendChoice:
    """Choose the first installed backend that runs a model file (for a recording, the interpreter), and print it."""
    from qdebug.running.model_files import holds_recording
    from qdebug.running.model_runs import choose_backend

    if not model.is_file():
        raise UsageError(
            f"There is no file {str(model)!r}.{near_file(model)}", hint="Give a model file or a recording."
        )
    name = "interpreter" if holds_recording(model) else choose_backend(model, reference=False).backend
    say(f"backend {name}, the first installed one that runs this file; --backend names another")
    return BackendChoice(name=name, options={})


def _missing_options_error(options: RecordOptions) -> UsageError:
    """Return the error for missing options, with a hint for each."""
    needed_options = {"--inputs": options.inputs, "-o": options.output}
    missing_options = [name for name, value in needed_options.items() if value is None]
    hint_by_option = {
        "--inputs": f"{command('qdebug', 'record', options.model, '--example-inputs', 'x.npz')} makes a template",
        "-o": "-o OUT.h5 is the file to write",
    }
    return UsageError(
        f"A recording needs {' and '.join(missing_options)}.",
        hint=f"{'; '.join(hint_by_option[name] for name in missing_options)}.",
    )


def _write_example_inputs(options: RecordOptions, target: Path) -> int:
    """Write random arrays for a model's inputs, as a template."""
    check_target(target, force=options.force, sources=[options.model], regular=True)
    from qdebug.present import numbers
    from qdebug.present.text import safe_text
    from qdebug.recording.npz import write_arrays
    from qdebug.recording.target import replacing_file
    from qdebug.running.fitted_inputs import RANDOM_HIDES
    from qdebug.running.model_runs import ModelRun, choose_backend, example_inputs

    if options.steps is not None or not options.model.is_file():
        raise UsageError(
            "--example-inputs does not support --steps."
            if options.steps is not None
            else f"There is no file {str(options.model)!r}.{near_file(options.model)}",
            hint="Leave out --steps, and add an axis of steps yourself." if options.steps else "Give a model file.",
        )
    choice = options.backend
    run = (
        choose_backend(options.model, reference=True)
        if choice is None
        else ModelRun(model=options.model, backend=choice.name, options=choice.options)
    )
    arrays, fill_notes = example_inputs(run, samples=options.samples, seed=options.seed, shapes=dict(options.shape))
    with replacing_file(target) as temporary_file:
        write_arrays(temporary_file, arrays.items())
    for name, array in arrays.items():
        emit(f"{safe_text(name)}: {array.dtype.name} {numbers.shape(array.shape)}")
    say(f"wrote {safe_text(target)} with random values (seed {options.seed}).")
    for clause in fill_notes:
        say(f"  note: {safe_text(clause)}")
    say(f"  hint: Replace them by real values; {RANDOM_HIDES}.")
    return 0


def _file_identity(path: Path) -> tuple[int, int] | None:
    """Return the inode and modification time of a file, which change if it is replaced; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _interrupted_text(output: Path, earlier_identity: tuple[int, int] | None) -> str:
    """Return a message about what an interrupted run left; `earlier_identity` identifies the file before the run."""
    from qdebug.errors import QdebugError
    from qdebug.plural import plural
    from qdebug.recording.target import has_unfinished_run

    info_command = command("qdebug", "info", output)
    if _file_identity(output) not in (None, earlier_identity):
        try:
            info = open_source(output).info
            is_complete, missing_count = info.complete, sum(map(info.not_dumped, info.skipped))
        except QdebugError:
            is_complete, missing_count = False, 0
        without_text = f" without {plural(missing_count, 'tensor')}" if missing_count else ""
        state = f"is finished{without_text}" if is_complete else "contains the recording so far (incomplete)"
        return f"interrupted; {output} {state}: {info_command}"
    if has_unfinished_run(output):
        return f"interrupted; the recording so far can be rebuilt: {command('qdebug', 'file', 'recover', output)}"
    return "interrupted; nothing was kept."


def _unrecorded_lines(info: RunInfo) -> list[str]:
    """Return how many tensors of the run were not recorded, one line per reason."""
    from qdebug.plural import plural
    from qdebug.present.text import safe_text

    reasons = Counter(reason for name, reason in info.skipped.items() if name not in info.never_made())
    return [
        f"not recorded: {plural(count, 'tensor')}: {safe_text(reason, limit=400)}" for reason, count in reasons.items()
    ]


def batch_clause(recording: Recording) -> str | None:
    """Return a clause stating that several input rows were run as one sample; None unless --samples could split them.

    Each number in a report then covers all rows, which may surprise a user whose array has one image per row.
    """
    graph = recording.graph
    shapes = {name: graph.tensors[name].shape for name in graph.inputs if name in graph.tensors}
    if recording.samples * recording.steps > 1 or not shapes:
        return None
    if not all(shape and shape[0] is None for shape in shapes.values()):
        return None
    counts = {recording.load(name, 0, 0).shape[0] for name in shapes if recording.has(name, 0, 0)}
    count = counts.pop() if len(counts) == 1 else 1
    return f"their {count} rows are one sample; --samples {count} takes each row as a sample" if count > 1 else None


def _summary(recording: Recording, output: Path) -> str:
    from qdebug.present import numbers, sentences

    info = recording.info
    counts = ", ".join(
        numbers.counted(count, noun)
        for count, noun in ((len(recording.names), "tensor"), (recording.samples, "sample"))
    )
    size = byte_size(output.stat().st_size)
    return f"{command(output)}: {counts}, {size}\nfidelity {sentences.fidelity_sentence(info)}"


def _backends_text() -> str:
    """List backends and their options."""
    from qdebug.backends import BACKENDS, installed_backends, load_backend
    from qdebug.errors import BackendError, MissingExtraError
    from qdebug.present.text import safe_text

    summaries = {name: entry.summary for name, entry in BACKENDS.items()}
    for name, entry in installed_backends().items():
        summaries[name] = f"of the package {entry.dist.name}" if entry.dist is not None else entry.value
    lines = []
    for name, summary in summaries.items():
        lines.append(f"{safe_text(name):<13} {safe_text(summary)}")
        try:
            specs = load_backend(name).options
        except MissingExtraError as error:
            lines.append(f"  not installed: {error.hint}")
            continue
        except BackendError as error:
            lines.append(f"  not usable: {safe_text(error.message)}")
            continue
        for spec in specs:
            choices = f" ({'|'.join(spec.choices)})" if spec.choices else ""
            lines.append(f"  {spec.name}={spec.default}{choices}: {spec.help}")
    return "\n".join(lines)
