"""Very many texts and names in one piece of memory, each made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload
from weakref import WeakValueDictionary

import numpy as np

from qdebug.model.bulk import MANY, compact, narrowed

__all__ = ["Names", "Recent", "Rows", "Texts", "forget_recent", "repeats"]

K = TypeVar("K")
V = TypeVar("V")

_RECENT = 2048
_LARGE = 1 << 18
"""Characters from which on texts are looked for among those that are there already."""
_TWICE = "two tensors have one name"
_HASH = 0xFFFFFFFFFFFFFFFF


class Recent(dict[K, V]):
    """What was made for a key lately: asked as any dictionary, at its speed, and never large.

    Args:
        make: Makes what belongs to a key.
        of: How many keys there are, if all may stay made where they are few.
    """

    __slots__ = ("__weakref__", "_make", "_most")

    def __init__(self, make: Callable[[K], V], of: int | None = None) -> None:
        super().__init__()
        _ALL_RECENT[id(self)] = self
        self._make = make
        self._most = _RECENT if of is None or of > MANY else MANY

    def __missing__(self, key: K) -> V:
        value = self._make(key)
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value


_ALL_RECENT: WeakValueDictionary[int, Recent[Any, Any]] = WeakValueDictionary()


def forget_recent() -> None:
    """Let go of all that was made lately, after work that made very much.

    Python gives memory back in pieces of a megabyte that nothing is left in, and what was made lately lies scattered
    among what else was made then: a few thousand names and nodes hold tens of megabytes.
    """
    for recent in list(_ALL_RECENT.values()):
        recent.clear()


class _Piece:
    """Very many texts in one, alive as long as anybody cuts texts out of it."""

    __slots__ = ("__weakref__", "text")

    def __init__(self, text: str) -> None:
        self.text = text


_PIECES: WeakValueDictionary[str, _Piece] = WeakValueDictionary()


class Texts(Sequence[str]):
    """Texts, one after the other in one piece of UTF-8, in which lone surrogates may be encoded as such.

    Args:
        data: The texts.
        starts: Where each begins.
        stops: Where each ends.

    Raises:
        ValueError: One is no UTF-8, when it is asked for.
    """

    def __init__(self, data: bytes | memoryview, starts: np.ndarray, stops: np.ndarray) -> None:
        self._ascii: str | None = None
        self._piece: _Piece | None = None
        self._data = b""
        try:
            self._ascii = str(data, "ascii")  # of all at once: one text is cut out of it in a third of the time
            if len(self._ascii) >= _LARGE:  # two recordings of one net may have the very same
                self._piece = _PIECES.setdefault(self._ascii, _Piece(self._ascii))
                self._ascii = self._piece.text
        except UnicodeDecodeError:
            self._data = bytes(data)
        self._starts, self._stops = _ends(starts, stops)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Keep some texts."""
        lengths: list[int] = []

        def encoded() -> Iterator[bytes]:
            for text in texts:
                raw = text.encode("utf-8", "surrogatepass")
                lengths.append(len(raw))
                yield raw

        data = b"".join(encoded())
        stops = np.cumsum(lengths, dtype=np.int64)
        return cls(data, stops - lengths if lengths else stops, stops)

    def some(self, rows: np.ndarray) -> Texts:
        """Give some of them, by their rows; the texts themselves are not copied."""
        found = Texts(b"", *np.zeros((2, 0), np.uint8))
        kept = compact(rows)
        if isinstance(kept, range) and kept.step == 1:
            found._starts, found._stops = (ends[kept.start : kept.stop] for ends in (self._starts, self._stops))
        else:
            found._starts, found._stops = _ends(*(np.asarray(ends)[rows] for ends in (self._starts, self._stops)))
        found._ascii, found._piece, found._data = self._ascii, self._piece, self._data
        return found

    def at(self, rows: np.ndarray) -> list[str]:
        """Give some of them as a list, faster than one by one."""
        spans = zip(*(np.asarray(ends)[rows].tolist() for ends in (self._starts, self._stops)), strict=True)
        if self._ascii is not None:
            text = self._ascii
            return [text[start:stop] for start, stop in spans]
        return [self._data[start:stop].decode("utf-8", "surrogatepass") for start, stop in spans]

    def text(self, row: int) -> str:
        """Give one of them, as fast as it can be."""
        if self._ascii is not None:
            return self._ascii[self._starts[row] : self._stops[row]]
        return self._data[self._starts[row] : self._stops[row]].decode("utf-8", "surrogatepass")

    @property
    def all_ascii(self) -> bool:
        """Whether there is nothing but ASCII, so that each can be decoded."""
        return self._ascii is not None

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        return list(map(self.text, range(*at.indices(len(self))))) if isinstance(at, slice) else self.text(at)

    def __iter__(self) -> Iterator[str]:
        return map(self.text, range(len(self)))


