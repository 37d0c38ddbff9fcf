import csv
import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from qdebug.compare.result.flat_rows import COLUMNS
from qdebug.errors import UsageError
from qdebug.present.reports.schema import load_schema
from qdebug.tui.screen import exports
from qdebug.tui.screen.exports import new_file
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.elements import ElementCursor
from qdebug.tui.views.table import Views

NODES = Views(ElementCursor())[ScreenId.NODES]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, scene, view=ScreenId.NODES, **options):
    page = Views(ElementCursor())[view]
    path, act = exports.prepare_export(name, scene, screenshot=lambda: "<svg/>", view=page, **options)
    return path, act(None, path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("rounds half up", ("rounds half up", None, "")),
        ("known until 2027-01-31", ("known", "2027-01-31", "")),
        ("known, until 2027-01-31 ", ("known", "2027-01-31", "")),
        ("until 2027-01-31", ("", None, "a reason is needed")),
        ("  ", ("", None, "a reason is needed")),
        ("known until easter", ("known", None, "'easter' is not a date")),
    ],
)
def test_a_reason_may_have_a_last_day(text, found):
    reason, day, problem = exports.reason_and_day(text)
    assert (reason, day) == found[:2]
    assert problem.startswith(found[2])


def test_the_command_shows_the_same_screen(make_scene):
    scene = make_scene(names=("a b",), row=0)
    assert exports.command(["qdebug", "tui", "r.h5", "b.h5"], scene, ScreenId.MAP) == (
        "qdebug tui r.h5 b.h5 --node 'a b' --screen map"
    )
    scene.navigator.choose_sample(2)
    scene.navigator.choose_filter("sqnr<20 | row=0")
    said = exports.command(["qdebug", "tui"], scene, ScreenId.NODES)
    assert said.endswith("--sample 2 --filter 'sqnr<20 | row=0'")


def test_the_command_leads_to_the_row_of_the_second_output_of_a_node(make_scene):
    scene = make_scene()
    first = scene.table.rows[9]
    second = replace(first, tensor=f"{first.tensor}_2")
    scene.table.rows = [second if row is scene.table.rows[10] else row for row in scene.table.rows]
    scene.navigator.go(10)
    assert f"--node {second.tensor} " in exports.command(["qdebug", "tui"], scene, ScreenId.TENSOR)
    scene.navigator.go(9)
    assert f"--node {first.node} " in exports.command(["qdebug", "tui"], scene, ScreenId.TENSOR)


def test_a_hostile_name_in_the_command_is_harmless(make_scene):
    said = exports.command(["qdebug"], make_scene(names=("\x1b[2J$(rm -rf /);'x",), row=0), ScreenId.TENSOR)
    assert "\x1b" not in said
    assert r"$'\x1b[2J$(rm -rf /);\'x'" in said


def test_names_of_files_come_from_the_node_and_are_new(make_scene, folder):
    scene = make_scene(names=("../../etc/passwd",), row=0)
    assert exports.suggested_name(scene, ScreenId.MAP) == "etc_passwd-map.svg"
    (folder / "etc_passwd-map.svg").touch()
    assert exports.suggested_name(scene, ScreenId.MAP) == "etc_passwd-map-2.svg"
    assert exports.suggested_name(scene, ScreenId.NODES) == "nodes.csv"
    assert exports.suggested_name(scene, ScreenId.ANSWER) == "answer.csv"
    assert exports.suggested_name(scene, ScreenId.SAMPLES) == "etc_passwd-samples.csv"
    assert exports.suggested_name(scene, ScreenId.TENSOR) == "etc_passwd-tensor.txt"
    assert exports.suggested_name(scene, ScreenId.VALUES) == "etc_passwd.npz"


def test_the_nodes_shown_are_written_with_full_numbers(make_scene):
    scene = make_scene(names=("=1+1", "a,b\n"))
    scene.navigator.choose_filter("row<3 | is=failing")
    scene.navigator.sort = "metric"
    scene.navigator.arrange()
    path, said = write("nodes.csv", scene)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert said == "6 nodes"
    assert tuple(rows[0]) == (*COLUMNS, "worst_db", "marked", "own_note")
    assert [int(row["index"]) for row in rows] == [scene.table.compared_number(row) for row in scene.navigator.order]
    by_row = {int(row["index"]): row for row in rows}
    assert by_row[0]["node"] == "'=1+1"
    assert by_row[1]["node"] == "a,b\\n"
    assert float(by_row[9]["sqnr_db"]) == scene.table.results[9].metrics.sqnr_db
    assert by_row[9]["status"] == "diverged"
    scene.navigator.choose_filter("is=missing")
    path, _ = write("missing.csv", scene)
    with path.open(newline="") as file:
        shown = {row["node"]: row["index"] for row in csv.DictReader(file)}
    assert shown["folded"] == "", "what has no partner has no number"


