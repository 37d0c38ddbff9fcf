"""A disk that is full at any write: one clear error, everything acknowledged is kept, nothing crashes."""

import errno
import itertools
import os

import numpy as np
import pytest
from sweeps import sweep

from qdebug.errors import RecordingError
from qdebug.model import Graph, RunInfo
from qdebug.recording.writing.write import RecordingWriter

INFO = RunInfo(backend="test")


def files(folder):
    return sorted(entry.name for entry in folder.iterdir())


LEFT = ["run.h5.journal", "run.h5.part"]


FULL = """
    import resource, sys
    import numpy as np
    from qdebug.errors import RecordingError
    from qdebug.model import Graph, RunInfo
    from qdebug.recording.reading.read import FileRecording
    from qdebug.recording.writing.write import RecordingWriter

    path, limit, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    writer = RecordingWriter(path)
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    count = 0
    try:
        while True:
            writer.append(f"t{count}", np.full(size, count, dtype=np.int32))
            count += 1
    except RecordingError as error:
        print(error)
        assert error.hint
    try:
        writer.append("more", np.zeros(1))
    except RecordingError:
        pass
    else:
        raise SystemExit("a full disk was forgotten")
    try:
        writer.close(Graph(), RunInfo(backend="b"))
    except RecordingError as error:
        print("LOST", error)
        print("COUNT", count)
        assert error.hint
    else:
        with FileRecording(path) as recording:
            assert not recording.info.complete
            assert len(recording.names) == count
            for number in range(count):
                assert (recording.load(f"t{number}") == number).all()
        print("KEPT", count)
"""


@pytest.mark.parametrize(
    ("limit", "size"), sweep(itertools.product((5_000, 100_003, 1_000_000, 1_048_576), (10, 5_000, 200_000)), 5)
)
def test_a_full_disk_is_one_clear_error(tmp_path, limit, size, run_python, left_in):
    result = run_python(FULL, tmp_path / "run.h5", limit, size)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert f"could not be written to '{tmp_path}/run.h5.part'" in result.stdout
    assert os.strerror(errno.EFBIG).lower() in result.stdout
    if "LOST" in result.stdout:
        found = left_in(tmp_path / "run.h5") if files(tmp_path) == LEFT else {}
        assert found == {f"t{number}": [number] * size for number in range(len(found))}
        assert f"COUNT {len(found)}\n" in result.stdout
    else:
        assert "KEPT" in result.stdout
        assert files(tmp_path) == ["run.h5"]


@pytest.mark.parametrize("number", range(3))
def test_a_disk_that_is_full_when_it_is_finished_keeps_what_was_put(tmp_path, monkeypatch, left_in, number):
    """At any of the writes: of the tables, of the first bytes, of the journal's end, which nobody needs by then."""
    writer = RecordingWriter(tmp_path / "run.h5")
    writer.append("x", np.zeros(10))
    real, count = os.pwrite, iter(range(10))

    def pwrite(*args):
        if next(count) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args)

    monkeypatch.setattr(os, "pwrite", pwrite)
    if number == 2:
        assert writer.close(Graph(), INFO) == tmp_path / "run.h5"
        return
    with pytest.raises(RecordingError, match="no space left") as caught:
        writer.close(Graph(), INFO)
    assert "qdebug file recover" in caught.value.hint
    assert left_in(tmp_path / "run.h5") == {"x": [0.0] * 10}
