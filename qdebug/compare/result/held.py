"""The results of a comparison in memory: columns, from which the result of a tensor is made when it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, overload

import numpy as np

from qdebug.compare.attribute.plan import PlannedNode, field_of
from qdebug.compare.result.columns import Columns, columns_of, text_columns
from qdebug.compare.result.frame import Frame, split
from qdebug.compare.result.frame_check import checked
from qdebug.compare.result.limit_rules import Acknowledgement
from qdebug.compare.result.result import NodeResult, SampleResult, Status

__all__ = ["HeldNodes"]

_FROM_PLAN = ("index", "node", "op", "tensor", "reference_tensor", "match", "match_reason", "quant")
_OMIT = frozenset({*_FROM_PLAN, "acknowledged"})
"""Known from what is compared, and from the limits of the day."""

_SAMPLES = frozenset(f"samples.{name}" for name in ("sample", "max_abs", "sqnr_db", "status"))

_ROWS = 1024
"""Results in a frame; until there are as many they are kept as they came."""

_AT_ONCE = 32
"""Neighbours that are made together, and how many such groups stay made."""

Acknowledging = Callable[[str], Acknowledgement | None]


class HeldNodes(Sequence[NodeResult]):
    """Results in the order of what is compared; more can be added while another thread reads.

    Args:
        planned: What is compared; the results are those of the first entries.
        acknowledged: Tells why a backend node may be beyond its limit; None if nobody said so.
    """

    def __init__(self, planned: Sequence[PlannedNode], *, acknowledged: Acknowledging | None = None) -> None:
        self._planned = planned
        self._acknowledged = acknowledged
        self._frames: list[Frame | Sequence[NodeResult]] = []
        self._loose: list[NodeResult] = []
        self._count = 0
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []
        self._made: dict[int, list[NodeResult]] = {}

    @classmethod
    def of_columns(cls, columns: Mapping[str, np.ndarray], planned: Sequence[PlannedNode]) -> HeldNodes:
        """Take results from columns, from whatever source.

        Raises:
            ValueError: They are not those of a result for each planned entry.
        """
        held = cls(planned)
        held._texts = checked(columns, NodeResult, len(planned), omit=_OMIT)
        held._numbers = {text: number for number, text in enumerate(held._texts)}
        held._frames = [
            Frame(part, held._texts, NodeResult, _OMIT).narrowed()
            for part in split(columns, NodeResult, len(planned), rows=_ROWS, omit=_OMIT)
        ]
        held._count = len(planned)
        return held

    def under(self, acknowledged: Acknowledging | None) -> HeldNodes:
        """Give the same results with other acknowledgements; what is added later is added to one of the two alone."""
        other = HeldNodes(self._planned, acknowledged=acknowledged)
        other._frames, other._loose, other._count = list(self._frames), list(self._loose), self._count
        other._numbers, other._texts = dict(self._numbers), list(self._texts)
        return other

    def add(self, node: NodeResult) -> None:
        """Take in the result of the next entry."""
        self._loose.append(node)
        self._count += 1
        if len(self._loose) == _ROWS:  # first there, then no longer here: another thread may be looking for one
            self._frames.append(self._packed(self._loose))
            self._loose = []

    def _packed(self, nodes: Sequence[NodeResult]) -> Frame | Sequence[NodeResult]:
        try:
            columns = columns_of(nodes, NodeResult, self._numbers, omit=_OMIT)
        except ValueError:  # a value that would not come back the same
            return nodes
        self._texts.extend(islice(self._numbers, len(self._texts), None))
        return Frame(columns, self._texts, NodeResult, _OMIT).narrowed()

    def columns(self) -> Mapping[str, np.ndarray]:
        """Give everything as columns, each of them put together when it is asked for.

        Raises:
            ValueError: A value would not come back the same.
        """
        frames = [*self._frames, *([self._packed(self._loose)] if self._loose or not self._frames else [])]
        kept = [frame for frame in frames if isinstance(frame, Frame)]
        if len(kept) < len(frames):
            raise ValueError("there is a result that has no columns")
        return _Joined(kept, text_columns(self._numbers))

    # As a sequence

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> NodeResult: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[NodeResult]: ...
    def __getitem__(self, at: int | slice) -> NodeResult | Sequence[NodeResult]:
        if isinstance(at, slice):
            return tuple(self[number] for number in range(*at.indices(self._count)))
        number = at + self._count if at < 0 else at
        if not 0 <= number < self._count:
            raise IndexError(f"there are {self._count} results, none has number {at}")
        loose = self._loose  # before the frames, see `add`
        frame_at, row = divmod(number, _ROWS)
        if frame_at >= len(self._frames):
            return self._today(loose[row])
        frame = self._frames[frame_at]
        if not isinstance(frame, Frame):
            return self._today(frame[row])
        group = number // _AT_ONCE
        made = self._made.get(group)
        if made is None:
            first = row - row % _AT_ONCE
            made = self._rows(frame, frame_at, (first, min(first + _AT_ONCE, self._frame_size(frame_at))))
            while len(self._made) >= _AT_ONCE:
                self._made.pop(next(iter(list(self._made))), None)
            self._made[group] = made
        return made[number % _AT_ONCE]

    def __iter__(self) -> Iterator[NodeResult]:
        for at in range(0, self._count, _ROWS):
            yield from self._of_frame(at // _ROWS)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HeldNodes | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # more can be added

    # Part of it, for all

    def numbers(self, path: str) -> np.ndarray:
        """Give a number of all as float64, NaN where it is not known; that of a part by its path ("metrics.rmse")."""
        return self._column(
            np.float64,
            lambda frame, size: frame.numbers(path, size),
            lambda node: np.nan if (value := _value(node, path)) is None else value,
        )

    def known(self, path: str) -> np.ndarray:
        """Tell of each whether there is a value, be it NaN; that of a part by its path ("metrics.rmse")."""
        return self._column(
            bool, lambda frame, size: frame.known(path, size), lambda node: _value(node, path) is not None
        )

    def equal(self, name: str, text: str) -> np.ndarray:
        """Tell of each whether a field is this text."""
        return self._column(
            bool,
            lambda frame, size: frame.codes(name, lambda found: int(found == text), size),
            lambda node: _value(node, name) == text,
        )

    def statuses(self, meant: Mapping[Status, int]) -> np.ndarray:
        """Give what the status of each stands for, as uint8."""
        codes = {str(status): code for status, code in meant.items()}
        return self._column(
            np.uint8,
            lambda frame, size: frame.codes("status", codes.__getitem__, size),
            lambda node: meant[node.status],
        )

    def _column(
        self, dtype: type, of_frame: Callable[[Frame, int], np.ndarray], of_node: Callable[[NodeResult], float]
    ) -> np.ndarray:
        """Put a column of all together, out of frames and of results that are held as they came."""
        found: np.ndarray = np.empty(self._count, dtype)
        for start in range(0, found.size, _ROWS):
            loose = self._loose  # before the frames, see `add`
            frame = self._frames[start // _ROWS] if start // _ROWS < len(self._frames) else loose
            size = min(_ROWS, found.size - start)
            part = of_frame(frame, size) if isinstance(frame, Frame) else [of_node(node) for node in frame[:size]]
            found[start : start + size] = part
        return found

    def tensors(self) -> list[str]:
        """Give the backend tensor of each."""
        return list(islice(field_of(self._planned, "tensor"), self._count))

    def ops(self) -> list[str]:
        """Give the operator of each."""
        return list(islice(field_of(self._planned, "op"), self._count))

    def acknowledged(self) -> np.ndarray:
        """Tell of each whether somebody accepted it, be it long ago."""
        return self._accepted(lambda _: True)

    def excused(self) -> np.ndarray:
        """Tell of each whether somebody accepted it, and that has not expired."""
        return self._accepted(lambda entry: not entry.expired)

    def _accepted(self, counts: Callable[[Acknowledgement], bool]) -> np.ndarray:
        if self._acknowledged is None:
            return np.zeros(self._count, bool)
        said = map(self._acknowledged, islice(field_of(self._planned, "node"), self._count))
        return np.array([entry is not None and counts(entry) for entry in said], bool)

    def texts(self, name: str) -> list[str | None]:
        """Give a field that is a text, for all."""
        return self._fields(name, None)

    def samples(self) -> list[Sequence[SampleResult]]:
        """Give the samples of all, without what was introduced and propagated in each."""
        return self._fields("samples", _SAMPLES)

    def _fields(self, name: str, only: frozenset[str] | None) -> list[Any]:
        found: list[Any] = []
        for at in range(0, self._count, _ROWS):
            frame = self._frames[at // _ROWS] if at // _ROWS < len(self._frames) else None
            if isinstance(frame, Frame):
                found.extend(frame.field(name, 0, self._frame_size(at // _ROWS), only=only))
            else:
                found.extend(getattr(node, name) for node in self._of_frame(at // _ROWS))
        return found

    def _of_frame(self, frame_at: int) -> Sequence[NodeResult]:
        loose = self._loose
        if frame_at >= len(self._frames):
            return [self._today(node) for node in loose]
        frame = self._frames[frame_at]
        if isinstance(frame, Frame):
            return self._rows(frame, frame_at, (0, self._frame_size(frame_at)))
        return [self._today(node) for node in frame]

    def _frame_size(self, frame_at: int) -> int:
        return min(_ROWS, self._count - frame_at * _ROWS)

    def _rows(self, frame: Frame, frame_at: int, span: tuple[int, int]) -> list[NodeResult]:
        start, stop = span
        first = frame_at * _ROWS
        entries = self._planned[first + start : first + stop]
        given: dict[str, Sequence[Any]] = {name: [getattr(entry, name) for entry in entries] for name in _FROM_PLAN}
        if self._acknowledged is not None:
            given["acknowledged"] = list(map(self._acknowledged, given["node"]))
        return frame.rows(start, stop, given=given)

    def _today(self, node: NodeResult) -> NodeResult:
        said = None if self._acknowledged is None else self._acknowledged(node.node)
        return node if said == node.acknowledged else replace(node, acknowledged=said)


def _value(node: NodeResult, path: str) -> Any:
    """Give a field; that of a part by its path ("metrics.rmse"), None where there is no such part."""
    value: Any = node
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


class _Joined(Mapping[str, np.ndarray]):
    """Columns of several frames, put together one at a time."""

    def __init__(self, frames: Sequence[Frame], texts: Columns) -> None:
        self._frames = frames
        self._more = texts

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self._more:
            return self._more[name]
        return np.concatenate([frame.wide(name) for frame in self._frames])

    def __iter__(self) -> Iterator[str]:
        yield from self._frames[0].names
        yield from self._more

    def __len__(self) -> int:
        return len(self._frames[0].names) + len(self._more)