def test_the_comparison_is_written_as_json_when_it_is_whole(make_scene):
    path, _ = write("diff.json", make_scene())
    assert json.loads(path.read_text())["format"] == "qdebug.diff"
    with pytest.raises(UsageError, match="compared yet"):
        write("other.json", make_scene(filled=3))


def listed(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_is_written_as_the_screen_shows_it(make_scene, folder):
    scene = make_scene()
    write("culprits.csv", scene, ScreenId.ANSWER)
    assert [row["index"] for row in listed(folder / "culprits.csv")][:3] == ["9", "10", "17"]
    write("node.csv", scene, ScreenId.WHY)
    assert [row["index"] for row in listed(folder / "node.csv")] == ["9"]
    write("near.csv", scene, ScreenId.GRAPH)
    assert {"8", "9", "10"} < {row["index"] for row in listed(folder / "near.csv")}
    write("samples.csv", scene, ScreenId.SAMPLES)
    rows = listed(folder / "samples.csv")
    assert [row["sample"] for row in rows] == ["0", "1", "2"]
    assert float(rows[1]["sqnr_db"]) == scene.outcome.samples[1].sqnr_db
    write("channels.csv", scene, ScreenId.CHANNELS)
    rows = listed(folder / "channels.csv")
    assert sorted(row["channel"] for row in rows) == ["0", "1", "2", "3"]
    assert float(rows[0]["max_abs"]) == max(float(row["max_abs"]) for row in rows)
    other = make_scene(failing=())
    several = replace(scene, backends=[("a.h5", scene.table), ("b.h5", other.table)])
    write("backends.csv", several, ScreenId.BACKENDS)
    row = listed(folder / "backends.csv")[9]
    assert (row["status:a.h5"], row["status:b.h5"]) == ("diverged", "within")


def test_a_node_is_written_as_its_entry_of_the_comparison_and_text_as_it_is_shown(make_scene, folder):
    scene = make_scene()
    write("node.json", scene, ScreenId.TENSOR)
    assert json.loads((folder / "node.json").read_text())["node"] == scene.plan_row.node
    _, said = write("all.txt", scene, ScreenId.TENSOR, text_lines=lambda: ["one ", "two"])
    assert (folder / "all.txt").read_text() == "one\ntwo\n"
    assert said == "the screen"


def test_elements_are_written_one_a_line(make_scene, source, folder):
    path, act = exports.prepare_export(
        "e.csv", make_scene(), screenshot=str, view=Views(ElementCursor())[ScreenId.VALUES]
    )
    act(source, path)
    rows = listed(path)
    assert len(rows) == 6
    assert rows[4] == {"index": "1,1", "reference": "1.0", "backend": "0.0", "backend_codes": "1"}


def test_the_screen_is_written_as_it_was(make_scene):
    path, said = write("screen.svg", make_scene())
    assert (path.read_text(), said) == ("<svg/>", "the screen")


@pytest.fixture
def source(make_pair):
    """Return a comparison of one pair, of 2 x 3 elements."""

    class Source:
        def pair(self, tensor, *, sample, step):
            return make_pair(np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32), None, np.ones((2, 3), np.int8))

    return Source()


@pytest.mark.parametrize(("name", "kind"), [("t.npy", "codes"), ("t.npz", "reference, backend, backend_codes")])
def test_the_tensor_is_written(make_scene, source, name, kind):
    path, act = exports.prepare_export(name, make_scene(), screenshot=str, view=NODES)
    assert act(source, path).startswith(kind)
    loaded = np.load(path)
    codes = loaded if name.endswith("npy") else loaded["backend_codes"]
    assert (codes.dtype, codes.shape) == (np.int8, (2, 3))
    assert name.endswith("npy") or (loaded["backend"] == 0).all()


@pytest.mark.parametrize("name", ["screen.pdf", "noform", ""])
def test_an_unknown_form_is_refused_with_those_there_are(make_scene, name):
    with pytest.raises(UsageError) as caught:
        exports.prepare_export(name, make_scene(), screenshot=str, view=NODES)
    assert ".npz" in caught.value.hint


def test_nothing_is_overwritten(make_scene, folder):
    (folder / "x.svg").write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        exports.prepare_export("x.svg", make_scene(), screenshot=str, view=NODES)
    path, act = exports.prepare_export("y.svg", make_scene(), screenshot=str, view=NODES)
    path.write_text("came between")
    with pytest.raises(UsageError, match=r"'y\.svg' cannot be written: File exists"):
        act(None, path)
    assert path.read_text() == "came between"


