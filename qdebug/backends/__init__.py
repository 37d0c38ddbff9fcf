"""Framework adapters, one folder each. They are loaded by name and never imported statically.

A new framework needs a folder here, a row in one of the tables below, an extra in pyproject.toml and a test folder.
Another package adds a backend with an entry point in the group "qdebug.backends".
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qdebug.backends.protocol import Backend, ModelSource, NewPart, NodeEdit
from qdebug.errors import BackendError, MissingExtraError, UsageError

if TYPE_CHECKING:
    import numpy as np

    from qdebug.model import Graph
    from qdebug.replay.registry import Kernel

__all__ = [
    "BACKENDS",
    "EDITORS",
    "READERS",
    "REPLAYERS",
    "WRITERS",
    "AdapterEntry",
    "check_model_file",
    "edit_model",
    "editable_tensors",
    "installed_backends",
    "load_backend",
    "load_reader",
    "replace_model_parts",
    "replay_kernel",
    "write_model",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterEntry:
    """One row of the adapter tables.

    Args:
        module: Module that exposes `backend` or `reader`.
        extra: Extra of this package that installs its dependencies; "" if the core packages suffice.
        packages: Packages that it requires.
        runtime: Distribution that contains the runtime, whose version affects the results; "" without a runtime.
        summary: One line for lists.
    """

    module: str
    extra: str = ""
    packages: tuple[str, ...] = ()
    runtime: str = ""
    summary: str = ""


BACKENDS: dict[str, AdapterEntry] = {
    "interpreter": AdapterEntry(
        module="qdebug.backends.interpreter",
        summary="NumPy kernels; replays the graph of a recording, with core packages only, or an ONNX file",
    ),
    "onnxruntime": AdapterEntry(
        module="qdebug.backends.onnxruntime.adapter",
        extra="onnx",
        packages=("onnx", "onnxruntime"),
        runtime="onnxruntime",
        summary="ONNX Runtime, recorded in the graph that it executes",
    ),
    "litert": AdapterEntry(
        module="qdebug.backends.litert.adapter",
        extra="litert",
        packages=("ai_edge_litert",),
        runtime="ai-edge-litert",
        summary="LiteRT (TensorFlow Lite) with its XNNPACK, builtin or reference kernels",
    ),
    "openvino": AdapterEntry(
        module="qdebug.backends.openvino.adapter",
        extra="openvino",
        packages=("openvino",),
        runtime="openvino",
        summary="OpenVINO, recorded in the graph that it executes; ONNX, LiteRT and IR files",
    ),
    "torch": AdapterEntry(
        module="qdebug.backends.torch.adapter",
        extra="torch",
        packages=("torch",),
        runtime="torch",
        summary="PyTorch: a program of torch.export, recorded node by node",
    ),
    "tflm": AdapterEntry(
        module="qdebug.backends.tflm.adapter",
        extra="tflm",
        packages=("tflite_micro", "ai_edge_litert"),
        runtime="tflite-micro",
        summary="TensorFlow Lite Micro: the reference kernels of microcontrollers",
    ),
    "executorch": AdapterEntry(
        module="qdebug.backends.executorch.adapter",
        extra="executorch",
        packages=("executorch.runtime", "torch"),
        runtime="executorch",
        summary="ExecuTorch with XNNPACK or its portable kernels: program files (.pte) and exported programs (.pt2)",
    ),
}
"""Built-in backends, by their name for `--backend`."""

READERS: dict[str, AdapterEntry] = {
    ".onnx": AdapterEntry(
        module="qdebug.backends.onnx.model", extra="onnx", packages=("onnx",), summary="ONNX model files"
    ),
    ".tflite": AdapterEntry(
        module="qdebug.backends.litert.model",
        extra="litert",
        packages=("ai_edge_litert",),
        summary="LiteRT (TensorFlow Lite) model files",
    ),
    ".xml": AdapterEntry(
        module="qdebug.backends.openvino.model",
        extra="openvino",
        packages=("openvino",),
        summary="OpenVINO model files (IR)",
    ),
}
"""Readers of model files, by file suffix."""


WRITERS: dict[str, AdapterEntry] = {
    ".onnx": AdapterEntry(
        module="qdebug.backends.onnx.write", extra="onnx", packages=("onnx",), summary="ONNX model files"
    ),
    ".tflite": AdapterEntry(
        module="qdebug.backends.litert.write",
        extra="litert",
        packages=("ai_edge_litert",),
        summary="LiteRT (TensorFlow Lite) model files",
    ),
    ".pt2": AdapterEntry(
        module="qdebug.backends.torch.write",
        extra="torch",
        packages=("torch", "torchao"),
        summary="programs from torch.export",
    ),
}
"""Writers of model files, by file suffix."""

EDITORS: dict[str, AdapterEntry] = {
    ".onnx": AdapterEntry(
        module="qdebug.backends.onnx.edit", extra="onnx", packages=("onnx",), summary="quantized ONNX model files"
    ),
}
"""Editors of quantized model files, by file suffix."""


REPLAYERS: tuple[AdapterEntry, ...] = (
    AdapterEntry(
        module="qdebug.backends.onnx.reference",
        extra="onnx",
        packages=("onnx",),
        summary="rarer operators, by the reference implementation of ONNX",
    ),
)
"""Frameworks that replay operators without a kernel in qdebug, tried in this order."""


def replay_kernel(op: str, domain: str) -> Kernel | None:
    """Return a kernel for an operator from an installed framework; None if no framework has one."""
    for entry in REPLAYERS:
        if all(map(_is_installed, entry.packages)):
            kernel: Kernel | None = importlib.import_module(entry.module).kernel_of(op, domain)
            if kernel is not None:
                return kernel
    return None


_GROUP = "qdebug.backends"
"""Entry point group in which other packages register backends."""


def installed_backends() -> dict[str, EntryPoint]:
    """Return the backends of other packages by name. Names of this package's backends are excluded."""
    return {entry.name: entry for entry in entry_points(group=_GROUP) if entry.name not in BACKENDS}


