"""Dumps of other tools: their tensors, with values read on demand.

Each dump format has a row in `SOURCES` and a module in `qdebug.importing.formats` with a function that lists the
tensors; other packages add formats by entry points. Listing reads only headers. A stated size is checked against the
file before anything is allocated, links that lead outside the dump's folder are not followed, and Python objects are
never read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType

from qdebug.errors import UsageError
from qdebug.importing.dump import Dump, DumpFormat
from qdebug.importing.files import Files
from qdebug.importing.formats.arrays import FILE_READERS, read_arrays
from qdebug.importing.formats.description import read_description
from qdebug.importing.formats.gguf_file import is_gguf, read_gguf
from qdebug.importing.formats.litert_debugger import read_litert_debugger
from qdebug.importing.formats.msprobe import is_msprobe, read_msprobe
from qdebug.importing.formats.onnxruntime_dump import is_onnxruntime_database, read_onnxruntime_database
from qdebug.importing.formats.polygraphy import is_polygraphy, read_polygraphy
from qdebug.importing.formats.sglang_dump import is_sglang, read_sglang
from qdebug.importing.formats.statistics_csv import is_statistics_table, read_statistics_table
from qdebug.importing.formats.tensorrt_llm_dump import is_tensorrt_llm, read_tensorrt_llm
from qdebug.importing.formats.transformers_dump import is_transformers, read_transformers
from qdebug.importing.formats.vllm_dump import is_vllm, read_vllm
from qdebug.importing.names import Rename
from qdebug.model import Graph
from qdebug.recording.writing.write import Place
from qdebug.regular_file import near_file

__all__ = ["SOURCES", "installed_formats", "read_dump"]


@contextmanager
def read_dump(
    source: Path, form: str | None = None, graph: Graph | None = None, *, rename: Rename = str
) -> Iterator[tuple[str, Dump]]:
    """List the tensors of a dump; their values can be read inside the block.

    Args:
        source: A folder or a file.
        form: A name in `SOURCES` or of an installed format; None to recognize it, installed formats first.
        graph: The graph of the model, which some formats need.
        rename: Changes the names of tensors.

    Yields:
        The name of the format, and the content of the dump.

    Raises:
        UsageError: The source is missing, damaged, of unknown format, or does not contain a tensor.
    """
    if not source.exists():
        raise UsageError(
            f"There is no file or folder {str(source)!r}.{near_file(source)}", hint="Give the path of the dump."
        )
    formats = {**_load_installed_formats(form), **SOURCES}
    form = form or next((name for name, row in formats.items() if row.recognizes(source)), "")
    if form not in formats:
        raise UsageError(
            f"{str(source)!r} is not a known kind of dump; expected a folder, a file of arrays "
            f"({', '.join(FILE_READERS)}), or a .json file that describes raw files.",
            hint="See `qdebug import --help` for the supported kinds.",
        )
    with closing(Files(source if source.is_dir() else source.parent)) as files:
        dump = formats[form].read(files, source, graph)
        dump = replace(dump, tensors=[replace(entry, name=rename(entry.name)) for entry in dump.tensors])
        _check_tensors(source, dump)
        yield form, dump


_GROUP = "qdebug.importers"
"""Entry point group of dump formats in other packages."""


def installed_formats() -> dict[str, EntryPoint]:
    """Return the dump formats of other packages by name. Names of this package's formats are excluded."""
    return {entry.name: entry for entry in entry_points(group=_GROUP) if entry.name not in SOURCES}


def _load_installed_formats(form: str | None) -> dict[str, DumpFormat]:
    """Load the format with a name, or all formats of other packages if the name is None.

    Raises:
        UsageError: A format cannot be loaded, or is not a `DumpFormat`.
    """
    formats = {}
    for name, entry in installed_formats().items():
        if form not in (None, name):
            continue
        package = entry.dist.name if entry.dist is not None else entry.module
        try:
            loaded = entry.load()
            problem = "" if isinstance(loaded, DumpFormat) else "it is not a qdebug.importing.dump.DumpFormat"
        except Exception as error:  # noqa: BLE001  another package may raise anything on import
            problem = f"{type(error).__name__}: {error}"
        if problem:
            raise UsageError(
                f"Dump format {name!r} of the package {package!r} ({entry.value}) cannot be loaded: {problem}.",
                hint=f"Repair or uninstall {package}, or name another format: --source-format arrays.",
            )
        formats[name] = loaded
    return formats


