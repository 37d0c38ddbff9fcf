"""Which backend tensor has the better claim to a reference tensor: by its name, or by what is made of it later."""

from __future__ import annotations

from collections.abc import Sequence

from qdebug.compare.align.code_clamps import CodeClamps
from qdebug.compare.align.found import Found
from qdebug.compare.align.names import Evidence, NameJudge, Namesakes
from qdebug.compare.align.value_classes import Run
from qdebug.model import operators
from qdebug.model.thresholds.alignment import FUSED_CHAIN_MAX_NODES

__all__ = ["Claims"]


class Claims:
    """Weighs claims to tensors of the reference.

    Args:
        reference: The reference run.
        backend: The backend run.
        found: What is paired so far.
        judge: Tells what a name is worth.
        clamps: Finds clamps that one side leaves to its codes.
        names: Finds what a name leads to.
    """

    def __init__(
        self, reference: Run, backend: Run, found: Found, judge: NameJudge, clamps: CodeClamps, *, names: Namesakes
    ) -> None:
        self._ref, self._be, self._found = reference, backend, found
        self._judge, self._clamps, self._names = judge, clamps, names

    def is_claimed(self, reference: str, tensor: str) -> bool:
        """Tell whether a reference tensor is another's partner than a given one's: found, or by a well founded name."""
        if reference in self._found.taken:
            return True
        forms = self._ref.classes.members(reference)
        names = dict.fromkeys((*forms, *(self._ref.graph.tensors[form].stands_for or form for form in forms)))
        own = self._be.classes.root(tensor)
        holders = [name for name in names if name in self._be.graph.tensors and self._be.classes.root(name) != own]
        return any(self._has_claim(name, forms) for name in holders)

    def _has_claim(self, holder: str, forms: Sequence[str]) -> bool:
        """Tell whether a backend tensor is one of some reference tensors by its name, and the graphs bear that out."""
        named = None if holder in self._found else self._names.of(holder)
        if named is None or named not in forms:
            return False
        return any(self._judge.judge(holder, name) is Evidence.STRONG for name in dict.fromkeys((named, forms[0])))

    def made_with_what_follows(self, tensor: str, reference: str) -> bool:
        """Tell whether a later backend tensor has the better claim, by its name: the reference folds nodes into one."""
        seen = tensor
        first = self._be.graph.producer(tensor)
        turned = first is not None and operators.of(first.op).transposes
        for _ in range(FUSED_CHAIN_MAX_NODES):
            readers = [node for node in self._be.classes.consumers(seen) if not operators.of(node.op).gives_extents]
            if len(readers) != 1 or len(self._be.classes.data_inputs(readers[0])) != 1:
                return False
            reader, row = readers[0], operators.of(readers[0].op)
            if not (row.transposes if turned else row.folded_before):
                return False
            seen = reader.outputs[0]
            forms = self._be.classes.members(seen)
            for name in forms:
                other = self._names.of(name)
                if other is not None and self._arranges(reference, other):
                    given = self._ref.graph.producer(reference) is None
                    if given or self._clamps.is_clamped_later(name, reference, reader):
                        return False
                    return self._judge.used_alike(name, other)
        return False

    def scaled_later(self, tensor: str, reference: str) -> bool:
        """Tell whether the reference's product behind a tensor has a factor that the backend's behind another has not.

        A runtime folds a factor before a product into the product as well as one behind it; then what comes before the
        factor has not taken it in.
        """
        ours, theirs = _factors_behind(self._be, tensor), _factors_behind(self._ref, reference)
        return bool(ours and theirs) and ours.isdisjoint(theirs)

    def _arranges(self, reference: str, other: str) -> bool:
        """Tell whether a reference tensor holds the values of another, be it in another shape."""
        root = self._ref.classes.root
        ends = {root(reference)}
        for reader in self._ref.classes.consumers(reference):
            if operators.of(reader.op).regroups:
                ends.add(root(reader.outputs[0]))
        return root(other) in ends

    def outweighs_name(self, tensor: str, reference: str) -> bool:
        """Tell whether what a tensor is made of and what reads it both lead to another tensor than its name does."""
        return not self.is_claimed(reference, tensor) and self._judge.used_alike(tensor, reference)


def _factors_behind(run: Run, tensor: str) -> set[float]:
    """Give the factors that products have which read a tensor, or what is only moved of it."""
    found: set[float] = set()
    waiting = [tensor]
    for _ in range(FUSED_CHAIN_MAX_NODES):
        readers = [reader for name in waiting for reader in run.classes.consumers(name)]
        rows = [(operators.plain(reader), reader) for reader in readers]
        factors = [reader.attrs.get("alpha", 1.0) for row, reader in rows if row.product]
        found |= {float(factor) for factor in factors if isinstance(factor, int | float)}
        waiting = [name for row, reader in rows if row.moves for name in reader.outputs if name]
    return found
