"""The file of limits: read, refused with line and key, and written to without losing a byte of it."""

import datetime as dt
import tomllib

import pytest

from qdebug.compare.result.limits import Acknowledgement, LimitRule, Limits
from qdebug.errors import LimitsError
from qdebug.limits.limits_file import acknowledge, find_limits, load_limits, load_notes, withdraw, write_note

DAY = dt.date(2026, 6, 1)

FULL = """\
# ours
[default]
min_sqnr = 30

[[limit]]
tensor = "head/*"
op = "Softmax"
max_lsb = 2

[[limit]]
op = "Relu"
max_saturation = 0.01

[[acknowledged]]
node = "conv3"
reason = "rounds half up"
expires = 2026-06-01

[[acknowledged]]
node = "conv4"
reason = "old"
expires = 2026-05-31

[allow]
partial = true
uncompared = ["aux/*"]
"""


@pytest.fixture
def file(tmp_path):
    def write(text, name="limits.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_everything_that_can_stand_in_it(file):
    path = file(FULL)
    assert load_limits(path, today=DAY) == Limits(
        min_sqnr=30.0,
        rules=(LimitRule(tensor="head/*", op="Softmax", max_lsb=2.0), LimitRule(op="Relu", max_saturation=0.01)),
        acknowledged=(
            Acknowledgement(node="conv3", reason="rounds half up", expires="2026-06-01"),
            Acknowledgement(node="conv4", reason="old", expires="2026-05-31", expired=True),
        ),
        file=str(path),
        allow_partial=True,
        allow_uncompared=("aux/*",),
    )


def test_an_empty_file_sets_nothing(file):
    path = file("")
    assert load_limits(path) == Limits(file=str(path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[default]\nmin_sqnr = 3\nmax_lbs = 1\n", r"line 3: default\.max_lbs means nothing.*Did you mean max_lsb\?"),
        ("[defaults]\n", r"line 1: defaults means nothing.*Did you mean default\?"),
        ("default = 3\n", r"default is not a table"),
        (
            "\n[[limit]]\nop='a'\nmax_lsb=1\n[[limit]]\nop='b'\nmax_lsb = true\n",
            r"line 7: limit\[2\]\.max_lsb must be a number",
        ),
        ("[[limit]]\nop='a'\nmax_lsb = -1\n", r"line 3: .*at least 0"),
        ("[[limit]]\nop='a'\nmax_lsb = nan\n", r"line 3: .*must be a number"),
        ("[[limit]]\nop='a'\nmax_saturation = 5\n", r"line 3: .*must be a fraction"),
        ("[[limit]]\nop='a'\n", r"line 1: limit\[1\] sets no limit"),
        ("[[limit]]\nmax_lsb=1\n", r"line 1: limit\[1\] does not say which tensors it applies to"),
        ("[[limit]]\ntensor=3\nmax_lsb=1\n", r"line 2: limit\[1\]\.tensor must be a string, but is 3"),
        ("[limit]\nop='a'\nmax_lsb=1\n", r"line 1: limit is not an array of tables.*\[\[limit\]\]"),
        ("limit = [3]\n", r"limit is not an array of tables"),
        ("[[acknowledged]]\nnode='a'\n", r"line 1: acknowledged\[1\]\.reason is missing"),
        ("[[acknowledged]]\nnode='a'\nreason=' '\n", r"line 3: .*reason is empty"),
        ("[[acknowledged]]\nnode='a'\nreason='b'\nexpires='soon'\n", r"line 4: .*is not a date.*without quotes"),
        ("[[acknowledged]]\nnode='a'\nreason='b'\nexpires=2026-01-01T00:00:00\n", r"is not a date"),
        ("[allow]\npartial = 1\n", r"line 2: allow\.partial must be true or false, but is 1"),
        ("[allow]\nuncompared = -1\n", r"line 2: allow\.uncompared"),
        ("[allow]\nuncompared = [1]\n", r"line 2: allow\.uncompared"),
        ("[default\n", r"is not valid TOML: .*line 1"),
        ("a = " + "[" * 5000, r"is not valid TOML|too deeply"),
    ],
)
def test_what_means_nothing_is_refused_with_line_and_key(text, said, file):
    with pytest.raises(LimitsError, match=f"(?s){said}"):
        load_limits(file(text))


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(LimitsError, match="no limits file"):
        load_limits(tmp_path / "none.toml")
    with pytest.raises(LimitsError, match="it is a directory"):
        load_limits(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# \xff")
    with pytest.raises(LimitsError, match="UTF-8"):
        load_limits(tmp_path / "latin.toml")


def test_a_project_file_says_limits_under_its_own_table(file, tmp_path):
    path = file("[tool.other]\nx = 1\n[tool.qdebug.default]\nmax_lsb = 1\n", "pyproject.toml")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_limits(below) == path
    assert load_limits(path).max_lsb == 1
    file("[tool.qdebug.default]\nmax_lbs = 1\n", "pyproject.toml")
    with pytest.raises(LimitsError, match=r"line 2: tool\.qdebug\.default\.max_lbs"):
        load_limits(path)


def test_a_project_file_can_name_another(file, tmp_path):
    path = file('[tool.qdebug]\nlimits = "l.toml"\n', "pyproject.toml")
    other = file("[default]\nmax_lsb = 3\n", "l.toml")
    assert find_limits(tmp_path) == other
    assert load_limits(path).max_lsb == 3
    assert acknowledge(path, "n", reason="r").acknowledged[0].node == "n"
    assert "[[acknowledged]]" in other.read_text()
    assert "acknowledged" not in path.read_text()


def test_the_nearest_project_that_says_something_counts(file, tmp_path):
    outer = file("[tool.qdebug.default]\nmax_lsb = 1\n", "pyproject.toml")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (below / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    (tmp_path / "a" / "pyproject.toml").write_text('[project]\ndependencies = ["qdebug"]\n')
    assert find_limits(below) == outer
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.qdebug.default]\nmax_lsb = 2\n")
    assert load_limits(find_limits(below)).max_lsb == 2


def test_a_project_that_does_not_speak_of_qdebug_may_be_broken(file, tmp_path):
    file("[tool.other\n", "pyproject.toml")
    found = find_limits(tmp_path)
    assert found is None or tmp_path not in found.parents
    file("[tool.qdebug\n", "pyproject.toml")
    with pytest.raises(LimitsError, match="not valid TOML"):
        find_limits(tmp_path)


@pytest.mark.parametrize("named", ["3", '"pyproject.toml"', '"a.toml"\n[tool.qdebug.default]\nmax_lsb = 1'])
def test_a_project_file_names_one_other_file_and_nothing_beside(named, file):
    with pytest.raises(LimitsError, match="be the only entry of"):
        load_limits(file(f"[tool.qdebug]\nlimits = {named}\n", "pyproject.toml"))


def test_accepting_a_node_adds_to_the_file_and_changes_nothing_else(file):
    path = file(FULL)
    limits = acknowledge(path, "conv9", reason=" known ", expires=DAY, today=DAY)
    assert limits == load_limits(path, today=DAY)
    assert limits.acknowledged[-1] == Acknowledgement(node="conv9", reason="known", expires="2026-06-01")
    assert path.read_text().startswith(FULL)


@pytest.mark.parametrize(
    "text", ["", "# no newline", "[default]\nmin_sqnr = 3", "[[acknowledged]]\nnode='a'\nreason='b'\n\n"]
)
def test_the_entry_stands_well_after_whatever_was_there(text, file):
    path = file(text)
    assert acknowledge(path, "n", reason="r").acknowledged[-1].node == "n"
    assert acknowledge(path, "m", reason="r").acknowledged[-1].node == "m"


def test_a_file_is_made_where_there_is_none(tmp_path):
    path = tmp_path / "new.toml"
    assert acknowledge(path, "n", reason="r").file == str(path)
    assert path.read_text().startswith("#")
    project = tmp_path / "pyproject.toml"
    acknowledge(project, "n", reason="r")
    assert tomllib.loads(project.read_text())["tool"]["qdebug"]["acknowledged"] == [{"node": "n", "reason": "r"}]


@pytest.mark.parametrize(
    "name", ['a"b\\c', "a\nb", "\x1b[31m", "a\u202eb", "é 名前 \U0001f600", "x]]\n[default]", "\x7f"]
)
def test_any_name_comes_back_as_it_was_and_no_control_character_is_in_the_file(name, tmp_path):
    path = tmp_path / "l.toml"
    assert acknowledge(path, name, reason=name + ".").acknowledged[0].node == name
    assert all(character.isprintable() or character == "\n" for character in path.read_text())


def test_what_would_spoil_the_file_is_not_written(file):
    path = file("acknowledged = []\n")
    with pytest.raises(LimitsError, match="not valid TOML"):
        acknowledge(path, "n", reason="r")
    assert path.read_text() == "acknowledged = []\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"node": "n", "reason": " "}, "needs a reason"),
        ({"node": "n", "reason": "r", "expires": dt.date(2026, 5, 31)}, "that day has passed"),
        ({"node": "\ud800", "reason": "r"}, "cannot be written as TOML"),
    ],
)
def test_an_entry_without_effect_is_refused(arguments, said, tmp_path):
    node = arguments.pop("node")
    with pytest.raises(LimitsError, match=said):
        acknowledge(tmp_path / "l.toml", node, today=DAY, **arguments)
    assert not (tmp_path / "l.toml").exists()


