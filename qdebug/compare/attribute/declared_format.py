"""The float format that a run declares for its computations, whatever format its tensors are stored in."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from qdebug.model import Recording
from qdebug.model.thresholds.rounding import FLOAT32_UNIT_ROUNDOFF
from qdebug.numerics.short_formats import SHORT_FORMATS, ShortFormat, is_exact_in

__all__ = ["declared_format", "declared_format_of_values", "declared_unit"]

_OPTION = "effective_precision"
_NAMES = MappingProxyType({"f16": "float16", "fp16": "float16", "half": "float16", "bf16": "bfloat16", "tf32": "TF32"})


def declared_format(run: Recording) -> ShortFormat | None:
    """Return the short format that a run's option `effective_precision` declares, or None if it is not set."""
    stated = str(run.info.options.get(_OPTION, "")).lower()
    name = _NAMES.get(stated, stated)
    return next((short for short in SHORT_FORMATS if short.name.lower() == name.lower()), None)


def declared_unit(run: Recording) -> float:
    """Return the unit roundoff of the declared format, or of float32 if there is none."""
    short = declared_format(run)
    return FLOAT32_UNIT_ROUNDOFF if short is None else short.unit


def declared_format_of_values(run: Recording, values: np.ndarray) -> ShortFormat | None:
    """Return the declared format of a run if it can represent all of the given values, or None."""
    short = declared_format(run)
    return short if short is not None and values.dtype.kind == "f" and is_exact_in(values, short) else None
