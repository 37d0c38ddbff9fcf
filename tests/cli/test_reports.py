"""Reports and exports from the command line: the form by option or by the file's ending, never over another file."""

import csv
import io
import json
import xml.etree.ElementTree as ET

import jsonschema
import numpy as np
import pytest
from markdown_it import MarkdownIt
from referencing import Registry, Resource

from qdebug.present.reports.schema import SCHEMAS, load_schema

STARTS = {"html": "<!DOCTYPE html>", "junit": "<?xml version=", "csv": "index,node,", "json": "{"}


@pytest.mark.parametrize("form", STARTS)
def test_a_form_can_be_asked_for(form, recordings, run):
    done = run("diff", recordings.reference, recordings.diverged, "-f", form)
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith(STARTS[form])


@pytest.mark.parametrize(("ending", "form"), [("html", "html"), ("xml", "junit"), ("csv", "csv"), ("json", "json")])
def test_the_ending_of_the_file_says_the_form(ending, form, recordings, run, tmp_path):
    path = tmp_path / f"out.{ending}"
    assert run("diff", recordings.reference, recordings.within, "-o", path).code == 0
    assert path.read_text().startswith(STARTS[form])
    assert run("diff", recordings.reference, recordings.within, "-o", path).code == 2


@pytest.mark.parametrize("form", [*STARTS, "markdown", "table"])
def test_two_runs_give_the_same_bytes(form, recordings, run):
    command = ("diff", recordings.reference, recordings.diverged, "-f", form)
    assert run(*command).out == run(*command).out


def test_a_page_shows_worst_nodes_in_full(recordings, run):
    text = run("diff", recordings.reference, recordings.diverged, "-f", "html").out
    assert text.count('<details name="b0-node"') == 3
    assert text.count('role="group"') == 3  # the graph around each
    assert "SQNR by channel" in text
    assert "Worst elements" in text
    one = run("diff", recordings.reference, recordings.diverged, "-f", "html", "--node", "conv2").out
    assert one.count('<details name="b0-node"') == 1


def test_several_backends_go_into_one_document(recordings, run):
    command = ("diff", recordings.reference, recordings.within, recordings.diverged)
    assert len(ET.fromstring(run(*command, "-f", "junit").out.encode())) == 2  # noqa: S314  our own text
    rows = list(csv.DictReader(io.StringIO(run(*command, "-f", "csv").out)))
    assert {row["backend"] for row in rows} == {str(recordings.within), str(recordings.diverged)}
    page = run(*command, "-f", "html").out
    assert page.count('<section id="b') == 2
    assert "SQNR in dB, backend beside backend" in page


@pytest.mark.parametrize("form", ["junit", "csv"])
def test_a_form_for_all_nodes_is_not_taken_for_one(form, recordings, run):
    done = run("diff", recordings.reference, recordings.within, "-f", form, "--node", "conv1")
    assert done.code == 2
    assert "cannot show a single node" in done.err


def test_what_has_no_such_form_says_so(recordings, run, tmp_path):
    assert run("info", recordings.reference, "-f", "html").code == 2
    done = run("info", recordings.reference, "-o", tmp_path / "info.html")
    assert done.code == 2
    assert (
        "Unknown report format '.html'; known extensions are .json, .md, .markdown, and .txt for the table." in done.err
    )


@pytest.mark.parametrize("name", ["within", "diverged", "unfaithful", "unknown", "lost", "identical"])
def test_every_report_is_what_real_parsers_read(name, recordings, run):
    backend = getattr(recordings, name)
    registry = Registry().with_resources(
        [(load_schema(each)["$id"], Resource.from_contents(load_schema(each))) for each in SCHEMAS]
    )
    plain = json.loads(run("diff", recordings.reference, backend, "--json").out)
    jsonschema.Draft202012Validator(load_schema("diff"), registry=registry).validate(plain)
    suites = ET.fromstring(run("diff", recordings.reference, backend, "-f", "junit").out.encode())  # noqa: S314  ours
    assert int(suites.get("tests")) == len(plain["nodes"]) + 1
    markdown = run("diff", recordings.reference, backend, "-f", "markdown", "--all").out
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    assert len([token for token in tokens if token.type == "tr_open"]) == len(plain["nodes"]) + 1
    rows = list(csv.DictReader(io.StringIO(run("diff", recordings.reference, backend, "-f", "csv").out)))
    assert [row["tensor"] for row in rows] == [node["tensor"] for node in plain["nodes"]]


def test_exports(recordings, run, tmp_path):
    pair = recordings.reference, recordings.diverged
    assert run("export", "netron", *pair, "-o", "n.json").code == 0
    assert json.loads((tmp_path / "n.json").read_text())["signature"] == "netron:attachment"
    assert run("export", "netron", *pair, "-o", "r.json", "--on", "reference").code == 0
    rows = list(csv.DictReader(io.StringIO(run("export", "csv", *pair).out)))
    assert len(rows) == 4
    elements = list(csv.DictReader(io.StringIO(run("export", "csv", *pair, "--node", "conv2", "--sample", "2").out)))
    assert len(elements) == 24
    assert elements[5]["index"] == "0,0,5"
    done = run("export", "npz", recordings.diverged, "-o", "v.npz", "--tensor", "conv*", "--sample", "1")
    assert "wrote 2 arrays" in done.err
    with np.load(tmp_path / "v.npz") as file:
        assert file["conv1_out"].dtype == np.int8


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("csv", "REF", "WITHIN", "--node", "nothing"), "nothing"),
        (("csv", "REF", "WITHIN", "--node", "conv1", "--sample", "9"), "sample 9"),
        (("npz", "REF", "-o", "v.npz", "--tensor", "none*"), "No tensor with values"),
        (("npz", "REF", "-o", "no/such/v.npz"), "does not exist"),
        (("netron", "REF", "WITHIN", "-o", "REF", "--force"), "is also an input of this command"),
        (("npz", "REF", "-o", "REF", "--force"), "is also an input of this command"),
    ],
)
def test_an_export_that_cannot_be_made_leaves_nothing(words, said, recordings, run, tmp_path):
    known = {"REF": recordings.reference, "WITHIN": recordings.within}
    done = run("export", *(known.get(word, word) for word in words))
    assert done.code == 2
    assert said in done.err
    assert list(tmp_path.iterdir()) == []


def test_a_map_that_was_written_is_read_again_and_the_page_names_its_command(recordings, run, tmp_path):
    pair, path = (recordings.reference, recordings.within), tmp_path / "map.toml"
    first = run("diff", *pair, "--json", "--write-map", path)
    text = path.read_text(encoding="utf-8")
    assert text.count("backend = ") == len(json.loads(first.out)["nodes"])
    assert "--write-map FILE" in run("diff", *pair, "-f", "html").out
    path.write_text(text.replace("# [[pair]]", "[[pair]]").replace("# backend", "backend").replace("# ref", "ref"))
    again = json.loads(run("diff", *pair, "--json", "--map", path, "--write-map", tmp_path / "other.toml").out)
    assert {node["match"] for node in again["nodes"]} == {"manual"}
    assert run("diff", *pair, "--write-map", path).code == 2  # it is there
    missing = run("diff", *pair, "--map", tmp_path / "none.toml")
    assert (missing.code, "There is no map" in missing.err) == (2, True)
    several = run("diff", *pair, recordings.diverged, "--write-map", tmp_path / "third.toml")
    assert (several.code, "Give one BACKEND" in several.err) == (2, True)