def test_links_are_followed_and_permissions_kept(file, tmp_path):
    path = file("")
    path.chmod(0o600)
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    acknowledge(link, "n", reason="r")
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600
    assert "[[acknowledged]]" in path.read_text()


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(LimitsError, match="cannot be written"):
        acknowledge(tmp_path / "none" / "l.toml", "n", reason="r")


@pytest.mark.parametrize("name", ["limits.toml", "pyproject.toml"])
def test_what_was_accepted_can_be_taken_back_and_the_file_is_what_it_was(name, file):
    text = "# ours\n[tool.qdebug.default]\nmax_lsb = 2\n\n# the end\n" if name == "pyproject.toml" else FULL
    path = file(text, name)
    before = load_limits(path, today=DAY)
    acknowledge(path, "conv9", reason="known [so far]", expires=DAY, today=DAY)
    acknowledge(path, 'other "x" # [y]', reason="r", today=DAY)
    acknowledge(path, "conv9", reason="again", today=DAY)
    limits = withdraw(path, "conv9", today=DAY)
    assert [entry.node for entry in limits.acknowledged if entry not in before.acknowledged] == ['other "x" # [y]']
    assert load_limits(path, today=DAY) == limits
    assert withdraw(path, 'other "x" # [y]', today=DAY) == before
    assert path.read_text().rstrip() == text.rstrip()


