"""Entries of a plan as the results of it name them."""

from qdebug.analysis.alignment import Pair
from qdebug.analysis.plan import PlannedNode


def planned(node):
    """Give the entry that a result is of."""
    return PlannedNode(
        index=node.index,
        node=node.node,
        op=node.op,
        pair=Pair(reference=node.reference_tensor, backend=node.tensor, match=node.match, reason=node.match_reason),
        shape=None,
        quant=node.quant,
        relu_floor=False,
    )
