"""qdebug file: maintain recordings. Each action has its own parser."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.byte_size import byte_size
from qdebug.cli.output import emit, progress
from qdebug.cli.parser import Parser, add_common, add_untrusted, options_from, positive, size
from qdebug.cli.sources import command
from qdebug.errors import UsageError
from qdebug.present.text import safe_text

if TYPE_CHECKING:
    from qdebug.cli.parser import Verbs
    from qdebug.recording.reading.shards import ShardedRecording

__all__ = ["JoinOptions", "PackOptions", "PruneOptions", "RecoverOptions", "VerifyOptions", "fill_parser"]

_DESCRIPTION = """\
Maintain recordings: verify every byte, recover the recording of a killed run,
compress a recording, or join several recordings of one run."""

_EPILOG = """\
examples:
  qdebug file verify int8.h5                 check that every tensor is unchanged
  qdebug file pack int8.h5                   compress it
  qdebug file join rank0.h5 rank1.h5 -o run.json
  qdebug file recover npu.h5                 the run that recorded to npu.h5 was killed
  qdebug file prune --dry-run                what could be removed from qdebug-runs/

qdebug file ACTION --help explains an action."""

_VERIFY = """\
Check a recording: its structure, its graph, and the hash of every tensor and table.
A separate process with limits on memory and time does this, so that a malicious file
does no harm. The exit code is 3 if a hash differs, and 2 if anything else is wrong.

With --untrusted, the other verbs run this check first."""

_PACK = """\
Rewrite a recording with compressed tensors. Every tensor is checked against its hash
before the new file replaces the old one. Every HDF5 program reads gzip. zstd is
faster and compresses a little better, but needs pip install 'qdebug[zstd]'. A tensor
that does not get smaller is stored uncompressed."""

_JOIN = """\
Join the recordings of the processes, ranks or workers of one run. This writes a small
JSON file that every command accepts like a recording. The recordings themselves stay
in the folder of the JSON file, or in folders below it. With --by shards, tensors that
should be equal in all ranks are compared first, and the exit code is 1 if they differ."""

_JOIN_EPILOG = """\
examples:
  qdebug file join rank0.h5 rank1.h5 -o run.json
  qdebug file join rank0.h5 rank1.h5 --by shards --axis 'o_proj=1,*=replicated' \\
      -o run.json
  qdebug file join worker0.h5 worker1.h5 --by samples -o run.json
  qdebug file join rank0.h5 rank1.h5 --prefix r0/ --prefix r1/ -o run.json"""

_RECOVER = """\
Rebuild the recording of a run that did not finish. While a run records to npu.h5, the
file npu.h5.part holds the tensors and npu.h5.journal their locations. A tensor is in
both files as soon as its put() returned, even if the process was killed. Each tensor
is checked against its hash. The recording is marked as incomplete, and qdebug diff
exits with 3 unless --allow-partial is given.

