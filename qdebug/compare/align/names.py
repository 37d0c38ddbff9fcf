"""Whether a name that two graphs share names the same tensor in both: exporters number tensors, and numbers shift."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import cached_property

import numpy as np

from qdebug.compare.align.clamps import CodeClamps
from qdebug.compare.align.expand import alike, says_nothing
from qdebug.compare.align.found import PairMap
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.region import between
from qdebug.compare.align.weights import weight_distance
from qdebug.model import Node, operators
from qdebug.model.thresholds.alignment import FUSED_CHAIN_MAX_NODES, WEIGHT_MAX_REL_DISTANCE

__all__ = ["Claims", "Evidence", "NameJudge", "Namesakes"]


class Evidence(IntEnum):
    """How well two graphs bear out that a name means one tensor."""

    NONE = 0
    WEAK = 1
    STRONG = 2


class Namesakes:
    """Finds what a tensor's name, or the one that it is said to stand for, leads to in the reference.

    Args:
        ref: The reference run.
        be: The backend run.
    """

    def __init__(self, ref: IndexedRecording, be: IndexedRecording) -> None:
        self._ref, self._be = ref, be
        self._sources: dict[str, str] = {}
        for info in ref.graph.tensors.values():
            if info.stands_for and (info.stands_for not in self._sources or info.name in ref.recorded):
                self._sources[info.stands_for] = info.name

    def of(self, tensor: str) -> str | None:
        """Give the reference tensor that a name leads to: a runtime may use old names anew, for other values.

        Where nothing is known of a tensor but its name, that may be the name of the node that makes it.
        """
        source = self._be.graph.tensors[tensor].stands_for or tensor
        own = self._ref.graph.tensors.get(source)
        if own is not None and own.stands_for in (None, source) and not self._ref.folds(source):
            return source
        if source not in self._sources:
            return self._of_node(source)
        twin = self._ref.graph.tensors.get(tensor)
        return tensor if twin is not None and twin.stands_for == source else self._sources[source]

    def is_form(self, tensor: str) -> bool:
        """Tell whether a tensor's name is one that reference tensors have or stand for."""
        return tensor in self._ref.graph.tensors or tensor in self._sources

    def _of_node(self, tensor: str) -> str | None:
        """Give what a node of a name makes, if that is one tensor, where either side says nothing else."""
        ours = self._be.graph.producer(tensor)
        if ours is None:
            return None
        if not says_nothing(ours):
            theirs = self._ref.graph.producer(ours.name)
            single = len(_made(ours)) == 1 and theirs is not None and says_nothing(theirs)
            return ours.name if single else None
        for name in (tensor, ours.name):
            found = self._by_node.get(name)
            if found is not None:
                return found
        return None

    @cached_property
    def _by_node(self) -> dict[str, str]:
        return {node.name: _made(node)[0] for node in self._ref.graph.nodes if len(_made(node)) == 1}


def _made(node: Node) -> list[str]:
    return [name for name in node.outputs if name]


