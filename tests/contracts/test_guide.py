"""The guide: files that it names exist, commands and code that it shows are understood, its tables are up to date."""

import re
import textwrap

import guide_tables
import pytest
from shown_commands import qdebug_commands, refusal

from qdebug.arithmetic.arithmetic_file import read_arithmetic
from qdebug.arithmetic.presets import known_presets
from qdebug.limits.limits_file import load_limits
from qdebug.present.rows import columns
from qdebug.pytest_plugin.options import add_options

PATH = re.compile(r"`((?:qdebug|tests|samples)/[\w./<>-]+)`")
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
WIDTH = 76


def missing(text, root):
    return [path for path in PATH.findall(text) if "<" not in path and not (root / path).exists()]


def blocks(text, language):
    return [textwrap.dedent(code) for _, kind, code in BLOCK.findall(text) if kind == language]


@pytest.fixture(scope="module")
def pages(root):
    found = sorted((root / "qdebug" / "guide").glob("*.md"))
    assert found
    return {page.stem: page.read_text(encoding="utf-8") for page in found}


def test_every_file_named_exists(pages, root):
    assert not [(page, path) for page, text in pages.items() for path in missing(text, root)]


def broken(text):
    found = []
    for code in blocks(text, "python"):
        try:
            compile(code, "guide", "exec", dont_inherit=True)
        except SyntaxError:
            found.append(code)
    return found


def test_code_that_is_shown_compiles(pages):
    assert any(blocks(text, "python") for text in pages.values())
    assert not [code for text in pages.values() for code in broken(text)]


def test_code_fits_a_narrow_terminal(pages):
    lines = [
        (page, line) for page, text in pages.items() for *_, code in BLOCK.findall(text) for line in code.splitlines()
    ]
    assert lines
    assert not [(page, line) for page, line in lines if len(line) > WIDTH]


def test_every_command_shown_is_understood(pages):
    commands = [words for text in pages.values() for words in qdebug_commands(text)]
    assert len(commands) >= 20
    assert not {" ".join(words): why for words in commands if (why := refusal(words))}


def test_tables_are_those_of_the_program(pages):
    assert sum(len(guide_tables.BLOCK.findall(text)) for text in pages.values()) == len(guide_tables.TABLES)
    stale = [page for page, text in pages.items() if guide_tables.written(text) != text]
    assert not stale, "run: python tests/contracts/guide_tables.py"


def test_the_columns_are_those_of_the_table(pages):
    table = pages["verdict-details"].partition("## The columns")[2].partition("\n## ")[0]
    explained = set(re.findall(r"(?m)^\| ([\w /]+) \| ", table)) - {"column"}
    known = {column.title for column in columns().values()}
    assert len(explained) >= 8
    assert explained <= known


def test_the_limits_file_shown_is_read(pages, tmp_path):
    (block,) = blocks(pages["limits"], "toml")
    path = tmp_path / "limits.toml"
    path.write_text(block, encoding="utf-8")
    limits = load_limits(path)
    assert (limits.min_sqnr, limits.rules[0].max_lsb, limits.acknowledged[0].node) == (25, 2, "softmax")


def test_the_options_of_the_pytest_plugin_are_shown_and_exist(pages):
    shown = set(re.findall(r"--qdebug-[a-z]+", pages["tests"]))
    parser = pytest.Parser(_ispytest=True)
    add_options(parser)
    known = {name for group in parser._groups for option in group.options for name in option.names()}
    assert shown == {name for name in known if name.startswith("--qdebug-")}


def test_the_arithmetic_file_shown_is_read(pages, tmp_path):
    (block,) = [each for each in blocks(pages["arithmetics"], "text") if each.startswith("format = ")]
    path = tmp_path / "npu.toml"
    path.write_text(block, encoding="utf-8")
    found = read_arithmetic(path)
    assert found.name == "my-npu"
    assert found.variant("mul") == known_presets()["gemmlowp"].variant("mul")


def test_the_checks_can_fail(root):
    assert missing("see `qdebug/no/such.py` and `qdebug/model/graph.py`", root) == ["qdebug/no/such.py"]
    assert broken("```python\nx = (\n```\n```python\nx = 1\n```\n") == ["x = (\n"]
    stale = "<!-- begin roundings -->\nold\n<!-- end roundings -->"
    assert guide_tables.written(stale) != stale