FILE is the output path of the run, or the path of its journal. The recording is
written to this path, and the two files are removed; with -o OUT.h5 they are kept. If
npu.h5.part is complete and was merely not renamed yet, no journal is needed."""


_PRUNE = """\
Remove recordings from qdebug-runs/ until it is no larger than the limit. A recording
is removed only if qdebug made and named it, it can be made again from unchanged
models and inputs, no process has it open, and it has not been used for a day. The least
recently used recording goes first. Nothing else is ever removed."""


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
    axis: list[str] | None
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
        "join", help="join several recordings of one run", description=_JOIN, epilog=_JOIN_EPILOG
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="the recordings, in order")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="RUN.json", help="the manifest to write")
    parser.add_argument(
        "--by",
        choices=("tensors", "samples", "shards"),
        default="tensors",
        help=(
            "tensors (default): the files hold different tensors of the same samples; samples: each file "
            "has further samples; shards: each file has a slice of the same tensors"
        ),
    )
    parser.add_argument(
        "--axis",
        action="append",
        metavar="PATTERN=AXIS,...",
        help=(
            "for shards: the axis along which tensors are sliced, or 'replicated'; the first matching pattern "
            "applies. 0:4:1:1: each slice consists of blocks of these relative sizes"
        ),
    )
    parser.add_argument(
        "--prefix",
        action="append",
        metavar="TEXT",
        help="prefix for the names of a recording; give it once per recording, in order",
    )
    parser.add_argument("--force", action="store_true", help="overwrite RUN.json if it exists")
    add_untrusted(parser, "files")
    add_common(parser)
    parser.set_defaults(run=_run_join)


def _add_prune(actions: Verbs) -> None:
    parser: Parser = actions.add_parser("prune", help="make room in qdebug-runs/", description=_PRUNE)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("qdebug-runs"), help="default: qdebug-runs")
    parser.add_argument(
        "--runs-limit",
        type=size,
        default=0,
        metavar="SIZE",
        help="size limit, such as 5GB (default: 0, remove all)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be removed, and remove nothing")
    add_common(parser)
    parser.set_defaults(run=_run_prune)


def _run_prune(arguments: argparse.Namespace) -> int:
    """Remove recordings, and list them."""
    options = options_from(PruneOptions, arguments)
    from qdebug.running.runs_folder import prune, runs_size

    if not options.folder.is_dir():
        raise UsageError(
            f"There is no folder {str(options.folder)!r}.", hint="Name the folder with the recordings of models."
        )
    removed_recordings = prune(options.folder, limit=options.runs_limit, dry_run=options.dry_run)
    verb = "would go" if options.dry_run else "removed"
    lines = [f"{verb}: {command(recording.path)}, {byte_size(recording.size)}" for recording in removed_recordings]
    remaining_bytes = runs_size(options.folder) - (
        sum(recording.size for recording in removed_recordings) if options.dry_run else 0
    )
    emit("\n".join([*lines, f"{command(options.folder)}: {byte_size(remaining_bytes)} of recordings stay"]))
    return 0


def _add_pack(actions: Verbs) -> None:
    parser: Parser = actions.add_parser("pack", help="make a recording smaller", description=_PACK)
    parser.add_argument("file", type=Path, metavar="FILE", help="a recording")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT.h5", help="write to OUT.h5 instead of in place")
    parser.add_argument("--codec", choices=("gzip", "zstd"), default="gzip", help="gzip (default) or zstd")
    parser.add_argument("--level", type=positive, default=1, metavar="N", help="compression level, 1 (default) to 9")
    parser.add_argument("--force", action="store_true", help="overwrite OUT.h5 if it exists")
    add_untrusted(parser, "file")
    add_common(parser)
    parser.set_defaults(run=_run_pack)


def _add_verify(actions: Verbs) -> None:
    parser: Parser = actions.add_parser("verify", help="check every byte of a recording", description=_VERIFY)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="recordings")
    parser.add_argument("--memory", type=positive, metavar="MB", help="memory limit of the process (default: 2048)")
    parser.add_argument("--timeout", type=positive, metavar="SECONDS", help="time limit per file")
    add_common(parser)
    parser.set_defaults(run=_run_verify)


def _add_recover(actions: Verbs) -> None:
    parser: Parser = actions.add_parser(
        "recover", help="rebuild the recording of a run that was killed", description=_RECOVER
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="output path of the run, or its journal")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT.h5", help="write the recording to OUT.h5")
    parser.add_argument("--force", action="store_true", help="replace the recording if it exists")
    add_untrusted(parser)
    add_common(parser)
    parser.set_defaults(run=_run_recover)


def _run_verify(arguments: argparse.Namespace) -> int:
    """Check recordings and describe each. The first invalid one raises an error."""
    options = options_from(VerifyOptions, arguments)
    from qdebug.recording.reading.verify import MEMORY_LIMIT, verify

    for path in options.files:
        memory = MEMORY_LIMIT if options.memory is None else options.memory << 20
        verification = verify(path, memory=memory, timeout=options.timeout)
        arrays = _count_text(verification.tensors, "tensor")
        state = "" if verification.complete else "; the run did not finish"
        tables = "graph and index" if verification.tables else "graph and index, which have no hash,"
        emit(f"{command(path)}: {arrays}, {byte_size(verification.bytes)}, {tables} are as recorded{state}")
    return 0


def _run_pack(arguments: argparse.Namespace) -> int:
    """Pack a recording and print its sizes."""
    options = options_from(PackOptions, arguments)
    from qdebug.recording.writing.pack import pack

    with progress("packing") as note:
        pack_result = pack(
            options.file,
            options.output,
            codec=options.codec,
            level=options.level,
            force=options.force,
            progress=note,
        )
    sizes = f"{byte_size(pack_result.before)} -> {byte_size(pack_result.after)}"
    emit(f"{command(pack_result.path)}: {sizes}, every value checked")
    return 0


def _run_join(arguments: argparse.Namespace) -> int:
    """Write a manifest and describe it."""
    options = options_from(JoinOptions, arguments)
    if options.prefix is not None and len(options.prefix) != len(options.files):
        raise UsageError(
            f"There are {len(options.prefix)} prefixes for {len(options.files)} recordings.",
            hint="Give --prefix once for each recording, in order.",
        )
    if (options.by == "shards") != bool(options.axis) or (options.axis and options.prefix):
        raise UsageError(
            "--by shards needs --axis and takes no --prefix; --axis needs --by shards.",
            hint="Write --by shards --axis 'PATTERN=AXIS,*=replicated'.",
        )
    from qdebug.recording.reading.opening import join, open_manifest
    from qdebug.recording.reading.shards import ShardedRecording

    axes = ",".join(options.axis or ())
    join(options.files, options.output, by=options.by, force=options.force, prefixes=options.prefix, axes=axes)
    with open_manifest(options.output) as recording:
        emit(
            f"{command(options.output)}: {_count_text(len(options.files), 'recording')}, "
            f"{_count_text(len(recording.names), 'tensor')}, {_count_text(recording.samples, 'sample')}"
        )
        return _compare_replicas(recording, options) if isinstance(recording, ShardedRecording) else 0


def _compare_replicas(recording: ShardedRecording, options: JoinOptions) -> int:
    """Print the replicated tensors that differ between ranks, and return the exit code."""
    from qdebug.present.replicas import replica_lines

    with progress("comparing replicated tensors") as note:
        differences = list(recording.replica_differences(progress=note))
    partial_tensors = recording.partial_tensors()
    if partial_tensors:
        names = ", ".join(safe_text(name) for name in partial_tensors[:_MAX_LOST_LINES])
        more = len(partial_tensors) - _MAX_LOST_LINES
        emit(f"without values, since a rank kept only part of them: {names}{f' and {more} more' if more > 0 else ''}")
    if not differences:
        emit(f"replicated tensors are equal in all ranks\n\ncompare:  qdebug diff REF.h5 {command(options.output)}")
        return 0
    emit("\n".join([*replica_lines(differences), f"{command(options.output)} has the values of rank 0"]))
    return 1


def _run_recover(arguments: argparse.Namespace) -> int:
    """Rebuild a recording and describe it."""
    options = options_from(RecoverOptions, arguments)
    from qdebug.recording.writing.recovery import recover

    with progress("recovering") as note:
        recovery = recover(options.file, options.output, force=options.force, progress=note)
    arrays = _count_text(recovery.tensors, "tensor")
    state = "complete" if recovery.complete else "marked as incomplete"
    lines = [f"{command(recovery.path)}: {arrays} recovered, {state}"]
    for name, sample, step in recovery.lost[:_MAX_LOST_LINES]:
        lines.append(f"  lost: {safe_text(name)}, sample {sample}, step {step}: its values are damaged or missing")
    if len(recovery.lost) > _MAX_LOST_LINES:
        lines.append(f"  and {len(recovery.lost) - _MAX_LOST_LINES} more")
    emit("\n".join(lines))
    return 0


_MAX_LOST_LINES = 20


def _count_text(number: int, noun: str) -> str:
    from qdebug.present import numbers

    return numbers.counted(number, noun)
