"""Work that is shared comes back in order and the same; what a lost worker had is done again, once."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, Executor, Future
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.compare.workers import in_parts, in_workers
from qdebug.errors import QdebugError, UsageError, WorkerError
from qdebug.running import workers
from qdebug.running.workers import open_workers

ROOT = Path(__file__).resolve().parents[3]


def doubled(part):
    return [2 * each for each in part]


def dying(flag, times, part):
    """Kill the process on one part, so many times."""
    if 5 in part:
        died = len(flag.read_text()) if flag.exists() else 0
        if died < times:
            flag.write_text("x" * (died + 1))
            os.kill(os.getpid(), signal.SIGKILL)
    return doubled(part)


def failing(part):
    raise UsageError(f"part {part[0]} is odd.")


@pytest.fixture
def two(monkeypatch):
    """Return two processes that know this module, which they would not if they were started afresh."""
    real = multiprocessing.get_context
    monkeypatch.setattr(workers.multiprocessing, "get_context", lambda _: real("fork"))
    with open_workers(jobs=2) as executor:
        yield executor


def test_parts_are_cut_alike_and_come_back_in_order(two):
    parts = in_parts(range(300), least=4)
    assert [len(part) for part in parts] == [5] * 60
    assert [each for part in in_workers(two, doubled, parts) for each in part] == [2 * each for each in range(300)]


def test_what_a_killed_worker_had_is_done_again(two, tmp_path):
    parts = in_parts(range(40))
    made = in_workers(two, partial(dying, tmp_path / "flag", 1), parts)
    assert [each for part in made for each in part] == [2 * each for each in range(40)]
    assert (tmp_path / "flag").read_text() == "x"


def test_what_kills_every_worker_is_an_error_that_says_so(two, tmp_path):
    with pytest.raises(WorkerError, match="could not be repeated"):
        list(in_workers(two, partial(dying, tmp_path / "flag", 9), in_parts(range(40))))


def dying_each(folder, part):
    """Kill the process on two parts, once on each."""
    for number in {5, 9} & set(part):
        if not (folder / str(number)).exists():
            (folder / str(number)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return doubled(part)


def test_only_what_the_killed_worker_had_counts_as_lost(two, tmp_path):
    made = in_workers(two, partial(dying_each, tmp_path), [[number] for number in range(20)])
    assert [each for part in made for each in part] == [2 * each for each in range(20)]


def cut_off(flag, part):
    """Kill the process in the middle of what it writes, once."""
    if 5 in part and not flag.exists():
        flag.touch()

        def half(self, data, *_):
            os.write(self.fileno(), bytes(data)[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

        Connection._send = half
    return doubled(part)


@pytest.fixture
def soon():
    """Raise where a test waits for ever."""

    def raises(*_):
        raise TimeoutError("it waits for ever")

    before = signal.signal(signal.SIGALRM, raises)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_a_result_that_is_cut_off_is_made_again(two, tmp_path, soon):
    made = in_workers(two, partial(cut_off, tmp_path / "flag"), in_parts(range(40)))
    assert [each for part in made for each in part] == [2 * each for each in range(40)]


def failing_late(part):
    time.sleep(0.05)
    if 3 in part:
        raise UsageError("part 3 is odd.")
    return doubled(part)


def test_no_process_is_left_after_an_error_and_a_kill(two, soon):
    made = in_workers(two, failing_late, in_parts(range(60)))
    next(made)
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    with pytest.raises(UsageError, match="part 3"), two:
        list(made)
    assert not multiprocessing.active_children()


class Broken(Executor):
    """A pool that loses all it has at the first result, as the processes of the standard library do."""

    def __init__(self):
        self.jobs = []

    def submit(self, fn, /, *args, **kwargs):
        if any(job.done() for job in self.jobs):
            raise BrokenExecutor("a process was lost")
        self.jobs.append(Future())
        if len(self.jobs) == 4:
            self.jobs[0].set_exception(BrokenExecutor("a process was lost"))
        return self.jobs[-1]


def test_the_work_of_a_broken_pool_is_left_to_the_pool():
    pool = Broken()
    with pytest.raises(WorkerError, match="a process was lost"):
        list(in_workers(pool, doubled, in_parts(range(4))))
    for job in pool.jobs[1:]:
        job.set_exception(BrokenExecutor("a process was lost"))  # it raises if the job was cancelled


def unsendable(part):
    return lambda: part


def test_a_result_that_cannot_be_sent_is_an_error_that_says_so(two):
    with pytest.raises(WorkerError, match="cannot be sent"):
        list(in_workers(two, unsendable, in_parts(range(4))))


def test_an_error_of_the_work_is_raised_as_it_is(two):
    with pytest.raises(UsageError, match="part 0 is odd"):
        list(in_workers(two, failing, in_parts(range(4))))


def test_no_workers_are_no_executor():
    with open_workers() as executor:
        assert executor is None


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the files of a float run and of an int8 run with a fault, large enough for BLAS to share the work."""
    folder, rng = tmp_path_factory.mktemp("shared"), np.random.default_rng(0)
    layers = [(rng.normal(size=(160, 160)) * 0.1).astype(np.float32) for _ in range(3)]
    for name in ("ref.h5", "int8.h5"):
        x = np.random.default_rng(1).normal(size=(96, 160)).astype(np.float32)
        with qdebug.Recorder(folder / name, backend=name) as rec:
            rec.put("x", x)
            for at, weight in enumerate(layers):
                rec.constant(f"w{at}", weight)
                x = x @ weight
                if name == "int8.h5":
                    x += np.random.default_rng(at).normal(size=x.shape).astype(np.float32) * np.float32(1e-3)
                before = f"y{at - 1}" if at else "x"
                rec.put(f"y{at}", x, node=f"n{at}", op="MatMul", inputs=(before, f"w{at}"))
            rec.outputs("y2")
    return folder


def said(folder, verb, *options):
    """Return what a command prints as JSON, in a process of its own."""
    files = ("ref.h5", "int8.h5") if verb == "diff" else ("int8.h5",)
    call = [sys.executable, "-m", "qdebug", verb, *files, "--json", *options]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.parametrize("verb", [pytest.param("diff", marks=pytest.mark.slow), "explain"])
def test_processes_give_the_same_bytes(runs, verb, tmp_path):
    alone = said(runs, verb)
    again = tmp_path / "copy"  # results that were kept would answer for the same files
    again.mkdir()
    for name in ("ref.h5", "int8.h5"):
        (again / name).write_bytes((runs / name).read_bytes())
    assert said(again, verb, "--jobs", "2") == alone


@pytest.mark.slow  # a cluster takes seconds to start; processes share work in the same way
@pytest.mark.filterwarnings("ignore")  # those of a cluster, of its ports and sockets
def test_the_workers_of_dask_give_the_same_bytes(runs, tmp_path):
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    alone = said(runs, "diff")
    for name in ("ref.h5", "int8.h5"):
        (tmp_path / name).write_bytes((runs / name).read_bytes())
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with distributed.LocalCluster(**options) as cluster:
        assert said(tmp_path, "diff", "--scheduler", cluster.scheduler_address) == alone


def test_a_scheduler_that_does_not_answer_is_one_clear_sentence():
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    with (
        pytest.raises(QdebugError, match="No dask scheduler answers") as raised,
        open_workers(scheduler="tcp://127.0.0.1:9"),
    ):
        pass
    assert "dask scheduler" in raised.value.hint
