"""The text of the project: no machine paths, no registry hosts, no unfinished work; a top level of known entries."""

import ast
import re

import pytest

# Written in pieces, so that this file is no finding of its own.
BANNED = {
    "a machine path": r"(?<![\w.~$])/(?:wo" + r"rk|ho" + r"me|ro" + r"ot|fa" + r"rm|Us" + r"ers)/\w",
    "a registry host": r"py" + r"pi\.org|npm" + r"js\.org|deb" + r"ian\.org|pythonho" + r"sted|hugging" + r"face\.co",
    "unfinished work": r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b|NotImplemented" + r"Error\(\)",
}
TOP = {".ci", ".gitignore", "LICENSE", "README.md", "pyproject.toml", "qdebug", "samples", "tests"}
LOCAL = {
    ".git",
    ".venv",
    "qdebug-demo",
    ".hypothesis",
    ".import_linter_cache",
    "dist",
    "build",
    "snapshot_report.html",
    "__pycache__",
}


def findings(texts, pattern):
    return [
        f"{path}:{number} {line.strip()[:80]}"
        for path, text in texts.items()
        if not path.endswith(".svg")
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]


@pytest.mark.parametrize("what", BANNED)
def test_the_project_does_not_contain(what, texts):
    assert not findings(texts, BANNED[what])


@pytest.mark.parametrize(
    ("what", "bad"),
    [
        ("a machine path", "see /wo" + "rk/main"),
        ("a machine path", "'/ho" + "me/me/x'"),
        ("a registry host", "https://py" + "pi.org/simple"),
        ("unfinished work", "# TO" + "DO later"),
        ("unfinished work", "raise NotImplemented" + "Error()"),
    ],
)
def test_the_check_can_fail(what, bad):
    assert findings({"a.md": bad}, BANNED[what])


def test_innocent_text_is_no_finding():
    assert not any(findings({"a.md": "the frame/workload, ~/work/x, qdebug/root/x"}, p) for p in BANNED.values())


def test_the_top_level_holds_only_what_is_agreed(root):
    present = {entry.name for entry in root.iterdir() if entry.name not in LOCAL}
    present = {name for name in present if not name.endswith(("_cache", ".egg-info"))}
    assert present == TOP


def test_every_text_file_ends_with_one_newline(texts):
    ragged = [
        p for p, t in texts.items() if t and not p.endswith(".svg") and (not t.endswith("\n") or t.endswith("\n\n"))
    ]
    assert not ragged


WORDS = re.compile(r"\bassert|raises|warns|snap_compare|check|verify|expect|fail\(")


def functions_of(source):
    lines = source.text.split("\n")
    return {
        node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno])
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def idle_tests(source, fixtures=frozenset()):
    """List test functions that assert nothing, neither themselves nor in a function or fixture that they call."""
    functions = functions_of(source)
    called = {name: set(re.findall(r"\b(\w+)\(", text)) for name, text in functions.items()}
    checking = set(fixtures) | {name for name, text in functions.items() if WORDS.search(text)}
    for _ in functions:
        callers = {name for name, names in called.items() if names & checking}
        if callers <= checking:
            break
        checking |= callers
    return [f"{source.path} {name}" for name in functions if name.startswith("test_") and name not in checking]


def test_tests_check_something(everything):
    tests = [source for source in everything if source.path.startswith("tests/")]
    shared = [functions_of(source) for source in tests if source.path.endswith("conftest.py")]
    fixtures = {name for functions in shared for name, text in functions.items() if WORDS.search(text)}
    assert not [line for source in tests for line in idle_tests(source, fixtures)]


def test_a_test_without_assertion_is_found(example):
    text = "def good(x):\n    assert x\n\ndef test_a():\n    good(1)\n\ndef test_b():\n    bad(1)\n"
    assert idle_tests(example(text, "tests/test_x.py")) == ["tests/test_x.py test_b"]
    assert idle_tests(example(text, "tests/test_x.py"), {"bad"}) == []
