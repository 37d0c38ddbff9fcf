"""The argument parser, and arguments shared by several verbs."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, TypeVar

from qdebug.cli.failures import COULD_NOT_RUN, say
from qdebug.errors import UsageError
from qdebug.present.text import safe_text

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction["Parser"]  # noqa: SLF001  no public name in argparse

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
    "options_from",
    "positive",
    "suffix_format",
]

FORMATS = ("table", "json", "markdown")
"""Formats of printed results."""

REPORTS = (*FORMATS, "html", "junit", "csv")
"""Formats of a comparison."""

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
_TABLE_SUFFIXES = ("", ".txt", ".log")
"""File suffixes with which the result is written as a table."""

T = TypeVar("T")


class TakesArguments(Protocol):
    """A parser, or a group of its arguments."""

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument, like `argparse.ArgumentParser.add_argument`."""


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps line breaks, and omits the placeholder line above the list of verbs."""

    def _format_action(self, action: argparse.Action) -> str:
        text = super()._format_action(action)
        return text.partition("\n")[2] if isinstance(action, argparse._SubParsersAction) else text  # noqa: SLF001  as above


_SCREEN_LINES = 40
"""Maximum number of lines of a help text that is printed whole."""
_HELP_WIDTH = 78
_NAME_WIDTH = 26
_USAGE = {"?": "[{}]", "+": "{0} [{0} ...]", "*": "[{} ...]"}
"""Notation of a positional argument in the usage line, by its `nargs`."""


def _fill_paragraphs(text: str) -> str:
    """Return a text with its paragraphs filled to the width of the help; lists and commands stay as they are."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        paragraph if re.search(r"^\s", paragraph, re.MULTILINE) else fill(" ".join(paragraph.split()), _HELP_WIDTH)
        for paragraph in paragraphs
    )


def _example_lines(epilog: str | None) -> list[str]:
    """Return the commands in an epilog, one per line. Commands that are too long for a line take two."""
    joined = re.sub(r" *\\\n +", " ", epilog or "")
    lines = [line for line in joined.splitlines() if line.startswith("  qdebug ")]
    return [line_part for line in lines for line_part in _wrap_command(line)]


def _wrap_command(line: str) -> list[str]:
    """Return the lines of a command. If it is too long, its remark is removed; if it still is, it is split in two."""
    if len(line) > _HELP_WIDTH:
        line = re.sub(r" {3,}\S.*", "", line.rstrip())
    if len(line) <= _HELP_WIDTH:
        return [line]
    cut = line.rfind(" -", 0, _HELP_WIDTH - 2)
    return [line] if cut < 0 else [f"{line[:cut]} \\", f"     {line[cut:]}"]


def _is_shown(action: argparse.Action) -> bool:
    """Return whether the short help lists an argument: an option that not every verb has."""
    return bool(action.option_strings) and action.help != argparse.SUPPRESS and action.dest not in _COMMON_DESTS


_COMMON_DESTS = frozenset({"help", "debug", "color", "memory", "seconds"})
"""Options that every verb has. Only the whole help lists them."""


def _format_option(action: argparse.Action) -> str:
    """Return the longest name of an option, with the placeholder of its value."""
    name = max(action.option_strings, key=len)
    if action.nargs == 0:
        return name
    value = action.metavar if isinstance(action.metavar, str) else None
    if value is None:
        value = "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    return f"{name} {value}"


def _format_row(name: str, text: str | None) -> str:
    """Return a line with the name of an argument and the first clause of its explanation."""
    clause = " ".join((text or "").split()).partition("; ")[0].partition(" (default: ")[0]
    max_length = _HELP_WIDTH - 4 - max(len(name), _NAME_WIDTH)
    if len(clause) > max_length:
        clause = clause.partition(", ")[0]
    return (
        f"  {name:{_NAME_WIDTH}}  {clause if len(clause) <= max_length else clause[: max_length - 3] + '...'}".rstrip()
    )


