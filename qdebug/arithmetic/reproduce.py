"""Tell quickly whether a known arithmetic reproduces a node: what a comparison asks of every node that differs.

The arithmetic that reproduced the last nodes of the same kind and types is tried first, so that most nodes cost one
replay. Which others would do as well, and step programs that nobody is known to use, are left to
`qdebug.compare.explaining.explain`.

An answer so depends on the nodes before. Workers that share a comparison do not know all of them: what a worker tried
goes with its answer, which counts where a search that knows them would have found the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qdebug.arithmetic.search import search_known
from qdebug.arithmetic.units import Place, Units, UnitSource
from qdebug.errors import KernelError, NotRecordedError, UsageError
from qdebug.model import Node, Recording
from qdebug.model.thresholds.explanation import VARIANT_MIN_ELEMENTS, VARIANTS_TRIED_FIRST
from qdebug.replay.evaluate import compute
from qdebug.replay.run import one_thread
from qdebug.replay.variant import Variant, describe

__all__ = ["Reproduced", "ReproductionCheck", "Trial"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduced:
    """Whether a known arithmetic reproduces a node's output bit for bit.

    Args:
        by: The arithmetic in words; None if none of the known ones does.
        firm: Whether that can hardly be chance: many elements, the arithmetic of siblings with many, or sums in few
            bits, which foretell the elements that are far off, and their codes.
        variant: The arithmetic; None likewise.
    """

    by: str | None
    firm: bool = False
    variant: Variant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What the search for the arithmetic of one node started from, and what it found.

    Args:
        key: What nodes have in common whose arithmetic is tried first.
        first: Variants that were tried before all others.
        found: The variant that reproduces the node; None if no known one does.
        enough: Whether the node alone has enough elements to rule out chance.
        firm: Whether chance is ruled out, by the node alone or by one before.
    """

    key: tuple[object, ...]
    first: tuple[Variant, ...]
    found: Variant | None
    enough: bool
    firm: bool


class ReproductionCheck:
    """Looks for the arithmetic of one node after the other.

    Args:
        recording: The backend's recording.

    Attributes:
        last: The last trial; None if the node that was asked for last needed none.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._units: Units | None = None
        self._last: dict[tuple[object, ...], tuple[Variant, ...]] = {}
        self._firm: set[tuple[object, ...]] = set()
        self.last: Trial | None = None

    def reproduce(self, node: Node, tensor: str) -> Reproduced | None:
        """Look for the arithmetic of a node; None if it only moves codes, is no quantized unit or lacks values.

        Args:
            node: A node of the recording.
            tensor: One of its outputs.
        """
        self.last = None
        self._units = self._units or Units(self._recording)
        try:
            if self._units.missing(node, tensor) is not None:
                return None
            source = self._units.find(node, tensor)
            if not isinstance(source, UnitSource) or source.moves:
                return None
            if source.flaw is not None:
                return Reproduced(by=None)
            key = node.op, tuple(self._recording.graph.tensors[name].dtype for name in (*node.inputs, tensor) if name)
            first = self._last.get(key, ())
            with one_thread():
                finding = search_known(source, first)
        except (KernelError, NotRecordedError, UsageError):
            return None
        if finding.reason is not None:
            return None
        found = finding.matching[0] if finding.matching else None
        enough = finding.elements >= VARIANT_MIN_ELEMENTS
        firm = self._is_firm(key, found, enough=enough)
        self.last = Trial(key=key, first=first, found=found, enough=enough, firm=firm)
        self._learn(self.last)
        return Reproduced(by=None if found is None else describe(found), firm=firm, variant=found)

    def variant(self, node: Node, tensor: str, first: Variant | None = None, *, firmly: bool = False) -> Variant | None:
        """Look for the arithmetic of a node, whatever nodes were looked at before; None if none is known.

        Args:
            node: A node of the recording.
            tensor: One of its outputs.
            first: An arithmetic that is tried before all others.
            firmly: Return none that may give the same bits by chance.
        """
        self._units = self._units or Units(self._recording)
        try:
            source = None if self._units.missing(node, tensor) is not None else self._units.find(node, tensor)
            if not isinstance(source, UnitSource) or source.moves or source.flaw is not None:
                return None
            with one_thread():
                finding = search_known(source, () if first is None else (first,))
        except (KernelError, NotRecordedError, UsageError):
            return None
        found = finding.matching[0] if finding.reason is None and finding.matching else None
        if firmly and not (found is not None and _is_telling(found, enough=finding.elements >= VARIANT_MIN_ELEMENTS)):
            return None
        return found

    def compute(self, node: Node, tensor: str, place: Place, variant: Variant) -> np.ndarray:
        """Compute a node by some arithmetic on its recorded inputs.

        Args:
            node: A node that `reproduce` has an answer for.
            tensor: One of its outputs.
            place: Sample and step.
            variant: The arithmetic.

        Returns:
            Codes, in the node's own layout.

        Raises:
            KernelError: The node cannot be computed so.
            RecordingError: An operand cannot be read.
        """
        self._units = self._units or Units(self._recording)
        source = self._units.find(node, tensor)
        if not isinstance(source, UnitSource):
            raise KernelError(f"Node {node.name!r} is no quantized unit.")
        with one_thread():
            return compute(source.unit(place), variant)

    def adopt(self, trial: Trial) -> bool:
        """Take over what somebody else found, if it would have been found here; tell whether that is so.

        Args:
            trial: The trial of the node that comes next here.
        """
        here, found = self._last.get(trial.key, ()), trial.found
        if here != trial.first:
            before = here[: here.index(found)] if found in here else here
            failed = trial.first[: trial.first.index(found)] if found in trial.first else trial.first
            if not set(before) <= set(failed) or (found in trial.first and found not in here):
                return False
        if trial.firm != self._is_firm(trial.key, found, enough=trial.enough):
            return False
        self._learn(trial)
        return True

    def _is_firm(self, key: tuple[object, ...], found: Variant | None, *, enough: bool) -> bool:
        """Tell whether it can hardly be chance that an arithmetic reproduces a node."""
        return found is not None and (_is_telling(found, enough=enough) or (*key, found) in self._firm)

    def _learn(self, trial: Trial) -> None:
        """Try what was found first from now on."""
        if trial.found is None:
            return
        known = self._last.get(trial.key, ())
        others = (other for other in known if other != trial.found)
        self._last[trial.key] = (trial.found, *others)[:VARIANTS_TRIED_FIRST]
        if trial.enough:
            self._firm.add((*trial.key, trial.found))


def _is_telling(found: Variant, *, enough: bool) -> bool:
    """Tell whether a node alone shows its arithmetic: by many elements, or by sums that are far off where it says."""
    return enough or found.limited_sums is not None
