"""The comparison and recorded values for other tools: CSV, an attachment for Netron, an .npz file.

To view the attachment, open the model in Netron, then this file, and click on a node. Netron shows `metadata` and
`metrics` of a JSON file with the signature "netron:attachment" next to the nodes and values with these names
(lutzroeder/netron, source/view.js). It compares names only up to their first line break, and keeps the last of two
entries with the same name. This module accounts for both.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.compare.measure.pair_values import PairedValues
from qdebug.compare.result.flat_rows import COLUMNS
from qdebug.compare.result.node_result import breaks_limit, is_excused
from qdebug.compare.result.result import NodeResult, RunComparison
from qdebug.errors import UsageError
from qdebug.importing.formats.arrays import TENSOR_NAMES
from qdebug.model import Graph, Recording
from qdebug.model.json_object import json_safe
from qdebug.numerics.affine import dequantize, is_wide_code
from qdebug.numerics.block_error import real_differences
from qdebug.present import numbers, sentences
from qdebug.present.detail import finding_facts
from qdebug.present.rows import metric_title, quant_text
from qdebug.present.text import safe_text
from qdebug.recording.npz import write_arrays

__all__ = ["csv_cell", "diff_csv", "element_csv", "guard_formula", "member_names", "netron_attachment", "write_npz"]

_FORMULA_STARTS = tuple("=+-@\t\r\n|%\uff1d\uff0b\uff0d\uff20")
"""First characters that may make a spreadsheet evaluate a cell as a formula, including full-width forms."""

_TEXT_LIMIT = 2000


def diff_csv(results: Mapping[str, RunComparison]) -> str:
    """Return comparisons as CSV with the columns of `RunComparison.to_rows`. NaN and infinities are written by name.

    Args:
        results: One comparison for each backend, by displayed name. If there are several, a first column contains that
            name.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    has_several = len(results) > 1
    writer.writerow([*(["backend"] if has_several else []), *COLUMNS])
    for backend, result in results.items():
        first = [guard_formula(backend)] if has_several else []
        writer.writerows([*first, *(csv_cell(row[name]) for name in COLUMNS)] for row in result.to_rows())
    return text.getvalue()


def element_csv(values: PairedValues) -> str:
    """Return both sides of one tensor as CSV, one element per line: index, real values, difference, and any codes.

    Args:
        values: The two sides, for one sample and step.
    """
    reference, backend = (_booleans_as_integers(side) for side in (values.reference, values.backend))
    columns = {
        "reference": reference,
        "backend": backend,
        "difference": _differences(reference, backend),
    }
    for name, codes in (("reference_code", values.reference_codes), ("backend_code", values.backend_codes)):
        if codes is not None:
            columns[name] = codes.reshape(backend.shape)
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["index", *columns])
    flat = [column.ravel().tolist() for column in columns.values()]
    for index, *row in zip(np.ndindex(backend.shape), *flat, strict=True):
        writer.writerow([",".join(map(str, index)), *map(csv_cell, row)])
    return text.getvalue()


def _booleans_as_integers(side: np.ndarray) -> np.ndarray:
    """Return booleans as the integers 0 and 1, and other values unchanged."""
    return side.astype(np.uint8) if side.dtype == np.bool_ else side


def _differences(reference: np.ndarray, backend: np.ndarray) -> np.ndarray:
    """Return backend minus reference, using Python integers for integers to avoid overflow."""
    if reference.dtype.kind in "iu" and backend.dtype.kind in "iu":
        return np.asarray(backend.astype(object) - reference.astype(object).reshape(backend.shape))
    return real_differences(reference, backend)


def guard_formula(value: object) -> str:
    """Return text that a spreadsheet does not evaluate. A quote is inserted before what looks like a formula.

    Args:
        value: Anything, such as a name from a recording.
    """
    text = safe_text(value, limit=_TEXT_LIMIT)
    return f"'{text}" if text.lstrip().startswith(_FORMULA_STARTS) else text


