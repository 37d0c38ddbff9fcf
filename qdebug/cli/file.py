"""qdebug file: look after recordings. Each action has its own parser."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.cli.output import emit, progress
from qdebug.cli.parser import Parser, add_common, add_untrusted, positive, size, typed
from qdebug.cli.sources import command
from qdebug.errors import UsageError
from qdebug.present.text import safe_text

if TYPE_CHECKING:
    from qdebug.cli.parser import Verbs

__all__ = ["JoinOptions", "PackOptions", "PruneOptions", "RecoverOptions", "VerifyOptions", "fill_parser"]

_DESCRIPTION = """\
Look after recordings: check every byte of one, rebuild what a run left behind that
was killed, make one smaller, or let several stand for one run."""

_EPILOG = """\
examples:
  qdebug file verify int8.h5                 is every tensor as it was recorded?
  qdebug file pack int8.h5                   compress it
  qdebug file join rank0.h5 rank1.h5 -o run.json
  qdebug file recover npu.h5                 the run that recorded to npu.h5 was killed
  qdebug file prune --dry-run                what may go from qdebug-runs/

qdebug file ACTION --help explains an action."""

_VERIFY = """\
Check a recording: that it is built as a recording is, that its graph makes sense,
and that every tensor and table has the hash it was written with. A process of its
own does it, with a limit on memory and time, so that a file made to crash or fill
the reader does no harm. Exits with 2 if anything is wrong.

With --untrusted the other verbs do this first."""

_PACK = """\
Rewrite a recording with compressed tensors, and check each against its hash before
the file takes the old one's place. gzip is read by every HDF5 program; zstd is faster
and a little smaller, and needs the extra: pip install 'qdebug[zstd]'. A tensor that
does not get smaller is left as it is."""

_JOIN = """\
Write a small JSON file that stands for several recordings: those of the processes,
ranks or workers of one run. Every command takes it in place of a recording. The
recordings stay where they are, beside it or in folders below it."""

_JOIN_EPILOG = """\
examples:
  qdebug file join rank0.h5 rank1.h5 -o run.json
  qdebug file join worker0.h5 worker1.h5 --by samples -o run.json
  qdebug file join rank0.h5 rank1.h5 --prefix r0/ --prefix r1/ -o run.json"""

_RECOVER = """\
Rebuild the recording of a run that did not finish. While a run records to npu.h5,
npu.h5.part holds the tensors and npu.h5.journal says what is where; every tensor
whose put() had returned is in both, however the process died. Each one is checked
against the hash it was written with. The recording is marked as incomplete, so that
qdebug diff exits with 3 unless it is given --allow-partial.

