"""Free dimensions of inputs: chosen, shared by name, or filled in by default and said."""

import numpy as np
import pytest

from qdebug.errors import InputError
from qdebug.model import TensorInfo
from qdebug.running.fitted_inputs import GivenInputs, fit_inputs
from qdebug.running.input_shapes import choose_shapes

IMAGE = TensorInfo(name="image", shape=(None, 3, None, None), dtype="float32")
MASK = TensorInfo(name="mask", shape=(None, None), dtype="float32")
NAMES = {"image": ("N", "", "H", "W"), "mask": ("N", "W")}


def test_free_dimensions_take_their_default_and_that_is_said():
    shapes, filled = choose_shapes([IMAGE])
    assert shapes == {"image": (1, 3, 32, 32)}
    (clause,) = filled
    assert clause.startswith("'image' is 1x3x32x32: free dimensions (0, 2, 3) were filled in by default")
    assert clause.endswith("--shape image=1x3x32x32")
    assert choose_shapes([TensorInfo(name="x", shape=(None, 4), dtype="int8")]) == ({"x": (1, 4)}, [])


def test_a_dimension_has_one_extent_whichever_inputs_have_it():
    given = {"image": (2, 3, 48, 192)}
    assert choose_shapes([MASK, IMAGE], chosen_shapes=given, extent_names=NAMES) == ({**given, "mask": (2, 192)}, [])
    shapes, filled = choose_shapes([MASK, IMAGE], extent_names={"mask": ("N", "N"), "image": ("", "", "N", "W")})
    assert shapes == {"mask": (1, 1), "image": (1, 3, 1, 32)}
    assert "(0, W)" in filled[-1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"picture": (1,)}, "'picture', which is not an input"),
        ({"image": (1, 4, 8, 8)}, "has shape ?x3x?x?, but --shape says 1x4x8x8"),
        ({"image": (1, 3, 8)}, "has shape ?x3x?x?, but --shape says 1x3x8"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(given, said):
    with pytest.raises(InputError) as caught:
        choose_shapes([IMAGE, MASK], chosen_shapes=given, extent_names=NAMES)
    assert said in caught.value.message
    assert caught.value.hint


def test_a_shape_serves_an_input_of_unknown_rank():
    unknown = TensorInfo(name="x", shape=None, dtype="float32")
    wanted = GivenInputs(arrays=None, samples=None, origin_text="", shapes={"x": (2, 5)})
    assert fit_inputs(wanted, [unknown], may_adapt=False)[0]["x"].shape == (2, 5)


def test_shapes_of_the_user_hold_with_two_extents_for_one_dimension():
    given = {"image": (1, 3, 8, 8), "mask": (1, 9)}
    assert choose_shapes([IMAGE, MASK], chosen_shapes=given, extent_names=NAMES) == (given, [])


def test_arrays_that_are_not_of_the_shape_that_was_chosen_are_refused():
    arrays = {"mask": np.zeros((2, 6), np.float32)}
    with pytest.raises(InputError, match="has shape 2x6, but --shape says 2x5"):
        fit_inputs(
            GivenInputs(arrays=arrays, samples=None, origin_text="", shapes={"mask": (2, 5)}), [MASK], may_adapt=False
        )
