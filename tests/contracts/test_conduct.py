"""Text reaches the terminal without markup: the name of a tensor may hold any."""

import ast
import re

import pytest

MARKUP = re.compile(
    r"\[/?(?:bold|dim|italic|reverse|underline|b|i|u|r|red|green|blue|yellow|cyan|magenta|white|link)\b"
)
WIDGETS = {"Static", "Label", "Button", "Checkbox", "Option"}


def markup(source):
    """Find strings with console markup, and text given to a widget that would read markup in it."""
    return [node.lineno for node in ast.walk(source.tree) if _writes_markup(node) or _reads_markup(node)]


def _writes_markup(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and MARKUP.search(node.value)


def _reads_markup(node):
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in WIDGETS or not node.args:
        return False
    off = any(k.arg == "markup" and ast.unparse(k.value) == "False" for k in node.keywords)
    return not off and not isinstance(node.args[0], ast.Constant)


def test_text_reaches_the_terminal_without_markup(package):
    shown = [s for s in package if s.module.startswith(("qdebug.present", "qdebug.tui", "qdebug.cli"))]
    assert shown
    assert not {source.path: lines for source in shown if (lines := markup(source))}


@pytest.mark.parametrize("bad", ["x = '[bold red]no[/]'", "Static(name)"])
def test_the_check_can_fail(bad, example):
    assert markup(example(bad))


def test_fixed_text_may_be_shown(example):
    assert not markup(example("Static('Nodes')\nStatic(name, markup=False)\nvalues[row]"))
