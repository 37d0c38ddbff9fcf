import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from qdebug.errors import OutputExistsError, RecordingError
from qdebug.model import Graph, Node, RunInfo, TensorInfo
from qdebug.recording import target as target_module
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.writing import hdf5_file, payload_store
from qdebug.recording.writing import write as writer_module
from qdebug.recording.writing.recovery import recover
from qdebug.recording.writing.write import RecordingWriter

INFO = RunInfo(backend="test")


def files(folder):
    return sorted(entry.name for entry in folder.iterdir())


def finish(writer, value=1.0):
    writer.append("x", np.array([value]))
    return writer.close(Graph(), INFO)


LEFT = ["run.h5.journal", "run.h5.part"]


class TestTarget:
    def test_only_a_finished_file_gets_its_name(self, tmp_path):
        path = tmp_path / "run.h5"
        writer = RecordingWriter(path)
        writer.append("x", np.zeros(4))
        assert not path.exists()
        assert writer.close(Graph(), INFO) == path
        assert files(tmp_path) == ["run.h5"]

    def test_an_existing_file_is_not_touched(self, tmp_path):
        path = tmp_path / "run.h5"
        path.write_bytes(b"precious")
        with pytest.raises(OutputExistsError, match="exists") as caught:
            RecordingWriter(path)
        assert "--force" in caught.value.hint
        assert isinstance(caught.value, FileExistsError)
        assert path.read_bytes() == b"precious"
        assert files(tmp_path) == ["run.h5"]

    def test_force_replaces_it_at_the_end_and_not_before(self, tmp_path, value_in):
        path = tmp_path / "run.h5"
        finish(RecordingWriter(path), 1.0)
        old = FileRecording(path)
        writer = RecordingWriter(path, force=True)
        writer.append("x", np.array([2.0]))
        assert value_in(path) == 1.0
        writer.close(Graph(), INFO)
        assert value_in(path) == 2.0
        assert float(old.load("x")[0]) == 1.0  # who has the old file open keeps it
        old.close()

    def test_a_forced_writer_that_gives_up_leaves_the_old_file(self, tmp_path, value_in):
        path = tmp_path / "run.h5"
        finish(RecordingWriter(path), 1.0)
        RecordingWriter(path, force=True).discard()
        assert value_in(path) == 1.0
        assert files(tmp_path) == ["run.h5"]

    def test_a_file_that_appears_meanwhile_is_not_overwritten(self, tmp_path, value_in):
        path = tmp_path / "run.h5"
        writer = RecordingWriter(path)
        writer.append("x", np.array([3.0]))
        path.write_bytes(b"precious")
        with pytest.raises(OutputExistsError, match="exists") as caught:
            writer.close(Graph(), INFO)
        assert path.read_bytes() == b"precious"
        assert "run.h5.part" in caught.value.hint
        assert value_in(tmp_path / "run.h5.part") == 3.0

    @pytest.mark.parametrize("durable", [False, True])
    @pytest.mark.parametrize("way", ["system call", "link", "neither"])
    def test_a_file_made_at_the_last_moment_is_not_replaced(self, tmp_path, monkeypatch, way, durable):
        path = tmp_path / "run.h5"
        writer = RecordingWriter(path, sync_every=1e9 if durable else None)
        writer.append("x", np.array([3.0]))
        real = target_module._rename_exclusively

        def late(source, target):
            path.write_bytes(b"precious")
            return way == "system call" and real(source, target)

        def refused(*_, **__):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(target_module, "_rename_exclusively", late)
        if way == "neither":
            monkeypatch.setattr(os, "link", refused)
        with pytest.raises(OutputExistsError, match=r"run\.h5' already exists") as caught:
            writer.close(Graph(), INFO)
        assert path.read_bytes() == b"precious"
        assert "run.h5.part" in caught.value.hint

    @pytest.mark.parametrize("way", ["link", "neither"])
    def test_a_file_system_that_cannot_rename_exclusively_has_recordings_too(
        self, tmp_path, monkeypatch, value_in, way
    ):
        def refused(*_, **__):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(target_module, "_rename_exclusively", lambda *_: False)
        if way == "neither":
            monkeypatch.setattr(os, "link", refused)
        finish(RecordingWriter(tmp_path / "run.h5"), 1.0)
        assert value_in(tmp_path / "run.h5") == 1.0
        assert files(tmp_path) == ["run.h5"]

    def test_a_missing_folder(self, tmp_path):
        with pytest.raises(RecordingError, match="does not exist") as caught:
            RecordingWriter(tmp_path / "no" / "run.h5")
        assert "mkdir" in caught.value.hint
        assert files(tmp_path) == []

    def test_a_parent_that_is_a_file(self, tmp_path):
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(RecordingError):
            RecordingWriter(tmp_path / "file" / "run.h5")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_an_unwritable_folder(self, tmp_path):
        tmp_path.chmod(0o500)
        try:
            with pytest.raises(RecordingError, match="cannot be written"):
                RecordingWriter(tmp_path / "run.h5")
        finally:
            tmp_path.chmod(0o700)

    @pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that refuses files even of root")
    def test_a_folder_that_takes_no_files(self):
        with pytest.raises(RecordingError, match="cannot be written"):
            RecordingWriter("/proc/self/run.h5")

    def test_a_folder_as_target(self, tmp_path):
        with pytest.raises(RecordingError, match="is a folder"):
            RecordingWriter(tmp_path, force=True)

    @pytest.mark.parametrize("name", ["n" * 300, "n" * 252, "a\0b"], ids=["too long", "too long with suffix", "NUL"])
    def test_a_name_that_no_file_can_have(self, tmp_path, name):
        with pytest.raises(RecordingError, match="cannot be written"):
            RecordingWriter(tmp_path / name)
        assert files(tmp_path) == []

    def test_a_device_is_not_replaced(self, tmp_path):
        fifo = tmp_path / "pipe"
        os.mkfifo(fifo)
        with pytest.raises(RecordingError, match="not a regular file"):
            RecordingWriter(fifo, force=True)
        assert fifo.is_fifo()

    def test_a_link_is_followed(self, tmp_path, value_in):
        (tmp_path / "there").mkdir()
        link = tmp_path / "link.h5"
        link.symlink_to("there/run.h5")
        finish(RecordingWriter(link))
        assert link.is_symlink()
        assert value_in(tmp_path / "there" / "run.h5") == 1.0


