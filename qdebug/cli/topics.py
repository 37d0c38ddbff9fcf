"""qdebug help: the pages of the guide, rendered in the terminal."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from types import MappingProxyType

from qdebug.cli.output import emit, render, terminal_width
from qdebug.cli.parser import Parser, add_common
from qdebug.present.shell import command

__all__ = ["OTHER_NAMES", "TOPICS", "fill_parser", "topic_text"]

TOPICS: Mapping[str, str] = MappingProxyType(
    {
        "tutorial": "a net fails at 2 a.m.: from the first message to the mended model",
        "start": "first steps: record, compare, examine",
        "verdict": "how to read the verdict and the table",
        "next": "from a verdict to the next command: a flow chart",
        "alignment": "which tensors are compared, and how to set pairs yourself",
        "limits": "which tolerance to use; every threshold",
        "terminal": "the terminal interface: screens and keys",
        "recording": "how to record your backend; why recording changes results",
        "litert": "recording LiteRT (TensorFlow Lite)",
        "tflm": "recording TensorFlow Lite Micro",
        "openvino": "recording OpenVINO",
        "pytorch": "recording PyTorch: programs, modules, torchao",
        "executorch": "recording ExecuTorch",
        "import": "how to import the dump of another tool",
        "explain": "why a node is off by one: a bug or rounding?",
        "arithmetics": "the known arithmetics, and how to describe your own",
        "kernels": "every arithmetic as a formula and as NumPy, and who uses it",
        "scales": "scales: profile values, choose scales, try a scale",
        "repair": "which nodes cause the error of an output, and which changes repair it",
        "rewrites": "find wrong rewrites of an optimizer",
        "bisect": "which version or option of a runtime changed a node",
        "accuracy": "is the quantized network as accurate; what got worse over time",
        "agent": "for scripts and coding agents: commands, JSON, sizes, exit codes",
        "tests": "assertions, the pytest plugin, CI, formats of reports",
        "file": "the file: crashes, following a run, verify and pack",
        "huge": "huge and partial recordings: keep less, join files",
        "metrics": "the definition of every number",
        "glossary": "the glossary",
        "design": "how qdebug is built",
        "extending": "a new operator, check, metric, screen or runtime",
        "changelog": "what changed since the last version",
    }
)
"""The pages of the guide and their subjects."""

OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "tolerance": "limits",
        "off-by-one": "explain",
        "backend": "recording",
        "dump": "import",
        "table": "verdict",
        "budget": "repair",
        "history": "accuracy",
        "lint": "rewrites",
        "upgrade": "bisect",
        "changes": "changelog",
    }
)
"""Alternative names for pages."""

_DESCRIPTION = "Show a page of the guide, or the help of a verb: qdebug help diff."
_MIN_WIDTH, _MAX_WIDTH = 40, 100
_DEFAULT_WIDTH = 80
_COMMENT = re.compile(r"^<!-- .* -->\n", re.MULTILINE)


def topic_text(topic: str) -> str:
    """Return a page of the guide as Markdown.

    Args:
        topic: A key of `TOPICS` or of `OTHER_NAMES`.
    """
    page = f"{OTHER_NAMES.get(topic, topic)}.md"
    return _COMMENT.sub("", resources.files("qdebug.guide").joinpath(page).read_text(encoding="utf-8"))


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    topic_lines = "\n".join(f"  {name:12}{summary}" for name, summary in TOPICS.items())
    parser.description = _DESCRIPTION
    parser.epilog = f"topics:\n{topic_lines}"
    parser.add_argument(
        "topic",
        nargs="?",
        choices=[*TOPICS, *OTHER_NAMES, *_verbs()],
        metavar="TOPIC",
        help="a topic below, or a verb",
    )
    add_common(parser)
    parser.set_defaults(run=lambda arguments: _run(arguments, parser))


def _run(arguments: argparse.Namespace, parser: Parser) -> int:
    if not arguments.topic:
        emit(parser.format_help())
        return 0
    if arguments.topic not in {*TOPICS, *OTHER_NAMES}:
        emit(_verb_help(arguments.topic))
        return 0
    from rich.markdown import Markdown

    width = min(max(terminal_width() or _DEFAULT_WIDTH, _MIN_WIDTH), _MAX_WIDTH)
    page = Markdown(topic_text(arguments.topic), code_theme="ansi_dark", hyperlinks=False)
    emit(render(page, width=width).strip("\n"))
    verb = OTHER_NAMES.get(arguments.topic, arguments.topic)
    if verb in _verbs():
        emit(f"\n{command('qdebug', verb, '--help')} lists the options of this verb.")
    return 0


def _verbs() -> Sequence[str]:
    """Return the verbs. They are imported late, since the command line imports this module."""
    from qdebug.cli.main import VERBS

    return tuple(VERBS)


def _verb_help(verb: str) -> str:
    """Return the text of `--help` for a verb."""
    from qdebug.cli.main import build_parser

    actions = build_parser()._actions  # noqa: SLF001  argparse has no public way to list its arguments
    verbs = next(action for action in actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001  as above
    return str(verbs.choices[verb].with_arguments().format_help())