class Parser(argparse.ArgumentParser):
    """An argument parser that keeps line breaks in its texts, and prints errors in qdebug's style.

    Args:
        args: As in `argparse.ArgumentParser`.
        module: A module whose `fill_parser` adds the arguments when the parser is first used; "" without one.
        options: As in `argparse.ArgumentParser`.
    """

    def __init__(self, *args: Any, module: str = "", **options: Any) -> None:
        options.setdefault("formatter_class", _HelpFormatter)
        options.setdefault("allow_abbrev", False)
        super().__init__(*args, **options)
        self._module = module

    def with_arguments(self) -> Self:
        """Return this parser after adding the arguments of its module."""
        module, self._module = self._module, ""
        if module:
            import_module(module).fill_parser(self)
        return self

    def format_help(self) -> str:
        """Return the whole help, with the first example at the top."""
        self.description = _fill_paragraphs(self.description) if self.description else None
        examples = _example_lines(self.epilog) if " " in self.prog else []
        first = examples[: 2 if examples and examples[0].endswith("\\") else 1]
        return "\n".join([*(["example:", *first, ""] if first else []), super().format_help()])

    def print_help(self, file: Any = None) -> None:
        """Print the help if it fits a screen, or else a short form with the command for the whole help."""
        text = self.with_arguments().format_help()
        is_verb = self.prog.count(" ") == 1  # only for a verb can `qdebug help VERB options` print the whole help
        fits = not is_verb or len(text.splitlines()) <= _SCREEN_LINES
        self._print_message(text if fits else self._short_help(), file or sys.stdout)

    def _short_help(self) -> str:
        """Return a help that fits a screen: examples, first paragraph, arguments and options.

        Each option has a line with its explanation, if there is room for all of them. Otherwise only names are listed.
        """
        arguments = [action for action in self._actions if not action.option_strings]
        names = [str(action.metavar or action.dest) for action in arguments]
        words = [
            _USAGE.get(str(action.nargs), "{}").format(name) for action, name in zip(arguments, names, strict=True)
        ]
        examples = _example_lines(self.epilog)[:4]
        head = ["examples:", *(examples[:-1] if examples and examples[-1].endswith("\\") else examples), ""]
        head += [*_fill_paragraphs((self.description or "").strip().partition("\n\n")[0]).splitlines(), ""]
        head += [f"usage: {self.prog} [options] {' '.join(words)}".rstrip()]
        head += [_format_row(name, action.help) for name, action in zip(names, arguments, strict=True)]
        groups = [
            (group.title or "options", [action for action in group._group_actions if _is_shown(action)])  # noqa: SLF001
            for group in self._action_groups
        ]
        command_text = self.prog.replace("qdebug ", "qdebug help ", 1)
        tail = ["", f"The whole help, with every option explained: {command_text} options"]
        rows = [
            (title, [_format_row(_format_option(each), each.help) for each in actions])
            for title, actions in groups
            if actions
        ]
        lines = [line for title, group in rows for line in ("", f"{title.partition(' (')[0]}:", *group)]
        if len(head) + len(lines) + len(tail) > _SCREEN_LINES:
            lines = [""]
            for title, actions in groups:
                if actions:
                    listed = ", ".join(map(_format_option, actions)).replace(" ", "\xa0").replace(",\xa0", ", ")
                    text = f"{title.partition(' (')[0]}: {listed}"
                    lines += fill(text, _HELP_WIDTH, subsequent_indent="  ", break_on_hyphens=False).splitlines()
        return "\n".join([*head, *lines, *tail]).replace("\xa0", " ") + "\n"

    def parse_known_args(self, *args: Any, **options: Any) -> tuple[Any, list[str]]:
        """Parse, and report unknown arguments here, so that the error names the verb's parser."""
        self.with_arguments()
        known_arguments, unknown_words = super().parse_known_args(*args, **options)
        if unknown_words:
            suggestions = [
                self._suggestion(word, self._option_string_actions) for word in unknown_words if word.startswith("-")
            ]
            self.error(f"unrecognized arguments: {' '.join(unknown_words)}{next(filter(None, suggestions), '')}")
        return known_arguments, unknown_words

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            suggestion = self._suggestion(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, f"{error.message}{suggestion}") from None

    @staticmethod
    def _suggestion(word: str, choices: Iterable[str]) -> str:
        from difflib import get_close_matches

        close_matches = get_close_matches(word.partition("=")[0], list(choices), n=1)
        return f". Did you mean {close_matches[0]}?" if close_matches else ""

    def error(self, message: str) -> NoReturn:
        """Print a command line error and exit with 2."""
        say(f"{self.prog}: {safe_text(message, limit=2000)}")
        say(f"  hint: {self.prog} --help explains it.")
        self.exit(COULD_NOT_RUN)


def add_format(parser: TakesArguments, *, forms: Sequence[str] = FORMATS) -> None:
    """Add `-f` and `--json`."""
    parser.add_argument(
        "-f",
        "--format",
        choices=forms,
        help="format of the result (default: table, or by the extension of -o FILE)",
    )
    parser.add_argument("--json", action="store_const", const="json", dest="format", help="the same as -f json")


