"""What a caller hands a recorder, checked: better when it is said than when the file is finished."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.model.dtypes import logical_name
from qdebug.record.node_facts import check_texts, in_short

__all__ = ["check_kinds", "path_of", "said_of"]


def said_of(
    name: str, data: np.ndarray, quant: QuantParams | None, layout: str | None, stands_for: str | None
) -> dict[str, Any]:
    """Give what was said of a tensor, as fields of `TensorInfo`; only what was.

    Raises:
        RecordingError: What should be text is not.
    """
    said: dict[str, Any] = {"dtype": logical_name(data.dtype)}
    if quant is not None:
        said["quant"] = quant
    for title, text in (("layout", layout), ("stands_for", stands_for)):
        if text is not None:
            check_texts(name, title, (text,))
            said[title] = text
    return said


def check_kinds(said: Mapping[str, Any], kinds: tuple[type, ...], expected: str) -> None:
    """Refuse arguments of a wrong kind before the run.

    Args:
        said: What was said, by what it is called in a message.
        kinds: Types that it may have.
        expected: What those are, for the message.

    Raises:
        UsageError: One is something else.
    """
    for title, value in said.items():
        if not isinstance(value, kinds):
            raise UsageError(f"A recorder is opened with {title} {in_short(value)}; expected {expected}.")


def path_of(path: str | os.PathLike[str]) -> Path:
    """Give the path that a recorder was told to record to.

    Raises:
        UsageError: It is none.
    """
    try:
        path = os.fsdecode(path)
    except TypeError:
        raise UsageError(f"{path!r} is no path.", hint="Name a file, such as run.h5.") from None
    if path == "-":
        raise UsageError(
            "A recording cannot be written to standard output.",
            hint="Name a file, such as run.h5.",
        )
    return Path(path)