def test_comments_of_what_follows_stay(file):
    path = file('[[acknowledged]]\nnode = "a"\nreason = "r"\n\n# about b\n[[acknowledged]]\nnode = "b"\nreason = "s"\n')
    assert [entry.node for entry in withdraw(path, "a").acknowledged] == ["b"]
    assert path.read_text() == '# about b\n[[acknowledged]]\nnode = "b"\nreason = "s"\n'


@pytest.mark.parametrize(
    "text",
    [
        'acknowledged = [{node = "a", reason = "r"}, {node = "b", reason = "s"}]\n',
        '[[acknowledged]]\nnode = "a"\nreason = """\n[[acknowledged]]\n"""\n',
        '["acknowledged"]\n',
    ],
)
def test_a_file_in_which_the_entry_cannot_be_told_is_left_alone(text, file):
    path = file(text)
    with pytest.raises(LimitsError):
        withdraw(path, "a")
    assert path.read_text() == text


def test_only_what_is_accepted_can_be_taken_back(file):
    with pytest.raises(LimitsError, match="does not acknowledge node 'conv'"):
        withdraw(file(FULL), "conv")


@pytest.mark.parametrize("name", ["limits.toml", "pyproject.toml"])
def test_a_note_is_kept_replaced_and_taken_out_and_the_rest_stays(name, tmp_path):
    path = tmp_path / name
    prefix = "tool.qdebug." if name == "pyproject.toml" else ""
    before = f"# ours\n[{prefix}default]\nmin_sqnr = 30  # dB\n"
    path.write_text(before)
    write_note(path, "conv1", "ask the vendor")
    write_note(path, "conv2", 'a "quoted" one')
    write_note(path, "conv1", "  answered  ")
    assert load_notes(path) == {"conv2": 'a "quoted" one', "conv1": "answered"}
    assert path.read_text().startswith(before)
    assert load_limits(path).min_sqnr == 30
    for node in ("conv1", "conv2"):
        write_note(path, node, "")
    assert path.read_text().rstrip() == before.rstrip()
    with pytest.raises(LimitsError, match="has no note on 'conv1'"):
        write_note(path, "conv1", "")


def test_a_note_makes_the_file_and_changes_no_verdict(tmp_path):
    path = tmp_path / "new.toml"
    assert load_notes(path) == {}
    write_note(path, "\x1b]0;x\x07\u202e", "odd name")
    assert load_notes(path) == {"\x1b]0;x\x07\u202e": "odd name"}
    assert "\x1b" not in path.read_text()
    assert not load_limits(path).acknowledged


def test_a_note_that_means_nothing_is_refused(tmp_path):
    path = tmp_path / "limits.toml"
    path.write_text('[[note]]\nnode = "a"\nsaid = "b"\n')
    for read in (load_notes, load_limits):
        with pytest.raises(LimitsError, match=r"line 3: note\[1\]\.said means nothing"):
            read(path)


def test_a_note_in_a_file_laid_out_otherwise_is_left_alone(tmp_path):
    path = tmp_path / "limits.toml"
    text = 'note = [{node = "a", text = "b"}]\n'
    path.write_text(text)
    with pytest.raises(LimitsError):
        write_note(path, "a", "c")
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("line", "said"),
    [(f"max_lsb = {'9' * 5000}", "not valid TOML"), (f"max_lsb = {'[' * 50_000}", "nested too deeply")],
)
def test_numbers_and_nesting_of_any_size_are_refused_in_one_sentence(tmp_path, line, said):
    (tmp_path / "limits.toml").write_text(line)
    with pytest.raises(LimitsError, match=said) as caught:
        load_limits(tmp_path / "limits.toml")
    assert "\n" not in caught.value.message