def load_backend(name: str) -> Backend:
    """Load a backend by name.

    Raises:
        UsageError: The backend does not exist.
        MissingExtraError: A package that it needs is not installed.
        BackendError: It belongs to another package and cannot be loaded.
    """
    if name not in BACKENDS:
        installed = installed_backends()
        if name in installed:
            return _load_installed(installed[name])
        raise UsageError(
            f"Unknown backend {name!r}; known backends: {', '.join((*BACKENDS, *installed))}.",
            hint="Choose one: qdebug record MODEL --backend NAME --inputs FILE.npz -o OUT.h5.",
        )
    entry = BACKENDS[name]
    _require(entry, purpose=f"Backend {name!r}")
    backend: Backend = importlib.import_module(entry.module).backend
    return backend


def _load_installed(entry: EntryPoint) -> Backend:
    """Load a backend of another package.

    Raises:
        BackendError: It cannot be loaded, or lacks an attribute that every backend must have.
    """
    package = entry.dist.name if entry.dist is not None else entry.module
    title = f"Backend {entry.name!r} of the package {package!r} ({entry.value})"
    try:
        backend: Backend = entry.load()
    except Exception as error:  # another package may raise anything on import
        raise BackendError(
            f"{title} cannot be loaded: {type(error).__name__}: {error}.", hint=f"Repair or uninstall {package}."
        ) from error
    missing = [name for name in ("name", "options", "open") if not hasattr(backend, name)]
    if missing:
        raise BackendError(
            f"{title} has no {', '.join(missing)}.", hint="See `qdebug help extending` for what a backend must provide."
        )
    return backend


