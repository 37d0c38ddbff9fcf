"""What happens to the files of a folder, and what a disk may hold of it if the power is cut.

A run works in a real folder. At each call that changes or syncs a file the folder is compared with what it was: what
differs is a write, page by page, whoever made it (HDF5 writes too). Between two syncs a disk may do anything with the
writes to a file: leave out any page, tear a page into sectors, keep an older size or a newer one whose pages are blank.
Names are a file of their own, the folder: what was made, renamed or removed since its last sync has happened or not,
each by itself.
"""

import inspect
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from qdebug.recording import target

PAGE, SECTOR = 4096, 512
_PASSED = ("contextlib.py", "disk_model.py", "power_cuts.py")
"""Files that are no part of what is looked at."""


@dataclass(frozen=True)
class Promise:
    """What must come back if the power is cut now.

    Args:
        due: How many of the arrays, from the first on.
        old: Whether the recording that was there before must be there as long as the new one is not.
        final: Bytes that the file must have; None as long as nobody was told that it is finished.
        known: Whether files that lie there half written must be known as a recorder's, so that they can be replaced.
    """

    due: int = 0
    old: bool = False
    final: bytes | None = None
    known: bool = False


@dataclass(frozen=True)
class Op:
    """One thing that happened to the folder.

    Args:
        kind: "write", "sync", "names" (the folder was synced), "link", "unlink", "rename" or "promise".
        file: Number of the file.
        content: All its bytes after a write.
        name: Its name.
        new: Its new name.
        promise: What is due from here on.
        site: The lines of code that synced.
    """

    kind: str
    file: int = -1
    content: bytes = b""
    name: str = ""
    new: str = ""
    promise: Promise = field(default_factory=Promise)
    site: str = ""


class Trace:
    """Writes down what happens in a folder while it is entered; nothing is really synced."""

    def __init__(self, folder):
        self.folder = folder
        self.ops = []
        self.promise = Promise()
        self._names, self._contents, self._real = {}, {}, {}
        self._files = 0
        self._busy = False

    def __enter__(self):
        self._observe()
        for number in self._contents:
            self.ops.append(Op("sync", number))
        self.ops.append(Op("names"))
        for name in ("pwrite", "write", "ftruncate", "open", "close", "unlink", "rename", "replace", "fsync"):
            self._real[name] = getattr(os, name)
            setattr(os, name, getattr(self, f"_{name}", None) or self._wrapped(name))
        self._real_new, target._rename_exclusively = target._rename_exclusively, self._renamed
        return self

    def __exit__(self, *_):
        target._rename_exclusively = self._real_new
        for name, real in self._real.items():
            setattr(os, name, real)
        self._observe()

    def promised(self, **changes):
        """Say that a promise was made."""
        self._observe()
        self.promise = replace(self.promise, **changes)
        self.ops.append(Op("promise", promise=self.promise))

    def finished(self, path):
        """Say that somebody was told that a file is finished."""
        self.promised(final=path.read_bytes())

    def _wrapped(self, name):
        def call(*args, **keys):
            done = self._real[name](*args, **keys)
            self._observe()
            return done

        return call

    def _observe(self):
        """Write down what was made or written since the last time."""
        if self._busy:
            return
        self._busy = True
        for name in sorted(os.listdir(self.folder)):  # noqa: PTH208  a Path for each would take most of the time
            if name not in self._names:
                self._names[name] = self._files
                self.ops.append(Op("link", self._files, name=name))
                self._files += 1
            number, content = self._names[name], (self.folder / name).read_bytes()
            if content != self._contents.get(number, b""):
                self._contents[number] = content
                self.ops.append(Op("write", number, content))
        self._busy = False

    def _fsync(self, fd):
        self._observe()
        facts = os.fstat(fd)
        if os.path.samestat(facts, self.folder.stat()):
            self.ops.append(Op("names", site=_site()))
        for name, number in self._names.items():
            if os.path.samestat(facts, (self.folder / name).lstat()):
                self.ops.append(Op("sync", number, site=_site()))

    def _unlink(self, path, **keys):
        self._observe()
        self._real["unlink"](path, **keys)
        if Path(path).parent == self.folder:
            self.ops.append(Op("unlink", self._names.pop(Path(path).name), name=Path(path).name))

    def _replace(self, source, new):
        self._observe()
        self._real["replace"](source, new)
        self._took_name(source, new)

    _rename = _replace

    def _renamed(self, source, new):
        self._observe()
        done = self._real_new(source, new)
        assert done  # else the names are made and removed one by one
        self._took_name(source, new)
        return done

    def _took_name(self, source, new):
        if Path(source).parent == self.folder:
            number = self._names[Path(new).name] = self._names.pop(Path(source).name)
            self.ops.append(Op("rename", number, name=Path(source).name, new=Path(new).name))