def add_output(parser: TakesArguments, *, what: str) -> None:
    """Add `-o FILE` and `--force`.

    Args:
        parser: The parser.
        what: Noun phrase that describes the result, for the help text.
    """
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=f"write {what} to FILE instead of stdout")
    parser.add_argument("--force", action="store_true", help="overwrite FILE if it exists")


def add_common(parser: argparse.ArgumentParser, *, color: bool = True) -> None:
    """Add `--debug` and `--color`, which every verb has.

    Args:
        parser: The parser of a verb.
        color: Whether the verb prints coloured text.
    """
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    if color:
        parser.add_argument("--color", choices=COLORS, default="auto", help="colour the text (default: on a terminal)")


def add_untrusted(parser: argparse.ArgumentParser, *sources: str, is_interactive: bool = False) -> None:
    """Add `--untrusted`, and the limits of the guarded process.

    Args:
        parser: The parser of a verb.
        sources: Names of the arguments with recordings, which are verified first.
        is_interactive: Whether the verb is interactive, so that its time is not limited.
    """
    parser.add_argument(
        "--untrusted", action="store_true", help="verify the recordings first, and do all work in a guarded process"
    )
    parser.add_argument(
        "--memory",
        type=positive,
        metavar="MB",
        help="with --untrusted: memory limit of the process (default: by file size)",
    )
    parser.add_argument("--seconds", type=positive, metavar="N", help="with --untrusted: limit of processor time")
    parser.set_defaults(untrusted_sources=sources, endless=is_interactive)


def add_track(parser: TakesArguments) -> None:
    """Add `--track`."""
    parser.add_argument(
        "--track",
        type=Path,
        metavar="DB",
        help="add the result to a history, by commit, backend and processor; qdebug accuracy --history DB shows it",
    )


def add_workers(parser: TakesArguments) -> None:
    """Add `--jobs` and `--scheduler` to a group of mutually exclusive arguments."""
    parser.add_argument(
        "--jobs", type=positive, default=1, metavar="N", help="share the work among N processes (default: 1)"
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="share the work among the workers of a dask scheduler (extra: dask)"
    )


def suffix_format(chosen_format: str | None, output: Path | None, *, forms: Sequence[str] = FORMATS) -> str:
    """Return the format of the result: the chosen one, else the one for the file's suffix, else the table.

    Args:
        chosen_format: The value of `-f`; None if not given.
        output: The file to write; None for stdout.
        forms: Formats that the result supports.

    Raises:
        UsageError: The suffix does not belong to a format.
    """
    if chosen_format is not None:
        return chosen_format
    suffix = "" if output is None else output.suffix.lower()
    if suffix in _TABLE_SUFFIXES or (output is not None and output.exists() and not output.is_file()):
        return "table"
    suffix_form = _BY_SUFFIX.get(suffix, "")
    if suffix_form not in forms:
        suffixes_text = ", ".join(suffix for suffix, form in _BY_SUFFIX.items() if form in forms)
        raise UsageError(
            f"Unknown report format {suffix!r}; known extensions are {suffixes_text}, and .txt for the table.",
            hint=f"Use one of these extensions, or give the format: -f {forms[0]}.",
        )
    return suffix_form


def natural(text: str) -> int:
    """Parse a whole number of at least 0.

    Raises:
        argparse.ArgumentTypeError: The text is not such a number.
    """
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 0")
    return value


def positive(text: str) -> int:
    """Parse a whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: The text is not such a number.
    """
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return value


_SIZES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def size(text: str) -> int:
    """Parse a size in bytes, such as "500MB" or "5 GB".

    Raises:
        argparse.ArgumentTypeError: The text is not a size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 5GB or 500MB")
    return int(float(match[1]) * _SIZES[match[2].upper()])


def limit(text: str) -> float:
    """Parse a limit: a number of at least 0.

    Raises:
        argparse.ArgumentTypeError: The text is not such a number.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return value


def decibels(text: str) -> float:
    """Parse a number of decibels, which may be negative.

    Raises:
        argparse.ArgumentTypeError: The text is not a number.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of decibels")
    return value


def options_from(kind: Callable[..., T], arguments: argparse.Namespace) -> T:
    """Return parsed arguments as an options object.

    Args:
        kind: A dataclass whose fields are the verb's arguments.
        arguments: The result of argparse.
    """
    from dataclasses import fields

    names: Sequence[str] = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: getattr(arguments, name) for name in names})
