"""The argument parser and the arguments that several verbs share."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, TypeVar

from qdebug.cli.failures import COULD_NOT_RUN, say
from qdebug.errors import UsageError
from qdebug.present.text import safe_text

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction["Parser"]  # noqa: SLF001  argparse has no public name for it

__all__ = [
    "COLORS",
    "FORMATS",
    "REPORTS",
    "Parser",
    "TakesArguments",
    "add_common",
    "add_format",
    "add_output",
    "add_track",
    "add_untrusted",
    "add_workers",
    "limit",
    "natural",
    "positive",
    "suffix_format",
    "typed",
]

FORMATS = ("table", "json", "markdown")
"""Forms in which results are printed."""

REPORTS = (*FORMATS, "html", "junit", "csv")
"""Forms of a comparison."""

COLORS = ("auto", "always", "never")
"""When text is coloured."""

_BY_SUFFIX = {
    ".json": "json",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xml": "junit",
    ".csv": "csv",
}
_TEXT = ("", ".txt", ".log")
"""Endings of files that hold the table."""

T = TypeVar("T")


class TakesArguments(Protocol):
    """What arguments are added to: a parser, or a group of its arguments."""

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add one."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps line breaks, and leaves out the line that names what is listed below it."""

    def _format_action(self, action: argparse.Action) -> str:
        text = super()._format_action(action)
        return text.partition("\n")[2] if isinstance(action, argparse._SubParsersAction) else text  # noqa: SLF001  as above


class Parser(argparse.ArgumentParser):
    """An argument parser that keeps the line breaks of its texts and says errors as the rest of qdebug does.

    Args:
        args: Those of `argparse.ArgumentParser`.
        module: A module whose `fill_parser` adds the arguments before the parser is first used; "" for none.
        options: Those of `argparse.ArgumentParser`.
    """

    def __init__(self, *args: Any, module: str = "", **options: Any) -> None:
        options.setdefault("formatter_class", _Formatter)
        options.setdefault("allow_abbrev", False)
        super().__init__(*args, **options)
        self._module = module

    def filled(self) -> Self:
        """Return this parser with the arguments of its module."""
        module, self._module = self._module, ""
        if module:
            import_module(module).fill_parser(self)
        return self

    def parse_known_args(self, *args: Any, **options: Any) -> tuple[Any, list[str]]:
        """Parse, and refuse what is not known here: whoever asked a verb for it is told by the verb's own parser."""
        self.filled()
        known, left = super().parse_known_args(*args, **options)
        if left:
            near = [self._near(word, self._option_string_actions) for word in left if word.startswith("-")]
            self.error(f"unrecognized arguments: {' '.join(left)}{next(filter(None, near), '')}")
        return known, left

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = self._near(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, f"{error.message}{near}") from None

    @staticmethod
    def _near(word: str, known: Iterable[str]) -> str:
        from difflib import get_close_matches

        near = get_close_matches(word.partition("=")[0], list(known), n=1)
        return f". Did you mean {near[0]}?" if near else ""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line and exit with 2."""
        say(f"{self.prog}: {safe_text(message, limit=2000)}")
        say(f"  hint: {self.prog} --help explains it.")
        self.exit(COULD_NOT_RUN)


def add_format(parser: TakesArguments, *, forms: Sequence[str] = FORMATS) -> None:
    """Add `-f` and `--json`."""
    parser.add_argument(
        "-f",
        "--format",
        choices=forms,
        help="form of the result (default: table, or what the ending of -o FILE says)",
    )
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="the same as -f json")


def add_output(parser: TakesArguments, *, what: str) -> None:
    """Add `-o FILE` and `--force` for a printed result."""
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=f"write {what} to FILE instead of stdout")
    parser.add_argument("--force", action="store_true", help="overwrite FILE if it exists")


def add_common(parser: argparse.ArgumentParser, *, color: bool = True) -> None:
    """Add `--debug` and `--color`, which every verb has.

    Args:
        parser: The parser of a verb.
        color: Whether it prints text that may be coloured.
    """
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    if color:
        parser.add_argument("--color", choices=COLORS, default="auto", help="colour the text (default: on a terminal)")


def add_untrusted(parser: argparse.ArgumentParser, *sources: str, endless: bool = False) -> None:
    """Add `--untrusted`, and what the guarded process may take.

    Args:
        parser: The parser of a verb.
        sources: Names of the arguments that are recordings, which are checked first.
        endless: Whether the verb runs as long as somebody uses it.
    """
    parser.add_argument(
        "--untrusted", action="store_true", help="check the recordings first, and do all work in a guarded process"
    )
    parser.add_argument(
        "--memory",
        type=positive,
        metavar="MB",
        help="with --untrusted: memory that it may take (default: by file size)",
    )
    parser.add_argument("--seconds", type=positive, metavar="N", help="with --untrusted: processor time it may take")
    parser.set_defaults(untrusted_sources=sources, endless=endless)


def add_track(parser: TakesArguments) -> None:
    """Add `--track`."""
    parser.add_argument(
        "--track",
        type=Path,
        metavar="DB",
        help="add the result to a history, by commit, backend and processor; qdebug accuracy --history DB shows it",
    )


def add_workers(parser: TakesArguments) -> None:
    """Add `--jobs` and `--scheduler`, of a group of arguments that exclude each other."""
    parser.add_argument(
        "--jobs", type=positive, default=1, metavar="N", help="share the work among N processes (default: 1)"
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="share the work among the workers of a dask scheduler (extra: dask)"
    )


def suffix_format(chosen: str | None, output: Path | None, *, forms: Sequence[str] = FORMATS) -> str:
    """Return the form of the result: the one chosen, else what the file's ending says; the table without an ending.

    Args:
        chosen: What `-f` says; None without it.
        output: The file to write; None for stdout.
        forms: Forms that the result has.

    Raises:
        UsageError: The ending is that of no form.
    """
    if chosen is not None:
        return chosen
    ending = "" if output is None else output.suffix.lower()
    if ending in _TEXT or (output is not None and output.exists() and not output.is_file()):
        return "table"
    said = _BY_SUFFIX.get(ending, "")
    if said not in forms:
        endings = ", ".join(suffix for suffix, form in _BY_SUFFIX.items() if form in forms)
        raise UsageError(
            f"Unknown report format {ending!r}; known are: {endings}, and .txt for the table.",
            hint=f"Choose one of these endings, or say the form: -f {forms[0]}.",
        )
    return said


def natural(text: str) -> int:
    """Read a whole number of at least 0.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return value


def positive(text: str) -> int:
    """Read a whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return value


_SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def size(text: str) -> int:
    """Read a number of bytes, as "500MB" or "5 GB".

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, as 5GB or 500MB is")
    return int(float(found[1]) * _SIZES[found[2].upper()])


def limit(text: str) -> float:
    """Read a limit: a number of at least 0.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def decibels(text: str) -> float:
    """Read a number of decibels, which may be negative.

    Raises:
        argparse.ArgumentTypeError: It is no number.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of decibels")
    return value


def typed(kind: Callable[..., T], arguments: argparse.Namespace) -> T:
    """Make a verb's options object from parsed arguments, so that a verb never sniffs a namespace.

    Args:
        kind: A dataclass whose fields are the arguments of a verb.
        arguments: What argparse made.
    """
    from dataclasses import fields

    names: Sequence[str] = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: getattr(arguments, name) for name in names})
