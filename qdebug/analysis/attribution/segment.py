"""Part of two graphs that leads from compared tensors to one compared tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qdebug.model import Node

__all__ = ["Segment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What leads from compared tensors to one compared tensor, in either graph.

    Args:
        nodes: The reference's nodes, in topological order; none if the backend only hands values on.
        feeds: Reference tensor to backend tensor, for what enters.
        own: The backend's nodes, in topological order; the last one makes the compared tensor.
        elsewhere: Whether the reference's nodes read compared tensors that the backend's do not.
    """

    nodes: tuple[Node, ...]
    feeds: Mapping[str, str]
    own: tuple[Node, ...] = ()
    elsewhere: bool = False

    @property
    def wide(self) -> bool:
        """Whether several backend nodes are judged together, since what lies between them has no partner."""
        return len(self.own) > 1