FILE is the name that the run was told, or that of its journal. The recording gets
that name, and the two files are removed; with -o OUT.h5 they stay. A file npu.h5.part
that is whole and lacks but its name needs no journal, and is as complete as it says."""


_PRUNE = """\
Remove recordings from qdebug-runs/ until it is no larger than the limit. Only those go
that qdebug made and named by itself, that can be made again from unchanged models and
inputs, that nobody has open, and that were not used for a day: the one not used for
longest first. Nothing else is ever removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneOptions:
    """Arguments of `qdebug file prune`."""

    folder: Path
    runs_limit: int
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """Arguments of `qdebug file recover`."""

    file: Path
    output: Path | None
    force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Arguments of `qdebug file verify`."""

    files: list[Path]
    memory: int | None
    timeout: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOptions:
    """Arguments of `qdebug file join`."""

    files: list[Path]
    output: Path
    by: str
    prefix: list[str] | None
    force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PackOptions:
    """Arguments of `qdebug file pack`."""

    file: Path
    output: Path | None
    codec: str
    level: int
    force: bool


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.set_defaults(run=lambda _: parser.error("an action is missing"))
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=Parser)
    _add_verify(actions)
    _add_recover(actions)
    _add_pack(actions)
    _add_join(actions)
    _add_prune(actions)


def _add_join(actions: Verbs) -> None:
    parser: Parser = actions.add_parser(
        "join", help="make several recordings one", description=_JOIN, epilog=_JOIN_EPILOG
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="the recordings, in order")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="RUN.json", help="the manifest to write")
    parser.add_argument(
        "--by",
        choices=("tensors", "samples"),
        default="tensors",
        help="tensors (default): each holds other tensors of the same samples; samples: each holds further samples",
    )
    parser.add_argument(
        "--prefix",
        action="append",
        metavar="TEXT",
        help="goes before the names of a recording; once for each, in order",
    )
    parser.add_argument("--force", action="store_true", help="overwrite RUN.json if it exists")
    add_untrusted(parser, "files")
    add_common(parser)
    parser.set_defaults(run=_join)


def _add_prune(actions: Verbs) -> None:
    parser: Parser = actions.add_parser("prune", help="make room in qdebug-runs/", description=_PRUNE)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("qdebug-runs"), help="default: qdebug-runs")
    parser.add_argument(
        "--runs-limit", type=size, default=0, metavar="SIZE", help="what may stay, as 5GB (default: 0, all may go)"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and remove nothing")
    add_common(parser)
    parser.set_defaults(run=_prune)


def _prune(arguments: argparse.Namespace) -> int:
    """Remove recordings, and list them."""
    options = typed(PruneOptions, arguments)
    from qdebug.present import numbers
    from qdebug.running.runs_folder import prune, runs_size

    if not options.folder.is_dir():
        raise UsageError(
            f"There is no folder {str(options.folder)!r}.", hint="Name the folder that holds recordings of models."
        )
    removed = prune(options.folder, limit=options.runs_limit, dry_run=options.dry_run)
    verb = "would go" if options.dry_run else "removed"
    lines = [f"{verb}: {command(recording.path)}, {numbers.byte_size(recording.size)}" for recording in removed]
    remaining = runs_size(options.folder) - (sum(recording.size for recording in removed) if options.dry_run else 0)
    emit("\n".join([*lines, f"{command(options.folder)}: {numbers.byte_size(remaining)} of recordings stay"]))
    return 0


def _add_pack(actions: Verbs) -> None:
    parser: Parser = actions.add_parser("pack", help="make a recording smaller", description=_PACK)
    parser.add_argument("file", type=Path, metavar="FILE", help="a recording")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT.h5", help="write there instead of in place")
    parser.add_argument("--codec", choices=("gzip", "zstd"), default="gzip", help="gzip (default) or zstd")
    parser.add_argument("--level", type=positive, default=1, metavar="N", help="how hard to try, 1 (default) to 9")
    parser.add_argument("--force", action="store_true", help="overwrite OUT.h5 if it exists")
    add_untrusted(parser, "file")
    add_common(parser)
    parser.set_defaults(run=_pack)


def _add_verify(actions: Verbs) -> None:
    parser: Parser = actions.add_parser("verify", help="check every byte of a recording", description=_VERIFY)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="recordings")
    parser.add_argument("--memory", type=positive, metavar="MB", help="memory that the process may take (default 2048)")
    parser.add_argument("--timeout", type=positive, metavar="SECONDS", help="time that it may take for a file")
    add_common(parser)
    parser.set_defaults(run=_verify)


def _add_recover(actions: Verbs) -> None:
    parser: Parser = actions.add_parser(
        "recover", help="rebuild the recording of a run that was killed", description=_RECOVER
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="what the run was recording to")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT.h5", help="put the recording there")
    parser.add_argument("--force", action="store_true", help="replace the recording if it exists")
    add_untrusted(parser)
    add_common(parser)
    parser.set_defaults(run=_recover)


def _verify(arguments: argparse.Namespace) -> int:
    """Check recordings and describe each; the first bad one raises."""
    options = typed(VerifyOptions, arguments)
    from qdebug.present import numbers
    from qdebug.recording.reading.verify import MEMORY_LIMIT, verify

    for path in options.files:
        memory = MEMORY_LIMIT if options.memory is None else options.memory << 20
        verification = verify(path, memory=memory, timeout=options.timeout)
        arrays = _counted(verification.tensors, "tensor")
        state = "" if verification.complete else "; the run did not finish"
        tables = "graph and index" if verification.tables else "graph and index, which have no hash,"
        emit(f"{command(path)}: {arrays}, {numbers.byte_size(verification.bytes)}, {tables} are as recorded{state}")
    return 0


def _pack(arguments: argparse.Namespace) -> int:
    """Pack a recording and print its sizes."""
    options = typed(PackOptions, arguments)
    from qdebug.present import numbers
    from qdebug.recording.writing.pack import pack

    with progress("packing") as note:
        packed = pack(
            options.file,
            options.output,
            codec=options.codec,
            level=options.level,
            force=options.force,
            progress=note,
        )
    sizes = f"{numbers.byte_size(packed.before)} -> {numbers.byte_size(packed.after)}"
    emit(f"{command(packed.path)}: {sizes}, every value checked")
    return 0


def _join(arguments: argparse.Namespace) -> int:
    """Write a manifest and describe it."""
    options = typed(JoinOptions, arguments)
    if options.prefix is not None and len(options.prefix) != len(options.files):
        raise UsageError(
            f"{len(options.prefix)} prefixes are given for {len(options.files)} recordings.",
            hint="Give --prefix once for each recording, in order.",
        )
    from qdebug.recording.reading.opening import JoinedRecording, join, read_manifest

    join(options.files, options.output, by=options.by, force=options.force, prefixes=options.prefix)
    with JoinedRecording(read_manifest(options.output), options.output) as joined:
        emit(
            f"{command(options.output)}: {_counted(len(options.files), 'recording')}, "
            f"{_counted(len(joined.names), 'tensor')}, {_counted(joined.samples, 'sample')}"
        )
    return 0


def _recover(arguments: argparse.Namespace) -> int:
    """Rebuild a recording and describe it."""
    options = typed(RecoverOptions, arguments)
    from qdebug.recording.writing.recovery import recover

    with progress("recovering") as note:
        recovered = recover(options.file, options.output, force=options.force, progress=note)
    arrays = _counted(recovered.tensors, "tensor")
    state = "complete" if recovered.complete else "marked as incomplete"
    lines = [f"{command(recovered.path)}: {arrays} recovered, {state}"]
    for name, sample, step in recovered.lost[:_MAX_LOST_LINES]:
        lines.append(f"  lost: {safe_text(name)}, sample {sample}, step {step}: its values are damaged or missing")
    if len(recovered.lost) > _MAX_LOST_LINES:
        lines.append(f"  and {len(recovered.lost) - _MAX_LOST_LINES} more")
    emit("\n".join(lines))
    return 0


_MAX_LOST_LINES = 20


def _counted(number: int, noun: str) -> str:
    from qdebug.present import numbers

    return numbers.counted(number, noun)
