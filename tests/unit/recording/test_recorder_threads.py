"""A recorder in a program of several threads and processes: nothing is mixed up, children leave it alone."""

import copy
import os
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from recording_parts import count_sound

import qdebug
from qdebug.errors import RecordingError
from qdebug.recording.reading.read import FileRecording

THREADS, EACH = 4, 150


@pytest.fixture
def impatient():
    """Let threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("background", [False, True], ids=["direct", "background"])
def test_threads_put_their_tensors_at_once(tmp_path, impatient, background):
    recorder = qdebug.Recorder(tmp_path / "run.h5", backend="test", background=background)

    def work(thread):
        for number in range(EACH):
            facts = {"node": f"n{thread}_{number}", "op": "Relu", "inputs": (f"t{thread}_{number - 1}",)}
            recorder.put(f"t{thread}_{number}", np.full(50, 1000 * thread + number), **facts)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    recorder.close()
    assert count_sound(tmp_path / "run.h5") == THREADS * EACH
    with FileRecording(tmp_path / "run.h5") as recording:
        for thread in range(THREADS):
            for number in range(EACH):
                assert (recording.load(f"t{thread}_{number}") == 1000 * thread + number).all()


def test_of_threads_that_put_one_tensor_one_succeeds(impatient):
    recorder = qdebug.Recorder(None, backend="test")

    def work(thread):
        try:
            recorder.put("same", np.full(3, thread))
        except RecordingError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(200))) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_that_leaves_the_block_leaves_the_recording_alone(tmp_path):
    program = """
        import os, numpy as np, qdebug
        with qdebug.Recorder("run.h5", backend="test") as recorder:
            recorder.put("a", np.ones(3))
            child = os.fork()
            if child:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                recorder.put("b", np.ones(4))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert count_sound(tmp_path / "run.h5") == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(tmp_path):
    """The lock that a thread held when the process was forked is never released in the child."""
    program = """
        import os, threading, numpy as np, qdebug
        inside, go_on = threading.Event(), threading.Event()
        recorder = qdebug.Recorder("run.h5", backend="test")
        recorder.put("a", np.ones(3))
        keep = recorder._put
        def slow(*said, **facts):
            inside.set(); go_on.wait()
            keep(*said, **facts)
        recorder._put = slow
        thread = threading.Thread(target=recorder.put, args=("b", np.ones(4)))
        thread.start(); inside.wait()
        child = os.fork()
        if not child:
            go_on.set()
            try:
                recorder.put("c", np.ones(2))
            except qdebug.QdebugError as error:
                os._exit(0 if "the parent of this process" in str(error) else 3)
            os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        go_on.set(); thread.join(); recorder.close()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path, timeout=60, check=True)
    assert count_sound(tmp_path / "run.h5") == 2


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy, copy.copy])
def test_a_recorder_is_of_one_process(copied):
    with qdebug.Recorder(None, backend="t") as rec:
        rec.put("a", [1.0])
        with pytest.raises(RecordingError, match="to one process") as error:
            copied(rec)
    assert "qdebug file join" in error.value.hint


def test_a_forked_child_is_refused_and_disturbs_nothing(tmp_path):
    program = textwrap.dedent("""
        import os, pathlib, sys
        import numpy as np
        import qdebug
        rec = qdebug.Recorder(sys.argv[1], backend="t")
        for number in range(50):
            rec.put(f"before{number}", np.full(100, number))
        before = pathlib.Path(sys.argv[1] + ".part").read_bytes()
        pid = os.fork()
        if pid == 0:
            try:
                rec.put("child", np.zeros(100))
            except qdebug.QdebugError as exc:
                print(f"refused: {exc}")
            rec.discard()
            sys.exit(0)  # with interpreter exit, where HDF5 writes what it has cached
        _, status = os.waitpid(pid, 0)
        if pathlib.Path(sys.argv[1] + ".part").read_bytes() != before:
            sys.exit("the child wrote into its parent's file")
        for number in range(50):
            rec.put(f"after{number}", np.full(100, -number))
        rec.close()
        sys.exit(status)
    """)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, tmp_path / "run.h5"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "refused: " in done.stdout
    assert "being written by process" in done.stdout
    with FileRecording(tmp_path / "run.h5") as recording:
        assert len(recording.names) == 100
        for event in range(100):
            recording.check_payload(event)
    assert list(tmp_path.iterdir()) == [tmp_path / "run.h5"]
