"""The pages of the guide name files that exist, and show code that is Python."""

import re
import textwrap

PATH = re.compile(r"`((?:qdebug|tests|samples)/[\w./<>-]+)`")
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def missing(text, root):
    return [path for path in PATH.findall(text) if "<" not in path and not (root / path).exists()]


def pages(root):
    found = sorted((root / "qdebug" / "guide").glob("*.md"))
    assert found
    return {page: page.read_text(encoding="utf-8") for page in found}


def test_every_file_named_exists(root):
    assert not [(page.name, path) for page, text in pages(root).items() for path in missing(text, root)]


def broken(text):
    found = []
    for _, code in BLOCK.findall(text):
        try:
            compile(textwrap.dedent(code), "guide", "exec", dont_inherit=True)
        except SyntaxError:
            found.append(code)
    return found


def test_code_that_is_shown_compiles(root):
    texts = pages(root).values()
    assert any(map(BLOCK.search, texts))
    assert not [code for text in texts for code in broken(text)]


def test_the_check_can_fail(root):
    assert missing("see `qdebug/no/such.py` and `qdebug/model/graph.py`", root) == ["qdebug/no/such.py"]
    assert broken("```python\nx = (\n```\n```python\nx = 1\n```\n") == ["x = (\n"]