def _ends(starts: np.ndarray, stops: np.ndarray) -> tuple[memoryview, memoryview]:
    """Keep where texts begin and end: as most lie, where one ends the next begins."""
    if len(starts) and np.array_equal(starts[1:], stops[:-1]):
        both = narrowed(np.append(starts, stops[-1])).data
        return both[:-1], both[1:]
    return narrowed(starts).data, narrowed(stops).data


class Rows(Sequence[str]):
    """Some of a sequence of texts, by their rows; compares equal to other sequences of the same texts.

    Args:
        texts: The texts.
        rows: Which of them, in which order.
    """

    def __init__(self, texts: Sequence[str], rows: np.ndarray) -> None:
        self._texts = texts
        self._rows = compact(rows)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[str, ...]: ...
    def __getitem__(self, at: int | slice) -> str | tuple[str, ...]:
        if isinstance(at, slice):
            return tuple([self._texts[row] for row in self._rows[at]])
        return self._texts[self._rows[at]]

    def __iter__(self) -> Iterator[str]:
        return map(self._texts.__getitem__, self._rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rows | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<{len(self)} texts, beginning with {self[:3]}>"


class _Rows(dict[str, int]):
    """Rows by name, and -1 for any other name."""

    __slots__ = ()

    def __missing__(self, name: str) -> int:
        return -1


class Names(Sequence[str]):
    """Texts of which no two are the same, and the row of each.

    Args:
        texts: The texts.

    Attributes:
        rows: Gives the row of a name by subscription, -1 for what is none.
        text: Gives the name of a row, as fast as it can be.

    Raises:
        ValueError: Two are the same, or one is no text.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = self._given = texts
        self.text: Callable[[int], str] = _giver(texts)
        count = len(texts)
        self.rows: dict[str, int]
        self._recent: Recent[str, int] | None = None
        if count <= MANY:
            self.rows = _Rows(zip(texts, range(count), strict=True))
            if len(self.rows) < count:
                raise ValueError(_TWICE)
            return
        self.rows = self._recent = Recent(self._find)
        hashes, order = _hashed(texts)
        if _alike(texts, hashes, order):
            raise ValueError(_TWICE)
        self._order = narrowed(order).data
        self._ends = hashes.astype(np.uint8).tobytes()  # tell most of them apart without a look at the text
        # rows whose hashes begin with the same bits stand together, about one of each
        bits = count.bit_length()
        self._shift = 64 - bits
        first = np.arange(1 << bits, dtype=np.uint64) << np.uint64(self._shift)
        self._starts = narrowed(np.append(np.searchsorted(hashes, first), count)).data

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return self._texts[at]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.rows[name] >= 0

    def every_row(self) -> dict[str, int]:
        """Give the rows of all names, for who asks for most of them: they may be in a dictionary already."""
        if isinstance(self.rows, _Rows):
            return self.rows
        return _Rows(zip(self._texts, range(len(self)), strict=True))

    def hold(self, known: dict[str, str]) -> None:
        """Have all of them and their rows made, until they are let go.

        Args:
            known: Texts to be used for equal ones; those that are not there are added.
        """
        self._texts = [known.setdefault(text, text) for text in self._given]
        self.text = _giver(self._texts)
        self.rows = self.every_row()

    def let_go(self) -> None:
        """Make each when it is asked for, again."""
        self._texts = self._given
        if self._recent is not None:
            self._recent.clear()  # a few names among very many that are gone would keep the memory around them
            self.rows = self._recent
        self.text = _giver(self._texts)

    def _find(self, name: str) -> int:
        text = self.text
        wanted = hash(name) & _HASH
        bucket, end = wanted >> self._shift, wanted & 0xFF
        for at in range(self._starts[bucket], self._starts[bucket + 1]):
            if self._ends[at] == end and text(row := self._order[at]) == name:
                return row
        return -1


def _giver(texts: Sequence[str]) -> Callable[[int], str]:
    return texts.text if isinstance(texts, Texts) else texts.__getitem__


def repeats(texts: Sequence[str]) -> bool:
    """Tell whether two of very many texts are the same, with little memory."""
    return _alike(texts, *_hashed(texts))


def _hashed(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Give the hashes of texts in ascending order, and the row of each."""
    hashes = np.fromiter((hash(text) & _HASH for text in texts), np.uint64, len(texts))
    order = np.argsort(hashes)
    return hashes[order], order


def _alike(texts: Sequence[str], hashes: np.ndarray, order: np.ndarray) -> bool:
    """Tell whether two texts are the same: they are among those of one hash."""
    alike = hashes[1:] == hashes[:-1]
    if not alike.any():
        return False
    found = [texts[row] for row in order[np.append(alike, False) | np.insert(alike, 0, False)].tolist()]
    return len(set(found)) < len(found)
