"""Whether recording changed the result: outputs of the recorded run against those of a plain one, bit for bit."""

from __future__ import annotations

import numpy as np

from qdebug.model import Fidelity

__all__ = ["FidelityCheck"]


class FidelityCheck:
    """Collects comparisons of recorded outputs with plain ones."""

    def __init__(self) -> None:
        self._places: set[tuple[int, int]] = set()
        self._differing: set[tuple[int, int]] = set()
        self._worst: tuple[float, str] = (-1.0, "")

    def compare(self, name: str, recorded: np.ndarray, plain: np.ndarray, place: tuple[int, int]) -> None:
        """Compare one output, NaN payloads and signs of zero included.

        Args:
            name: The output.
            recorded: What was recorded.
            plain: What a run without recorder gave.
            place: Sample and step.
        """
        self._places.add(place)
        if recorded.dtype == plain.dtype and recorded.shape == plain.shape and recorded.tobytes() == plain.tobytes():
            return
        self._differing.add(place)
        self._worst = max(self._worst, _difference(name, recorded, plain))

    @property
    def fidelity(self) -> Fidelity:
        """What the comparisons say together."""
        if not self._places:
            return Fidelity.UNKNOWN
        return Fidelity.DIFFERS if self._differing else Fidelity.BIT_EQUAL

    def detail(self, recorded: int) -> str:
        """Say in a clause what was compared and how large the change is.

        Args:
            recorded: Number of samples and steps that were recorded.
        """
        if not self._places:
            return "no plain run was compared"
        count = f"{len(self._places)} of {recorded} recorded runs"
        if not self._differing:
            return f"outputs equal those of a plain run bit for bit, checked for {count}"
        return f"{self._worst[1]}; outputs differ in {len(self._differing)} of the {len(self._places)} runs checked"


def _difference(name: str, recorded: np.ndarray, plain: np.ndarray) -> tuple[float, str]:
    if recorded.shape != plain.shape or recorded.dtype != plain.dtype:
        kinds = [f"{array.dtype}{list(array.shape)}" for array in (recorded, plain)]
        return np.inf, f"output {name!r} was recorded as {kinds[0]} and is {kinds[1]} in a plain run"
    kind = np.complex128 if recorded.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        apart = np.abs(recorded.astype(kind) - plain.astype(kind))
    apart[np.isnan(apart)] = np.inf
    largest = float(apart.max(initial=0.0))
    return largest, f"output {name!r} differs from a plain run by up to {largest:.6g}"