def test_a_file_is_written_over_where_that_is_asked_for(make_scene, folder):
    (folder / "x.svg").write_text("mine")
    path, act = exports.prepare_export("x.svg!", make_scene(), screenshot=lambda: "<svg/>", view=NODES)
    assert path.read_text() == "mine", "until all of the new one is there"
    assert act(None, path) == "over what it was, the screen"
    assert path.read_text() == "<svg/>"
    path, act = exports.prepare_export("new.svg!", make_scene(), screenshot=lambda: "<svg/>", view=NODES)
    assert act(None, path) == "the screen"

    link = folder / "link.svg"
    link.symlink_to(folder / "x.svg")
    (folder / "x.svg").chmod(0o600)
    path, act = exports.prepare_export("link.svg!", make_scene(), screenshot=lambda: "<svg>2</svg>", view=NODES)
    assert act(None, path) == "over what it was, the screen"
    assert link.is_symlink()
    assert (folder / "x.svg").read_text() == "<svg>2</svg>"
    assert (folder / "x.svg").stat().st_mode & 0o777 == 0o600
    link.unlink()

    def said(_, path):
        path.write_text("<svg/>")
        return "the edits; Y goes on"

    assert exports._overwrite(None, Path("x.svg"), write=said) == "over what it was, the edits; Y goes on"

    def refused(_, path):
        raise UsageError(f"{str(path)!r} cannot be written: bad shape.")

    with pytest.raises(UsageError, match=r"^'x\.svg' cannot be written: bad shape"):
        exports._overwrite(None, Path("x.svg"), write=refused)
    with pytest.raises(UsageError, match="is not a file name"):
        exports.prepare_export(f"{'x' * 300}.svg", make_scene(), screenshot=str, view=NODES)

    def broken(_, path):
        path.write_text("half")
        raise OSError(errno.ENOSPC, "no space left")

    with pytest.raises(UsageError, match=r"'x\.svg' cannot be written: no space left"):
        exports._overwrite(None, Path("x.svg"), write=broken)
    assert (folder / "x.svg").read_text() == "<svg/>"
    assert sorted(each.name for each in folder.iterdir()) == ["new.svg", "x.svg"], "nothing is left beside them"


def test_what_is_not_compared_has_no_values_to_write(make_scene):
    with pytest.raises(UsageError, match="not compared"):
        exports.prepare_export("x.npy", make_scene(row=25), screenshot=str, view=NODES)


def test_what_was_noted_and_marked_goes_into_the_json_beside_the_comparison(make_scene):
    scene = make_scene(names=("\x1b[2J", "plain"), row=0)
    plain = scene.result.to_dict()
    scene.navigator.trail.note(1, 'ask "Kim"\n')
    scene.navigator.trail.toggle(0)
    path, said = write("all.json", scene)
    written = json.loads(path.read_text())
    jsonschema.Draft202012Validator(load_schema("diff")).validate(written)
    assert written.pop("notes") == [
        {"node": "\x1b[2J", "tensor": "\x1b[2J_out", "text": ""},
        {"node": "plain", "tensor": "plain_out", "text": 'ask "Kim"\n'},
    ]
    assert written == json.loads(json.dumps(plain))
    assert said == "the comparison and 2 marks"


def test_the_json_says_too_if_nothing_was_noted(make_scene):
    path, said = write("all.json", make_scene())
    assert json.loads(path.read_text())["notes"] == []
    assert said == "the comparison"


def test_a_file_of_which_not_all_could_be_written_is_not_left(folder):
    path = folder / "out.json"

    def write():
        with new_file(path, text=True) as file:
            file.write("half of it")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UsageError, match=r"'.*out\.json' cannot be written: No space left on device"):
        write()
    assert not path.exists()


def test_a_file_that_exists_or_has_no_folder_is_said_and_left_alone(folder):
    path = folder / "there.npz"
    path.write_bytes(b"kept")
    with pytest.raises(UsageError, match="cannot be written: File exists"), new_file(path, text=False):
        pass
    assert path.read_bytes() == b"kept"
    with (
        pytest.raises(UsageError, match=r"o\.csv' cannot be written: No such file"),
        new_file(folder / "no" / "o.csv", text=True),
    ):
        pass


def test_a_node_without_error_is_written_as_json_with_its_infinite_sqnr(make_scene):
    scene = make_scene(row=0)
    assert scene.outcome.metrics.sqnr_db == np.inf
    path, _ = write("node.json", scene, view=ScreenId.TENSOR)
    assert json.loads(path.read_text())["metrics"]["sqnr_db"] == "Infinity"
