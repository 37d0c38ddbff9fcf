"""What no module of the package does: print, read the environment, validate by assert, build markup from data."""

import ast
import re

import pytest

MARKUP = re.compile(
    r"\[/?(?:bold|dim|italic|reverse|underline|b|i|u|r|red|green|blue|yellow|cyan|magenta|white|link)\b"
)
WIDGETS = {"Static", "Label", "Button", "Checkbox", "Option"}


def calls(source):
    return [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]


def prints(source):
    if source.module.startswith("qdebug.cli"):
        return []
    return [n.lineno for n in calls(source) if isinstance(n.func, ast.Name) and n.func.id == "print"]


def environment_reads(source):
    """Find uses of environment variables; only what the terminal is (TERM) may be asked, and only by what draws."""
    draws = source.module.startswith(("qdebug.cli", "qdebug.tui"))
    asked = {
        id(call.func.value)
        for call in calls(source)
        if draws and ast.unparse(call.func) == "os.environ.get" and call.args and ast.unparse(call.args[0]) == "'TERM'"
    }
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv", "putenv"):
            found += [] if id(node) in asked else [node.lineno]
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            found += [node.lineno for alias in node.names if alias.name in ("environ", "environb", "getenv")]
    return found


def asserts(source):
    return [node.lineno for node in ast.walk(source.tree) if isinstance(node, ast.Assert)]


def swallowed(source):
    """Find handlers that catch everything and say nothing."""
    return [
        node.lineno
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
        and all(isinstance(each, ast.Pass) for each in node.body)
    ]


def markup(source):
    """Find strings with console markup, and text given to a widget that would read markup in it."""
    return [node.lineno for node in ast.walk(source.tree) if _writes_markup(node) or _reads_markup(node)]


def _writes_markup(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and MARKUP.search(node.value)


def _reads_markup(node):
    if isinstance(node, ast.Attribute):
        return node.attr == "from_markup"
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in WIDGETS or not node.args:
        return False
    off = any(k.arg == "markup" and ast.unparse(k.value) == "False" for k in node.keywords)
    return not off and not isinstance(node.args[0], ast.Constant)


CHECKS = [prints, environment_reads, asserts, swallowed]


@pytest.mark.parametrize("check", CHECKS)
def test_the_package_does_not(check, package):
    assert not {source.path: lines for source in package if (lines := check(source))}


def test_text_reaches_the_terminal_without_markup(package):
    shown = [s for s in package if s.module.startswith(("qdebug.present", "qdebug.tui", "qdebug.cli"))]
    assert not {source.path: lines for source in shown if (lines := markup(source))}


@pytest.mark.parametrize(
    ("check", "bad"),
    [
        (prints, "print('x')"),
        (environment_reads, "import os\nx = os.environ['HOME']"),
        (environment_reads, "import os\nos.environ.get('TERM')"),
        (environment_reads, "from os import getenv"),
        (asserts, "assert x"),
        (swallowed, "try:\n    x\nexcept Exception:\n    pass"),
        (markup, "x = '[bold red]no[/]'"),
        (markup, "Text.from_markup(name)"),
        (markup, "Static(name)"),
    ],
)
def test_the_checks_can_fail(check, bad, example):
    assert check(example(bad))


def test_the_command_line_may_print_and_fixed_text_may_be_shown(example):
    assert not prints(example("print('x')", "qdebug/cli/main.py"))
    assert not environment_reads(example("import os\nos.environ.get('TERM', '')", "qdebug/tui/terminal.py"))
    assert environment_reads(example("import os\nos.environ.get('HOME', '')", "qdebug/tui/terminal.py"))
    assert not markup(example("Static('Nodes')\nStatic(name, markup=False)\nvalues[row]"))
