"""The first steps of a recording: its unfinished file, and the journal that says what the run is."""

from __future__ import annotations

import os
from pathlib import Path

import qdebug
from qdebug.model import Graph, RunInfo
from qdebug.store.encode import encode_tables, plain_facts
from qdebug.store.journal import Journal, Kind, encode_json
from qdebug.store.journal_bodies import encode_tables_body
from qdebug.store.payload_store import PayloadStore

__all__ = ["begin"]


def begin(part: Path, journal_path: Path, info: RunInfo, graph: Graph | None) -> tuple[PayloadStore, Journal]:
    """Make the two files of a recording that is written; neither is there if that fails.

    Args:
        part: The file for the payloads; nothing may be there.
        journal_path: The journal; nothing may be there.
        info: Facts of the run.
        graph: The graph, if it is known beforehand.

    Raises:
        OSError: They cannot be made.
        RecordingError: The graph cannot be stored.
    """
    payloads = PayloadStore(part)
    fd = -1
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(journal_path, flags, 0o666)
        journal = Journal(fd)
        head = {"journal": 1, "created_by": f"qdebug {qdebug.__version__}", "info": plain_facts(info)}
        journal.add(Kind.RUN, encode_json(head))
        if graph is not None:
            tables, *_ = encode_tables(graph, info, (), samples=1, steps=1)
            journal.add(Kind.GRAPH, encode_tables_body(tables))
        journal.commit()
    except BaseException:
        payloads.file.abandon()
        if fd >= 0:
            os.close(fd)
        part.unlink(missing_ok=True)
        journal_path.unlink(missing_ok=True)
        raise
    return payloads, journal
