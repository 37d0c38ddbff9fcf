"""Dumps of SGLang: a file for each forward pass, or one for each call of its dumper.

The names are those of SGLang 0.5.23: `--debug-tensor-dump-output-folder` writes `PassNNNNN.pt` with the outputs of all
modules (`srt/debug_utils/tensor_dump_forward_hook.py`); `dumper.dump` writes `step=1___rank=0___dump_index=3___name=
NAME___TAG=VALUE.pt` with "value" and "meta" (`srt/debug_utils/dumper.py`). Older versions write "forward_pass_id"
instead of "step".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from qdebug.errors import UsageError
from qdebug.importing.dump import Dump, DumpedTensor
from qdebug.importing.files import Files
from qdebug.importing.formats.torch_file import tensors_of_torch_file
from qdebug.model import Graph

__all__ = ["is_sglang", "read_sglang"]

_PASS = re.compile(r"Pass(\d{1,9})\.pt")
_RANK_FOLDER = re.compile(r"TP\d+_PP\d+_Rank\d+_pid\d+")
_BATCH = ".forward_batch_info.input_ids"
_STEP_TAGS = ("step", "forward_pass_id")
_RUN_TAGS = frozenset({*_STEP_TAGS, "rank", "dump_index", "name"})


def is_sglang(source: Path) -> bool:
    """Return whether a source is a folder of SGLang's dumps."""
    if not source.is_dir():
        return False
    names = [path.name for path in source.iterdir()]
    has_passes = any(_PASS.fullmatch(name) or _RANK_FOLDER.fullmatch(name) for name in names)
    return has_passes or any("___name=" in name and name.endswith(".pt") for name in names)


def read_sglang(files: Files, source: Path, graph: Graph | None) -> Dump:
    """List the tensors of one rank, with each forward pass as a step.

    Args:
        files: The files of the dump.
        source: The folder of a rank.
        graph: Not used.

    Raises:
        UsageError: A file is damaged, or the folder has the files of several ranks.
    """
    del graph
    ranks = [path for path in source.iterdir() if _RANK_FOLDER.fullmatch(path.name) and path.is_dir()]
    if len(ranks) > 1:
        raise _several_ranks(source, max(path.name for path in ranks))
    folder = ranks[0] if ranks else source
    passes = sorted((int(match[1]), path) for path in folder.iterdir() if (match := _PASS.fullmatch(path.name)))
    dump = _Passes(files, passes).dump() if passes else _read_dumper(files, folder)
    return replace(dump, facts={"backend": "sglang"})


def _several_ranks(source: Path, example: str) -> UsageError:
    return UsageError(
        f"{str(source)!r} contains tensors of several ranks.",
        hint=f"Import each rank separately (here {example}), then join them: qdebug file join r0.h5 r1.h5 --by shards.",
    )


class _Passes:
    """The forward passes of a rank.

    The hook of the top module, such as "model", writes the file before it adds that module's own output. This output,
    and those of the modules after it, such as "lm_head", are therefore at the start of the next pass's file.

    Args:
        files: The files of the dump.
        passes: The number and file of each pass, in their order.
    """

    def __init__(self, files: Files, passes: list[tuple[int, Path]]) -> None:
        self._files, self._passes = files, passes
        self._ignored: dict[str, str] = {}
        self._names_before_top: set[str] = set()

    def dump(self) -> Dump:
        """Return the tensors, each in the pass that computed it."""
        first = self._passes[0][0]
        by_step: dict[int, list[DumpedTensor]] = {number - first: [] for number, _ in self._passes}
        for number, path in self._passes:
            entries = list(tensors_of_torch_file(self._files, path, (0, number - first), "", self._ignored))
            late = self._late_names_of_previous_pass(number, entries)
            by_step[number - first] += [entry for entry in entries if entry.name not in late]
            for entry in entries:
                if entry.name in late and number - first - 1 in by_step:
                    by_step[number - first - 1].append(replace(entry, place=(0, number - first - 1)))
                elif entry.name in late:
                    self._ignored[entry.location] = "made by a pass whose file is missing"
        tensors = [entry for step in sorted(by_step) for entry in by_step[step]]
        return Dump(tensors=tensors, ignored=self._ignored, remarks=[f"{len(self._passes)} forward passes as steps"])

    def _late_names_of_previous_pass(self, number: int, entries: list[DumpedTensor]) -> set[str]:
        """Return the names of the tensors in a pass's file that the previous pass computed."""
        top = next((entry.name.removesuffix(_BATCH) for entry in entries if entry.name.endswith(_BATCH)), None)
        if top is None:
            return set()
        leading: list[str] = []
        for entry in entries:
            if entry.name.startswith(f"{top}.") and not entry.name.removeprefix(f"{top}.").isdigit():
                break
            leading.append(entry.name)
        if number == 0:
            self._names_before_top = set(leading)
        return set(leading) - self._names_before_top


def _read_dumper(files: Files, folder: Path) -> Dump:
    """List the tensors of `dumper.dump`, in the order of its calls."""
    ignored: dict[str, str] = {}
    tagged_files: list[tuple[Mapping[str, str], Path]] = []
    for path in sorted(folder.iterdir()):
        tags = dict(part.split("=", 1) for part in path.stem.split("___") if "=" in part)
        if path.suffix != ".pt" or not tags.get("name") or not files.is_inside(path):
            ignored[path.name] = "not a file of the dumper"
        else:
            tagged_files.append((tags, path))
    if len({tags.get("rank", "") for tags, _ in tagged_files}) > 1:
        raise _several_ranks(folder, "the files with rank=0 in a folder of their own")
    tagged_files.sort(key=lambda item: (_step_of(item[0]), _parse_number(item[0].get("dump_index"))))
    first = _step_of(tagged_files[0][0]) if tagged_files else 0
    tensors = [entry for tags, path in tagged_files for entry in _list_tensors(files, path, tags, ignored)]
    calls: Counter[tuple[str, int]] = Counter()
    numbered = []
    for entry in tensors:
        step = entry.place[1] - first
        repeat = calls[entry.name, step]
        calls[entry.name, step] += 1
        numbered.append(replace(entry, place=(0, step), name=f"{entry.name}.call{repeat}" if repeat else entry.name))
    return Dump(tensors=numbered, ignored=ignored)


def _list_tensors(files: Files, path: Path, tags: Mapping[str, str], ignored: dict[str, str]) -> Iterator[DumpedTensor]:
    """Yield the tensors of a file. A name consists of the tag `name`, and of all further tags with their values."""
    parts = [tags["name"], *(f"{key}.{value}" for key, value in tags.items() if key not in _RUN_TAGS)]
    for entry in tensors_of_torch_file(files, path, (0, _step_of(tags)), "", ignored):
        inner = re.sub(r"^value\.?", "", entry.name) if entry.name != path.stem else ""
        if not entry.name.startswith("meta."):
            name = ".".join([*parts, inner] if inner else parts)
            yield replace(entry, name=name, location=path.name if not inner else f"{path.name}:{inner}")


def _step_of(tags: Mapping[str, str]) -> int:
    return _parse_number(next((tags[key] for key in _STEP_TAGS if key in tags), None))


def _parse_number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else 0
