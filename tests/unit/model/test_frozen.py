"""What makes the model types immutable in depth."""

import numpy as np
import pytest

from qdebug.model.frozen import frozen_array, frozen_mapping, rebuild, same_value


def test_a_frozen_array_is_a_copy_that_cannot_be_written():
    given = np.arange(3)
    frozen = frozen_array(given)
    given[0] = 9
    assert frozen.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        frozen[0] = 1


def test_a_scalar_can_be_given_a_dimension():
    assert frozen_array(0.5, np.float32, ndmin=1).shape == (1,)


def test_a_frozen_mapping_is_cut_off_from_what_it_was_made_of():
    array = np.zeros(2)
    given = {"a": 1, "b": array}
    frozen = frozen_mapping(given)
    given["c"] = 2
    array[0] = 7.0
    assert list(frozen) == ["a", "b"]
    assert frozen["b"].tolist() == [0.0, 0.0]
    with pytest.raises(TypeError):
        frozen["a"] = 2


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        ((1, 2), (1, 2), True),
        (np.array([1, 2]), np.array([1, 2]), True),
        (np.array([1, 2]), np.array([1, 3]), False),
        (np.array([1, 2], np.int8), np.array([1, 2], np.int16), False),
        (np.array([1, 2]), np.array([[1, 2]]), False),
        (np.array([np.nan]), np.array([np.nan]), True),
        (np.array(1), 1, False),
    ],
)
def test_same_value(first, second, same):
    assert same_value(first, second) is same


def test_rebuild_calls_the_type_with_its_fields():
    assert rebuild(complex, {"real": 1.0, "imag": 2.0}) == 1 + 2j
