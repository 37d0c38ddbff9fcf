import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.tui.nodes.filter import (
    FLAGS,
    NUMBERS,
    TEXTS,
    FilterError,
    example_of_begun_field,
    filter_rows,
    valid_prefixes,
)
from qdebug.tui.nodes.rows import State


@pytest.fixture
def table(make_table):
    """Return 24 nodes, of which 9, 10 and 17 fail and 5 is not comparable."""
    return make_table(24)


def rows(expression, table, **options):
    return np.flatnonzero(filter_rows(expression, table, **options)).tolist()


def test_numbers_are_compared_and_the_unknown_fits_nothing(table):
    assert rows("sqnr<20", table) == [9, 10, 17]
    assert 5 not in rows("sqnr<1e9 | sqnr>=1e9", table), "row 5 has no SQNR"
    assert rows("row>=20 & row<22", table) == [20, 21]
    assert rows("row>=22", table) == [22, 23], "what has no partner has no number"
    assert rows("at_ends>2%", table) == rows("at_ends>0.02", table) != []
    assert rows("clipped>0.5%", table) == rows("sat>0", table) != []
    assert rows("clipped>1%", table) == []
    assert rows("sqnr=inf", table) == [0]
    assert rows("sqnr<20dB & lsb>0LSB", table) == rows("sqnr<20 & lsb>0", table)


def test_texts_are_compared_as_a_whole_or_by_a_regular_expression(table):
    assert rows("op=relu", table) == list(range(2, 24, 4))
    assert rows("op~'^qlinear(conv|add)$'", table) == rows("op=QLinearConv | op=QLinearAdd", table)
    assert rows("name~block2/", table) == [8, 9, 10, 11]
    assert rows("op!=relu & row<4", table) == [0, 1, 3]
    assert rows("state=diverged", table) == [9, 10, 17]


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ("introduced>=0", "intro>=0"),
        ("sqnr_db<=60", "sqnr<=60"),
        ("clipped>0.1%", "sat>0.1%"),
        ("clipped>0.1%", "saturated>0.1%"),
        ("status=diverged", "state=diverged"),
        ("node~c", "name~c"),
        ("reference_tensor~r", "ref~r"),
    ],
)
def test_fields_go_by_the_names_of_headings_and_json_as_well(table, said, field):
    expected = filter_rows(field, table)
    assert expected.any()
    assert np.array_equal(filter_rows(said, table), expected)


def test_a_bare_word_is_part_of_a_name(table):
    assert rows("BLOCK3", table) == [12, 13, 14, 15]
    assert rows("'maxpool_7'", table) == [7]


def test_flags(table):
    assert rows("is=failing", table) == [9, 10, 17]
    assert 5 in rows("is=missing", table)
    assert rows("is=marked", table, marked_rows=[3, 8]) == [3, 8]
    assert len(rows("is!=quantized", table)) == sum(row.quant is None for row in table.rows)
    assert rows("is=pending | is=acknowledged | is=explained", table) == []


def test_and_binds_closer_than_or_and_parentheses_group(table):
    assert rows("row=1 | row=2 & row=3", table) == [1]
    assert rows("(row=1 | row=2) & row=2", table) == [2]
    assert rows("!(row<22)", table)[:2] == [22, 23]
    assert rows("!!row=4", table) == [4]


def test_one_sample_has_its_own_numbers_and_states(table):
    assert rows("state=diverged", table, sample=1) == [9, 10, 17]
    assert rows("sqnr<4", table, sample=2) != rows("sqnr<4", table)
    with pytest.raises(FilterError, match="single sample"):
        filter_rows("rel>1", table, sample=0)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "an expression"),
        ("rel>", "a value after rel>"),
        ("rel>x", "a number after rel>, not 'x'"),
        ("rel>20dB", "a number after rel>, not '20dB'"),
        ("rel~3", "is a number"),
        ("clipped>2", "a percentage, such as clipped>1%"),
        ("op>3", "is text"),
        ("op~'('", "not a valid regular expression yet"),
        ("nonsense>3", "no field 'nonsense'"),
        ("is=odd", "is= takes one of"),
        ("(row=1", "expected )"),
        ("row=1 row=2", "expected & or |"),
        ("row=1 &", "a field or a part of a name"),
        ("> 3", "a field or a part of a name"),
        ("(" * 200, "too many parentheses"),
        ("!" * 200 + "x", "too many parentheses"),
    ],
)
def test_what_cannot_be_read_says_what_is_expected(table, expression, words):
    with pytest.raises(FilterError) as caught:
        filter_rows(expression, table)
    assert words in str(caught.value)


def test_acknowledged_rows_fail_no_more(table):
    table.acknowledged[9] = True
    assert rows("is=failing", table) == [10, 17]
    assert rows("is=acknowledged", table) == [9]
    assert table.first_divergence() in {9, 10}


WORDS = st.sampled_from(
    [*NUMBERS, *TEXTS, "is", *FLAGS, "conv", "3", "1%", "'a'", "~", "=", "<", ">=", "&", "|", "!", "(", ")"]
)


@drawn(200)
@given(st.lists(WORDS, max_size=12), st.text(max_size=8))
def test_any_text_gives_a_mask_or_says_why_not(words, rest):
    table = _table()
    try:
        mask = filter_rows(" ".join(words) + rest, table)
    except FilterError as error:
        said = str(error)
        if not said:
            pytest.fail("an error without a word")
    else:
        assert mask.dtype == bool
        assert len(mask) == table.size


def _table():
    from qdebug.tui.nodes.rows import NodeTable, PlannedRow

    table = NodeTable([PlannedRow(node=f"n{i}", op="Conv", tensor=f"t{i}", reference_tensor="r") for i in range(3)])
    assert State(int(table.state[0])) is State.PENDING
    return table


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("sqnr<", ["sqnr<", ""]),
        ("conv & sq", ["conv & sq", "conv & ", "conv &", "conv ", "conv", ""]),
        ("rel>1e", ["rel>1e", "rel>1", "rel>", ""]),
        ("rel > 1", ["rel > 1", "rel > ", "rel >", ""]),
        ("a != ", ["a != ", "a !=", "a !", ""]),
    ],
)
def test_what_is_typed_so_far_is_never_cut_within_a_name_or_before_a_comparison(expression, expected):
    assert list(valid_prefixes(expression)) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("sq", "sqnr>1"),
        ("conv | O", "op~conv"),
        ("i", "introduced>1"),
        ("is", "is=failing"),
        ("op=re", None),
        ("", None),
    ],
)
def test_the_beginning_of_a_field_is_known(expression, expected):
    assert example_of_begun_field(expression) == expected
