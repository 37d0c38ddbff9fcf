"""Exports of a screen: files and shell commands."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from qdebug.errors import QdebugError, UsageError
from qdebug.numerics.affine import dequantize
from qdebug.numerics.checkpoint import calling_at_checkpoints
from qdebug.plural import plural
from qdebug.present import shell
from qdebug.present.text import safe_text
from qdebug.tui.nodes.rows import PlannedRow, State, shown_sample
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.view import Scene, Table, View

if TYPE_CHECKING:
    from qdebug.compare.measure.pair_values import OpenPair
    from qdebug.compare.result.result import NodeResult, RunComparison
    from qdebug.session import DiffSession

__all__ = [
    "OVERWRITE_SIGN",
    "SUFFIXES",
    "WITHDRAW_SIGN",
    "command",
    "export_elements",
    "new_file",
    "prepare_export",
    "reason_and_day",
    "suggested_name",
    "write_pair",
]

SUFFIXES = (".svg", ".txt", ".csv", ".json", ".npy", ".npz")
"""Supported formats: the screen as a picture or text, its list, the comparison or a node as JSON, and elements."""
_EXPIRY_PATTERN = re.compile(r"(.*?)[,;\s]*\buntil\s+(\S+)\s*", re.DOTALL)

Write = Callable[["DiffSession", Path], str]


OVERWRITE_SIGN = "!"
"""Typed after a file name to overwrite the file."""

WITHDRAW_SIGN = "-"
"""Typed instead of a reason to remove an acknowledgement."""


def reason_and_day(text: str) -> tuple[str, str | None, str]:
    """Split "REASON until YYYY-MM-DD" into its parts.

    Returns:
        The reason, the day or None, and what is wrong with the text; "" if nothing is wrong.
    """
    match = _EXPIRY_PATTERN.fullmatch(text)
    reason, day = (text.strip(), None) if match is None else (match[1].strip(), match[2])
    if not reason:
        return "", None, "a reason is needed: whoever reads it later has to know"
    if day is not None:
        try:
            dt.date.fromisoformat(day)
        except ValueError:
            return reason, None, f"{safe_text(day, limit=20)!r} is not a date; write it like 2027-01-31"
    return reason, day, ""


def command(words: Sequence[str], scene: Scene, view: ScreenId) -> str:
    """Return the command that shows the screen again.

    Args:
        words: The command without the state of the screen.
        scene: The state of the screen.
        view: The screen.
    """
    arguments = [*words, "--node", _name_of_row(scene), "--screen", str(view)]
    if scene.navigator.sample is not None:
        arguments += ["--sample", str(scene.navigator.sample)]
    if scene.navigator.filter:
        arguments += ["--filter", scene.navigator.filter]
    return shell.command(*arguments)


def _name_of_row(scene: Scene) -> str:
    """Return the name that leads to the row: that of the node or, for another output of the node, of the tensor."""
    plan_row = scene.plan_row
    names = [name for name in (plan_row.node, plan_row.tensor, plan_row.reference_tensor) if name]
    return next((name for name in names if scene.table.find(name) == scene.row), names[0])


def suggested_name(scene: Scene, view: ScreenId) -> str:
    """Return an unused file name for an export of the screen."""
    suffix = view.export_suffix
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", scene.plan_row.node or scene.plan_row.tensor)[-40:].strip("._") or "qdebug"
    stem = str(view) if view.shows_all else f"{stem}-{view}" if suffix != ".npz" else stem
    name, number = f"{stem}{suffix}", 1
    while Path(name).exists() and number < 1000:
        number += 1
        name = f"{stem}-{number}{suffix}"
    return name


def prepare_export(
    text: str,
    scene: Scene,
    *,
    screenshot: Callable[[], str],
    text_lines: Callable[[], Sequence[str]] = tuple,
    view: View,
) -> tuple[Path, Write]:
    """Return the file and a function that writes it, with a copy of everything on the screen that may change.

    Args:
        text: The file name as typed, followed by "!" to allow overwriting.
        scene: The state of the screen.
        screenshot: Returns the screen as SVG.
        text_lines: Returns the lines of the screen, including scrolled ones.
        view: The view that shows it.

    Raises:
        UsageError: The name does not have a supported ending, the file exists, or there is nothing to write yet.
    """
    name = text.strip()
    path = Path(name.removesuffix(OVERWRITE_SIGN)).expanduser()
    if path.suffix not in SUFFIXES:
        raise UsageError(f"Unknown format {path.suffix or path.name!r}.", hint=f"Use one of {' '.join(SUFFIXES)}.")
    try:
        exists = path.exists()
    except OSError as error:  # such as a name that is too long
        raise UsageError(f"{safe_text(path, limit=60)!r} is not a file name: {error.strerror}.") from error
    if exists and not name.endswith(OVERWRITE_SIGN):
        raise UsageError(
            f"{str(path)!r} already exists.", hint=f"Give another name, or append {OVERWRITE_SIGN} to overwrite it."
        )
    if path.suffix == ".svg":
        write: Write = partial(_write_text, text=screenshot(), description="the screen")
    elif path.suffix == ".txt":
        write = partial(
            _write_text, text="".join(f"{line.rstrip()}\n" for line in text_lines()), description="the screen"
        )
    else:
        write = _writer(path, scene, view)
    return path, partial(_overwrite, write=write) if exists else write


def _writer(path: Path, scene: Scene, view: View) -> Write:
    """Return a function that writes a screen's list, its comparison or node, or elements.

    Raises:
        UsageError: There is nothing to write yet.
    """
    table = view.table(scene) if path.suffix == ".csv" else None
    if table is not None:
        return partial(
            _write_table, table=table, description=f"{len(table[1])} {'line' if len(table[1]) == 1 else 'lines'}"
        )
    if path.suffix == ".csv" and view.view not in {ScreenId.VALUES, ScreenId.MAP}:
        nodes = [(row, scene.table.rows[row], scene.table.results[row]) for row in view.rows(scene)]
        counts = [scene.table.compared_number(row) for row in range(scene.table.size)]
        columns = (counts, scene.table.state.tolist())
        return partial(_write_csv, rows=nodes, columns=columns, marks=_marks(scene), costs=scene.table.costs)
    if path.suffix == ".json":
        return _json_writer(path, scene, view)
    if scene.outcome is None or scene.plan_row.missing is not None:
        raise UsageError("This tensor is not compared, or not compared yet.", hint="Choose another node.")

    sample = shown_sample(scene.outcome, scene.navigator.sample, scene.table.worst_sample)
    step, steps = scene.navigator.step, scene.navigator.steps
    return partial(_export_all_elements, tensor=scene.plan_row.tensor, sample=sample, step=step, steps=steps)


def _json_writer(path: Path, scene: Scene, view: View) -> Write:
    """Return a function that writes the JSON of the screen, of its node, or of the whole comparison."""
    writer = view.json(scene, path)
    if writer is not None:
        return partial(_write_json_text, make_text=writer, description=view.json_title or f"the {view.view}")
    if not view.view.shows_all and scene.outcome is not None:
        document = scene.outcome.to_json() + "\n"
        return partial(_write_text, text=document, description=f"the node {safe_text(scene.plan_row.node, limit=40)}")
    if scene.result is None:
        raise UsageError("Not every node is compared yet.", hint="Wait until the verdict is final.")
    return partial(_write_json, result=scene.result, notes=_notes(scene))


def _marks(scene: Scene) -> dict[int, str]:
    """Return the marked rows with their notes; "" without a note."""
    trail = scene.navigator.trail
    return {row: trail.notes.get(row, "") for row in sorted({*trail.marks, *trail.notes})}


def _notes(scene: Scene) -> list[dict[str, str]]:
    rows = scene.table.rows
    return [{"node": rows[at].node, "tensor": rows[at].tensor, "text": text} for at, text in _marks(scene).items()]


def write_pair(session: DiffSession, path: Path, *, tensor: str, partner: str) -> str:
    """Add a manual pair to a map file. Return a message with the option that uses the file.

    Raises:
        UsageError: The reference lacks that tensor, or the map cannot be written.
    """
    from qdebug.limits.map_file import write_pair as write

    tensors = session.reference.graph.tensors
    if partner and partner not in tensors:
        close_names = get_close_matches(partner, tensors, n=1)
        suggestion = f" Did you mean {close_names[0]!r}?" if close_names else ""
        raise UsageError(f"The reference has no tensor {partner!r}.{suggestion}")
    write(path, tensor, partner)
    pairing = f"{tensor!r} is paired with {partner!r}" if partner else f"{tensor!r} has no partner"
    return f"{pairing}; diff and tui use it with --map {path}"


def _write_json(_: DiffSession, path: Path, *, result: RunComparison, notes: Sequence[Mapping[str, str]]) -> str:
    """Write the comparison like `qdebug diff --json`, with the user's notes."""
    document = result.to_dict() | {"notes": list(notes)}
    notes_text = f" and {plural(len(notes), 'mark')}" if notes else ""
    text = json.dumps(document, indent=2, allow_nan=False)
    return _write_text(_, path, text=text + "\n", description=f"the comparison{notes_text}")


