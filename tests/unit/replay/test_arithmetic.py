import pytest

from qdebug.replay import ROUNDINGS, Arithmetic


def test_the_default_is_what_onnx_states():
    assert Arithmetic().rounding == "even"


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_known_roundings(rounding):
    assert Arithmetic(rounding=rounding).rounding == rounding


def test_unknown_roundings_are_refused():
    with pytest.raises(ValueError, match="'sideways'; expected one of"):
        Arithmetic(rounding="sideways")
