"""qdebug help: the pages of the guide and the generated reference, rendered in the terminal."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Mapping, Sequence
from importlib import resources
from types import MappingProxyType

from qdebug.cli.guide_search import extract_sections, find_passages, list_headings
from qdebug.cli.output import emit, render, terminal_width
from qdebug.cli.parser import Parser, add_common
from qdebug.errors import UsageError
from qdebug.model.names import near_names
from qdebug.present.shell import command

__all__ = ["GENERATED", "GROUPS", "OTHER_NAMES", "TOPICS", "fill_parser", "topic_text"]

GROUPS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "start": {
            "tutorial": "a net fails at 2 a.m.: from the message to the fixed model",
            "start": "first steps with your own net: record, compare, examine",
            "verdict": "how to read the verdict",
            "next": "from a verdict to the next command: a flow chart",
            "faq": "questions and problems: exit code 3, which file, sizes, times",
        },
        "find": {
            "terminal": "the terminal interface",
            "alignment": "which tensors are compared, and how to set pairs yourself",
            "limits": "which tolerance to use",
            "huge": "huge and partial recordings: keep less, join files",
        },
        "understand": {
            "explain": "why a node is off by one: a bug or rounding?",
            "accuracy": "whether the quantized network is as accurate; what got worse",
            "bisect": "which version or option of a runtime changed a node",
        },
        "mend": {
            "repair": "which nodes cause the error, and which changes repair it",
            "scales": "scales: profile values, choose scales, try a scale",
            "rewrites": "find wrong rewrites of an optimizer",
        },
        "automate": {
            "tests": "assertions, the pytest plugin, CI, formats of reports",
            "agent": "for scripts and coding agents: commands, JSON, exit codes",
            "file": "the file: crashes, following a run, verify and pack",
        },
        "backends": {
            "recording": "how to record your backend; why recording changes results",
            "onnxruntime": "recording ONNX Runtime",
            "litert": "recording LiteRT (TensorFlow Lite)",
            "tflm": "recording TensorFlow Lite Micro",
            "openvino": "recording OpenVINO",
            "pytorch": "recording PyTorch: programs, modules, torchao",
            "executorch": "recording ExecuTorch",
            "import": "how to import the dump of another tool",
        },
        "reference": {
            "kernels": "arithmetics as formulas and NumPy: qdebug help kernels Conv",
            "thresholds": "the numbers behind a verdict: qdebug help thresholds SQNR",
            "metrics": "the definition of every number: qdebug help metrics sqnr",
            "keys": "the keys of qdebug tui: qdebug help keys filter",
            "json": "the keys of the JSON documents: qdebug help json diff",
            "arithmetics": "the known arithmetics, and how to describe your own",
            "glossary": "the glossary",
            "verdict-details": "how errors are split, judged and blamed; the columns",
            "terminal-details": "what each screen shows",
            "huge-details": "sketches, ranks of a distributed run",
            "explain-details": "how arithmetics are searched; 16-bit floats; probes",
            "accuracy-details": "references, ties, other networks, an example",
            "bisect-details": "how results are compared, and versions installed",
            "repair-details": "how shares are measured, edits found, results proved",
            "scales-details": "every calibrator, scheme and finding",
            "rewrites-details": "every finding; the rules of a chip",
            "tests-details": "the HTML page; Model Explorer and Netron",
            "file-details": "the layout of the file; the order of writes",
            "recording-details": "states, placement, facts of a harness, costs",
            "pytorch-details": "GPUs and inductor",
            "import-details": "descriptions of raw files, the LiteRT debugger",
        },
        "develop": {
            "design": "how qdebug is built",
            "extending": "a new operator, check, metric, screen or runtime",
            "changelog": "what changed since the last version",
        },
    }
)
"""The topics by group, with their subjects."""

TOPICS: Mapping[str, str] = MappingProxyType({name: what for group in GROUPS.values() for name, what in group.items()})
"""All topics with their subjects."""

GENERATED = ("kernels", "thresholds", "metrics", "keys", "json")
"""Topics whose page is generated. `qdebug help TOPIC NAME` shows a single entry of it."""

OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "tolerance": "limits",
        "off-by-one": "explain",
        "backend": "recording",
        "dump": "import",
        "budget": "repair",
        "history": "accuracy",
        "lint": "rewrites",
        "upgrade": "bisect",
        "changes": "changelog",
        "schema": "json",
        "format": "file-details",
        "troubleshooting": "faq",
        "questions": "faq",
    }
)
"""Alternative names for topics."""

_DESCRIPTION = """\
Show a page of the guide, an entry of the reference, or the whole help of a verb.
Any other word is searched for in the guide."""
_EPILOG = """\
examples:
  qdebug help                     lists the topics
  qdebug help tutorial            a page of the guide
  qdebug help thresholds SQNR     an entry of the reference
  qdebug help verdict-details columns   a section of a page
  qdebug help diff options        every option of a verb
  qdebug help saturation          the sections that contain this word
  qdebug help agent --skill > SKILL.md"""
_MAX_SECTIONS = 12
_MIN_WIDTH, _MAX_WIDTH = 40, 100
_DEFAULT_WIDTH = 80
_COMMENT = re.compile(r"^<!-- .* -->\n", re.MULTILINE)
_PICTURE = re.compile(r"^!\[(.*)\]\(.*\)$", re.MULTILINE)
_SKILL_HEAD = (
    "---\nname: qdebug\n"
    "description: Find the node at which a quantized neural network goes wrong on a backend (ONNX Runtime, LiteRT, "
    "OpenVINO, PyTorch, ExecuTorch, an NPU). Use when two runs of one network differ, when an int8, int4 or 16-bit "
    "float model lost accuracy, when a runtime upgrade changed results, or when dumps of an accelerator have to be "
    "compared with a reference.\n---\n\n"
)
"""The front matter of a SKILL.md."""


def topic_text(topic: str, entry: str | None = None) -> str:
    """Return a topic as Markdown.

    Args:
        topic: A key of `TOPICS` or of `OTHER_NAMES`.
        entry: A name in a generated topic, or a part of a heading of a page; None for all of it.

    Raises:
        UsageError: The topic has no such entry or section.
    """
    name = OTHER_NAMES.get(topic, topic)
    if name in GENERATED and not (name == "kernels" and entry is None):
        from qdebug.cli.reference import reference_text

        return reference_text(name, entry)
    text = _COMMENT.sub("", resources.files("qdebug.guide").joinpath(f"{name}.md").read_text(encoding="utf-8"))
    if entry is None:
        return text
    part = extract_sections(text, entry)
    if part is None:
        raise UsageError(
            f"The topic {topic!r} has no section {entry!r}.{near_names(entry, list_headings(text))}",
            hint=f"{command('qdebug', 'help', topic)} shows all of it.",
        )
    return part


def skill_text() -> str:
    """Return the page for agents as a SKILL.md, with the front matter that coding agents read."""
    return _SKILL_HEAD + topic_text("agent")


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument(
        "topic",
        nargs="?",
        choices=_SuggestedWords([*TOPICS, *OTHER_NAMES, *_verbs()]),
        metavar="TOPIC",
        help="a topic, a verb, or a word to search for",
    )
    parser.add_argument("entry", nargs="?", metavar="NAME", help="an entry of a reference, or a section of a page")
    parser.add_argument(
        "--skill", action="store_true", help="with agent: print a SKILL.md to install in a coding agent"
    )
    add_common(parser)
    parser.set_defaults(run=_run)


class _SuggestedWords(list[str]):
    """Choices that completion offers. The parser accepts any other word as well."""

    def __contains__(self, _: object) -> bool:
        return True


def _topics_text() -> str:
    """Return the list of topics, by group. The topics with details of another topic share one line."""
    lines = []
    for group, topics in GROUPS.items():
        lines.append(f"{group}:")
        lines += [f"  {name:12}{what}" for name, what in topics.items() if not name.endswith("-details")]
    details = [name.removesuffix("-details") for name in TOPICS if name.endswith("-details")]
    listed = textwrap.fill(", ".join(details), 78, initial_indent="  ", subsequent_indent="  ")
    lines.append(f"\nmore of a topic, as in qdebug help verdict-details:\n{listed}")
    return "\n".join(lines)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.skill:
        if arguments.topic not in (None, "agent"):
            raise UsageError("--skill works only with the topic agent.", hint="Run: qdebug help agent --skill")
        emit(skill_text().rstrip("\n"))
        return 0
    if not arguments.topic:
        emit(_topics_text())
        return 0
    is_page = arguments.topic in {*TOPICS, *OTHER_NAMES}
    if arguments.topic in _verbs() and (not is_page or arguments.entry == "options"):
        emit(_verb_help(arguments.topic))
        return 0
    if not is_page:
        emit(_sections_text(" ".join(filter(None, (arguments.topic, arguments.entry)))))
        return 0
    from rich.markdown import Markdown

    text = _PICTURE.sub(r"*(picture: \1)*", topic_text(arguments.topic, arguments.entry))
    width = min(max(terminal_width() or _DEFAULT_WIDTH, _MIN_WIDTH), _MAX_WIDTH)
    emit(render(Markdown(text, code_theme="ansi_dark", hyperlinks=False), width=width).strip("\n"))
    name = OTHER_NAMES.get(arguments.topic, arguments.topic)
    if f"{name}-details" in TOPICS:
        emit(f"\n{command('qdebug', 'help', f'{name}-details')} has more.")
    if name in _verbs():
        emit(f"\n{command('qdebug', 'help', name, 'options')} explains the options of this verb.")
    return 0


def _sections_text(word: str) -> str:
    """Return the list of the sections of the guide that contain a word.

    Raises:
        UsageError: No section contains the word.
    """
    names = [name for group, topics in GROUPS.items() if group != "develop" for name in topics]
    hits = find_passages(word, ((name, topic_text(name)) for name in names if name not in GENERATED))
    if not hits:
        known_names = near_names(word, [*TOPICS, *OTHER_NAMES, *_verbs()])
        raise UsageError(f"No topic, verb or page has {word!r}.{known_names}", hint="qdebug help lists the topics.")
    omitted_count = len(hits) - _MAX_SECTIONS
    lines = [f"{word!r} is in these sections of the guide:"]
    for hit in hits[:_MAX_SECTIONS]:
        lines.append(f"\n{command('qdebug', 'help', hit.topic, hit.heading)}")
        if not hit.in_heading:
            lines.append("  " + textwrap.shorten(hit.line, 78, placeholder=" ..."))
    if omitted_count > 0:
        lines.append(f"\nand in {omitted_count} more")
    return "\n".join(lines)


def _verbs() -> Sequence[str]:
    """Return the verbs. They are imported here, because `qdebug.cli.main` imports this module."""
    from qdebug.cli.main import VERBS

    return tuple(VERBS)


def _verb_help(verb: str) -> str:
    """Return the text of `--help` for a verb."""
    from qdebug.cli.main import build_parser

    actions = build_parser()._actions  # noqa: SLF001  argparse has no public way to list its arguments
    verbs = next(action for action in actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001  as above
    return str(verbs.choices[verb].with_arguments().format_help())
