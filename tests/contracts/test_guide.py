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


def test_code_that_is_shown_compiles(root):
    for page, text in pages(root).items():
        for _, code in BLOCK.findall(text):
            compile(textwrap.dedent(code), str(page), "exec", dont_inherit=True)


def test_the_check_can_fail(root):
    assert missing("see `qdebug/no/such.py` and `qdebug/model/graph.py`", root) == ["qdebug/no/such.py"]