def _site():
    """Name the line that called for a sync, and those of `target` in between."""
    frame, lines = inspect.currentframe().f_back.f_back, []
    while frame is not None:
        module = Path(frame.f_code.co_filename).name
        if module not in _PASSED:
            lines.append(f"{module}:{frame.f_lineno} {frame.f_code.co_name}")
            if module != "target.py":
                break
        frame = frame.f_back
    return " < ".join(lines)


@dataclass(frozen=True)
class Style:
    """How a disk treats what was not synced: a chance each, between never and always.

    Args:
        pages: That a page was written.
        size: That the size of a file is known.
        names: That a name was made or changed.
        gone: That a name was removed.
        torn: That a page was written in part.
    """

    pages: float
    size: float
    names: float
    gone: float
    torn: float = 0.0


EXTREMES = [
    Style(pages, size, names, gone)
    for pages, size in ((0, 0), (0, 1), (1, 1))
    for names, gone in ((0, 0), (0, 1), (1, 0), (1, 1))
]
TORN = [Style(0.5, 1, 1, 1, 0.5)] * 4 + [Style(1, 1, 1, 1, 1)] * 12


def disk_at(ops, style, rng):
    """Return what a disk may hold after some operations: contents by name."""
    names, contents = {}, {}
    since = max((number for number, op in enumerate(ops) if op.kind == "names"), default=-1)
    for number, op in enumerate(ops):
        certain = number < since
        if op.kind in ("link", "rename") and (certain or rng.random() < style.names):
            if names.get(op.name) == op.file:
                del names[op.name]
            names[op.new or op.name] = op.file
        elif op.kind == "unlink" and (certain or rng.random() < style.gone) and names.get(op.name) == op.file:
            del names[op.name]
    for file in set(names.values()):
        contents[file] = _content_at([op for op in ops if op.file == file], style, rng)
    return {name: contents[file] for name, file in names.items()}


def _content_at(ops, style, rng):
    """Return what a disk may hold of a file."""
    synced = max((number for number, op in enumerate(ops) if op.kind == "sync"), default=-1)
    versions = [b""]
    for number, op in enumerate(ops):
        if op.kind == "write":
            versions = [op.content] if number < synced else [*versions, op.content]
    if len(versions) == 1:
        return versions[0]
    size = len(rng.choice(versions) if 0 < style.size < 1 else versions[-1 if style.size else 0])
    disk = bytearray(versions[0].ljust(size, b"\0")[:size])
    for start in range(0, size, PAGE):
        seen = [disk[start : start + PAGE]]
        for version in versions[1:]:  # what it was meanwhile may have been written too
            page = version[start : start + PAGE].ljust(len(seen[0]), b"\0")[: len(seen[0])]
            if page != seen[-1]:
                seen.append(page)
        if len(seen) == 1 or rng.random() >= style.pages:
            continue
        page = seen[-1] if style.pages == 1 else rng.choice(seen[1:])
        if rng.random() < style.torn:
            page = _torn(seen, rng)
        disk[start : start + PAGE] = page
    return bytes(disk)


def _torn(seen, rng):
    """Put a page together of sectors of several versions, or of the begin of one and the end of another."""
    starts, bound = range(0, len(seen[0]), SECTOR), rng.randrange(0, PAGE, SECTOR)
    pick = rng.choice((lambda _: rng.choice(seen), lambda at: seen[-(at < bound)], lambda at: seen[-(at >= bound)]))
    return b"".join(pick(at)[at : at + SECTOR] for at in starts)


def random_style(rng):
    """Return how a disk may behave: often at an extreme, where most is lost."""
    pages, size, names, gone = (rng.choice((0, 1, 0.5, rng.random())) for _ in range(4))
    return Style(pages, size, names, gone, torn=rng.choice((0, 0, 0.5)))
