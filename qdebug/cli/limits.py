"""Arguments that set limits. Options override the limits file, which replaces the limits of the project."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from qdebug.cli.failures import say
from qdebug.cli.parser import TakesArguments, decibels, limit
from qdebug.errors import UsageError
from qdebug.present.text import safe_text

if TYPE_CHECKING:
    from qdebug.compare.align.pairs import PairList
    from qdebug.compare.result.limits import Limits
    from qdebug.compare.result.result import RunComparison
    from qdebug.session import Tokens

__all__ = [
    "Allowances",
    "LimitOptions",
    "add_allowances",
    "add_limits",
    "add_limits_file",
    "add_map",
    "add_tokens",
    "limits_of_options",
    "load_map_option",
    "load_tokens_option",
    "say_unused",
    "with_allowances",
]

_MAX_UNUSED_LINES = 5


class Allowances(Protocol):
    """The values of the arguments that `add_allowances` adds."""

    @property
    def allow_partial(self) -> bool:
        """Whether to accept an unfinished recording."""

    @property
    def allow_different_inputs(self) -> bool:
        """Whether to accept runs with different inputs."""

    @property
    def allow_unfaithful(self) -> bool:
        """Whether to accept a recording that changed the outputs."""

    @property
    def allow_uncompared(self) -> Sequence[str]:
        """Name patterns of lost tensors that are accepted, or their maximum number."""


class LimitOptions(Allowances, Protocol):
    """The values of the arguments that `add_limits`, `add_limits_file` and `add_allowances` add."""

    @property
    def limits(self) -> Path | None:
        """The limits file."""

    @property
    def min_sqnr(self) -> float | None:
        """Minimum SQNR in dB."""

    @property
    def max_lsb(self) -> float | None:
        """Maximum difference in steps."""

    @property
    def atol(self) -> float | None:
        """Maximum absolute difference."""

    @property
    def rtol(self) -> float | None:
        """Maximum difference relative to the reference."""

    @property
    def min_output_sqnr(self) -> float | None:
        """Minimum SQNR of a network output in dB."""


def add_limits_file(parser: TakesArguments) -> None:
    """Add `--limits`."""
    parser.add_argument(
        "--limits",
        type=Path,
        metavar="FILE",
        help="limits per tensor or operator, and acknowledged nodes (TOML; default: [tool.qdebug] in pyproject.toml)",
    )


def add_map(parser: TakesArguments) -> None:
    """Add `--map`."""
    parser.add_argument(
        "--map",
        type=Path,
        metavar="FILE",
        help="your own pairs of tensors (TOML), which take precedence; qdebug diff --write-map writes such a file",
    )


def add_tokens(parser: TakesArguments) -> None:
    """Add `--tokens`."""
    parser.add_argument(
        "--tokens",
        action="append",
        metavar="[SIDE=]IDS.npz",
        help="request and position of each row, per step: rows are then paired by tokens (qdebug help huge); "
        "SIDE is reference or backend",
    )


def load_tokens_option(texts: Sequence[str] | None) -> Tokens:
    """Return the token of each row of both sides; None for a side without --tokens.

    Raises:
        QdebugError: A file cannot be read, or is not an index of tokens.
    """
    if not texts:
        return None, None
    from qdebug.running.tokens_file import load_tokens

    sides = [text.partition("=") if text.startswith(("reference=", "backend=")) else ("", "", text) for text in texts]
    common = next((path for side, _, path in sides if not side), None)
    return load_tokens({side: path for side, _, path in sides if side} or common)


def load_map_option(path: Path | None) -> PairList | None:
    """Return the pairs of a map; None without one.

    Raises:
        UsageError: The file cannot be read, or has an invalid entry.
    """
    if path is None:
        return None
    from qdebug.limits.map_file import load_map

    return load_map(path)


def add_limits(parser: TakesArguments) -> None:
    """Add the limits on errors."""
    parser.add_argument(
        "--min-sqnr", type=decibels, metavar="DB", help="smallest allowed signal-to-quantization-noise ratio in dB"
    )
    parser.add_argument(
        "--max-lsb", type=limit, metavar="N", help="largest allowed difference in LSB of the backend's scale"
    )
    parser.add_argument(
        "--atol", type=limit, metavar="X", help="largest allowed difference: atol + rtol * abs(reference)"
    )
    parser.add_argument("--rtol", type=limit, metavar="X", help="relative part of this tolerance")
    parser.add_argument(
        "--min-output-sqnr",
        type=decibels,
        metavar="DB",
        help=(
            "smallest allowed SQNR of each network output if no node is beyond its limit (default: 20 "
            "without other limits)"
        ),
    )


def add_allowances(parser: TakesArguments, *, uncompared: bool = True) -> None:
    """Add the options that accept incomplete comparisons.

    Args:
        parser: A group of arguments.
        uncompared: Whether the verb compares runs, so that inputs can differ and tensors can be lost.
    """
    parser.add_argument("--allow-partial", action="store_true", help="a recording that did not finish")
    parser.add_argument("--allow-unfaithful", action="store_true", help="a recording that changed its result")
    if not uncompared:
        return
    parser.add_argument("--allow-different-inputs", action="store_true", help="runs with different inputs")
    parser.add_argument(
        "--allow-uncompared",
        action="append",
        default=[],
        metavar="GLOB|N",
        help="tensors that could not be compared or examined: a name pattern (repeatable), or a number",
    )


def limits_of_options(options: LimitOptions) -> Limits:
    """Return the limits in effect: a file's limits, with the default bounds overridden by the command line.

    Raises:
        LimitsError: The file cannot be read or has an invalid entry.
        UsageError: Uncompared tensors are allowed both by number and by name.
    """
    from dataclasses import replace

    bounds = {name: getattr(options, name) for name in ("min_sqnr", "max_lsb", "atol", "rtol", "min_output_sqnr")}
    file_limits = replace(
        limits_of(options.limits), **{name: value for name, value in bounds.items() if value is not None}
    )
    return with_allowances(file_limits, options)


def with_allowances(limits: Limits, options: Allowances) -> Limits:
    """Return limits with the allowances of the command line added.

    Raises:
        UsageError: Uncompared tensors are allowed both by number and by name.
    """
    from dataclasses import replace

    allowed_uncompared = _allowed_uncompared(options.allow_uncompared)
    return replace(
        limits,
        allow_partial=options.allow_partial or limits.allow_partial,
        allow_unfaithful=options.allow_unfaithful or limits.allow_unfaithful,
        allow_different_inputs=options.allow_different_inputs or limits.allow_different_inputs,
        allow_uncompared=limits.allow_uncompared if allowed_uncompared == () else allowed_uncompared,
    )


def limits_of(file: Path | None) -> Limits:
    """Read a limits file, or else the limits of the project in the current folder.

    Without either, derived limits apply.

    Args:
        file: The given file; None without one.

    Raises:
        LimitsError: The file cannot be read or has an invalid entry.
    """
    from qdebug.compare.result.limits import Limits
    from qdebug.limits.limits_file import find_limits, load_limits

    path = file or find_limits()
    return Limits() if path is None else load_limits(path)


def say_unused(limits: Limits, results: Sequence[RunComparison]) -> None:
    """Report on stderr which entries of a limits file match nothing that was compared, for example a renamed node.

    Args:
        limits: The limits in effect.
        results: The comparisons.
    """
    from qdebug.compare.result.limits import unused_entries, unused_logits

    nodes = [node for result in results for node in result.nodes]
    unused_texts = unused_entries(limits.rules, limits.acknowledged, nodes)
    unused_texts += unused_logits(limits.logits, [name for result in results for name in result.network_outputs])
    for text in unused_texts[:_MAX_UNUSED_LINES]:
        say(f"qdebug: {safe_text(limits.file)}: {safe_text(text)}")
    if len(unused_texts) > _MAX_UNUSED_LINES:
        say(f"qdebug: {safe_text(limits.file)}: {len(unused_texts) - _MAX_UNUSED_LINES} more entries match nothing")


def _allowed_uncompared(entries: Sequence[str]) -> int | tuple[str, ...]:
    counts = [entry for entry in entries if entry.isascii() and entry.isdigit()]
    if not counts:
        return tuple(entries)
    if len(entries) > 1:
        raise UsageError(
            f"--allow-uncompared takes a number or names, not the number {counts[0]} and other values.",
            hint="Give either one number, or name patterns: --allow-uncompared 'head/*'.",
        )
    return int(counts[0])
