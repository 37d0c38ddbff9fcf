"""qdebug info: describe the contents of a recording."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from qdebug.cli.output import check_target, write_result
from qdebug.cli.parser import Parser, add_common, add_format, add_output, add_untrusted, options_from, suffix_format
from qdebug.cli.reports import contents_text
from qdebug.cli.sources import open_source
from qdebug.recording.remote_url import format_path

__all__ = ["InfoOptions", "fill_parser", "run"]

_DESCRIPTION = """\
Show what a recording holds: the backend with its options, versions and processor;
whether the run finished; whether recording changed the result (fidelity); the
number of samples, tensors and nodes; the bytes of constants by dtype; and which nodes
compute in float between dequantize and quantize, or have float weights for quantized
data. No tensor is read, so this is fast for large files too."""

_EPILOG = """\
examples:
  qdebug info int8.h5
  qdebug info int8.h5 --tensors          every tensor: dtype, shape, scale / zero point
  qdebug info int8.h5 --json | jq .environment"""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfoOptions:
    """Arguments of `qdebug info`."""

    file: Path
    tensors: bool
    format: str | None
    output: Path | None
    force: bool


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("file", type=Path, metavar="FILE", help="a recording")
    parser.add_argument("--tensors", action="store_true", help="also list every tensor")
    add_format(parser)
    add_output(parser, what="the result")
    add_untrusted(parser, "file")
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print a description of a recording."""
    options = options_from(InfoOptions, arguments)
    check_target(options.output, force=options.force, sources=[options.file])
    from qdebug.present.contents import Contents

    recording = open_source(options.file)
    from qdebug.recording.reading.read import FileRecording

    size = recording.nbytes if isinstance(recording, FileRecording) else options.file.stat().st_size
    contents = Contents(recording=recording, path=format_path(options.file), size=size)
    form = suffix_format(options.format, options.output)
    text = contents_text(contents, form, tensors=options.tensors, plain=options.output is not None)
    write_result(text, options.output)
    return 0