class TestAppend:
    def test_values_are_in_the_file_before_append_returns(self, tmp_path):
        writer = RecordingWriter(tmp_path / "run.h5")
        array = np.arange(1000, dtype=np.int16)
        writer.append("x", array)
        array[:] = -1
        assert np.arange(1000, dtype="<i2").tobytes() in (tmp_path / "run.h5.part").read_bytes()
        assert writer.read_back("x").tolist() == list(range(1000))
        writer.discard()

    def test_empty_values_are_read_back(self, tmp_path):
        writer = RecordingWriter(tmp_path / "run.h5")
        writer.append("x", np.zeros((0, 3), np.int8))
        assert writer.read_back("x").shape == (0, 3)
        writer.discard()

    @pytest.mark.parametrize("place", [(-1, 0), (0, -1), (2**32, 0), (0, 2**32)])
    def test_numbers_that_no_file_can_hold(self, tmp_path, place):
        writer = RecordingWriter(tmp_path / "run.h5")
        with pytest.raises(RecordingError, match="which a recording does not support"):
            writer.append("x", np.zeros(1), place)
        assert writer.events == 0
        finish(writer)

    def test_a_refused_array_leaves_no_trace(self, tmp_path):
        writer = RecordingWriter(tmp_path / "run.h5")
        with pytest.raises(RecordingError, match="'odd'"):
            writer.append("odd", np.array(["text"]))
        finish(writer)
        with FileRecording(tmp_path / "run.h5") as recording:
            assert recording.names == ("x",)

    def test_after_close_and_after_discard(self, tmp_path):
        done, given_up = RecordingWriter(tmp_path / "a.h5"), RecordingWriter(tmp_path / "b.h5")
        finish(done)
        given_up.discard()
        for writer in (done, given_up):
            with pytest.raises(RecordingError, match="is closed"):
                writer.append("x", np.zeros(1))
            with pytest.raises(RecordingError, match="is closed"):
                writer.close(Graph(), INFO)
            writer.discard()
        assert files(tmp_path) == ["a.h5"]

    def test_an_interrupted_append_does_not_spoil_the_rest(self, tmp_path, monkeypatch):
        writer = RecordingWriter(tmp_path / "run.h5")
        writer.append("a", np.array([1.0]))

        def interrupt(*_, **__):
            raise KeyboardInterrupt

        for module, victim in (
            (payload_store, "to_bytes"),
            (hdf5_file, "write_all"),
            (writer_module, "pack_row"),
            (writer_module, "encode_event"),
            (os, "pwrite"),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(module, victim, interrupt)
                with pytest.raises(KeyboardInterrupt):
                    writer.append(victim, np.array([len(victim)]))
        writer.append("b", np.array([2.0]))
        writer.close(Graph(), INFO)
        with FileRecording(tmp_path / "run.h5") as recording:
            assert recording.names == ("a", "b")
            assert [recording.load(name).tolist() for name in "ab"] == [[1.0], [2.0]]


class TestGivingUp:
    def test_discard_leaves_nothing(self, tmp_path):
        writer = RecordingWriter(tmp_path / "run.h5")
        writer.append("x", np.zeros(1 << 20))
        writer.discard()
        writer.discard()
        assert files(tmp_path) == []

    def test_a_graph_that_cannot_be_stored_costs_no_values(self, tmp_path, left_in):
        writer = RecordingWriter(tmp_path / "run.h5")
        writer.append("x", np.ones(1))
        with pytest.raises(RecordingError, match="'bad'"):
            writer.close(Graph([Node(name="bad", op="Op", attrs={"x": None})]), INFO)
        assert files(tmp_path) == LEFT
        assert left_in(tmp_path / "run.h5") == {"x": [1.0]}

    @pytest.mark.parametrize(
        "graph",
        [
            Graph(tensors=[TensorInfo(name="bad", dtype="string")]),
            Graph(tensors=[TensorInfo(name="bad", shape=("batch", 3))]),
        ],
        ids=["dtype", "shape"],
    )
    def test_a_tensor_that_cannot_be_described_is_named(self, tmp_path, graph, left_in):
        writer = RecordingWriter(tmp_path / "run.h5")
        writer.append("x", np.zeros(1))
        with pytest.raises(RecordingError, match="'bad'"):
            writer.close(graph, INFO)
        assert left_in(tmp_path / "run.h5") == {"x": [0.0]}

    def test_a_forgotten_writer_lets_go_of_the_path_and_loses_nothing(self, tmp_path, left_in):
        writer = RecordingWriter(tmp_path / "run.h5")
        writer.append("x", np.zeros(1))
        del writer
        assert left_in(tmp_path / "run.h5") == {"x": [0.0]}
        finish(RecordingWriter(tmp_path / "run.h5", force=True))
        assert files(tmp_path) == ["run.h5"]

    def test_a_forgotten_writer_without_values_leaves_nothing(self, tmp_path):
        writer = RecordingWriter(tmp_path / "run.h5")
        del writer
        assert files(tmp_path) == []


class TestOneWriter:
    def test_a_second_one_in_this_process(self, tmp_path):
        first = RecordingWriter(tmp_path / "run.h5")
        with pytest.raises(RecordingError, match=rf"being written by process {os.getpid()}\b"):
            RecordingWriter(tmp_path / "run.h5", force=True)
        first.discard()
        finish(RecordingWriter(tmp_path / "run.h5"))

    def test_a_second_one_through_another_name_of_the_path(self, tmp_path):
        (tmp_path / "link").symlink_to(tmp_path)
        first = RecordingWriter(tmp_path / "run.h5")
        with pytest.raises(RecordingError, match="being written"):
            RecordingWriter(tmp_path / "link" / ".." / tmp_path.name / "run.h5")
        first.discard()

    def test_a_second_one_in_another_process(self, tmp_path, run_python, value_in):
        writer = RecordingWriter(tmp_path / "run.h5")
        code = """
            import sys
            from qdebug.recording.writing.write import RecordingWriter
            from qdebug.errors import RecordingError
            try:
                RecordingWriter(sys.argv[1], force=True)
            except RecordingError as error:
                print(error)
        """
        result = run_python(code, tmp_path / "run.h5")
        assert f"being written by process {os.getpid()}." in result.stdout, result.stderr
        finish(writer)
        assert value_in(tmp_path / "run.h5") == 1.0

    def test_what_a_killed_process_left_is_kept(self, tmp_path, run_python, left_in, value_in):
        code = """
            import os, signal, sys
            import numpy as np
            from qdebug.recording.writing.write import RecordingWriter
            writer = RecordingWriter(sys.argv[1])
            writer.append("x", np.zeros(1000))
            os.kill(os.getpid(), signal.SIGKILL)
        """
        result = run_python(code, tmp_path / "run.h5")
        assert result.returncode == -signal.SIGKILL, result.stderr
        assert "run.h5" not in files(tmp_path)
        assert "run.h5.part" in files(tmp_path)
        with pytest.raises(RecordingError, match="did not finish") as caught:
            RecordingWriter(tmp_path / "run.h5")
        assert "qdebug file recover" in caught.value.hint
        assert "--force" in caught.value.hint
        assert left_in(tmp_path / "run.h5") == {"x": [0.0] * 1000}
        finish(RecordingWriter(tmp_path / "run.h5", force=True), 4.0)
        assert files(tmp_path) == ["run.h5"]
        assert value_in(tmp_path / "run.h5") == 4.0


FORKED = """
    import os, sys
    import numpy as np
    from qdebug.errors import RecordingError
    from qdebug.model import Graph, RunInfo
    from qdebug.recording.reading.read import FileRecording
    from qdebug.recording.writing.write import RecordingWriter

    path, way = sys.argv[1:]
    writer = RecordingWriter(path)
    for number in range(200):
        writer.append(f"a{number}", np.full(100, number))
    child = os.fork()
    if child == 0:
        refused = 0
        for act in (lambda: writer.append("c", np.zeros(9)), lambda: writer.close(Graph(), RunInfo(backend="b"))):
            try:
                act()
            except RecordingError as error:
                refused += str(os.getppid()) in str(error) and "forked" in str(error)
        if way == "discard":
            writer.discard()
        if way == "_exit":
            os._exit(0 if refused == 2 else 1)
        if way == "collect":
            del writer
        sys.exit(0 if refused == 2 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child was not refused"
    assert os.path.exists(path + ".part") and os.path.exists(path + ".lock")
    for number in range(200):
        writer.append(f"b{number}", np.full(100, -number))
    writer.close(Graph(), RunInfo(backend="b"))
    with FileRecording(path) as recording:
        assert len(recording.names) == 400
        for number in range(200):
            assert recording.load(f"a{number}")[0] == number and recording.load(f"b{number}")[0] == -number
        for event in range(400):
            recording.check_payload(event)
    print("fine")
"""


@pytest.mark.parametrize("way", ["_exit", "exit", "discard", "collect"])
def test_a_forked_child_is_refused_and_harmless(tmp_path, way, run_python):
    result = run_python(FORKED, tmp_path / "run.h5", way)
    assert result.stdout == "fine\n", result.stderr
    assert files(tmp_path) == ["run.h5"]


def test_a_forked_child_may_record_to_a_file_of_its_own(tmp_path, run_python, value_in):
    code = """
        import os, sys
        import numpy as np
        from qdebug.model import Graph, RunInfo
        from qdebug.recording.writing.write import RecordingWriter
        def finish(writer):
            writer.append("x", np.array([1.0 * os.getpid()]))
            writer.close(Graph(), RunInfo(backend="b"))
        mine = RecordingWriter(sys.argv[1] + "/parent.h5")
        if child := os.fork():
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            finish(mine)
        else:
            finish(RecordingWriter(sys.argv[1] + "/child.h5"))
    """
    result = run_python(code, tmp_path)
    assert result.returncode == 0, result.stderr
    assert files(tmp_path) == ["child.h5", "parent.h5"]
    assert value_in(tmp_path / "child.h5") != value_in(tmp_path / "parent.h5")


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, bytes(data)[:7], offset))
    writer = RecordingWriter(tmp_path / "run.h5")
    writer.append("x", np.arange(100.0))
    writer.close(Graph(), INFO)
    monkeypatch.undo()
    with FileRecording(tmp_path / "run.h5") as recording:
        assert recording.load("x").tolist() == list(range(100))


