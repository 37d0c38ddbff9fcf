"""Folders of vLLM's intermediate tensor logging: `step_N/MODULE/{inputs,outputs}[_INDEX]_DEVICE.pt`.

The names are those of `vllm/v1/intermediates/intermediates_logging.py` and `docs/contributing/intermediate_logging.md`
in vLLM; `module_calls.txt` of a step lists the modules in the order in which their calls began.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from qdebug.importing.dump import Dump, DumpedTensor
from qdebug.importing.files import Files
from qdebug.importing.formats.calls import Calls
from qdebug.importing.formats.torch_file import tensors_of_torch_file
from qdebug.model import Graph
from qdebug.regular_file import read_regular

__all__ = ["is_vllm", "read_vllm"]

_STEP = re.compile(r"step_(\d{1,9})")
_FILE = re.compile(r"(inputs|outputs)((?:_[^/]+?)??)_([a-z]+(?:_\d+)?)\.pt")
_CALLS = "module_calls.txt"
_MAX_CALLS_BYTES = 64 << 20


def _find_steps(source: Path) -> list[tuple[int, Path]]:
    """Return the number and the folder of each step, in order."""
    if not source.is_dir():
        return []
    steps = [(int(match[1]), path) for path in source.iterdir() if (match := _STEP.fullmatch(path.name))]
    return sorted((number, path) for number, path in steps if path.is_dir() and not path.is_symlink())


def is_vllm(source: Path) -> bool:
    """Return whether a source is a folder of vLLM's intermediate tensor logging."""
    return any(
        (path / _CALLS).is_file() or next(path.glob("*/outputs*.pt"), None) is not None
        for _, path in _find_steps(source)
    )


def read_vllm(files: Files, source: Path, graph: Graph | None) -> Dump:
    """List the inputs and outputs of all modules, with each step of the engine as a step.

    Args:
        files: The files of the dump.
        source: The folder of a run, which contains the steps.
        graph: Not used.

    Raises:
        UsageError: A file is damaged.
    """
    del graph
    calls, ignored = Calls(), dict[str, str]()
    steps = _find_steps(source)
    devices: list[str] = []
    for number, folder in steps:
        place = (0, number - steps[0][0])
        for module in _in_order_of_ends(_list_modules(folder, ignored)):
            inputs: list[DumpedTensor] = []
            outputs: list[DumpedTensor] = []
            for path, direction, rest, device in _list_files(files, folder / module, ignored):
                devices += [] if device in devices else [device]
                if device != devices[0]:
                    ignored[str(path.relative_to(source))] = (
                        f"a different device from {devices[0]}; import it separately"
                    )
                    continue
                name = ".".join(filter(None, (module, "inputs" if direction == "inputs" else "", rest)))
                tensor = next(tensors_of_torch_file(files, path, place, "", ignored), None)
                if tensor is not None:
                    location = str(path.relative_to(source))
                    (inputs if direction == "inputs" else outputs).append(replace(tensor, name=name, location=location))
            calls.add(module, None, inputs=inputs, outputs=outputs)
    return Dump(tensors=calls.tensors, ignored=ignored, facts={"backend": "vllm"}, remarks=_remarks(len(steps)))


def _remarks(count: int) -> list[str]:
    return [f"{count} steps of the engine"] if count > 1 else []


def _list_modules(folder: Path, ignored: dict[str, str]) -> list[str]:
    """Return the modules of a step in the order in which their calls began; those without a stated call come last."""
    present = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    path = folder / _CALLS
    if not path.is_file():
        ignored[str(path)] = "missing: the modules are in the order of their names"
        return present
    lines = read_regular(path, _MAX_CALLS_BYTES).decode("utf-8", "replace").splitlines()
    stated = [name for name in dict.fromkeys(lines) if name in set(present)]
    return [*stated, *(name for name in present if name not in set(stated))]


def _in_order_of_ends(modules: Sequence[str]) -> Iterator[str]:
    """Yield modules in the order in which their calls end: inner modules before the module that contains them."""
    pending: list[str] = []
    for module in modules:
        while pending and not module.startswith(f"{pending[-1]}."):
            yield pending.pop()
        pending.append(module)
    yield from reversed(pending)


def _list_files(files: Files, folder: Path, ignored: dict[str, str]) -> Iterator[tuple[Path, str, str, str]]:
    """Yield the files of a module, inputs first, each with its direction, its position and the device."""
    for path in sorted(folder.iterdir()):
        match = _FILE.fullmatch(path.name)
        if match is None or not files.is_inside(path):
            is_remark = path.suffix == ".json" or path.name.startswith("post_fwd_inputs")
            ignored[f"{folder.parent.name}/{folder.name}/{path.name}"] = (
                "a description or a second copy of the inputs" if is_remark else "not a tensor of the module"
            )
            continue
        yield path, match[1], re.sub(r"_(?=\d)", ".", match[2]).lstrip("._"), match[3]
