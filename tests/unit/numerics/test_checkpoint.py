"""Long computations can be given up at their checkpoints, by whoever started them and by nobody else."""

import threading

import numpy as np
import pytest

from qdebug.compare.explaining.explain import explain_recording
from qdebug.numerics.checkpoint import calling_at_checkpoints, checkpoint
from qdebug.replay.windows import Window, convolve
from qdebug.running.demo import run_demo


class GivenUpError(Exception):
    pass


def give_up_after(times):
    left = [times]

    def ask():
        left[0] -= 1
        if left[0] < 0:
            raise GivenUpError

    return ask


def test_a_checkpoint_does_nothing_where_nobody_asks():
    assert checkpoint() is None


def test_what_is_asked_is_forgotten_at_the_end():
    with calling_at_checkpoints(give_up_after(0)), pytest.raises(GivenUpError):
        checkpoint()
    assert checkpoint() is None


def test_another_thread_is_not_asked():
    passed = []
    with calling_at_checkpoints(give_up_after(0)):
        other = threading.Thread(target=lambda: passed.append(checkpoint()))
        other.start()
        other.join(10)
    assert passed == [None]


def test_a_convolution_asks_within_a_sample():
    x = np.ones((1, 8, 256, 256), np.float32)
    weight = np.ones((8, 8, 3, 3), np.float32)
    ones = (1, 1)
    size = (256, 256)
    window = Window(extent=size, kernel=(3, 3), strides=ones, dilations=ones, begin=ones, end=ones, out=size)
    with calling_at_checkpoints(give_up_after(2)), pytest.raises(GivenUpError):
        convolve(x, weight, window, 1)


@pytest.mark.parametrize("times", [0, 1, 20, 200])
def test_a_search_is_given_up_wherever_it_is(recording, times):
    with calling_at_checkpoints(give_up_after(times)), pytest.raises(GivenUpError):
        explain_recording(recording)


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    from qdebug.session import open_recording

    with open_recording(run_demo(tmp_path_factory.mktemp("demo")).backend) as opened:
        yield opened
