"""Small tensors of one shape that are counted as one stretch."""

from __future__ import annotations

import numpy as np

from qdebug.numerics.affine import BLOCK
from qdebug.numerics.blocks import RealBlocks, Scratch
from qdebug.numerics.lsb import Steps

__all__ = ["SmallTensors"]


class SmallTensors:
    """Small tensors of one shape, all of which float32 holds exactly, in the order they came.

    Args:
        shape: Shape of each.
        steps: Size of an LSB, the same in all.
    """

    def __init__(self, shape: tuple[int, ...], steps: Steps) -> None:
        self.shape = shape
        self.steps = steps
        self.sides: list[tuple[RealBlocks, RealBlocks]] = []
        self.places: list[tuple[int, int]] = []

    def add(self, sides: tuple[RealBlocks, RealBlocks], sample: int, step: int) -> None:
        """Add those of the reference and the backend of a sample and step; their arrays are not copied."""
        self.sides.append(sides)
        self.places.append((sample, step))

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Tell whether one more of a shape fits a block with the others."""
        return shape == self.shape and (len(self.sides) + 1) * self.sides[0][1].size <= BLOCK

    def read(self, buffers: Scratch) -> tuple[np.ndarray, np.ndarray]:
        """Give the values of both sides, one tensor after another, as float32.

        Args:
            buffers: Scratch; its first two float32 buffers are used.
        """
        size = self.sides[0][1].size
        if len(self.sides) == 1:
            first, second = self.sides[0]
            return first.read_single(0, size, buffers.singles[0]), second.read_single(0, size, buffers.singles[1])
        for number, pair in enumerate(self.sides):
            for side, buffer in zip(pair, buffers.singles, strict=False):
                out = buffer[number * size : (number + 1) * size]
                np.copyto(out, side.read_single(0, size, out))  # which may be the tensor itself, or `out` already
        count = len(self.sides) * size
        return buffers.singles[0][:count], buffers.singles[1][:count]
