"""The interface uses what Textual offers to everybody, in the versions that the project states."""

import ast
import re
from importlib.metadata import version

import pytest

PRIVATE = re.compile(r"textual(\.\w+)*\._\w+|textual\.drivers\b")


def private_uses(source):
    """List imports of modules and names that Textual does not offer, and subclasses of its drivers."""
    found = []
    for node in ast.walk(source.tree):
        names = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "textual":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found += [f"{source.path}:{node.lineno} {name}" for name in names if PRIVATE.match(name)]
    return found


def bounds(text):
    """Return the lowest version and the first one that is too new, as the project states them."""
    low, high = re.search(r'"textual>=([\d.]+),<([\d.]+)"', text).groups()
    return tuple(map(int, low.split("."))), tuple(map(int, high.split(".")))


def test_nothing_private_of_textual_is_used(package):
    assert not [use for source in package for use in private_uses(source)]


def test_the_installed_textual_is_between_the_stated_bounds(root):
    low, high = bounds((root / "pyproject.toml").read_text(encoding="utf-8"))
    assert low <= tuple(map(int, version("textual").split(".")[:3])) < high


@pytest.mark.parametrize(
    "bad",
    [
        "from textual.drivers.linux_driver import LinuxDriver",
        "from textual._xterm_parser import XTermParser",
        "import textual._context",
        "from textual.widgets import _x",
    ],
)
def test_the_check_can_fail(example, bad):
    assert private_uses(example(bad))


def test_what_is_offered_may_be_used(example):
    assert not private_uses(example("from textual.widgets import Input\nfrom textual.app import App"))
