"""Random recordings: the same generator gives the same net, clean ones agree, a planted bug is found where it is."""

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.errors import UsageError
from qdebug.running.random_net import random_recording


def rng(seed=0):
    return np.random.default_rng(seed)


def test_random_recordings_are_reproducible_and_clean():
    one, other = random_recording(rng(3)), random_recording(rng(3))
    assert all(np.array_equal(one.load(name), other.load(name)) for name in one.names)
    assert not np.array_equal(random_recording(rng(4)).load("x"), one.load("x"))
    for seed in range(5):
        codes = random_recording(rng(seed), quantized=True, layers=4)
        assert codes.load("fc1").dtype == np.int8
        result = diff(random_recording(rng(seed), layers=4), codes)
        assert result.status == "within", result.verdict.sentence


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("wrong", ["fc1", "fc2_relu", "fc3"])
def test_a_wrong_node_of_a_random_recording_is_the_one_that_is_blamed(wrong, quantized):
    result = diff(random_recording(rng()), random_recording(rng(), quantized=quantized, wrong=wrong))
    assert result.first_divergence == wrong


@pytest.mark.parametrize("options", [{"wrong": "fc9"}, {"layers": 0}, {"samples": 0}])
def test_a_recording_that_cannot_be_made_is_refused(options):
    with pytest.raises(UsageError):
        random_recording(rng(), **options)
