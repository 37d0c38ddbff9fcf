"""Recordings in an object store are read by ranges; fsspec's store in memory stands for one."""

import logging
import pickle
from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.cli.main import main
from qdebug.errors import QdebugError
from qdebug.recording.reading.remote import RemoteFile
from qdebug.recording.remote_url import absolute_path, url_of

fsspec = pytest.importorskip("fsspec", reason="the extra remote is not installed")
registry = pytest.importorskip("fsspec.registry")
COUNT, SIZE = 6, 1 << 16


class Hub(fsspec.AbstractFileSystem):
    """A store that opens a file for each range, as that of the Hugging Face Hub does. Its files are in `folder`."""

    cachable = False
    folder = Path()
    moved = 0

    def info(self, path, **kwargs):
        if not (self.folder / path).is_file():
            raise FileNotFoundError(path)
        return {"name": path, "type": "file", "size": (self.folder / path).stat().st_size}

    def _open(self, path, mode="rb", block_size=None, **kwargs):
        return HubFile(self, path, mode, **kwargs)


class HubFile(fsspec.spec.AbstractBufferedFile):
    def _fetch_range(self, start, end):
        Hub.moved += end - start
        return (Hub.folder / self.path).read_bytes()[start:end]


@pytest.fixture
def hub(bucket, tmp_path, monkeypatch):
    monkeypatch.setitem(registry._registry, "hf", Hub)
    monkeypatch.setattr(Hub, "folder", tmp_path)
    monkeypatch.setattr(Hub, "moved", 0)
    return Hub


@pytest.fixture
def bucket(tmp_path):
    """Two recordings of large tensors, of which the last two differ."""
    store = fsspec.filesystem("memory")
    for side in range(2):
        path = tmp_path / f"{side}.h5"
        rng = np.random.default_rng(0)
        with qdebug.Recorder(path, backend=f"side {side}") as rec:
            for number in range(COUNT):
                values = rng.standard_normal(SIZE).astype(np.float32)
                rec.put(f"t{number}", values + np.float32(side * (number >= COUNT - 2) * 1e-3))
            rec.outputs(f"t{COUNT - 1}")
        store.pipe(f"/runs/{side}.h5", path.read_bytes())
    yield ["memory://runs/0.h5", "memory://runs/1.h5"]
    store.rm("/runs", recursive=True)


@pytest.fixture
def moved(monkeypatch):
    sizes, fetch = [], RemoteFile._fetch

    def counting(self, offset, count):
        sizes.append(count)
        return fetch(self, offset, count)

    monkeypatch.setattr(RemoteFile, "_fetch", counting)
    return sizes


def test_a_comparison_moves_what_it_compares(bucket, moved, tmp_path):
    result = qdebug.diff(*bucket, quick=True)
    local = qdebug.diff(tmp_path / "0.h5", tmp_path / "1.h5", quick=True)
    assert [node.to_dict() for node in result] == [node.to_dict() for node in local]
    compared = 2 * COUNT * SIZE * 4
    assert compared <= sum(moved) < 1.1 * compared


def test_a_recording_is_opened_without_its_values(bucket, moved):
    with qdebug.open_recording(bucket[0]) as recording:
        assert recording.graph.outputs == (f"t{COUNT - 1}",)
        assert sum(moved) <= 2 << 16
        again = pickle.loads(pickle.dumps(recording))  # noqa: S301  made here
        np.testing.assert_array_equal(again.load("t3"), recording.load("t3"))


def test_no_store_reads_ahead(hub):
    with qdebug.open_recording("hf://0.h5") as recording:
        assert hub.moved <= 2 << 16
        recording.load("t0")
    assert hub.moved <= (2 << 16) + SIZE * 4 + (2 << 16)


@pytest.mark.parametrize(
    ("text", "cause", "sentence"),
    [
        ("me (revision not found)", ValueError("404 Client Error"), "cannot be read: me (revision not found)"),
        ("0.h5", OSError("Cannot connect to host"), "cannot be read: Cannot connect to host"),
        ("0.h5", None, "There is no file 'hf://0.h5'"),
    ],
)
def test_a_missing_file_is_told_from_a_host_that_does_not_answer(hub, monkeypatch, text, cause, sentence):
    def info(self, path, **kwargs):
        raise FileNotFoundError(text) from cause

    monkeypatch.setattr(hub, "info", info)
    with pytest.raises(QdebugError) as raised:
        qdebug.open_recording("hf://0.h5")
    assert sentence in raised.value.message


def test_a_server_that_ignores_ranges_is_named(hub, monkeypatch):
    monkeypatch.setattr(hub, "cat_file", lambda self, path, **kwargs: (self.folder / path).read_bytes())
    with pytest.raises(QdebugError, match="cannot send parts of a file"):
        qdebug.open_recording("hf://0.h5")


def test_packages_of_stores_do_not_print_their_own_errors(bucket, monkeypatch, capsys):
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.getLogger("gcsfs"), "handlers", [])
    qdebug.open_recording(bucket[0]).close()
    logging.getLogger("gcsfs").error("out of retries")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "words",
    [
        ["file", "pack", "{url}", "-o", "out.h5"],
        ["file", "join", "{url}", "{url}", "-o", "out.json"],
        ["import", "{url}", "-o", "out.h5"],
        ["info", "{url}", "-o", "{url}.txt"],
    ],
)
def test_what_needs_a_local_file_refuses_a_url(bucket, capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    assert main([word.format(url=bucket[0]) for word in words]) == 2
    assert f"local files only, not '{bucket[0]}" in capsys.readouterr().err


def test_a_recorder_refuses_a_url():
    with pytest.raises(QdebugError, match=r"local files only, not 's3://runs/a\.h5'"):
        qdebug.Recorder("s3://runs/a.h5", backend="engine")


def test_commands_take_urls(bucket, capsys):
    assert main(["info", bucket[0]]) == 0
    assert main(["diff", *bucket]) == 0
    assert f"qdebug tui {bucket[0]} {bucket[1]}" in "".join(capsys.readouterr())
    assert main(["diff", *bucket, "--untrusted"]) == 2
    assert "local files only" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["memory://runs/gone.h5", "memory://runs", "memory://runs/text.h5"])
def test_what_is_no_recording_gets_one_sentence(bucket, url):
    fsspec.filesystem("memory").pipe("/runs/text.h5", b"text")
    with pytest.raises(QdebugError, match=r"no file|not a file|not a qdebug recording") as raised:
        qdebug.open_recording(url)
    assert repr(url) in raised.value.message


def test_a_damaged_or_truncated_object_is_refused(bucket):
    store = fsspec.filesystem("memory")
    content = store.cat_file("/runs/0.h5")
    for name, bad in (("cut", content[: len(content) // 2]), ("zero", content[:48] + bytes(4096) + content[4144:])):
        store.pipe(f"/runs/{name}.h5", bad)
        with pytest.raises(QdebugError):
            qdebug.open_recording(f"memory://runs/{name}.h5")


def test_urls_survive_as_paths(tmp_path):
    assert url_of(Path("s3://bucket/a/b.h5")) == "s3://bucket/a/b.h5"
    assert url_of(Path("hf://datasets/me/runs/b.h5")) == "hf://datasets/me/runs/b.h5"
    assert url_of(tmp_path / "s3.h5") is None
    assert absolute_path(Path("gs://b/c.h5")) == Path("gs://b/c.h5")
    assert absolute_path(Path("c.h5")).is_absolute()
