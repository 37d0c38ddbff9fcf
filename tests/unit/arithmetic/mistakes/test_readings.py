"""What a kernel reads instead of an operand, and what it writes instead of its result."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.mistakes.readings import readings, rewritings
from qdebug.model import Node

ARRAY = np.arange(1, 25, dtype=np.float32).reshape(4, 6)
SQUARE = np.arange(64, dtype=np.float32).reshape(8, 8)


def node(op="Mul", inputs="x w"):
    return Node(name="n", op=op, inputs=tuple(inputs.split()), outputs=("y",))


def read(array, name="x", op="Mul"):
    """Return what is read instead of an operand, by text."""
    values = {"x": array, "w": np.float32(2)}
    return {mistake.likely: mistake.values.get(name) for mistake in readings(node(op), values)}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("'x' is read in reverse along axis 1", ARRAY[:, ::-1]),
        ("'x' is read one position before the right one along axis 0", np.roll(ARRAY, 1, 0)),
        ("the last element of 'x' along axis 0 is read for all positions", np.repeat(ARRAY[-1:], 4, 0)),
        ("each element of 'x' along axis 1 is read 2 times in a row", ARRAY[:, [0, 0, 1, 1, 2, 2]]),
        ("the element of 'x' before index 4 along axis 1 is read for all later ones", ARRAY[:, [0, 1, 2, 3, 3, 3]]),
        ("only the first 4 elements of 'x' along axis 1 are read, cyclically", ARRAY[:, [0, 1, 2, 3, 0, 1]]),
        ("each 2 elements of 'x' along axis 1 are read in reverse", ARRAY[:, [1, 0, 3, 2, 5, 4]]),
        ("the halves of 'x' along axis 1 are swapped", ARRAY[:, [3, 4, 5, 0, 1, 2]]),
        ("the sign of 'x' is flipped", -ARRAY),
        ("the square of 'x' is read", ARRAY**2),
        ("'x' counts as 0 from index 4 on along axis 1", np.where(np.arange(6) < 4, ARRAY, 0)),
        ("'x' is read as if its axes were stored in the order 1, 0", ARRAY.reshape(6, 4).T),
        (
            "the smaller half of every 4 elements of 'x' along axis -2 counts as 0 (sparse format)",
            np.where(np.arange(4)[:, None] < 2, 0, ARRAY),
        ),
    ],
)
def test_what_is_read_instead(said, expected):
    assert np.array_equal(read(ARRAY)[said], expected)


def test_tiles_are_transposed():
    tiles = read(SQUARE)["each tile of 4 x 4 elements of 'x' is transposed"]
    for rows in (slice(0, 4), slice(4, 8)):
        for columns in (slice(0, 4), slice(4, 8)):
            assert np.array_equal(tiles[rows, columns], SQUARE[rows, columns].T)


def test_numbers_are_quantized_and_rounded():
    array = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    said = read(array)
    scale = np.abs(array).max(1, keepdims=True) / 127
    by_row = said["'x' is quantized to 8 bits first, with a scale for each index of axis 0"]
    assert np.allclose(by_row, np.rint(array / scale) * scale)
    assert np.array_equal(said["'x' is rounded to float16 first"], array.astype(np.float16).astype(np.float32))
    assert np.array_equal(said["negative numbers of 'x' are read as 0"], np.maximum(array, 0))


def test_integers_are_shifted_narrowed_and_taken_for_the_largest():
    array = np.array([[1, 200], [300, 7]])
    said = read(array)
    assert np.array_equal(said["'x' is one too large"], array + 1)
    assert np.array_equal(said["'x' is one too small"], array - 1)
    assert np.array_equal(said["'x' is kept in int8 and wraps around"], [[1, -56], [44, 7]])
    assert np.array_equal(said["the largest number of 'x' is used for all elements"], [[300, 300], [300, 300]])
    codes = np.array([-3, 5], np.int8)
    assert np.array_equal(read(codes)["'x' is read as uint8"], [253, 5])


def test_a_row_is_broadcast_along_another_axis():
    said = read(np.arange(5.0, dtype=np.float32))
    assert said["'x' is broadcast along axis -2, not -1"].shape == (5, 1)
    column = read(np.arange(5.0, dtype=np.float32).reshape(5, 1, 1))
    assert column["'x' is broadcast along axis -1, not -3"].shape == (1, 1, 5)


def test_an_operand_is_left_out_added_or_read_in_place_of_another():
    values = {"x": ARRAY, "w": ARRAY + 1, "c": ARRAY[0]}
    by_text = {mistake.likely: mistake for mistake in readings(node("Gemm", "x w c"), values)}
    assert by_text["its input 'c' is ignored"].node.inputs == ("x", "w", "")
    added = by_text["its input 'c' is ignored, and added to the result"]
    assert np.array_equal(added.after(np.zeros((4, 6), np.float32)), np.broadcast_to(ARRAY[0], (4, 6)))
    assert np.array_equal(by_text["'x' is read instead of 'w'"].values["w"], ARRAY)
    assert np.array_equal(by_text["'x' and 'w' are swapped"].values["x"], ARRAY + 1)
    quantized = by_text["both factors are quantized to 8 bits first, with one scale each"].values
    assert set(quantized) == {"x", "w"}
    assert np.abs(quantized["w"] - values["w"]).max() <= 25 / 127 / 2 * 1.001


def test_a_result_is_written_in_another_order_but_not_left_unwritten():
    said = {mistake.likely: mistake.after(ARRAY) for mistake in rewritings(node(), ARRAY)}
    assert np.array_equal(said["the result is read in reverse along axis 0"], ARRAY[::-1])
    assert not any("counts as 0" in text and "sparse" not in text for text in said)


def band(first, last, marked, other, shape=(4, 12)):
    distance = np.arange(shape[1]) - np.arange(shape[0])[:, None]
    return np.where((first <= distance) & (distance <= last), marked, other)[None, None]


@pytest.mark.parametrize(("marked", "other"), [(0.0, -np.inf), (True, False), (0.0, -1e4)])
def test_a_causal_mask_is_read_as_if_its_first_row_and_column_were_aligned(marked, other):
    mask, expected = band(-3, 8, marked, other), band(-3, 0, marked, other)
    texts = [text for text, values in read(mask).items() if values is not None and np.array_equal(values, expected)]
    assert "row i of 'x' marks columns up to i, not up to i+8" in texts


def test_a_window_is_read_as_symmetric():
    mask, expected = band(-2, 0, 0.0, -1e4, (8, 8)), band(-2, 2, 0.0, -1e4, (8, 8))
    assert np.array_equal(read(mask)["row i of 'x' marks columns i-2 to i+2, not i-2 to i"], expected)
    assert "row i of 'x' marks columns up to i, not i-2 to i" in read(mask)


def test_an_array_of_no_band_is_no_such_mask():
    assert not [text for text in read(np.array([[0.0, 1, 1], [0, 0, 1], [0, 1, 1]])) if text.startswith("row i")]


def test_the_batches_of_a_transposed_view_are_read_with_the_stride_of_its_heads():
    array = np.arange(2 * 3 * 7 * 4).reshape(2, 3, 7, 4)
    memory = np.append(array.transpose(0, 2, 1, 3).reshape(-1), np.zeros(12, int))
    expected = np.lib.stride_tricks.as_strided(memory, array.shape, [8 * each for each in (12, 4, 12, 1)])
    text = "'x' is read with the stride of axis 2 along axis 0, as stored with its axes in the order 0, 2, 1, 3"
    np.testing.assert_array_equal(read(array)[text], expected)


def test_channels_in_blocks_are_read_as_if_they_were_not():
    array = np.arange(1 * 8 * 2 * 3).reshape(1, 8, 2, 3)
    expected = array.reshape(1, 2, 4, 2, 3).transpose(0, 1, 3, 4, 2).reshape(array.shape)
    text = "'x' is stored in blocks of 4 along axis 1 (blocks innermost), and read as if it were not"
    np.testing.assert_array_equal(read(array)[text], expected)


def test_a_maximum_ignores_a_part_of_its_operand():
    x = np.random.default_rng(5).normal(size=(2, 9)).astype(np.float32)
    form = Node(name="n", op="ReduceMax", inputs=("x",), outputs=("y",))
    ignored = {each.likely: each.values["x"] for each in readings(form, {"x": x}) if "ignored" in each.likely}
    wrong = ignored["'x' is ignored from index 8 on along axis 1"]
    assert (wrong[:, :8] == x[:, :8]).all()
    assert (wrong[:, 8] == x.max()).all() or (wrong[:, 8] == x.min()).all()
