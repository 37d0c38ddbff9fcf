"""By which difference an index, a truth value or an integer came out otherwise."""

import numpy as np
import pytest

import qdebug


def recorded(op, x, y, *, beside=None, attrs=None):
    with qdebug.Recorder(None, backend="b") as rec:
        rec.put("x", np.asarray(x, np.float32))
        names = ["x"]
        if beside is not None:
            rec.constant("limit", np.float32(beside))
            names.append("limit")
        rec.put("y", np.asarray(y), node="pick", op=op, inputs=tuple(names), attrs=attrs or {})
        rec.outputs("y")
    return rec.recording


def selections(reference, backend):
    node = qdebug.diff(reference, backend).nodes[-1]
    return [each for each in node.findings if each.kind == "selection"]


ROWS = [[1, 2, 3], [3, 2, 1]]
OTHER = [[1, 2, 3], [3, 3.25, 1]]


def test_an_index_says_by_how_much_the_two_values_changed_places():
    best = {"attrs": {"axis": 1, "keepdims": 0}}
    (found,) = selections(
        recorded("ArgMax", ROWS, np.array([2, 0]), **best), recorded("ArgMax", OTHER, np.array([2, 1]), **best)
    )
    assert (found.role, found.evidence, found.amount, found.limit) == ("note", "x", 1.25, None)
    assert found.sentence == "1 of 2 elements differs; a difference of 1.25 in 'x' changes the selection"


def test_a_comparison_says_by_how_much_its_operands_did():
    above = np.array(ROWS) > 2.5
    (found,) = selections(
        recorded("Greater", ROWS, above, beside=2.5), recorded("Greater", OTHER, np.array(OTHER) > 2.5, beside=2.5)
    )
    assert (found.amount, found.sentence.split(";")[0]) == (1.25, "1 of 6 elements differs")


def test_a_cast_says_by_how_much_the_number_differed():
    whole = [np.array(rows).astype(np.int64) for rows in (ROWS, OTHER)]
    whole[1][1, 1] = 3
    (found,) = selections(
        recorded("Cast", ROWS, whole[0], attrs={"to": 7}), recorded("Cast", OTHER, whole[1], attrs={"to": 7})
    )
    assert found.amount == 1.25


@pytest.mark.parametrize("index", [(2, 0), (2, 2)])
def test_what_is_right_and_what_the_inputs_do_not_give_is_selected_by_nothing(index):
    best = {"attrs": {"axis": 1, "keepdims": 0}}
    reference = recorded("ArgMax", ROWS, np.array([2, 0]), **best)
    assert not selections(reference, recorded("ArgMax", ROWS, np.array(index), **best))
