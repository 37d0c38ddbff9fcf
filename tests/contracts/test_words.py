"""Plain words: short sentences in the guide, one word for one thing in what is printed, no docstring that gives."""

import ast
import re

import pytest

MOST, USUAL, SHARE = 30, 25, 0.95
"""Words that no sentence may have more of; words that most have fewer of, and how many are most."""

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LISTED = re.compile(r"^([-*]|\d+\.) ")
SPOKEN = ("qdebug.present", "qdebug.tui", "qdebug.cli", "qdebug.compare", "qdebug.workflow", "qdebug.testing")
"""Packages whose texts people read."""


def sentences(text):
    """Return the sentences of a page; a cell of a table and what stands between semicolons of a list count as one."""
    text = re.sub(r"<!--.*?-->", "", FENCE.sub("\n\n", text), flags=re.DOTALL)
    found, block = [], []
    for line in map(str.strip, [*text.splitlines(), ""]):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)] if line.startswith("|") else []
        if not line or cells or line.startswith("#") or LISTED.match(line):
            found += _ended(" ".join(block), listed=bool(block) and bool(LISTED.match(block[0])))
            block = []
        for cell in cells:
            found += _ended(cell, listed=True)
        if line and not cells and not line.startswith("#"):
            block.append(line)
    return found


def _ended(text, *, listed):
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "CODE", LISTED.sub("", text, count=1)))
    return [part for part in re.split(r"(?<=[.!?;])\s+" if listed else r"(?<=[.!?])\s+", text) if part.strip(" -:")]


def words(sentence):
    return len(re.findall(r"[A-Za-z0-9'-]+", sentence))


@pytest.fixture(scope="module")
def pages(root):
    paths = [root / "README.md", *sorted((root / "qdebug" / "guide").glob("*.md"))]
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


def test_no_sentence_of_the_guide_is_long(pages):
    every = [(name, sentence) for name, text in pages.items() for sentence in sentences(text)]
    assert len(every) > 1000
    assert not [pair for pair in every if words(pair[1]) > MOST]
    assert sum(words(sentence) < USUAL for _, sentence in every) >= SHARE * len(every)


def texts_of(source):
    """Yield the line and the text of each string that is no docstring; what is filled in is left out."""
    docs = {
        id(node.value)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def avoided(glossary):
    """Return the words that the glossary says are not used."""
    rows = [line.split("|") for line in glossary.splitlines() if line.startswith("|")]
    return [word.strip() for row in rows[2:] for word in row[3].split(",")]


def misnamed(source, others):
    """List texts in which a thing has another name than its own."""
    wrong = re.compile(rf"\b(?:{'|'.join(map(re.escape, others))})", re.IGNORECASE)
    return [f"{source.path}:{line} {text}" for line, text in texts_of(source) if wrong.search(text)]


def test_each_thing_has_one_name_in_what_is_printed(pages, package):
    others = avoided(pages["glossary.md"])
    assert len(others) > 30
    spoken = [source for source in package if source.module.startswith(SPOKEN)]
    assert spoken
    assert not [text for source in spoken for text in misnamed(source, others)]


def test_no_summary_begins_with_give(package):
    found = []
    for source in package:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                said = ast.get_docstring(node) or ""
                found += [f"{source.path}: {said[:60]}"] if re.match(r"Gives?\b", said) else []
        found += [f"{source.path}: {line}" for line in source.text.splitlines() if re.match(r' *"""Gives?\b', line)]
    assert not found


def test_the_checks_can_fail(example):
    long = "word " * 31
    assert [words(each) for each in sentences(f"{long}end. Short one.\n\n- a; b\n\n| x | {long}|\n")] == [
        32,
        2,
        1,
        1,
        1,
        31,
    ]
    assert not sentences("```\nno prose\n```\n# Heading")
    assert misnamed(example('"""It hands on."""\nx = f"it hands on {1} times"'), ["hands on"]) == [
        "qdebug/example.py:2 it hands on "
    ]
    assert avoided("| word | meaning | not |\n|---|---|---|\n| a | b | c, d |") == ["c", "d"]
