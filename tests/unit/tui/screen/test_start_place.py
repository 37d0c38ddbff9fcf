"""Where the walk begins: at a node by its name, by a part of it or by a pattern."""

import pytest

from qdebug.errors import UsageError
from qdebug.tui.screen.start_place import StartPlace, make_navigator


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("block2/relu_10", 10),
        ("block2/relu_10_out", 10),
        ("RELU_10", 10),
        ("ref_17", 17),
        ("*linearadd_9", 9),
        ("loose", 24),
    ],
)
def test_a_name_a_part_and_a_pattern_lead_to_a_node(make_scene, name, row):
    assert make_navigator(make_scene().opened, StartPlace(node=name)).cursor == row


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("relu", r"'relu' matches 6 nodes: 'block0/relu_2', .*"),
        ("block2/rellu_10", "No node and no tensor is called .* Near names: 'block2/relu_10'.*"),
        ("[", "No node and no tensor is called"),
    ],
)
def test_what_fits_several_or_none_is_listed(make_scene, name, said):
    with pytest.raises(UsageError, match=said):
        make_navigator(make_scene().opened, StartPlace(node=name))