def csv_cell(value: Any) -> str:
    """Return a value as a CSV cell: numbers in full, texts guarded, empty for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return (
            repr(value)
            if math.isfinite(value)
            else "NaN"
            if math.isnan(value)
            else f"{'-' if value < 0 else ''}Infinity"
        )
    return str(value) if isinstance(value, int) else guard_formula(value)


_METRICS = ("sqnr_db", "max_lsb", "rel_l2", "max_abs", "cosine", "mismatches", "nonfinite")


def netron_attachment(result: RunComparison, graph: Graph | None = None) -> str:
    """Return a comparison as JSON text for Netron.

    Args:
        result: The comparison to show.
        graph: The reference's graph, to show the comparison on the reference's model, or None for the backend's.
    """
    metadata: list[dict[str, Any]] = []
    metrics: list[dict[str, Any]] = []
    _add_facts(
        metadata, "model", "", {"qdebug": str(result.status), "qdebug verdict": sentences.verdict_sentence(result)}
    )
    written_targets: set[tuple[str, str]] = set()
    for entry in result.nodes:
        for kind, name in _targets(entry, graph):
            if (kind, name) in written_targets:  # a node with several outputs is shown with its first one
                continue
            written_targets.add((kind, name))
            _add_facts(metadata, kind, name, _metadata_facts(entry))
            _add_facts(metrics, kind, name, _metric_facts(entry))
    plain = json_safe({"signature": "netron:attachment", "metadata": metadata, "metrics": metrics})
    return json.dumps(plain, indent=1, allow_nan=False) + "\n"


def _targets(entry: NodeResult, graph: Graph | None) -> list[tuple[str, str]]:
    """Return the names that Netron finds an entry by: its value and, if a node produces it, its node."""
    node, value = entry.node, entry.tensor
    if graph is not None:
        producer = graph.producer(entry.reference_tensor)
        node, value = (producer.name if producer else ""), entry.reference_tensor
    elif entry.op == "Input":
        node = ""
    titled_names = [("node", node), ("value", value)]
    return [(kind, name.split("\n", maxsplit=1)[0]) for kind, name in titled_names if name.split("\n", maxsplit=1)[0]]


def _add_facts(rows: list[dict[str, Any]], kind: str, target: str, facts: dict[str, Any]) -> None:
    rows += [{"kind": kind, "target": target, "name": name, "value": value} for name, value in facts.items()]


def _metadata_facts(entry: NodeResult) -> dict[str, Any]:
    is_excused_failure = breaks_limit(entry) and is_excused(entry) and entry.acknowledged is not None
    facts = {
        "qdebug": f"{entry.status}{', acknowledged' if is_excused_failure else ''}",
        "qdebug why": safe_text(entry.reason) if entry.reason else None,
        "qdebug found": "; ".join(text for _, text in finding_facts(entry)) or None,
        "qdebug acknowledged": safe_text(entry.acknowledged.reason)
        if is_excused_failure and entry.acknowledged
        else None,
        "qdebug pair": safe_text(entry.reference_tensor, limit=200),
        "qdebug arithmetic": safe_text(entry.explained) if entry.explained else None,
        "qdebug scale / zero point": None if entry.quant is None else quant_text(entry.quant),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _metric_facts(entry: NodeResult) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    if entry.metrics is not None:
        figures = {metric_title(name): getattr(entry.metrics, name) for name in _METRICS}
    if entry.introduced is not None:
        figures["introduced LSB"] = entry.introduced.max_lsb
        figures["introduced rel L2"] = entry.introduced.rel_l2
    figures["gain"] = entry.relative_gain
    if entry.saturation is not None:
        figures["clipped"] = numbers.percent(entry.saturation.clipped, entry.saturation.total)
    return {name: value for name, value in figures.items() if value is not None}


_SAFE_MEMBER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def write_npz(
    recording: Recording,
    path: Path,
    *,
    tensors: Sequence[str] = ("*",),
    sample: int = 0,
    step: int = 0,
    real: bool = False,
) -> int:
    """Write the values of tensors for one sample and step.

    A member has the tensor's name if that is a safe file name, or else a name derived from it; `tensor_names` lists
    all. Types that numpy lacks are written as the next larger one: bfloat16 as float32, int4 as int8.

    Args:
        recording: The recording with the values.
        path: The file, overwritten if it exists.
        tensors: Patterns for names. Matching constants are written too.
        sample: The sample.
        step: The step of a stateful network.
        real: Write real values instead of codes.

    Returns:
        The number of arrays written.

    Raises:
        UsageError: No tensor with values matches, or there is no such sample or step.
        RecordingError: Values cannot be read.
    """
    names = _choose_names(recording, tensors, sample, step)
    members = member_names(names)
    name_table = np.array([(member, name) for name, member in members.items()], dtype=np.str_)
    values = ((member, _load_storable(recording, name, sample, step, real=real)) for name, member in members.items())
    write_arrays(path, chain([(TENSOR_NAMES, name_table)], values))
    return len(names)


def _choose_names(recording: Recording, tensors: Sequence[str], sample: int, step: int) -> list[str]:
    """Return the names of the tensors to write.

    Raises:
        UsageError: There are none.
    """
    if sample >= recording.samples or step >= recording.steps:
        raise UsageError(
            f"There is no sample {sample}, step {step}: the recording has {recording.samples} samples of "
            f"{recording.steps} steps.",
            hint="Count both from 0.",
        )
    names = [
        name
        for name in recording.names
        if recording.has(name, sample, step) and any(fnmatchcase(name, pattern) for pattern in tensors)
    ]
    if not names:
        patterns_text = ", ".join(repr(pattern) for pattern in tensors)
        raise UsageError(
            f"No tensor with values for sample {sample}, step {step} matches {patterns_text}.",
            hint="List what the recording contains: qdebug info FILE --tensors.",
        )
    return names


def member_names(names: Sequence[str]) -> dict[str, str]:
    """Return a safe file name for each tensor, unique even if case is ignored.

    Args:
        names: Names of tensors.
    """
    members: dict[str, str] = {}
    used_names = {TENSOR_NAMES}
    for position, name in enumerate(names):
        plain = name if _SAFE_MEMBER.fullmatch(name) and ".." not in name else ""
        if not plain or plain.lower() in used_names:
            unique = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()
            cleaned = re.sub(r"[^A-Za-z0-9_]+", "_", name)[-40:]
            plain = f"t{position:05d}_{cleaned}_{unique}"
        used_names.add(plain.lower())
        members[name] = plain
    return members


def _load_storable(recording: Recording, name: str, sample: int, step: int, *, real: bool) -> np.ndarray:
    stored = recording.load(name, sample, step)
    if real:
        stored = dequantize(stored, recording.graph.tensors[name].quant, double=is_wide_code(stored.dtype))
    if stored.dtype.kind in "biuf":
        return stored
    return stored.astype(np.int8 if "int" in stored.dtype.name else np.float32)
