"""qdebug file: look after recordings. Each action is a parser of its own under the one verb."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.cli.output import emit, progress
from qdebug.cli.parser import Parser, add_debug, typed
from qdebug.cli.sources import command
from qdebug.view.text import safe_text

if TYPE_CHECKING:
    from qdebug.cli.parser import Verbs

__all__ = ["RecoverOptions", "add_parser"]

_DESCRIPTION = """\
Look after recordings: rebuild what a run left behind that was killed."""

_EPILOG = """\
examples:
  qdebug file recover npu.h5                 the run that recorded to npu.h5 was killed

qdebug file ACTION --help explains an action."""

_RECOVER = """\
Rebuild the recording of a run that did not finish. While a run records to npu.h5,
npu.h5.part holds the tensors and npu.h5.journal says what is where; every tensor
whose put() had returned is in both, however the process died. Each one is checked
against the hash it was written with. The recording is marked as incomplete, so that
qdebug diff exits with 3 unless it is given --allow-partial.

FILE is the name that the run was told, or that of its journal. The recording gets
that name, and the two files are removed; with -o OUT.h5 they stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """Arguments of `qdebug file recover`."""

    file: Path
    output: Path | None
    force: bool


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser: Parser = verbs.add_parser(
        "file", help="look after recordings: recover", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.set_defaults(run=lambda _: parser.error("an action is missing"))
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=Parser)
    _add_recover(actions)


def _add_recover(actions: Verbs) -> None:
    parser: Parser = actions.add_parser(
        "recover", help="rebuild the recording of a run that was killed", description=_RECOVER
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="what the run was recording to")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT.h5", help="put the recording there")
    parser.add_argument("--force", action="store_true", help="replace the recording if it exists")
    add_debug(parser)
    parser.set_defaults(run=_recover)


def _recover(arguments: argparse.Namespace) -> int:
    """Rebuild a recording and say what is in it."""
    options = typed(RecoverOptions, arguments)
    from qdebug.record.recovery import recover

    with progress("recovering") as note:
        done = recover(options.file, options.output, force=options.force, progress=note)
    arrays = f"{done.tensors} tensor{'' if done.tensors == 1 else 's'}"
    state = "complete" if done.complete else "marked as incomplete"
    lines = [f"{command(done.path)}: {arrays} recovered, {state}"]
    for name, sample, step in done.lost[:_SHOWN]:
        lines.append(f"  lost: {safe_text(name)}, sample {sample}, step {step}: its values are damaged or missing")
    if len(done.lost) > _SHOWN:
        lines.append(f"  and {len(done.lost) - _SHOWN} more")
    emit("\n".join(lines))
    return 0


_SHOWN = 20
