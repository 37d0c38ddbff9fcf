"""Two hundred hostile names through every sink: none of them steers a terminal, a browser, a spreadsheet or a path."""

import contextlib
import csv
import io
import json
import tomllib
import xml.etree.ElementTree as ET
import zipfile
from html.parser import HTMLParser

import numpy as np
import pytest
from markdown_it import MarkdownIt
from sweeps import sweep

from qdebug.api import diff
from qdebug.cli.main import main
from qdebug.limits.limits_file import acknowledge
from qdebug.present.failure import failure_lines
from qdebug.recording.recorder import Recorder

ESCAPES = [
    "\x1b[31m",
    "\x1b]52;c;cm0gLXJm\x07",
    "\x1b]0;t\x07",
    "\x1b[2J",
    "\x9b31m",
    "\x1bP+q\x1b\\",
    "\x1b]8;;http://x\x07",
]
HIDDEN = ["\u202e", "\u2066", "\u200b", "\ufeff", "\u2028", "\u2029", "\u00ad", "\U000e0001", "\ue000", "\x7f", "\x85"]
BREAKS = ["\n", "\r", "\r\n", "\t", "\x0b", "\x0c", "\x08", "\x01"]
MARKUP = [
    *("[/foo]", "[red]", "[@click=app.quit]q[/]", "[link=file:///etc/passwd]x[/link]", "\\[x", "[[[", "]]]"),
    *(
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "</style>",
        "</script>",
        "<!--",
        "-->",
        "&lt;",
        "&#x3c;",
    ),
    *('"><svg onload=alert(1)>', "' onmouseover='x", "javascript:alert(1)", "]]>", "<![CDATA[", "<?xml?>", "{{7*7}}"),
    *("| a | b |", "`x`", "```", "# x", "![i](http://x/i.png)", "[l](javascript:x)", "@someone", "#123", "<http://x>"),
    *("**b**", "~~s~~", "$x$", "http://x.example", "www.example.com", "- [ ] x", "<details>", "&copy;", "_e_", "> q"),
]
FORMULAS = [
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "=cmd|' /C calc'!A0",
    "=HYPERLINK(1)",
    "\t=1",
    "\uff1d1",
    "%0A=1",
    ";=1",
    ",=1",
]
PATHS = [
    "../../x",
    "/etc/passwd",
    "..\\..\\x",
    "C:\\x",
    "//host/x",
    "a/../../b",
    "~/x",
    "$HOME",
    "$(id)",
    "`id`",
    "; rm -rf x",
]
ODD = [
    "x" * 5000,
    "\u540d\u524d",
    "\U0001f600",
    "e\u0301" * 50,
    " ",
    "'",
    '"',
    "\\",
    "%s%n",
    "{0}",
    "--force",
    "-o",
    "None",
    "NaN",
]
STEMS = ["", "conv/"]


SEEDS = [*ESCAPES, *HIDDEN, *BREAKS, *MARKUP, *FORMULAS, *PATHS, *ODD]


def make_names():
    """Combine the parts above: each alone, in the middle of a name, and two at once."""
    names = dict.fromkeys(SEEDS)
    names |= dict.fromkeys(f"conv{seed}1" for seed in SEEDS)
    names |= dict.fromkeys(one + other for one, other in zip(SEEDS, SEEDS[7:], strict=False))
    return list(names)[:240]


NAMES = make_names()
SOME = [*NAMES[: len(SEEDS) : 2], *NAMES[len(SEEDS) + 1 : 2 * len(SEEDS) : 2], *NAMES[2 * len(SEEDS) :: 5]]
"""Each part once, alone or in the middle of a name, and a few names of two parts."""


def record(path, offset, names):
    """Record a chain of nodes with these names; every one of them is off by more than any limit."""
    kept = []
    with Recorder(path, backend="\x1b[31m<b>=1", model="[/m]\u202e") as rec:
        rec.put("x", np.ones(3, np.float32))
        for name in names:
            with contextlib.suppress(Exception):  # a name that cannot be recorded never reaches a sink
                values = np.arange(3, dtype=np.float32) + np.float32(1 + offset)
                rec.put(name, values, node=name, op="Mystery<i>", inputs=("x",), attrs={"a": "b"})
                kept.append(name)
        rec.outputs(*kept[-2:])
    return kept


