"""The parts of a recording file, in either format, by the names that they have in format 1.

Tests that spoil or look into a file are written once: `t/00000002` is the payload of that number, and `index` is that
table, wherever they are.
"""

from pathlib import Path

import h5py
import numpy as np

from qdebug.recording.format.link_names import link_of
from qdebug.recording.format.specification import (
    CONSTANTS,
    GRAPH,
    LOCATION_TABLES,
    NO_PAYLOAD,
    NUMBERED,
    OPTIONAL_TABLES,
    TABLES,
    TENSORS,
    hdf5_type,
    payload_key,
)
from qdebug.recording.reading import verify as _verify
from qdebug.recording.reading.container import Container
from qdebug.recording.reading.payloads import read_payload
from qdebug.recording.reading.read import FileRecording

EVERY_TABLE = {**TABLES, **OPTIONAL_TABLES, **LOCATION_TABLES}


def count_sound(path):
    """Check all of a recording as `verify` does, but in this process; return how many arrays it holds."""
    return _verify._check_file(path)["tensors"]


class OpenedFile(h5py.File):
    """An HDF5 file whose parts are found by their names of format 1."""

    def __init__(self, path, mode="r"):
        super().__init__(path, mode)
        self._users = {}
        if self.attrs.get("format_version", 1) == 1 or GRAPH not in self:
            return
        with FileRecording(path) as recording:
            for event in recording.events():
                if event.payload != NO_PAYLOAD:
                    group = CONSTANTS if recording.graph.is_constant(event.tensor) else TENSORS
                    self._users.setdefault(event.payload, f"/{group}/{link_of(event.tensor).decode()}")

    def path(self, name):
        """Return where a part is."""
        if not isinstance(name, str) or not self._users:
            return name
        if name == NUMBERED:
            return f"/{TENSORS}"
        if name.startswith(f"{NUMBERED}/"):
            return self._users[int(name.removeprefix(f"{NUMBERED}/"))]
        return f"/{GRAPH}/{name}" if name in EVERY_TABLE else name

    def __getitem__(self, name):
        return super().__getitem__(self.path(name))

    def __setitem__(self, name, value):
        super().__setitem__(self.path(name), value)

    def __delitem__(self, name):
        super().__delitem__(self.path(name))

    def move(self, source, dest):
        super().move(self.path(source), self.path(dest))

    def create_dataset(self, name, *arguments, **keys):
        return super().create_dataset(self.path(name), *arguments, **keys)

    def create_virtual_dataset(self, name, *arguments, **keys):
        return super().create_virtual_dataset(self.path(name), *arguments, **keys)

    def create_group(self, name, *arguments, **keys):
        return super().create_group(self.path(name), *arguments, **keys)

    def create_low_level(self, name, kind, space, plist):
        """Make a dataset as the library of HDF5 does it."""
        return h5py.h5d.create(self.id, self.path(name).encode(), kind, space, plist)


def rewrite_as_format_one(path):
    """Write a recording anew in format 1, as earlier versions of qdebug wrote it, with other bytes around it."""
    path = Path(path)
    container, scratch = Container(path), path.with_name(path.name + ".one")
    index = container.tables["index"]
    with FileRecording(path) as recording, h5py.File(scratch, "w", libver=("v110", "v110")) as file:
        for name, table in {**container.tables, **container.optional}.items():
            file.create_dataset(name, data=table)
        expected = [recording._index.expected(row) for row in (index["payload"] != NO_PAYLOAD).nonzero()[0].tolist()]
        expected += [what for _, _, what in recording._index.elements()]
        group = file.create_group(NUMBERED)
        for what in sorted(set(expected)):
            values = np.array(read_payload(container.payloads, what), order="C")
            space = h5py.h5s.create_simple(values.shape) if values.ndim else h5py.h5s.create(h5py.h5s.SCALAR)
            dataset = h5py.h5d.create(group.id, payload_key(what.number), hdf5_type(what.dtype), space)
            if values.size:
                dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, values, mtype=hdf5_type(what.dtype))
        with h5py.File(path) as old:
            for name in ("format", "complete", "created_by", "graph_hash"):
                file.attrs[name] = old.attrs[name]
        file.attrs["format_version"] = np.int32(1)
        file.attrs["tables_hash"] = np.bytes_(container.hash_tables([*container.tables, *container.optional]))
    container.close()
    scratch.replace(path)
    return path


def spans_of(path):
    """Return the bytes that each table takes in a file, and each payload, by its number."""
    with OpenedFile(path) as file, FileRecording(path) as recording:
        tables = {name: _span(file[name]) for name in EVERY_TABLE if file.path(name) in file}
        payloads = {}
        for event in range(recording.event_count):
            what = recording._index.expected(event)
            if what.number == NO_PAYLOAD:
                continue
            where = recording._payloads().locate(what)
            start = where.offset or 0
            payloads[what.number] = range(start, start if where.offset is None else start + where.nbytes)
    return tables, [payloads[number] for number in sorted(payloads)]


def _span(dataset):
    start = dataset.id.get_offset()
    return range(0) if start is None else range(start, start + dataset.id.get_storage_size())
