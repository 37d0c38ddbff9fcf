"""qdebug import: create a recording from tensors that another tool dumped."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.byte_size import byte_size
from qdebug.cli.failures import say
from qdebug.cli.interrupts import Interrupts
from qdebug.cli.output import emit, progress
from qdebug.cli.parser import Parser, add_common, add_untrusted, options_from
from qdebug.cli.sources import command

if TYPE_CHECKING:
    from qdebug.importing.import_dump import ImportSummary

__all__ = ["ImportOptions", "fill_parser", "run"]

_MAX_LINES = 8
"""Maximum number of printed lines of each kind. --json prints all."""

_SOURCE_FORMATS = (
    "msprobe", "polygraphy", "onnxruntime", "gguf", "vllm", "sglang", "tensorrt-llm", "transformers", "statistics",
    "arrays", "description", "litert-debugger",
)  # fmt: skip


def _installed_formats() -> set[str]:
    """Return the names of dump formats that other packages add, without importing those packages."""
    return {entry.name for entry in entry_points(group="qdebug.importers")} - set(_SOURCE_FORMATS)


_DESCRIPTION = """\
Make a recording from tensors that another tool dumped, for example from an accelerator
that qdebug cannot run. The result is an ordinary recording for `qdebug info`, `diff`,
`explain` and `tui`.

SOURCE is one of these:
  a folder of .npy, .npz, .safetensors, .pt, .pth or .pb files, named like their tensors;
      sub-folders or archives whose names differ only in a number are samples: sample0 ...
      with --graph, raw files (.raw, .bin) as well; the model states types and shapes
  one such file; a .pt file is read without torch, and nothing in it is run
  results or inputs of Polygraphy (.json), or a dump.json of Ascend's msprobe
  a database of ONNX Runtime's node dumps; .tensorproto files are read like .npy files
  a .gguf file (needs the extra gguf), or a table of statistics (.csv) of TFLite or LiteRT
  a folder that vLLM, SGLang, TensorRT-LLM or transformers wrote: `qdebug help import`
  a .json file that describes raw files: tensor, dtype, shape, scale, zero_point ...
  a folder of the LiteRT accuracy debugger: --source-format litert-debugger

--graph adds nodes, weights and quantization to bare values. It takes a model file, or
a recording of the same model. Names are compared as they are, and then with "_" for
every character other than letters and digits, as tools write file names. The name of
a node stands for its only output. The report lists changed names and unmatched
tensors.

Values that do not fit the graph are recorded as dumped, with a note. Real values of a
quantized tensor become codes only if every value is exactly on the grid of codes."""

_EPILOG = """\
examples:
  qdebug import dump/ -o npu.h5
  qdebug import dump/ --graph net.int8.onnx -o npu.h5
  qdebug import out.npz --graph ref.h5 -o npu.h5
  qdebug import out/ --graph net.onnx --layout NHWC --rename '^out_=' -o npu.h5
  qdebug import device.json --graph net.tflite -o npu.h5
  qdebug import OUT/npu --source-format litert-debugger --graph net.tflite -o npu.h5"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Arguments of `qdebug import`."""

    source: Path
    output: Path
    graph: Path | None
    source_format: str | None
    layout: str | None
    rename: list[str] | None
    force: bool
    json: bool


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("source", type=Path, metavar="SOURCE", help="a folder, a file of tensors, or a .json file")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT.h5", help="the recording to write")
    parser.add_argument("--force", action="store_true", help="overwrite OUT.h5 if it exists")
    parser.add_argument(
        "--graph",
        type=Path,
        metavar="MODEL",
        help="a model file or a recording with nodes, weights, scales and zero points",
    )
    parser.add_argument(
        "--source-format",
        choices=(*_SOURCE_FORMATS, *sorted(_installed_formats())),
        help="the format of SOURCE (default: detected, except litert-debugger)",
    )
    parser.add_argument(
        "--layout",
        metavar="NHWC",
        help="order of dimensions in the dump, for tensors with this number of dimensions, unless the dump states it",
    )
    parser.add_argument(
        "--rename",
        action="append",
        metavar="REGEX=TEXT",
        help="rename tensors of the dump: replace REGEX by TEXT, as in re.sub; may be given several times",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON, with every tensor")
    add_untrusted(parser)
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Import a dump and print a summary."""
    options = options_from(ImportOptions, arguments)
    from qdebug.importing.import_dump import import_dump
    from qdebug.importing.names import make_renamer

    with progress("importing") as note, Interrupts() as interrupts:
        summary = import_dump(
            options.source,
            options.output,
            graph=options.graph,
            form=options.source_format,
            layout=options.layout,
            rename=make_renamer(options.rename or ()),
            force=options.force,
            on_progress=interrupts.wrap_progress(note),
        )
    if options.json:
        emit(summary.to_json())
        return 0
    emit("\n".join(_summary_lines(summary, graph=options.graph is not None)))
    say(f"next: {command('qdebug', 'info', options.output, '--tensors')}")
    say(f"      qdebug diff REF.h5 {command(options.output)}   (REF.h5: the recording to compare with)")
    return 0


def _summary_lines(summary: ImportSummary, *, graph: bool) -> Iterable[str]:
    """Yield the lines of a summary."""
    from qdebug.present import numbers
    from qdebug.present.text import safe_text

    size = byte_size(summary.path.stat().st_size)
    count_texts = [
        numbers.counted(count, noun)
        for count, noun in ((summary.tensors, "tensor"), (summary.samples, "sample"), (summary.files, "array"))
    ]
    yield f"{command(summary.path)}: {count_texts[0]}, {count_texts[1]}, {size}, made from {count_texts[2]}"
    yield from (f"  {safe_text(remark)}" for remark in summary.said)
    if graph:
        match_counts = {match.how: 0 for match in summary.matched}
        for match in summary.matched:
            match_counts[match.how] += 1
        yield f"names      {', '.join(f'{count} {_MATCH_CLAUSES[how]}' for how, count in match_counts.items())}"
        changed_tensors = {match.name: match.tensor for match in summary.matched if match.how != "exact"}
        yield from _entry_lines("", {name: f"is {tensor}" for name, tensor in changed_tensors.items()})
        yield from _entry_lines("not in the model", summary.unmatched)
        yield from _entry_lines("not in the dump", dict.fromkeys(summary.absent, ""))
        if summary.constants:
            yield f"weights    {summary.constants} constants from the model"
    yield from _entry_lines("differs from the model", summary.notes)
    yield from _entry_lines("not read", summary.ignored)
    yield "fidelity   unknown: there is no run without dumping to compare with"


_MATCH_CLAUSES: Mapping[str, str] = {
    "exact": "unchanged",
    "node": "by the name of the node",
    "cleaned": 'with other characters as "_"',
    "with operator": "by the tensor's name and its operator",
    "cleaned node": 'by the name of the node, with other characters as "_"',
}


def _entry_lines(title: str, entries: Mapping[str, str]) -> Iterable[str]:
    """Yield a title, the first names with their remarks, and the number of further names."""
    from qdebug.present.text import safe_text

    if entries and title:
        yield f"{title}: {len(entries)}"
    for name, remark in list(entries.items())[:_MAX_LINES]:
        yield f"  {safe_text(name, limit=120)}{': ' if remark else ''}{safe_text(remark)}".replace(": is ", " is ", 1)
    if len(entries) > _MAX_LINES:
        yield f"  {len(entries) - _MAX_LINES} more; --json has all"
