"""Several backends beside each other."""

import math

from qdebug.compare.result.result import Status
from qdebug.numerics.agreement import Agreement
from qdebug.present.matrix import agreement_sentence, matrix_of


def two(made):
    good = made.result([made.node(i, metrics=made.stats(sqnr_db=40.0 - i)) for i in range(3)])
    bad = made.result(
        [
            made.node(0, Status.DIVERGED, metrics=made.stats(sqnr_db=3.0)),
            made.node(2, Status.INCOMPARABLE, reason="shapes"),
        ]
    )
    return {"good.h5": good, "bad.h5": bad}


def test_backends_are_lined_up_by_reference_tensor(made):
    matrix = matrix_of(two(made))
    assert list(matrix.backends) == ["good.h5", "bad.h5"]
    assert [row.tensor for row in matrix.rows] == ["conv0_out", "conv1_out", "conv2_out"]
    assert [[cell.text for cell in row.cells] for row in matrix.rows] == [
        ["40.0", "3.00"],
        ["39.0", "-"],
        ["38.0", "incomparable"],
    ]
    assert matrix.rows[0].cells[1].state == Status.DIVERGED


def test_the_worst_rows_come_first_and_equal_ones_are_left_out(made):
    equal = made.result([made.node(0, Status.IDENTICAL, metrics=made.stats(mismatches=0, sqnr_db=math.inf))])
    assert matrix_of({"a": equal, "b": equal}).worst_rows(9) == []
    rows = matrix_of(two(made)).worst_rows(2)
    assert [row.tensor for row in rows] == ["conv0_out", "conv2_out"]


def test_not_a_number_is_said_by_its_status(made):
    nan = made.node(0, Status.NONFINITE, metrics=made.stats(sqnr_db=math.nan, nonfinite=3))
    (row,) = matrix_of({"a": made.result([nan])}).rows
    assert (row.cells[0].text, row.cells[0].state) == ("nonfinite", Status.NONFINITE)


def test_the_worse_of_two_counts(made):
    twice = made.result([made.node(0), made.node(1, reference_tensor="conv0_out", metrics=made.stats(sqnr_db=12.0))])
    assert [cell.value for cell in matrix_of({"a": twice}).rows[0].cells] == [12.0]


def test_agreement_in_words(made):
    alike = {
        "conv0_out": Agreement(elements=100, differ=80, same=60),
        "conv1_out": Agreement(elements=100),
    }
    matrix = matrix_of(two(made), alike)
    assert [row.agreement_cell for row in matrix.rows] == ["75.0 % of 80", "-", "-"]
    assert agreement_sentence(matrix.rows) == (
        "In 80 elements all backends differ from the reference; in 75.0 % of these elements they agree with each other."
    )
    assert agreement_sentence(matrix_of(two(made)).rows) == ""
    none = matrix_of(two(made), {"conv1_out": Agreement(elements=100)})
    assert agreement_sentence(none.rows).startswith("There is no element")