def _overwrite(source: DiffSession, path: Path, *, write: Write) -> str:
    """Replace a file, which stays unchanged until the new one is complete."""
    from shutil import copymode  # imported only when a file is replaced
    from tempfile import TemporaryDirectory

    target = path.resolve()  # the target of a symbolic link
    if not os.access(target, os.W_OK):
        raise UsageError(f"{str(path)!r} cannot be overwritten: it is read-only.", hint="Give another name.")
    try:
        with TemporaryDirectory(prefix=".qdebug-", dir=target.parent) as folder:
            draft = Path(folder) / path.name
            try:
                message = write(source, draft)
            except UsageError as error:
                raise UsageError(error.message.replace(str(draft), str(path)), hint=error.hint) from error
            copymode(target, draft)
            draft.replace(target)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"{str(path)!r} cannot be written: {why}.", hint="Choose another location.") from error
    return f"over what it was, {message}"


def _write_text(_: DiffSession, path: Path, *, text: str, description: str) -> str:
    with new_file(path, text=True) as file:
        file.write(text)
    return description


def _write_json_text(
    source: DiffSession, path: Path, *, make_text: Callable[[DiffSession], str], description: str
) -> str:
    """Write the JSON of a screen.

    Raises:
        UsageError: The JSON cannot be created, or the file cannot be written.
    """
    from qdebug.tui.reading.trials import BROKEN_REPLAY, problem_of  # imported on first use

    try:
        text = make_text(source)
    except QdebugError:
        raise
    except BROKEN_REPLAY as error:
        raise UsageError(f"{str(path)!r} was not written: {problem_of(error)}.", hint="Choose other edits.") from error
    return _write_text(source, path, text=text + "\n", description=description)