def load_reader(path: str | Path) -> ModelSource:
    """Read a model file with the reader for its kind.

    Raises:
        UsageError: The file does not exist, or has no reader.
        MissingExtraError: A package that the reader needs is not installed.
        QdebugError: The file is not a valid model.
    """
    path = Path(path)
    check_model_file(path)
    entry = READERS.get(path.suffix.lower())
    if entry is None:
        raise UsageError(
            f"Unknown kind of model file {path.name!r}; known extensions: {', '.join(READERS)}.",
            hint="Give a model file of one of these kinds, or a recording.",
        )
    _require(entry, purpose=f"Reading {path.suffix.lower()} files")
    source: ModelSource = importlib.import_module(entry.module).reader.open(path)
    return source


def check_model_file(path: Path) -> None:
    """Check that a model file exists and is a file.

    Raises:
        UsageError: It is missing or is not a file.
    """
    if path.is_file():
        return
    hint = "Give a model file or a recording."
    if path.is_dir():
        raise UsageError(f"The model {str(path)!r} is a folder.", hint=hint)
    if path.exists():
        raise UsageError(f"The model {str(path)!r} is not a regular file.", hint=hint)
    raise UsageError(f"There is no model file {str(path)!r}.", hint=hint)


def write_model(graph: Graph, constants: Mapping[str, np.ndarray], path: Path) -> None:
    """Write a graph as a model file, in the format that its suffix selects.

    Args:
        graph: The graph.
        constants: Its constants by name.
        path: The file.

    Raises:
        UsageError: There is no writer for files of this kind.
        MissingExtraError: A package that the writer needs is not installed.
        BackendError: The graph cannot be written in this format.
    """
    entry = WRITERS.get(path.suffix.lower())
    if entry is None:
        raise UsageError(
            f"Files such as {path.name!r} cannot be written; known extensions: {', '.join(WRITERS)}.",
            hint="Give the file another extension.",
        )
    _require(entry, purpose=f"Writing {path.suffix.lower()} files")
    importlib.import_module(entry.module).write(graph, constants, path)


def _require(entry: AdapterEntry, *, purpose: str) -> None:
    """Raise MissingExtraError if a package of an adapter is not installed. The packages are not imported."""
    for package in entry.packages:
        if not _is_installed(package):
            raise MissingExtraError(package.partition(".")[0], extra=entry.extra, purpose=purpose)


def _is_installed(package: str) -> bool:
    """Return whether a package can be imported. A folder with its name does not count."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # the parent package is not installed
        return False
    return spec is not None and spec.origin is not None


def edit_model(model: Path, edits: Sequence[NodeEdit], out: Path) -> None:
    """Write a copy of a quantized model with the given nodes changed.

    Args:
        model: The model.
        edits: The changes.
        out: The file to write.

    Raises:
        UsageError: There is no editor for models of this kind.
        MissingExtraError: A package that the editor needs is not installed.
        BackendError: The model cannot be changed this way.
    """
    _load_editor(model).edit(model, edits, out)


def replace_model_parts(model: Path, parts: Sequence[NewPart], out: Path) -> None:
    """Write a copy of a model in which new nodes compute some tensors.

    Args:
        model: The model.
        parts: The new nodes.
        out: The file to write.

    Raises:
        UsageError: There is no editor for models of this kind.
        MissingExtraError: A package that the editor needs is not installed.
        BackendError: The model cannot be changed this way.
    """
    _load_editor(model).replace_parts(model, parts, out)


def editable_tensors(model: Path) -> frozenset[str]:
    """Return the names of the tensors of a quantized model whose nodes can be edited.

    Args:
        model: The model.

    Raises:
        UsageError: There is no editor for models of this kind.
        MissingExtraError: A package that the editor needs is not installed.
        BackendError: The model cannot be read.
    """
    names: frozenset[str] = _load_editor(model).tensors(model)
    return names


def _load_editor(model: Path) -> Any:
    """Import the editor module for a kind of model file."""
    entry = EDITORS.get(model.suffix.lower())
    if entry is None:
        raise UsageError(
            f"Models such as {model.name!r} cannot be edited; known extensions: {', '.join(EDITORS)}.",
            hint="Apply the edits with your quantizer instead; --json lists them.",
        )
    _require(entry, purpose=f"Changing {model.suffix.lower()} files")
    return importlib.import_module(entry.module)
