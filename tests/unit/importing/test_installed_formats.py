"""Dump formats of other packages are recognized, named, and refused where they are none."""

import sys
from pathlib import Path

import pytest

import qdebug
from qdebug.cli.main import main
from qdebug.errors import UsageError
from qdebug.importing.dumps import installed_formats, read_dump

GUIDE = (Path(qdebug.__file__).parent / "guide" / "extending.md").read_text(encoding="utf-8")
GOOD = GUIDE[GUIDE.index("import numpy as np\n\nfrom qdebug.importing.dump") :].split("```")[0]


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package of one module that offers a dump format."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(source, name="my-dump"):
        folder = tmp_path / "toy_dumps-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-dumps\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[qdebug.importers]\n{name} = toy_dump_module:my_dump\n")
        (tmp_path / "toy_dump_module.py").write_text(source)
        monkeypatch.delitem(sys.modules, "toy_dump_module", raising=False)

    return install


def test_the_format_of_the_guide_is_recognized(install, tmp_path, capsys):
    install(GOOD)
    (tmp_path / "logits.csv").write_text("1,2\n3,4\n")
    assert main(["import", str(tmp_path / "logits.csv"), "-o", str(tmp_path / "npu.h5")]) == 0
    with qdebug.open_recording(tmp_path / "npu.h5") as recording:
        assert recording.load("logits").tolist() == [[1, 2], [3, 4]]
        assert recording.info.options["source_format"] == "my-dump"
    with pytest.raises(SystemExit):
        main(["import", "--help"])
    assert "my-dump" in capsys.readouterr().out


def test_a_format_of_qdebug_is_not_replaced(install):
    install(GOOD, name="arrays")
    assert installed_formats() == {}


@pytest.mark.parametrize(
    ("source", "message"),
    [("my_dump = 3", "it is not a qdebug.importing.dump.DumpFormat"), ("1 / 0", "ZeroDivisionError: division by zero")],
)
def test_a_broken_package_is_named_unless_another_format_is(install, tmp_path, source, message):
    install(source)
    (tmp_path / "a.npz").write_bytes(b"")
    with pytest.raises(UsageError, match=f"'my-dump' of the package 'toy-dumps'.*{message}"), read_dump(tmp_path):
        pass
    with pytest.raises(UsageError, match=r"a\.npz"), read_dump(tmp_path / "a.npz", "arrays"):
        pass