def _check_tensors(source: Path, dump: Dump) -> None:
    """Reject a dump without tensors, or with duplicate tensors.

    Raises:
        UsageError: There are no tensors, or a tensor occurs twice.
    """
    if not dump.tensors:
        not_read_text = (
            f"; not read: {', '.join(repr(name[-60:]) for name in [*dump.ignored][:3])}" if dump.ignored else ""
        )
        has_raw = any(name.endswith((".raw", ".bin")) for name in dump.ignored)
        raise UsageError(
            f"{str(source)!r} contains no readable tensor{not_read_text}.",
            hint="Raw files need --graph MODEL or a description (see `qdebug help import`). Dumps of the LiteRT "
            "accuracy debugger need --source-format litert-debugger."
            if has_raw
            else "Give a folder of .npy or .npz files, an .npz file, or a JSON description.",
        )
    location_of_tensor: dict[tuple[str, Place], str] = {}
    for entry in dump.tensors:
        first_location = location_of_tensor.setdefault((entry.name, entry.place), entry.location)
        if first_location is not entry.location:
            raise UsageError(
                f"Both {first_location!r} and {entry.location!r} contain tensor {entry.name!r} for sample "
                f"{entry.place[0]}, step "
                f"{entry.place[1]}.",
                hint="Keep one of them, or put samples into folders that end in a number: sample0, sample1.",
            )


SOURCES: Mapping[str, DumpFormat] = MappingProxyType(
    {
        "msprobe": DumpFormat(
            read=read_msprobe,
            summary="a dump.json of Ascend's msprobe, or the folder with it",
            recognizes=is_msprobe,
        ),
        "polygraphy": DumpFormat(
            read=read_polygraphy,
            summary="results or inputs that Polygraphy saved as JSON",
            recognizes=is_polygraphy,
        ),
        "onnxruntime": DumpFormat(
            read=read_onnxruntime_database,
            summary="a database of ONNX Runtime's node dumps",
            recognizes=is_onnxruntime_database,
        ),
        "gguf": DumpFormat(read=read_gguf, summary="the tensors of a GGUF file", recognizes=is_gguf),
        "vllm": DumpFormat(
            read=read_vllm,
            summary="a run of vLLM's intermediate tensor logging",
            recognizes=is_vllm,
        ),
        "sglang": DumpFormat(
            read=read_sglang,
            summary="one rank's tensor dumps of SGLang",
            recognizes=is_sglang,
        ),
        "tensorrt-llm": DumpFormat(
            read=read_tensorrt_llm,
            summary="one rank's debug tensors of TensorRT-LLM",
            recognizes=is_tensorrt_llm,
        ),
        "transformers": DumpFormat(
            read=read_transformers,
            summary="a trace of transformers' model_addition_debugger_context",
            recognizes=is_transformers,
        ),
        "statistics": DumpFormat(
            read=read_statistics_table,
            summary="statistics of TFLite's QuantizationDebugger or LiteRT's accuracy debugger (.csv)",
            recognizes=is_statistics_table,
        ),
        "arrays": DumpFormat(
            read=read_arrays,
            summary="a folder of .npy, .npz, .safetensors, .pt and .pth files, or a single file",
            recognizes=lambda path: path.is_dir() or path.suffix.lower() in FILE_READERS,
        ),
        "description": DumpFormat(
            read=read_description,
            summary="a JSON file that describes raw or numpy files",
            recognizes=lambda path: path.suffix.lower() == ".json",
        ),
        "litert-debugger": DumpFormat(
            read=read_litert_debugger,
            summary="a folder of the LiteRT accuracy debugger, with its .tflite model as --graph",
        ),
    }
)
"""Dump formats by their name for `--source-format`. The first one that matches a source is used."""
