"""The content of a recording as a document."""

from __future__ import annotations

from qdebug.present.contents import TENSOR_TITLES, Contents, contents_facts, tensor_rows
from qdebug.present.reports.document import Document, FactList, Grid

__all__ = ["info_document"]


def info_document(contents: Contents, *, tensors: bool = False) -> Document:
    """Return the report on a recording's content.

    Args:
        contents: The content to show.
        tensors: Whether to list every tensor too.
    """
    rows = tensor_rows(contents.recording) if tensors else []
    table = Grid(titles=TENSOR_TITLES, rows=rows, right=frozenset({4}), names=frozenset({0, len(TENSOR_TITLES) - 1}))
    return [FactList.of(contents_facts(contents)), table]
