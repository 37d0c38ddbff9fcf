"""Elements side by side: none loses the end of its number."""

import numpy as np
import pytest

from qdebug.tui.views.elements import ElementCursor
from qdebug.tui.views.values import ValuesView


def drawn(scene, form="real", width=80):
    cursor = ElementCursor()
    page = ValuesView(cursor)
    cursor.form = form
    return ["".join(text for text, _ in line) for line in page.draw(scene, width, 24)]


def words(row):
    """Return the numbers of a row, without the signs between them."""
    for sign in ("▸", "^", "->", "(", ")"):
        row = row.replace(sign, " ")
    return row.split()


@pytest.mark.parametrize("value", [1e300, -1e300, -1.2345e-5, -9.87654e-10, 1.5e-310, -123456.0])
def test_a_number_keeps_its_exponent(make_scene, value):
    array = np.full((1, 1, 3, 3), value)
    lines = drawn(make_scene(arrays=(array, array)))
    row = words([line for line in lines if line.lstrip().startswith("1 ")][-1])
    assert [float(each) for each in row[1:3]] == pytest.approx([value] * 2, rel=0.1)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_bits_are_written_whole_or_shown_to_be_cut(make_scene, width):
    array = np.full((1, 1, 3, 3), np.pi)
    lines = drawn(make_scene(arrays=(array, array)), "hex", width)
    row = words([line for line in lines if line.lstrip().startswith("1 ")][-1])
    assert row[1] == "400921fb54442d18" or "…" in row[1]
    assert all(len(line) <= width for line in lines if line.lstrip()[:2] in {"0 ", "1 ", "2 "})
    assert width < 80 or row[1] == "400921fb54442d18"


def test_neighbours_among_large_integers_are_told_apart(make_scene):
    reference = np.full((1, 1, 3, 3), 2**53, np.int64)
    backend = reference + 1
    text = "\n".join(drawn(make_scene(arrays=(reference, backend))))
    assert "reference 9007199254740992" in text
    assert "backend 9007199254740993" in text
    assert "difference 1" in text


def test_neighbours_among_large_numbers_are_told_apart(make_scene):
    reference = np.full((1, 1, 3, 3), 2.0**31)
    text = "\n".join(drawn(make_scene(arrays=(reference, reference + 0.25)), width=120))
    assert "reference 2147483648" in text
    assert "backend 2147483648.25" in text


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "int4"])
def test_integers_are_integers_and_so_are_their_differences(make_scene, dtype):
    import ml_dtypes

    kind = ml_dtypes.int4 if dtype == "int4" else dtype
    reference = np.zeros((1, 1, 3, 3)).astype(kind)
    lines = drawn(make_scene(arrays=(reference, np.ones((1, 1, 3, 3)).astype(kind))))
    row = [line for line in lines if line.lstrip().startswith("1 ")][-1]
    assert words(row) == ["1", *"011" * (len(words(row)) // 3)]
    assert "reference 0  backend 1  difference 1" in "\n".join(lines)


@pytest.mark.parametrize(("width", "cut"), [(80, False), (60, False), (46, True)])
def test_large_integers_have_all_their_digits_or_are_shown_to_be_cut(make_scene, width, cut):
    reference = np.full((1, 1, 3, 3), -(2**62) - 1)
    lines = drawn(make_scene(arrays=(reference, reference + 7)), width=width)
    row = words([line for line in lines if line.lstrip().startswith("1 ")][-1])
    assert (row[1:4] == ["-4611686018427387905", "-4611686018427387898", "7"]) is not cut
    assert ("…" in row[1]) is cut
    assert "difference 7" in "\n".join(lines)
