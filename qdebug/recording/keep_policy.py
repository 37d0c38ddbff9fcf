"""How much of each tensor is recorded: rules by name, operator and size, in the command line's syntax."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.model.dtypes import logical_name
from qdebug.model.kept import Kept
from qdebug.numerics.sketch import take_sketch
from qdebug.numerics.summary import take_statistics
from qdebug.recording.format.payload import payload_hash, to_bytes
from qdebug.recording.target import describe_cause
from qdebug.regular_file import read_regular

__all__ = [
    "FULL",
    "Keep",
    "KeepPolicy",
    "KeepRule",
    "choose_positions",
    "make_partial_record",
    "parse_size",
    "policy_of",
]

_ELEMENTS_PER_LARGEST = 8
_MOST_BYTES = 16 << 20
_SEED = 20


def make_partial_record(
    array: np.ndarray,
    quant: QuantParams | None,
    *,
    element_count: int = 0,
    with_sketch: bool = False,
    is_truncated: bool = False,
) -> Kept:
    """Return the statistics of a tensor, and a selection of its elements or a sketch.

    Args:
        array: Its elements.
        quant: Its quantization; None for real numbers.
        element_count: Number of elements to keep in addition to the largest ones; 0 keeps no elements.
        with_sketch: Whether to keep a sketch, if the tensor has real values, in place of a histogram.
        is_truncated: Whether less is kept than requested.
    """
    dtype = logical_name(array.dtype)
    flat_array = array.reshape(-1)
    positions = choose_positions(flat_array, quant, element_count) if element_count else None
    return Kept(
        dtype=dtype,
        shape=array.shape,
        digest=payload_hash(to_bytes(array, dtype)),
        statistics=take_statistics(array, quant),
        positions=positions,
        values=None if positions is None else flat_array[positions],
        sketch=take_sketch(array, quant) if with_sketch else None,
        truncated=is_truncated,
    )


def choose_positions(flat: np.ndarray, quant: QuantParams | None, element_count: int) -> np.ndarray:
    """Choose elements: one at a fixed random position in each of `element_count` equal ranges, and the largest ones.

    The positions in the ranges depend only on the number of elements, so that two runs keep the same elements even if
    they name the tensor differently. The number of largest elements is an eighth of `element_count`.

    Args:
        flat: All elements, 1-D.
        quant: Their quantization; None for real numbers.
        element_count: Number of ranges.

    Returns:
        Positions, ascending, int64.
    """
    if element_count >= flat.size:
        return np.arange(flat.size, dtype=np.int64)
    random_offsets = np.random.default_rng(_SEED).random(element_count)
    spread_positions = ((np.arange(element_count) + random_offsets) * (flat.size / element_count)).astype(np.int64)
    spread_positions = np.minimum(spread_positions, flat.size - 1)
    largest_count = max(1, element_count // _ELEMENTS_PER_LARGEST)
    magnitudes = _magnitudes(flat, quant)
    largest_positions = np.argpartition(magnitudes, flat.size - largest_count)[flat.size - largest_count :]
    return np.unique(np.concatenate([spread_positions, largest_positions]))


def _magnitudes(flat: np.ndarray, quant: QuantParams | None) -> np.ndarray:
    """Return magnitudes to sort by, with NaN as the largest.

    The magnitude of a code is its distance from the code of 0.
    """
    zero_code = 0
    if quant is not None and quant.zero_point.size == 1:
        zero_code = int(quant.zero_point.reshape(-1)[0])
    with np.errstate(all="ignore"):
        values = flat if flat.dtype.kind == "c" else flat.astype(np.float64)
        magnitudes: np.ndarray = np.abs(values - zero_code)
    magnitudes[np.isnan(magnitudes)] = math.inf
    return magnitudes


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_KEEP_FORMS = "full, stats, sketch, elements:N or none, or RULE=KEEP with a name pattern, op:OPERATOR or >SIZE as RULE"


@dataclass(frozen=True, slots=True)
class Keep:
    """How much of a tensor is recorded.

    Args:
        keeps_values: Whether all values are recorded.
        element_count: Number of recorded elements, besides the statistics.
        has_record: Whether anything is recorded.
        has_sketch: Whether a sketch is recorded, besides the statistics.
    """

    keeps_values: bool = True
    element_count: int = 0
    has_record: bool = True
    has_sketch: bool = False


FULL = Keep()
_KEEP_WHEN_FULL = Keep(keeps_values=False, element_count=1024)
"""How much of a tensor is kept once the recording has reached its maximum size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRule:
    """How much is kept of the tensors that match.

    Args:
        keep: How much.
        name: Pattern of their names; None matches any name.
        op: Operator of their nodes; None matches any operator.
        min_bytes: Size in bytes that they must exceed; None matches any size.
    """

    keep: Keep
    name: str | None = None
    op: str | None = None
    min_bytes: int | None = None

    def covers(self, name: str, op: str, nbytes: int) -> bool:
        """Return whether the rule applies to a tensor."""
        return (
            (self.name is None or fnmatchcase(name, self.name))
            and (self.op is None or self.op == op)
            and (self.min_bytes is None or nbytes > self.min_bytes)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepPolicy:
    """How much is kept of a run.

    Args:
        rules: The last rule that matches a tensor applies; tensors without a matching rule are kept in full. Only rules
            with a name apply to constants.
        sample_interval: Keep every n-th sample.
        max_bytes: Bytes of values after which only statistics and some elements are kept; None for no limit.
    """

    rules: Sequence[KeepRule] = ()
    sample_interval: int = 1
    max_bytes: int | None = None

    def decide(self, name: str, op: str, nbytes: int, *, sample: int | None) -> Keep:
        """Return how much of a tensor is kept.

        Args:
            name: The tensor.
            op: Operator of its node; "" if unknown.
            nbytes: Size of its values.
            sample: The sample; None for a constant.
        """
        if sample is not None and sample % self.sample_interval:
            return Keep(keeps_values=False, has_record=False)
        for rule in reversed(self.rules):
            if (sample is not None or rule.name is not None) and rule.covers(name, op, nbytes):
                return rule.keep
        return FULL

    def limit_to_max_bytes(self, keep: Keep, used_bytes: int, nbytes: int) -> Keep:
        """Return `keep`, or less if the values of a tensor would exceed the maximum size of the recording.

        Args:
            keep: How much of the tensor is kept according to the rules.
            used_bytes: Bytes of the values recorded so far.
            nbytes: Size of the tensor's values.
        """
        exceeds_limit = keep.keeps_values and self.max_bytes is not None and used_bytes + nbytes > self.max_bytes
        return _KEEP_WHEN_FULL if exceeds_limit else keep


def policy_of(
    keep: str | Iterable[str] | KeepPolicy | None, *, every: int = 1, max_bytes: int | str | None = None
) -> KeepPolicy:
    """Return the policy that a caller's arguments describe.

    Args:
        keep: One or more texts, of which later ones take precedence: "full", "stats", "sketch", "elements:1000", "none"
            for all tensors, "conv*=stats" by name, "op:Conv=stats" by operator, ">1M=elements:4096" by size, "@FILE"
            for the rules in a file, one per line.
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
            raise UsageError(f"Invalid keep option {text!r}; expected {_KEEP_FORMS}.", hint="Write elements:1000.")
    if not isinstance(every, int) or every < 1:
        raise UsageError(
            f"Cannot keep one sample in {every!r}; expected an integer.",
            hint="Give 1 to keep all samples, 2 to keep half.",
        )
    size = parse_size(max_bytes) if isinstance(max_bytes, str) else max_bytes
    if size is not None and (not isinstance(size, int) or size < 0):
        raise UsageError(f"{size!r} is not a number of bytes.", hint="Give an integer, or a size like 500M or 2G.")
    texts = [rule for text in texts for rule in _expand_rule_file(text)]
    return KeepPolicy(rules=tuple(_parse_rule(text) for text in texts), sample_interval=every, max_bytes=size)


def _expand_rule_file(text: str) -> list[str]:
    """Return the rules in the file that "@FILE" names, one per line, or the text itself as the only rule."""
    if not text.startswith("@") or "=" in text:
        return [text]
    try:
        content = read_regular(Path(text[1:]), _MOST_BYTES).decode("utf-8")
    except (OSError, ValueError) as exc:
        reason = describe_cause(exc) if isinstance(exc, OSError) else "it is too large or not UTF-8"
        raise UsageError(
            f"The keep rules {text[1:]!r} cannot be read: {reason}.",
            hint="Write them: qdebug diff REF BACKEND --retake FILE.",
        ) from None
    return [line for line in content.splitlines() if line]


def _parse_rule(text: str) -> KeepRule:
    scope, separator, amount_text = text.rpartition("=")
    keep = _parse_keep(amount_text, text)
    if not separator:
        return KeepRule(keep=keep)
    if scope.startswith("op:"):
        return KeepRule(keep=keep, op=scope.removeprefix("op:"))
    if scope.startswith(">"):
        return KeepRule(keep=keep, min_bytes=parse_size(scope[1:]))
    return KeepRule(keep=keep, name=scope)


def _parse_keep(amount_text: str, text: str) -> Keep:
    if amount_text == "full":
        return FULL
    if amount_text in ("stats", "none"):
        return Keep(keeps_values=False, has_record=amount_text == "stats")
    if amount_text == "sketch":
        return Keep(keeps_values=False, has_sketch=True)
    number = re.fullmatch(r"elements:(\d{1,15})", amount_text)
    if number is None or int(number[1]) < 1:
        raise UsageError(f"Invalid keep option {text!r}; expected {_KEEP_FORMS}.", hint="Write elements:1000.")
    return Keep(keeps_values=False, element_count=int(number[1]))


def parse_size(text: str) -> int:
    """Parse a size in bytes, such as "500M" or "2GB".

    Raises:
        UsageError: The text is invalid.
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)\s*([kmgt]?)i?b?", text.strip(), re.IGNORECASE)
    if match is None:
        raise UsageError(f"{text!r} is not a size; expected a number of bytes.", hint="Write a size like 500M or 2G.")
    return int(float(match[1]) * _UNITS[match[2].lower()])
