"""A plane of few rows or columns is drawn in stretches, so that its elements can be told apart."""

import numpy as np
import pytest

from qdebug.tui.screens import ScreenId
from qdebug.tui.views.elements import ElementCursor
from qdebug.tui.views.heat_map import _Tiling
from qdebug.tui.views.table import Views


@pytest.mark.parametrize("size", [(1, 500), (2, 301), (3, 128), (500, 1), (301, 2)])
@pytest.mark.parametrize("room", [(20, 40), (34, 90), (8, 30)])
def test_each_element_of_a_thin_plane_is_drawn_once_and_found_again(size, room):
    tiling = _Tiling.make(size, room)
    assert tiling is not None
    plane = np.arange(size[0] * size[1], dtype=float).reshape(size)
    tiled = tiling.apply(plane)
    assert np.sort(tiled[tiled >= 0]).tolist() == sorted(plane.ravel().tolist())
    for row, column in np.ndindex(size):
        place = tiling.position_of(row, column)
        assert tiled[place] == plane[row, column]
        assert tiling.element_at(*place) == (row, column)


@pytest.mark.parametrize("size", [(1, 40), (4, 500), (28, 28), (1, 1)])
def test_what_fits_or_is_not_thin_is_drawn_as_it_is(size):
    assert _Tiling.make(size, (20, 40)) is None


def test_the_map_of_a_vector_has_lines_below_each_other(make_scene):
    reference = np.zeros((1, 300), np.float32)
    backend = reference.copy()
    backend[0, 250] = 3
    page = Views(ElementCursor())[ScreenId.MAP]
    scene = make_scene(arrays=(reference, backend))
    lines = ["".join(text for text, _ in line) for line in page.draw(scene, 80, 20)]
    assert any("in stretches of 50" in line for line in lines)
    assert sum("▀" in line for line in lines) >= 5
