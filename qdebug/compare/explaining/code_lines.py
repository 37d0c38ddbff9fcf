"""Wrong codes that are the right results in another scale, zero point or offset. Begin at `CodeLines`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from qdebug.arithmetic.relations import Line, fit_line_of_codes, offsets_of_codes
from qdebug.compare.explaining.claims import EVERY, LIKELY, ONE_OFF
from qdebug.model import Node, QuantParams, Recording, operators
from qdebug.model.thresholds.explanation import CAUSE_MIN_DISTINCT_VALUES

__all__ = ["CodeLines", "CodedSample"]

_Part = tuple[slice, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodedSample:
    """The codes of a node's output in one sample.

    Args:
        exact: The right result before rounding to codes.
        codes: The recorded codes, in the same shape.
        wrong: Mask of the wrong codes.
    """

    exact: np.ndarray
    codes: np.ndarray
    wrong: np.ndarray


class CodeLines:
    """Fits the codes of a node's output, in all samples, as a linear function of the exact result.

    Args:
        recording: The run.
        form: The node's real form.
        tensor: The output.
        samples: The recorded codes and the exact result of each sample.
    """

    def __init__(self, recording: Recording, form: Node, tensor: str, samples: Sequence[CodedSample]) -> None:
        self._recording, self._form, self._tensor, self._samples = recording, form, tensor, samples

    @cached_property
    def _quant(self) -> QuantParams | None:
        """The quantization of the codes. None if they have several scales, an unknown range, or no samples."""
        quant = self._recording.graph.tensors[self._tensor].quant
        is_single = quant is not None and quant.qmin is not None and quant.qmax is not None and quant.scale.size == 1
        return quant if is_single and self._samples else None

    def find_line(self) -> str | None:
        """Return a clause with the scale and zero point that the codes actually have, or None.

        All codes are fitted first. If they fit no line, the part of an axis that holds all wrong codes is fitted.
        """
        whole = self._clause_of_line((), "")
        if whole is not None or self._quant is None or self._line(()) is not None:
            return whole
        return next(filter(None, (self._clause_of_line(part, text) for part, text in self._wrong_parts())), None)

    def _clause_of_line(self, part: _Part, part_text: str) -> str | None:
        """Return a clause with the fitted scale and zero point of a part's codes, or the factor if it is negative.

        None if the codes fit no line, or fit the recorded scale and zero point.
        """
        quant, line = self._quant, self._line(part)
        if quant is None or line is None:
            return None
        step, zero = 1 / line.factor, line.zero
        stated, stated_zero = float(quant.scale.reshape(-1)[0]), int(quant.zero_point.reshape(-1)[0])
        if zero == stated_zero and round(stated / step, 2) == 1:
            return None  # the recorded scale fits, so only rounding or clamping differs
        if step < 0:
            return f"{part_text}the dequantized values are about {stated / step:.2g} times what they should be"
        owner = self._tensor_with_scale(step, zero)
        source = f" (those of {owner!r})" if owner is not None else ""
        return (
            f"{LIKELY}{part_text}its codes have a scale of about {step:.2g} and zero point {zero}{source}, not "
            f"{stated:.4g} and {stated_zero} as in the graph ({ONE_OFF})"
        )

    def _line(self, part: _Part) -> Line | None:
        """Return the line that the codes of a part lie on, over all samples, or None."""
        quant = self._quant
        if quant is None or quant.qmin is None or quant.qmax is None:
            return None
        exact = np.concatenate([sample.exact[part].reshape(-1) for sample in self._samples])
        codes = np.concatenate([sample.codes[part].reshape(-1) for sample in self._samples])
        return fit_line_of_codes(exact.astype(np.float64), codes.astype(np.float64), (quant.qmin, quant.qmax))

    def _wrong_parts(self) -> Iterator[tuple[_Part, str]]:
        """Yield each range along an axis that holds all wrong codes but not all codes, with a clause that names it."""
        if len({sample.wrong.shape for sample in self._samples}) != 1:
            return
        is_wrong = np.logical_or.reduce([sample.wrong for sample in self._samples])
        for axis, extent in enumerate(is_wrong.shape):
            others = tuple(other for other in range(is_wrong.ndim) if other != axis)
            indices = np.flatnonzero(is_wrong.any(axis=others))
            if indices.size and indices[-1] - indices[0] + 1 < extent:
                first, last = int(indices[0]), int(indices[-1])
                yield (*[slice(None)] * axis, slice(first, last + 1)), f"at {first} to {last} of axis {axis}, "

    def _tensor_with_scale(self, step: float, zero: int) -> str | None:
        """Return the only other tensor with about this scale and zero point, which a backend may have confused."""
        graph = self._recording.graph
        owners = [
            name
            for name, info in graph.tensors.items()
            if (quant := info.quant) is not None
            and name != self._tensor
            and not graph.is_constant(name)
            and quant.scale.size == 1
            and int(quant.zero_point.reshape(-1)[0]) == zero
            and f"{float(quant.scale.reshape(-1)[0]):.2g}" == f"{step:.2g}"
        ]
        return owners[0] if len(owners) == 1 else None

    def find_offsets(self) -> str | None:
        """Return a clause if one offset for each index of an axis reproduces every code of all samples, or None."""
        quant = self._quant
        if quant is None or quant.qmin is None or quant.qmax is None:
            return None
        scale, zero_point = float(quant.scale.reshape(-1)[0]), int(quant.zero_point.reshape(-1)[0])
        extents = self._samples[0].exact.shape
        for axis in range(len(extents) if len(extents) > 1 else 0):
            if self._samples[0].exact.size < CAUSE_MIN_DISTINCT_VALUES * extents[axis]:
                continue
            shifts = [
                offsets_of_codes(
                    sample.exact.astype(np.float64) / scale + zero_point,
                    sample.codes.astype(np.float64),
                    (quant.qmin, quant.qmax),
                    axis,
                )
                for sample in self._samples
            ]
            known_shifts = [shift for shift in shifts if shift is not None]
            if len(known_shifts) == len(self._samples):
                low, high = (float(extreme([extreme(shift) for shift in known_shifts])) for extreme in (min, max))
                source = self._clause_of_zero_point(axis - len(extents))
                numbers = f"{low:.2g} to {high:.2g} codes"
                return f"each index along axis {axis} has its own offset, {numbers}{source} ({EVERY})"
        return None

    def _clause_of_zero_point(self, axis: int) -> str:
        """Return a clause on the zero point that may cause the offsets along an axis of a product, or "".

        In a product of codes, the zero point of one operand multiplies the sums of the other.
        """
        names = [operators.titled_input(self._form, place) for place in (0, 1)]
        quants = [self._recording.graph.tensors[name].quant if name else None for name in names]
        if operators.plain(self._form).sums is not operators.Sums.MATRIX or axis not in (-1, -2):
            return ""
        own, other = (1, 0) if axis == -1 else (0, 1)
        quant = quants[other]
        if quant is None or not np.any(quant.zero_point):
            return ""
        return f", like sums of {names[own]!r} multiplied by the zero point of {names[other]!r}"
