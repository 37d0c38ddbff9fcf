"""Traces of transformers' `model_addition_debugger_context`: a tree of calls in JSON, and a file for each tensor.

The names are those of `transformers/model_debugging_utils.py` in transformers 5.24. Tensors are in files only with
`use_repr=False`; otherwise the trace has their printed form, which leaves out most values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from qdebug.errors import UsageError
from qdebug.importing.dump import Dump, DumpedTensor
from qdebug.importing.files import Files, damaged
from qdebug.importing.formats.calls import Calls
from qdebug.importing.formats.safetensors_file import tensors_of_safetensors
from qdebug.model import Graph
from qdebug.regular_file import read_regular

__all__ = ["is_transformers", "read_transformers"]

_KIND = "trace of transformers"
_SUFFIX = "_debug_tree_FULL_TENSORS.json"
_MAX_BYTES = 1 << 30


def _find_trace(source: Path) -> Path | None:
    if not source.is_dir():
        return source if source.name.endswith(_SUFFIX) else None
    return next(iter(sorted(source.glob(f"*{_SUFFIX}"))), None)


def is_transformers(source: Path) -> bool:
    """Return whether a source is a trace of transformers, or a folder with one."""
    return _find_trace(source) is not None


def read_transformers(files: Files, source: Path, graph: Graph | None) -> Dump:
    """List the inputs and outputs of all modules in the order in which their calls end.

    Args:
        files: The files of the dump.
        source: The trace, or its folder.
        graph: Not used.

    Raises:
        UsageError: The trace is damaged, or has no tensors in files.
    """
    del graph
    path = _find_trace(source) or source
    try:
        root = json.loads(read_regular(path, _MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, None, str(error)[:100], kind=_KIND) from None
    if not isinstance(root, dict) or not isinstance(root.get("module_path"), str):
        raise damaged(path, None, "it has no tree of calls", kind=_KIND)
    trace = _Trace(files, path)
    nodes = list(_in_order_of_ends(root))
    last_calls = {str(node.get("module_path")): number for number, node in enumerate(nodes)}
    for number, node in enumerate(nodes):
        if last_calls[str(node.get("module_path"))] != number:
            trace.ignored[f"{node['module_path']}, call {number}"] = "the files have only the module's last call"
        else:
            trace.add(node, is_root=node is root)
    if not trace.calls.tensors and trace.has_printed:
        raise UsageError(
            f"{str(path)!r} has no tensors, only their printed form.",
            hint="Trace again with model_addition_debugger_context(model, debug_path=..., use_repr=False).",
        )
    return Dump(
        tensors=trace.calls.tensors,
        ignored=trace.ignored,
        facts={"backend": "transformers", "model": root["module_path"], "outputs": trace.outputs},
        remarks=["modules with parts have no outputs in the trace"],
    )


def _in_order_of_ends(root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the calls of a tree in the order in which they end: nested calls before the call that contains them."""
    pending: list[tuple[Mapping[str, Any], bool]] = [(root, False)]
    while pending:
        node, is_open = pending.pop()
        if is_open:
            yield node
            continue
        pending.append((node, True))
        children = node.get("children")
        pending += [
            (child, False)
            for child in reversed(children if isinstance(children, list) else [])
            if isinstance(child, dict)
        ]


class _Trace:
    """Collects the tensors of a trace.

    Args:
        files: The files of the dump.
        path: The trace.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self._files, self._folder, self._title = files, path.parent, path.name.removesuffix(_SUFFIX)
        self.calls = Calls()
        self.ignored: dict[str, str] = {}
        self.outputs: tuple[str, ...] = ()
        self.has_printed = False

    def add(self, node: Mapping[str, Any], *, is_root: bool) -> None:
        """Add the tensors of a call."""
        module = str(node.get("module_path", "")).removeprefix(f"{self._title}.")
        inputs = list(self._list_tensors(node.get("inputs"), "inputs" if is_root else f"{module}.inputs"))
        outputs = list(self._list_tensors(node.get("outputs"), "" if is_root else module))
        if is_root:
            self.outputs = tuple(tensor.name for tensor in outputs)
        if outputs or is_root:
            self.calls.add(module, None, inputs=[] if is_root else inputs, outputs=outputs)

    def _list_tensors(self, value: Any, name: str) -> Iterator[DumpedTensor]:
        """Yield the tensors in nested values. Keys and positions are appended to the name."""
        pending: list[tuple[str, Any]] = [(name, value)]
        while pending:
            title, part = pending.pop()
            if isinstance(part, dict) and "value" in part and "dtype" in part:
                tensor = self._describe_tensor(title, part["value"])
                if tensor is not None:
                    yield tensor
            elif isinstance(part, (dict, list)):
                items = list(part.items() if isinstance(part, dict) else enumerate(part))
                pending += [
                    (title if key in ("args", "kwargs") else ".".join(filter(None, (title, str(key)))), inner)
                    for key, inner in reversed(items)
                ]

    def _describe_tensor(self, name: str, value: Any) -> DumpedTensor | None:
        """Describe the tensor that a value refers to, in a file next to the trace; None if there is no such file."""
        if not isinstance(value, str):
            self.has_printed = True
            self.ignored[name] = "only its printed form; trace with use_repr=False"
            return None
        path = self._folder / Path(value).name
        if not path.is_file():
            self.ignored[name] = f"its file {path.name[:80]!r} is missing"
            return None
        tensor = next(tensors_of_safetensors(self._files, path, (0, 0), "", self.ignored), None)
        return None if tensor is None else replace(tensor, name=name or "output", location=path.name)
