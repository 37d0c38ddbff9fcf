"""Reads the lookup table of a function of one 8-bit code from a recording, and finds the scale that it was made for.

A kernel that uses a lookup table maps each input code to one output code, so a recorded tensor shows the entries. They
are compared with the exact function. If they differ, tables of the same function are tried that a backend may have made
by mistake: for another scale of the input, for a clamped input, or for a common scale of the output. Begin at
`read_table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from qdebug.errors import KernelError
from qdebug.model.json_object import Count, JsonObject
from qdebug.model.thresholds.explanation import (
    CAUSE_MIN_DISTINCT_VALUES,
    TABLE_FIT_MAX_SCALE_RATIO,
    TABLE_FIT_MIN_CODES,
    TABLE_FIT_MIN_WRONG,
    TABLE_TIE_SLACK,
)
from qdebug.replay.form_codes import apply_function
from qdebug.replay.unit import Unit

__all__ = ["CodeTable", "TableEntry", "read_table"]

_COARSE_GRID_SIZE, _FINE_GRID_SIZE, _GRID_REFINEMENTS = 2048, 257, 4
_BISECTION_STEPS = 40
"""Number of bisection steps for each end of an interval of scales."""
_HALF_RANGES = (128.0, 127.0, 127.5)
"""Number of LSB from the middle of the codes to the end of a symmetric range, in several conventions."""
_MAX_LISTED_ENTRIES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TableEntry(JsonObject):
    """An entry of a table that deviates from the exact function.

    Args:
        code: The input code.
        value: The recorded output code.
        exact: The output code of the exact function.
    """

    code: int
    value: int
    exact: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTable(JsonObject):
    """The entries of a lookup table of one 8-bit code, as far as a recording shows them.

    Args:
        function: The function, an ONNX operator.
        seen: Number of input codes that occur.
        ambiguous: Number of input codes that have several output codes. If there are any, it is not a table.
        deviations: Entries that deviate from the exact function, by input code.
        made_for: A clause with the range or scale for which the function gives exactly these entries, or "".
    """

    function: str
    seen: Count
    ambiguous: Count
    deviations: tuple[TableEntry, ...]
    made_for: str

    @property
    def passed_on(self) -> str | None:
        """A clause on deviating input codes that are passed on unchanged or plus a constant, or None."""
        shifts = {entry.value - entry.code for entry in self.deviations}
        if len(shifts) != 1 or len(self.deviations) < CAUSE_MIN_DISTINCT_VALUES or self.ambiguous:
            return None
        shift, codes = shifts.pop(), [entry.code for entry in self.deviations]
        text = f"input codes {min(codes)} to {max(codes)} are passed on"
        return f"{text} {f'plus {shift}' if shift else 'unchanged'}, not rescaled to the output's scale and zero point"

    def __str__(self) -> str:
        """Return a clause that states the entries."""
        if self.ambiguous:
            return f"{self.ambiguous} of {self.seen} input codes map to different output codes, so it is not a table"
        text = "the same input code always maps to the same output code, as in a table"
        listed = ", ".join(
            f"{entry.code} -> {entry.value} (exact {entry.exact})" for entry in self.deviations[:_MAX_LISTED_ENTRIES]
        )
        more = (
            f" and {len(self.deviations) - _MAX_LISTED_ENTRIES} more"
            if len(self.deviations) > _MAX_LISTED_ENTRIES
            else ""
        )
        count = len(self.deviations)
        deviate = f"; {count} {'deviates' if count == 1 else 'deviate'} from {self.function}: {listed}{more}"
        return f"{text}; {self.seen} of 256 entries seen{deviate if count else ''}"


class _Table(NamedTuple):
    """The entries of a table.

    Args:
        unit: The unit, for its function and its quantization.
        inputs: Input codes, ascending.
        outputs: Their output codes.
    """

    unit: Unit
    inputs: np.ndarray
    outputs: np.ndarray


class _OutputQuant(NamedTuple):
    """Scale and zero point of the output."""

    scale: float
    zero_point: int


def read_table(parts: Sequence[tuple[Unit, np.ndarray]]) -> CodeTable | None:
    """Read the lookup table of a function of one 8-bit code, or return None for other units.

    Also None if most codes occur only once, because any unit then looks like a table.

    Args:
        parts: Unit and recorded codes of each sample, in the order of the operand's codes.
    """
    unit = parts[0][0]
    operand = unit.operands[0]
    if unit.kind != "lookup" or operand.codes.dtype.itemsize != 1 or operand.codes.dtype.kind not in "iu":
        return None
    if unit.per_channel or unit.out.scale.size != 1 or unit.out.dtype.kind not in "iu":
        return None
    if any(part.operands[0].codes.size != recorded.size for part, recorded in parts):
        return None
    total = sum(recorded.size for _, recorded in parts)
    pairs = np.concatenate(
        [
            np.stack([part.operands[0].codes.reshape(-1).astype(np.int64), recorded.reshape(-1).astype(np.int64)])
            for part, recorded in parts
        ],
        axis=1,
    )
    distinct = np.unique(pairs, axis=1)
    codes, first, counts = np.unique(distinct[0], return_index=True, return_counts=True)
    table = _Table(unit, codes, distinct[1][first])
    ambiguous = int(np.count_nonzero(counts > 1))
    try:
        recorded_output = _OutputQuant(float(unit.out.scale.reshape(-1)[0]), int(unit.out.zero_point.reshape(-1)[0]))
        exact = _compute_exact(table, _real_inputs(table), recorded_output)
        wrong = _measure_violations(table, exact) > 0
        made_for = (
            ""
            if ambiguous or not _has_enough_entries(table, wrong)
            else next(_explanations(table, recorded_output), "")
        )
    except KernelError:
        return None
    if total < 2 * codes.size and not made_for:
        return None  # most codes occur only once, so it proves nothing that each has one output code
    nearest = np.clip(np.rint(exact), *unit.out.limits)
    deviations = [
        TableEntry(code=int(code), value=int(value), exact=int(right))
        for code, value, right in zip(codes[wrong], table.outputs[wrong], nearest[wrong], strict=True)
    ]
    return CodeTable(
        function=unit.function,
        seen=codes.size,
        ambiguous=ambiguous,
        deviations=() if ambiguous else tuple(deviations),
        made_for=made_for,
    )


def _has_enough_entries(table: _Table, wrong: np.ndarray) -> bool:
    """Return whether there are enough different entries, and enough wrong ones, to distinguish tables."""
    low, high = table.unit.out.limits
    inside = table.outputs[(table.outputs > low) & (table.outputs < high)]
    return bool(np.unique(inside).size >= TABLE_FIT_MIN_CODES and np.count_nonzero(wrong) >= TABLE_FIT_MIN_WRONG)


def _real_inputs(table: _Table, scale: np.ndarray | None = None) -> np.ndarray:
    """Return the real values of the input codes, for the recorded scale, or as rows for several scales."""
    operand = table.unit.operands[0]
    steps = table.inputs - int(operand.zero_point.reshape(-1)[0])
    recorded_scale = operand.scale.reshape(-1)[:1].astype(np.float64)
    return np.asarray(steps * (recorded_scale if scale is None else scale[:, np.newaxis]))


def _compute_exact(table: _Table, real: np.ndarray, output: _OutputQuant) -> np.ndarray:
    """Return the exact function of real values, in codes of the output before rounding."""
    with np.errstate(all="ignore"):
        values = apply_function(table.unit, np.asarray(real, np.float64)).astype(np.float64)
    return np.asarray(values / output.scale + output.zero_point)


def _measure_violations(table: _Table, exact: np.ndarray) -> np.ndarray:
    """Return by how many codes each entry is farther from the exact value than rounding to nearest allows."""
    low, high = table.unit.out.limits
    clipped = np.clip(exact, low, high)
    return np.asarray(np.maximum(np.abs(clipped - table.outputs) - 0.5 - TABLE_TIE_SLACK, 0.0))


def _explanations(table: _Table, recorded_output: _OutputQuant) -> Iterator[str]:
    """Yield clauses with the scales or ranges for which the function gives all these entries, likely ones first."""
    outputs = [recorded_output, *(output for output in _usual_outputs(table) if output != recorded_output)]
    for output in outputs:
        also = (
            ""
            if output == recorded_output
            else f" and the output scale {output.scale:.6g} / zero point {output.zero_point}"
        )
        if also and not _measure_violations(table, _compute_exact(table, _real_inputs(table), output)).any():
            recorded = f"{recorded_output.scale:.6g} / {recorded_output.zero_point}"
            yield f"the output scale {output.scale:.6g} / zero point {output.zero_point}, not {recorded}"
        ends = _clamped_ends(table, output)
        if ends is not None:
            yield f"inputs clamped to about [{ends[0]:.4g}, {ends[1]:.4g}]{also}"
        scales = _fitting_scales(table, output)
        if scales is not None:
            yield f"{_range_text(table, *scales)}{also}"


def _usual_outputs(table: _Table) -> Iterator[_OutputQuant]:
    """Yield the output quantizations that runtimes prescribe for functions with a range of 0 to 1, or -1 to 1."""
    low, _ = table.unit.out.limits
    for count in (256, 255):
        yield _OutputQuant(1 / count, int(low))
    middle = 0 if low < 0 else 128
    for count in (128, 127):
        yield _OutputQuant(1 / count, middle)


def _clamped_ends(table: _Table, output: _OutputQuant) -> tuple[float, float] | None:
    """Return the range to which the input is clamped if that explains all entries, or None."""
    real, last = _real_inputs(table), table.outputs.size - 1
    changes = np.flatnonzero(np.diff(table.outputs))
    if not changes.size:
        return None
    start, stop = int(changes[0]), int(changes[-1]) + 1
    for low, high in ((start, stop), (start, last), (0, stop)):
        ends = float(real[low]), float(real[high])
        if not _measure_violations(table, _compute_exact(table, np.clip(real, *ends), output)).any():
            return ends
    return None


def _fitting_scales(table: _Table, output: _OutputQuant) -> tuple[float, float] | None:
    """Return the interval of input scales for which the exact function gives all entries, or None."""
    recorded_scale = float(table.unit.operands[0].scale.reshape(-1)[0])

    def total(scales: np.ndarray) -> np.ndarray:
        return np.asarray(
            _measure_violations(table, _compute_exact(table, _real_inputs(table, scales), output)).sum(axis=1)
        )

    grid = recorded_scale * np.geomspace(1 / TABLE_FIT_MAX_SCALE_RATIO, TABLE_FIT_MAX_SCALE_RATIO, _COARSE_GRID_SIZE)
    for _ in range(_GRID_REFINEMENTS):
        violations = total(grid)
        best = int(violations.argmin())
        if not violations[best] > 0:
            break
        grid = np.linspace(grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)], _FINE_GRID_SIZE)
    violations = total(grid)
    best = int(violations.argmin())
    if not violations[best] <= 0:
        return None
    ends = []
    for direction in (-1, 1):
        inside, outside = grid[best], grid[best] * (1 + direction / 10)
        for _ in range(_BISECTION_STEPS):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if total(np.array([middle]))[0] <= 0 else (inside, middle)
        ends.append(float(inside))
    return ends[0], ends[1]


def _range_text(table: _Table, min_scale: float, max_scale: float) -> str:
    """Describe the input range of a table whose scale lies in an interval, preferring round numbers."""
    operand = table.unit.operands[0]
    recorded_scale, zero_point = float(operand.scale.reshape(-1)[0]), int(operand.zero_point.reshape(-1)[0])
    low, high = (np.iinfo(operand.codes.dtype).min - zero_point, np.iinfo(operand.codes.dtype).max - zero_point)
    if low + high in (-1, 0):  # the codes lie symmetrically around 0
        for steps in _HALF_RANGES:
            for end in _round_numbers(min_scale * steps, max_scale * steps):
                return (
                    f"the range [-{end:g}, {end:g}] (scale {end / steps:.6g}), not for the scale {recorded_scale:.6g}"
                )
    scale = (min_scale + max_scale) / 2
    return (
        f"the range [{low * scale:.4g}, {high * scale:.4g}] (scale {scale:.6g}), not for the scale {recorded_scale:.6g}"
    )


def _round_numbers(lowest: float, highest: float) -> Iterator[float]:
    """Yield numbers of at most two digits in an interval, those of one digit first."""
    for digits in (1, 2):
        unit = 10.0 ** (np.floor(np.log10(highest)) - digits + 1)
        number = float(np.round(highest / unit) * unit)
        if lowest <= number <= highest:
            yield number