def _write_table(source: DiffSession, path: Path, *, table: Table, description: str) -> str:
    """Write a table of a screen."""
    from qdebug.present.reports.exports import csv_cell  # imported on first use

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(csv_cell, table[0]))
    writer.writerows([csv_cell(cell) for cell in line] for line in table[1])
    return _write_text(source, path, text=out.getvalue(), description=description)


def _write_csv(
    source: DiffSession,
    path: Path,
    *,
    rows: Sequence[tuple[int, PlannedRow, NodeResult | None]],
    columns: tuple[Sequence[int | None], Sequence[int]],
    marks: Mapping[int, str],
    costs: Mapping[int, float],
) -> str:
    """Write the listed nodes in the columns of `qdebug diff -f csv`, with their output costs and notes.

    Numbers have full precision. Texts are escaped so that spreadsheets do not take them for formulas.
    """
    from qdebug.compare.result.flat_rows import COLUMNS, flat_row  # imported on first use
    from qdebug.present.reports.exports import csv_cell

    out, (counts, states) = io.StringIO(), columns
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, "worst_db", "marked", "own_note"])
    for row, planned, result in rows:
        row_facts = {
            "index": counts[row],
            **{name: getattr(planned, name) for name in ("node", "op", "tensor", "reference_tensor")},
            "status": State(states[row]).word,
            "reason": planned.missing,
        }
        flat_facts = row_facts if result is None else flat_row(result)
        cells = [csv_cell(flat_facts.get(name)) for name in COLUMNS]
        writer.writerow([*cells, csv_cell(costs.get(row)), row in marks, csv_cell(marks.get(row))])
    return _write_text(
        source, path, text=out.getvalue(), description=f"{len(rows)} {'node' if len(rows) == 1 else 'nodes'}"
    )


