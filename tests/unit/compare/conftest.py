"""What a planned node of a hand-made result is."""

import pytest

from qdebug.compare.align.pairs import Pair
from qdebug.compare.attribute.plan import PlannedNode


def planned_of(node):
    """Return what a result is of."""
    return PlannedNode(
        index=node.index,
        node=node.node,
        op=node.op,
        pair=Pair(reference=node.reference_tensor, backend=node.tensor, match=node.match, reason=node.match_reason),
        shape=None,
        quant=node.quant,
        relu_floor=False,
    )


@pytest.fixture
def planned():
    return planned_of
