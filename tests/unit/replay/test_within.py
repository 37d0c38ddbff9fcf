import numpy as np
import pytest

from qdebug.replay.within import normalize_axis, normalize_indices


def test_negative_axes_and_indices_count_from_the_end():
    assert [normalize_axis(axis, 3) for axis in (-3, -1, 0, 2)] == [0, 2, 0, 2]
    assert normalize_indices(np.array([-4, -1, 0, 3], np.int32), 4).tolist() == [0, 3, 0, 3]
    assert normalize_indices(np.zeros((2, 0)), 0).shape == (2, 0)


@pytest.mark.parametrize(("axis", "rank"), [(3, 3), (-4, 3), (0, 0), (-1, 0)])
def test_an_axis_beyond_the_rank_is_refused(axis, rank):
    with pytest.raises(ValueError, match=f"axis {axis} is out of range for {rank} axes"):
        normalize_axis(axis, rank)


@pytest.mark.parametrize("indices", [[0, 4], [-5, 0]])
def test_an_index_beyond_the_extent_is_refused(indices):
    with pytest.raises(ValueError, match=f"from {indices[0]} to {indices[1]} are out of range for 4"):
        normalize_indices(np.array(indices), 4)