@pytest.fixture(scope="module", params=[SOME, pytest.param(NAMES, marks=pytest.mark.slow)], ids=["some", "all"])
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    kept = record(folder / "ref.h5", 0.0, request.param)
    assert record(folder / "be.h5", 9.0, request.param) == kept
    assert len(kept) >= len(request.param) * 5 // 6
    return folder, kept


@pytest.fixture
def run(pair, capsys, monkeypatch):
    """Run a command in the folder of the recordings; give stdout and stderr, and see that no file appears elsewhere."""
    folder, _ = pair

    def run(*words, code=(0, 1)):
        monkeypatch.chdir(folder)
        capsys.readouterr()
        assert main([str(word) for word in words]) in code
        out, err = capsys.readouterr()
        check_text(err)
        return out

    before = {path.name for path in folder.parent.iterdir()}
    yield run
    assert {path.name for path in folder.parent.iterdir()} == before
    assert not [path for path in folder.rglob("*") if path.is_symlink()]


def check_text(text):
    """Check that a text holds nothing but visible characters and line ends."""
    bad = {c for c in text if not (c.isprintable() or c in "\n\u202f")}
    assert not bad, sorted(map(hex, map(ord, bad)))


def test_table(run):
    text = run("diff", "ref.h5", "be.h5", "--all")
    check_text(text)
    assert "\\x1b[31m" in text
    assert "<script>alert(1)</script>" in text  # shown as it is: a terminal knows no tags


@pytest.mark.parametrize("position", sweep(range(0, 240, 41), 3))
def test_one_node_in_full(position, run, pair):
    name = pair[1][position % len(pair[1])]
    # A name that looks like an option is given as --node=NAME.
    check_text(run("diff", "ref.h5", "be.h5", f"--node={name}"))
    json.loads(run("diff", "ref.h5", "be.h5", f"--node={name}", "--json"))


@pytest.mark.parametrize(("more", "headings"), [([], 1), (["--top", "300"], 1), (["--all"], 2)])
def test_markdown(more, headings, run):
    text = run("diff", "ref.h5", "be.h5", "-f", "markdown", *more)
    check_text(text)
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    inline = [child for token in tokens for child in token.children or []]
    assert not {t.type for t in tokens} & {"fence", "code_block", "blockquote_open"}
    blocks = {t.content.strip() for t in tokens if t.type == "html_block"}
    assert blocks <= {"<details><summary>where, why, what to try</summary>", "</details>"}  # our own
    assert not {t.type for t in inline} & {"link_open", "image", "s_open", "em_open"}
    assert {t.content for t in inline if t.type == "html_inline"} <= {"<!-- -->"}
    assert all(t.content.isprintable() for t in inline if t.type == "text")
    rows = [token for token in tokens if token.type == "tr_open"]
    cells = [token for token in tokens if token.type in ("td_open", "th_open")]
    assert len(cells) % len(rows) == 0  # no name opens or closes a cell
    assert len([t for t in tokens if t.type == "heading_open"]) == headings


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_html(run):
    text = run("diff", "ref.h5", "be.h5", "-f", "html")
    check_text(text)
    tags = Tags(text).tags
    names = [tag for tag, _ in tags]
    assert (names.count("script"), names.count("style")) == (1, 1)
    assert not set(names) & {"img", "iframe", "object", "embed", "link", "form", "base", "b", "i", "foreignobject"}
    attributes = {name for _, attrs in tags for name in attrs}
    assert not {name for name in attributes if name.startswith("on") or name in ("src", "style", "srcdoc")}
    assert all(attrs["href"].startswith("#b0-") for tag, attrs in tags if tag == "a")
    assert all(
        set(attrs["class"].split()) <= {"name", "key", "number", "why"}
        for tag, attrs in tags
        if tag == "td" and "class" in attrs
    )