class NameJudge:
    """Holds names against the graphs around them.

    Args:
        ref: The reference run.
        be: The backend run.
        found: Pairs by backend tensor, which grow as the backend's graph is walked.
    """

    def __init__(self, ref: IndexedRecording, be: IndexedRecording, found: PairMap) -> None:
        self._ref, self._be, self._found = ref, be, found

    def judge(self, tensor: str, reference: str) -> Evidence:
        """Tell how well the two graphs bear out that a backend tensor is a reference tensor.

        One node with the same operator on the same inputs is strong evidence, and so is an output of both networks.
        Short of that, two of three must hold: the operator, the inputs (perhaps with several nodes in between, on
        either side), and what reads the tensor. A node that was changed still has its inputs and readers; a node that
        was connected elsewhere still has its operator and readers. Where a recording only says what its tensors are
        called, nothing speaks against a name.
        """
        ours, theirs = self._be.graph.producer(tensor), self._ref.graph.producer(reference)
        if ours is None and theirs is None:
            return Evidence.STRONG
        if tensor in self._be.graph.outputs and reference in self._ref.graph.outputs:
            return Evidence.STRONG
        if not self._be.graph.nodes or not self._ref.graph.nodes:
            return Evidence.STRONG  # a graph that states nothing contradicts nothing
        if ours is None or theirs is None:
            return Evidence.WEAK
        if says_nothing(ours) or says_nothing(theirs):
            return Evidence.WEAK
        same = alike(ours, theirs)
        if same and self._same_inputs(ours, theirs):
            return Evidence.STRONG
        reads, several = self._same_entries(tensor, reference)
        used = self.used_alike(tensor, reference)
        if same and used and not self._far(ours, theirs):
            return Evidence.WEAK
        return Evidence.WEAK if reads and (used or several) else Evidence.NONE

    def _same_inputs(self, ours: Node, theirs: Node) -> bool:
        mine = [self._found.get(name) for name in self._be.data_inputs(ours)]
        known = [pair.reference for pair in mine if pair is not None]
        return len(known) == len(mine) and self._ref.alike(known, self._ref.data_inputs(theirs), in_order=False)

    def _same_entries(self, tensor: str, reference: str) -> tuple[bool, bool]:
        """Tell whether what leads to two tensors begins at the same ones, and whether it is more than one node.

        A node that only moves values is never another form of one that computes, unless both sides have the two.
        """
        partners = self._found.partners
        ours = between(self._be, tensor, partners)
        if ours is None:
            return False, False
        fed = {name for entry in ours[1] for name in partners[entry]}
        theirs = between(self._ref, reference, fed)
        if theirs is None or theirs[1] != fed:
            return False, False
        mine, other = (
            _rows(run, name, part[0]) for run, name, part in ((self._be, tensor, ours), (self._ref, reference, theirs))
        )
        if mine[0].moves != other[0].moves and sorted(row.name for row in mine) != sorted(row.name for row in other):
            return False, False
        return True, bool(ours[0] or theirs[0])

    def used_alike(self, tensor: str, reference: str) -> bool:
        """Tell whether nodes of one operator read a backend tensor and a reference tensor, or none reads either."""
        ours, theirs = (
            {operators.plain(node).family for node in run.consumers(name)}
            for run, name in ((self._be, tensor), (self._ref, reference))
        )
        return not ours.isdisjoint(theirs) or not (ours or theirs)

    def _far(self, ours: Node, theirs: Node) -> bool:
        distance = weight_distance(self._ref, theirs, self._be, ours)
        return distance is not None and not np.less(distance, WEIGHT_MAX_REL_DISTANCE)


def _rows(run: IndexedRecording, tensor: str, inside: Iterable[str]) -> list[operators.Operator]:
    """Return the plain operators that make a tensor and those in between, its own first."""
    nodes = {node.name: node for name in (tensor, *inside) if (node := run.graph.producer(name)) is not None}
    return [operators.plain(node) for node in nodes.values()]


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
        self,
        reference: IndexedRecording,
        backend: IndexedRecording,
        found: PairMap,
        judge: NameJudge,
        clamps: CodeClamps,
        *,
        names: Namesakes,
    ) -> None:
        self._ref, self._be, self._found = reference, backend, found
        self._judge, self._clamps, self._names = judge, clamps, names

    def is_claimed(self, reference: str, tensor: str) -> bool:
        """Tell whether a reference tensor is another's partner than a given one's: found, or by a well founded name."""
        if reference in self._found.taken:
            return True
        forms = self._ref.members(reference)
        names = dict.fromkeys((*forms, *(self._ref.graph.tensors[form].stands_for or form for form in forms)))
        own = self._be.root(tensor)
        holders = [name for name in names if name in self._be.graph.tensors and self._be.root(name) != own]
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
            readers = [node for node in self._be.consumers(seen) if not operators.of(node.op).gives_extents]
            if len(readers) != 1 or len(self._be.data_inputs(readers[0])) != 1:
                return False
            reader, row = readers[0], operators.of(readers[0].op)
            if not (row.transposes if turned else row.folded_before):
                return False
            seen = reader.outputs[0]
            forms = self._be.members(seen)
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
        root = self._ref.root
        ends = {root(reference)}
        for reader in self._ref.consumers(reference):
            if operators.of(reader.op).regroups:
                ends.add(root(reader.outputs[0]))
        return root(other) in ends

    def outweighs_name(self, tensor: str, reference: str) -> bool:
        """Tell whether what a tensor is made of and what reads it both lead to another tensor than its name does."""
        return not self.is_claimed(reference, tensor) and self._judge.used_alike(tensor, reference)


def _factors_behind(run: IndexedRecording, tensor: str) -> set[float]:
    """Give the factors that products have which read a tensor, or what is only moved of it."""
    found: set[float] = set()
    waiting = [tensor]
    for _ in range(FUSED_CHAIN_MAX_NODES):
        readers = [reader for name in waiting for reader in run.consumers(name)]
        rows = [(operators.plain(reader), reader) for reader in readers]
        factors = [reader.attrs.get("alpha", 1.0) for row, reader in rows if row.product]
        found |= {float(factor) for factor in factors if isinstance(factor, int | float)}
        waiting = [name for row, reader in rows if row.moves for name in reader.outputs if name]
    return found
