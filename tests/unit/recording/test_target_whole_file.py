"""A file is replaced as a whole, or stays as it was."""

import pytest

from qdebug.recording.target import replacing_file


def names_in(folder):
    return [entry.name for entry in folder.iterdir()]


def test_it_appears_when_the_block_is_left(tmp_path):
    path = tmp_path / "limits.toml"
    with replacing_file(path) as partial:
        partial.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert names_in(tmp_path) == ["limits.toml"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there_and_nothing_else(tmp_path, error):
    path = tmp_path / "limits.toml"
    path.write_text("old")

    def write():
        with replacing_file(path) as partial:
            partial.write_text("new")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_text() == "old"
    assert names_in(tmp_path) == ["limits.toml"]


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "limits.toml", tmp_path / "limits.toml"
    target.write_text("old")
    link.symlink_to(target)
    with replacing_file(link) as partial:
        partial.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_new_file_has_the_usual_permissions(tmp_path):
    usual, path = tmp_path / "usual", tmp_path / "limits.toml"
    usual.touch()
    with replacing_file(path) as partial:
        partial.write_text("new")
    assert path.stat().st_mode == usual.stat().st_mode


def test_the_permissions_of_a_file_stay(tmp_path):
    path = tmp_path / "limits.toml"
    path.touch(0o640)
    path.chmod(0o640)
    with replacing_file(path) as partial:
        partial.write_text("new")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_name_of_250_bytes_is_no_obstacle(tmp_path):
    path = tmp_path / ("ä" * 125)
    with replacing_file(path) as partial:
        partial.write_text("new")
    assert path.read_text() == "new"


def test_a_missing_folder_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError), replacing_file(tmp_path / "missing" / "limits.toml"):
        pass
