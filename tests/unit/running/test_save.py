"""Saving a recording: everything that it holds comes back, from memory as from a file."""

import errno
import os

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.errors import OutputExistsError, RecordingError
from qdebug.running.save import save_recording
from qdebug.session import open_recording
from qdebug.testing import random_recording


@pytest.mark.parametrize("quantized", [False, True])
def test_a_recording_in_memory_comes_back(quantized, tmp_path):
    recording = random_recording(np.random.default_rng(0), quantized=quantized, samples=3)
    save_recording(recording, tmp_path / "a.h5")
    back = open_recording(tmp_path / "a.h5")
    assert diff(recording, back).status == "identical"
    assert (back.info.backend, back.info.model, back.samples) == (recording.info.backend, recording.info.model, 3)
    assert set(back.names) == set(recording.names)
    assert back.graph.tensors["fc1"].quant == recording.graph.tensors["fc1"].quant


def test_a_disk_that_refuses_is_a_clear_error(tmp_path, monkeypatch):
    save_recording(random_recording(np.random.default_rng(0)), tmp_path / "a.h5")

    def refuse(*_, **__):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "replace", refuse)
    with open_recording(tmp_path / "a.h5") as recording, pytest.raises(RecordingError, match="cannot be written"):
        save_recording(recording, tmp_path / "b.h5")
    assert [path.name for path in tmp_path.iterdir()] == ["a.h5"]


def test_a_file_is_copied_byte_for_byte(tmp_path):
    save_recording(random_recording(np.random.default_rng(0)), tmp_path / "a.h5")
    save_recording(open_recording(tmp_path / "a.h5"), tmp_path / "b.h5")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5", "b.h5"]


def test_nothing_is_overwritten_unasked(tmp_path):
    recording = random_recording(np.random.default_rng(0))
    save_recording(recording, tmp_path / "a.h5")
    save_recording(recording, tmp_path / "b.h5")
    for source in (recording, open_recording(tmp_path / "a.h5")):
        with pytest.raises(OutputExistsError):
            save_recording(source, tmp_path / "b.h5")
        save_recording(source, tmp_path / "b.h5", force=True)
