"""Which arithmetics reproduce all nodes of one kind in a recording, element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from qdebug.compare.explaining.functions import same_functions, shape_of
from qdebug.compare.explaining.units import Units, UnitSource
from qdebug.errors import KernelError
from qdebug.model import Recording
from qdebug.replay.columns import Columns
from qdebug.replay.evaluate import accumulate, finish
from qdebug.replay.run import one_thread
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Sums, Variant, parse_variant

__all__ = ["distinct", "fitting_nodes"]

Key = TypeVar("Key")


def fitting_nodes(
    kind: str, recording: Recording, choices: Mapping[Key, Callable[[Unit], Variant]]
) -> dict[Key, frozenset[str]]:
    """Find the nodes that each of several arithmetics reproduces.

    Args:
        kind: The kind of node that is looked at.
        recording: The recording; its first sample counts.
        choices: How each arithmetic computes a unit.

    Returns:
        The names of the nodes of which every recorded element is given, for each of `choices`.
    """
    found: dict[Key, set[str]] = {key: set() for key in choices}
    with one_thread():
        for name, unit, recorded in _nodes(kind, recording):
            columns: dict[Sums, Columns] = {}
            known: dict[Variant, bool] = {}
            for key, choice in choices.items():
                variant = choice(unit)
                if variant not in known:
                    known[variant] = _same(unit, variant, columns, recorded)
                if known[variant]:
                    found[key].add(name)
    return {key: frozenset(names) for key, names in found.items()}


def distinct(kind: str, recording: Recording, texts: Sequence[str]) -> tuple[str, ...]:
    """Give the first of those variants that are the same function of all nodes of one kind.

    Args:
        kind: The kind of node that is looked at.
        recording: The recording; its first sample counts.
        texts: Variants that fit all of these nodes.
    """
    variants = [parse_variant(text) for text in texts]
    with one_thread():
        shapes = []
        for _, unit, _ in _nodes(kind, recording) if len(variants) > 1 else ():
            sums = dict.fromkeys(variant.sums for variant in variants)
            shapes.append(shape_of(unit, {own: accumulate(unit, own) for own in sums}))
        numbers = same_functions(variants, shapes) if shapes else range(len(variants))
    first: dict[int, str] = {}
    for text, number in zip(texts, numbers, strict=True):
        first.setdefault(number, text)
    return tuple(first.values())


def _nodes(kind: str, recording: Recording) -> Iterator[tuple[str, Unit, np.ndarray]]:
    """Give name, unit and recorded codes, channels first and flat, of each node of a kind."""
    units = Units(recording)
    for node in recording.graph.nodes:
        tensor = node.outputs[0]
        source = units.missing(node, tensor) or units.find(node, tensor)
        if not isinstance(source, UnitSource):
            continue
        unit = source.unit(source.places[0])
        if unit.kind == kind:
            recorded = source.codes(source.places[0])
            yield node.name, unit, (np.moveaxis(recorded, -1, 1) if unit.channels_last else recorded).reshape(-1)


def _same(unit: Unit, variant: Variant, columns: dict[Sums, Columns], recorded: np.ndarray) -> bool:
    try:
        if variant.sums not in columns:
            columns[variant.sums] = accumulate(unit, variant.sums)
        return bool(np.array_equal(finish(unit, columns[variant.sums], variant), recorded))
    except KernelError:
        return False