def test_notebook(pair):
    text = diff(pair[0] / "ref.h5", pair[0] / "be.h5")._repr_html_()
    check_text(text)
    assert {tag for tag, _ in Tags(text).tags} <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td"}


def test_junit(run, pair):
    text = run("diff", "ref.h5", "be.h5", "-f", "junit")
    check_text(text)
    root = ET.fromstring(text.encode())  # noqa: S314  our own text
    assert {element.tag for element in root.iter()} <= {
        *("testsuites", "testsuite", "testcase", "properties", "property"),
        *("failure", "error", "skipped", "system-out"),
    }
    assert len(list(root.iter("testcase"))) == len(pair[1]) + 2


def test_csv(run, pair):
    text = run("diff", "ref.h5", "be.h5", "-f", "csv")
    check_text(text)
    head, *rows = csv.reader(io.StringIO(text))
    assert len(rows) == len(pair[1]) + 1
    assert {len(row) for row in rows} == {len(head)}
    texts = [head.index(name) for name in ("node", "op", "tensor", "reference_tensor", "reason", "match_reason")]
    assert not [row[at] for row in rows for at in texts if row[at].lstrip().startswith(tuple("=+-@\t\r|%\uff1d"))]


def test_json_and_netron_keep_the_names_and_no_control_byte(run, pair):
    text = run("diff", "ref.h5", "be.h5", "--json")
    check_text(text)
    assert text.isascii()
    assert {node["node"] for node in json.loads(text)["nodes"]} == {*pair[1], "x"}
    run("export", "netron", "ref.h5", "be.h5", "-o", "netron.json", "--force")
    text = (pair[0] / "netron.json").read_text()
    check_text(text)
    assert json.loads(text)["signature"] == "netron:attachment"


def test_values_for_numpy(run, pair):
    run("export", "npz", "be.h5", "-o", "values.npz", "--force")
    with zipfile.ZipFile(pair[0] / "values.npz") as archive:
        members = archive.namelist()
        assert not [m for m in members if set(m) & set("/\\:\x00") or ".." in m or not m.isascii()]
        archive.extractall(pair[0] / "unpacked")
    assert len(list((pair[0] / "unpacked").iterdir())) == len(members)
    with np.load(pair[0] / "values.npz") as file:
        assert set(pair[1]) <= {name for _, name in file["tensor_names"].tolist()}


def test_section_of_a_failed_test(pair):
    result = diff(pair[0] / "ref.h5", pair[0] / "be.h5")
    for line in failure_lines(result, files=("\x1b[31m.h5", "a b.h5")):
        check_text(line)
        assert "\n" not in line


def test_suggested_limits_and_acknowledgements_are_toml_that_fits_the_names(run, pair):
    run("diff", "ref.h5", "be.h5", "--suggest-limits", "limits.toml", "--force")
    accepted = pair[1][::4]
    for name in accepted:
        acknowledge(pair[0] / "limits.toml", name, reason=f"because {name}.")
    text = (pair[0] / "limits.toml").read_text()
    check_text(text)
    assert [entry["node"] for entry in tomllib.loads(text)["acknowledged"]] == accepted
    assert set(tomllib.loads(text)) == {"limit", "acknowledged"}
    for form in ("table", "markdown", "html", "junit", "csv", "json"):
        check_text(run("diff", "ref.h5", "be.h5", "--limits", "limits.toml", "-f", form, code=(0,)))


def test_what_a_recording_holds(run):
    check_text(run("info", "be.h5", "--tensors"))
    check_text(run("info", "be.h5", "--tensors", "-f", "markdown"))


@pytest.mark.parametrize("names", sweep([NAMES[at:40:10] for at in range(0, 10, 2)], 1))
def test_an_error_that_quotes_a_name(run, names):
    for name in names:
        assert run("diff", "ref.h5", "be.h5", f"--node={name}#none", code=(2,)) == ""
