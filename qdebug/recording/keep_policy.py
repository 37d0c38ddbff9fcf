"""How much of each tensor is recorded: rules by name, operator and size, in the command line's syntax."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.model.dtypes import logical_name
from qdebug.model.kept import Kept
from qdebug.numerics.summary import take_statistics
from qdebug.recording.format.payload import payload_hash, to_bytes

__all__ = ["FULL", "Keep", "KeepPolicy", "KeepRule", "choose_positions", "keep_partly", "parse_size", "policy_of"]

_SHARE_OF_LARGEST = 8
_SEED = 20


def keep_partly(array: np.ndarray, quant: QuantParams | None, *, elements: int = 0, truncated: bool = False) -> Kept:
    """Return the statistics of a tensor and a selection of its elements.

    Args:
        array: Its elements.
        quant: Its quantization; None for real numbers.
        elements: Number of elements to keep in addition to the largest ones; 0 keeps no elements.
        truncated: Whether less is kept than requested.
    """
    dtype = logical_name(array.dtype)
    flat = array.reshape(-1)
    positions = choose_positions(flat, quant, elements) if elements else None
    return Kept(
        dtype=dtype,
        shape=array.shape,
        digest=payload_hash(to_bytes(array, dtype)),
        statistics=take_statistics(array, quant),
        positions=positions,
        values=None if positions is None else flat[positions],
        truncated=truncated,
    )


def choose_positions(flat: np.ndarray, quant: QuantParams | None, elements: int) -> np.ndarray:
    """Choose elements: one at a fixed random position in each of `elements` equal ranges, and the largest ones.

    The positions depend only on the number of elements, so that two runs keep the same elements even if they name the
    tensor differently. Elements of the largest magnitude are added, one eighth as many.

    Args:
        flat: All elements, 1-D.
        quant: Their quantization; None for real numbers.
        elements: Number of ranges.

    Returns:
        Positions, ascending, int64.
    """
    if elements >= flat.size:
        return np.arange(flat.size, dtype=np.int64)
    within = np.random.default_rng(_SEED).random(elements)
    spread = ((np.arange(elements) + within) * (flat.size / elements)).astype(np.int64)
    spread = np.minimum(spread, flat.size - 1)
    largest = max(1, elements // _SHARE_OF_LARGEST)
    size = _magnitudes(flat, quant)
    top = np.argpartition(size, flat.size - largest)[flat.size - largest :]
    return np.unique(np.concatenate([spread, top]))


def _magnitudes(flat: np.ndarray, quant: QuantParams | None) -> np.ndarray:
    """Return magnitudes to sort by, with NaN as the largest.

    The magnitude of a code is its distance from the code of 0.
    """
    middle = 0
    if quant is not None and quant.zero_point.size == 1:
        middle = int(quant.zero_point.reshape(-1)[0])
    with np.errstate(all="ignore"):
        wide = flat if flat.dtype.kind == "c" else flat.astype(np.float64)
        size: np.ndarray = np.abs(wide - middle)
    size[np.isnan(size)] = math.inf
    return size


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_FORMS = "full, stats, elements:N or none, or RULE=KEEP with a name pattern, op:OPERATOR or >SIZE as RULE"


@dataclass(frozen=True, slots=True)
class Keep:
    """How much of a tensor is recorded.

    Args:
        values: Whether all values are recorded.
        elements: Number of recorded elements, besides the statistics.
        anything: Whether anything is recorded.
    """

    values: bool = True
    elements: int = 0
    anything: bool = True


FULL = Keep()
_FULL_DISK = Keep(values=False, elements=1024)
"""What is kept of a tensor once the recording has reached its maximum size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRule:
    """How much is kept of the tensors that match.

    Args:
        keep: How much.
        name: Pattern of their names; None matches any name.
        op: Operator of their nodes; None matches any operator.
        above: Size in bytes that they must exceed; None matches any size.
    """

    keep: Keep
    name: str | None = None
    op: str | None = None
    above: int | None = None

    def covers(self, name: str, op: str, nbytes: int) -> bool:
        """Return whether the rule applies to a tensor."""
        return (
            (self.name is None or fnmatchcase(name, self.name))
            and (self.op is None or self.op == op)
            and (self.above is None or nbytes > self.above)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepPolicy:
    """How much is kept of a run.

    Args:
        rules: The last rule that matches a tensor applies; tensors without a matching rule are kept in full. Only rules
            with a name apply to constants.
        every: Keep every n-th sample.
        max_bytes: Bytes of values after which only statistics and some elements are kept; None for no limit.
    """

    rules: Sequence[KeepRule] = ()
    every: int = 1
    max_bytes: int | None = None

    def decide(self, name: str, op: str, nbytes: int, *, sample: int | None) -> Keep:
        """Return how much of a tensor is kept.

        Args:
            name: The tensor.
            op: Operator of its node; "" if unknown.
            nbytes: Size of its values.
            sample: The sample; None for a constant.
        """
        if sample is not None and sample % self.every:
            return Keep(values=False, anything=False)
        for rule in reversed(self.rules):
            if (sample is not None or rule.name is not None) and rule.covers(name, op, nbytes):
                return rule.keep
        return FULL

    def without_room(self, keep: Keep, used: int, nbytes: int) -> Keep:
        """Return how much of a tensor is kept if there is not enough room to keep it in full."""
        full = keep.values and self.max_bytes is not None and used + nbytes > self.max_bytes
        return _FULL_DISK if full else keep


def policy_of(
    keep: str | Iterable[str] | KeepPolicy | None, *, every: int = 1, max_bytes: int | str | None = None
) -> KeepPolicy:
    """Return the policy that a caller's arguments describe.

    Args:
        keep: One or more texts, of which later ones take precedence: "full", "stats", "elements:1000", "none" for all
            tensors, "conv*=stats" by name, "op:Conv=stats" by operator, ">1M=elements:4096" by size.
        every: Keep every n-th sample.
        max_bytes: Bytes of values, as a number or a text such as "2G".

    Raises:
        UsageError: A text is invalid, or a number is too small.
    """
    if isinstance(keep, KeepPolicy):
        return keep
    texts = [] if keep is None else [keep] if isinstance(keep, str) or not isinstance(keep, Iterable) else list(keep)
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(f"Invalid keep option {text!r}; expected {_FORMS}.", hint="Write elements:1000.")
    if not isinstance(every, int) or every < 1:
        raise UsageError(
            f"Cannot keep one sample in {every!r}; expected an integer.",
            hint="Give 1 to keep all samples, 2 to keep half.",
        )
    size = parse_size(max_bytes) if isinstance(max_bytes, str) else max_bytes
    if size is not None and (not isinstance(size, int) or size < 0):
        raise UsageError(f"{size!r} is not a number of bytes.", hint="Give an integer, or a size like 500M or 2G.")
    return KeepPolicy(rules=tuple(_rule(text) for text in texts), every=every, max_bytes=size)


def _rule(text: str) -> KeepRule:
    subject, equals, how = text.rpartition("=")
    keep = _keep(how, text)
    if not equals:
        return KeepRule(keep=keep)
    if subject.startswith("op:"):
        return KeepRule(keep=keep, op=subject.removeprefix("op:"))
    if subject.startswith(">"):
        return KeepRule(keep=keep, above=parse_size(subject[1:]))
    return KeepRule(keep=keep, name=subject)


def _keep(how: str, text: str) -> Keep:
    if how == "full":
        return FULL
    if how in ("stats", "none"):
        return Keep(values=False, anything=how == "stats")
    number = re.fullmatch(r"elements:(\d{1,15})", how)
    if number is None or int(number[1]) < 1:
        raise UsageError(f"Invalid keep option {text!r}; expected {_FORMS}.", hint="Write elements:1000.")
    return Keep(values=False, elements=int(number[1]))


def parse_size(text: str) -> int:
    """Parse a size in bytes, such as "500M" or "2GB".

    Raises:
        UsageError: The text is invalid.
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)\s*([kmgt]?)i?b?", text.strip(), re.IGNORECASE)
    if match is None:
        raise UsageError(f"{text!r} is not a size; expected a number of bytes.", hint="Write a size like 500M or 2G.")
    return int(float(match[1]) * _UNITS[match[2].lower()])