def test_two_processes_racing_for_a_path_never_mix(tmp_path):
    code = """
        import sys, time
        import numpy as np
        from qdebug.errors import RecordingError
        from qdebug.model import Graph, RunInfo
        from qdebug.recording.writing.write import RecordingWriter
        won = 0
        print("ready", flush=True)
        until = float(input())
        while time.time() < until:
            try:
                writer = RecordingWriter(sys.argv[1], force=True)
            except RecordingError:
                continue
            for number in range(3):
                writer.append(f"t{number}", np.full(50, float(sys.argv[2])))
            writer.close(Graph(), RunInfo(backend=sys.argv[2]))
            won += 1
        print(won)
    """
    arguments = [sys.executable, "-c", textwrap.dedent(code), tmp_path / "run.h5"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    racers = [subprocess.Popen([*arguments, str(number)], **pipes, text=True) for number in range(2)]
    assert [racer.stdout.readline() for racer in racers] == [
        "ready\n"
    ] * 2  # libraries are loaded, however long it took
    until = time.time() + 3
    for racer in racers:
        racer.stdin.write(f"{until}\n")
        racer.stdin.flush()
    results = [racer.communicate(timeout=60) for racer in racers]
    assert [error for _, error in results] == ["", ""]
    assert any(int(won) for won, _ in results)
    with FileRecording(tmp_path / "run.h5") as recording:
        values = {float(recording.load(name)[0]) for name in recording.names}
        assert values == {float(recording.info.backend)}
    assert files(tmp_path) == ["run.h5"]


def test_a_file_that_somebody_removed_is_named(tmp_path):
    writer = RecordingWriter(tmp_path / "run.h5")
    writer.append("x", np.ones(3))
    (tmp_path / "run.h5.part").unlink()
    with pytest.raises(RecordingError, match=r"run\.h5\.part' was removed by another program\. Record") as caught:
        writer.close(Graph(), RunInfo(backend="b"))
    assert "recover" not in caught.value.hint


def test_a_folder_that_was_renamed_still_has_what_was_recorded(tmp_path):
    (tmp_path / "old").mkdir()
    writer = RecordingWriter(tmp_path / "old" / "run.h5")
    writer.append("x", np.ones(3))
    (tmp_path / "old").rename(tmp_path / "new")
    writer.append("y", np.ones(4))
    with pytest.raises(RecordingError, match="their folder was renamed") as caught:
        writer.close(Graph(), RunInfo(backend="b"))
    assert "If the folder was renamed, rebuild the recording in it" in caught.value.hint
    assert recover(tmp_path / "new" / "run.h5").tensors == 2


def test_a_recording_that_cannot_get_its_name_is_kept_beside_it(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, os.strerror(28))

    writer = RecordingWriter(tmp_path / "run.h5")
    writer.append("x", np.ones(3))
    with monkeypatch.context() as patch:
        patch.setattr(writer_module, "rename_finished", full)
        with pytest.raises(RecordingError, match="cannot be finished: no space left on device") as caught:
            writer.close(Graph(), RunInfo(backend="b"))
    assert "The partial recording is kept in the same folder." in caught.value.message
    assert "qdebug file recover" in caught.value.hint
    assert writer.failure == caught.value.message
    assert recover(tmp_path / "run.h5").tensors == 1
