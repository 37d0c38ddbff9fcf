"""Every command that the package tells a user to type exists, with the options it names."""

import argparse
import ast
import re

from qdebug.cli.main import build_parser

# Every verb that the command line has or may get: what follows the program's name elsewhere is prose.
VERBS = (
    "demo|record|import|info|diff|explain|tui|probe|scales|budget|repair|lint|accuracy|bisect|export|file|pack|verify|"
    "recover|show|help|completion"
)
COMMAND = re.compile(rf"\bqdebug ({VERBS})\b([^\n`;:]*)")


def verbs():
    """Return the options of each verb of the command line, with those of its actions."""

    def below(parser):
        actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        return actions[0].choices if actions else {}

    def options(parser):
        return set(parser.with_arguments()._option_string_actions).union(
            *(options(each) for each in below(parser).values())
        )

    return {name: options(each) for name, each in below(build_parser()).items()}


def texts(source):
    """Yield the texts of a module that can reach a user: every string but docstrings, f-strings with {} for values."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False)
    }
    inside = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            yield "".join(p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside | docstrings:
            yield node.value


def wrong_commands(source, known):
    found = []
    for text in texts(source):
        for verb, rest in COMMAND.findall(text):
            options = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", rest.partition(". ")[0]))
            if verb not in known or options - known[verb]:
                found.append(f"{source.path}: qdebug {verb}{rest}")
    return found


def test_every_command_in_a_hint_exists(package):
    known = verbs()
    assert not [line for source in package for line in wrong_commands(source, known)]


def test_the_check_can_fail(example):
    known = {"diff": {"--json"}}
    assert wrong_commands(example("x = 'Run: qdebug explain FILE.'"), known)
    assert wrong_commands(example("x = f'Run: qdebug diff {a} --jsn.'"), known)
    assert not wrong_commands(
        example('"""Say qdebug nonsense."""\nx = "Run: qdebug diff A B --json. Or --other."'), known
    )