@contextmanager
def new_file(path: Path, *, text: bool) -> Iterator[IO[Any]]:
    """Create a new file. If it cannot be written completely, remove it.

    Args:
        path: The path.
        text: Whether the file takes UTF-8 text instead of bytes.

    Raises:
        UsageError: The file exists or cannot be written.
    """
    open_options: dict[str, Any] = {"encoding": "utf-8", "newline": ""} if text else {}
    is_new = False
    try:
        with path.open("x" if text else "xb", **open_options) as file:
            is_new = True
            yield file
    except BaseException as error:
        if is_new:
            with suppress(OSError):
                path.unlink()
        if isinstance(error, OSError):
            why = error.strerror or str(error)
            raise UsageError(f"{str(path)!r} cannot be written: {why}.", hint="Choose another location.") from error
        raise


_BLOCK = 1 << 18
_NAMES = ("reference", "backend", "reference_codes", "backend_codes")


def _export_all_elements(source: DiffSession, path: Path, **place: Any) -> str:
    """Write all elements, even if the program is ending meanwhile, since only the disk limits the time."""
    with calling_at_checkpoints(lambda: None):
        return export_elements(source, path, **place)


def export_elements(source: DiffSession, path: Path, *, tensor: str, sample: int, step: int, steps: int = 1) -> str:
    """Write the elements of a tensor to a new file. Return a summary.

    Args:
        source: The comparison.
        path: A file that does not exist: .npy for the backend's stored elements, .npz for both sides, .csv for one line
            per element.
        tensor: Backend tensor.
        sample: The sample.
        step: The step.
        steps: Number of steps.

    Raises:
        QdebugError: The values cannot be read, or the file exists or cannot be written.
    """
    pair = source.pair(tensor, sample=sample, step=step)
    place_text = f"sample {sample}" + (f", step {step}" if steps > 1 else "")
    names = [name for name in _NAMES if getattr(pair.read(0, 0), name) is not None]
    if path.suffix == ".csv":
        with new_file(path, text=True) as file:
            _write_elements(file, pair, names)
        return f"{', '.join(names)} of {place_text}"
    with new_file(path, text=False) as file:
        if path.suffix == ".npy":
            has_codes = "backend_codes" in names
            _write_array(file, pair, "backend_codes" if has_codes else "backend")
            return f"{'codes' if has_codes else 'values'} of the backend, {place_text}"
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name in names:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    _write_array(member, pair, name)
    return f"{', '.join(names)} of {place_text}"


def _write_elements(file: IO[str], pair: OpenPair, names: Sequence[str]) -> None:
    """Write the index of each element and its values on both sides."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["index", *names])
    for start in range(0, pair.size, _BLOCK):
        stop = min(start + _BLOCK, pair.size)
        columns = [_read_block(pair, name, start, stop).tolist() for name in names]
        coordinates = np.unravel_index(np.arange(start, stop), pair.shape) if pair.shape else ()
        indices = zip(*(axis_indices.tolist() for axis_indices in coordinates), strict=True) if coordinates else [()]
        for index, *cells in zip(indices, *columns, strict=True):
            writer.writerow([",".join(map(str, index)), *cells])


def _write_array(file: IO[bytes], pair: OpenPair, name: str) -> None:
    """Write one array in numpy's format, with numbers that are not codes in a native numpy dtype."""
    header = {
        "descr": np.lib.format.dtype_to_descr(_read_block(pair, name, 0, 0).dtype),
        "fortran_order": False,
        "shape": pair.shape,
    }
    np.lib.format.write_array_header_1_0(file, header)
    for start in range(0, pair.size, _BLOCK):
        file.write(_read_block(pair, name, start, min(start + _BLOCK, pair.size)).tobytes())


def _read_block(pair: OpenPair, name: str, start: int, stop: int) -> np.ndarray:
    values: np.ndarray = getattr(pair.read(start, stop), name)
    return values if name.endswith("codes") else dequantize(values, None)
