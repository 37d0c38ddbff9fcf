"""Shapes of a model's inputs: what the model leaves free is chosen by the user, by another input, or by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qdebug.backends.protocol import check_shapes
from qdebug.model import TensorInfo

__all__ = ["Shape", "choose_shapes", "dimensions"]

Shape = tuple[int, ...]
"""Extents of an array, without axes of samples and steps."""
_OPEN_EXTENT = 32
"""Extent along a free axis that is no batch: large enough that no stride of a usual net leaves nothing of it."""
_OPEN_BATCH = 1


def dimensions(shape: Sequence[int]) -> str:
    """Return a shape as `--shape` takes it, such as 1x3x224x224."""
    return "x".join(map(str, shape))


def choose_shapes(
    infos: Sequence[TensorInfo],
    *,
    given: Mapping[str, Shape] | None = None,
    extent_names: Mapping[str, Sequence[str]] | None = None,
) -> tuple[dict[str, Shape], list[str]]:
    """Choose a shape for each input. A named dimension is filled in with one extent, whichever inputs have it.

    Shapes that the user chose hold even where they give one name two extents: what the model takes, the runtime says.

    Args:
        infos: The inputs of the model.
        given: Shapes that the user chose, by input.
        extent_names: The name of each dimension of an input, by input; "" for one without a name.

    Returns:
        A shape for each input whose rank is known, and a sentence for each one whose free dimensions were filled in by
        default; a leading one is the batch, which is 1 and not mentioned alone.

    Raises:
        InputError: A shape is given for something that is no input, or does not fit the model.
    """
    given, names = given or {}, extent_names or {}
    check_shapes(infos, given)
    known: dict[str, int] = {}
    for name, shape in given.items():
        _bind(known, shape, names.get(name, ()))
    shapes: dict[str, Shape] = {}
    filled: list[str] = []
    for info in infos:
        if info.name in given:
            shapes[info.name] = given[info.name]
        elif info.shape is not None:
            named = [*names.get(info.name, ())] or [""] * len(info.shape)
            shape, free = _filled(info.shape, named, known)
            shapes[info.name] = shape
            _bind(known, shape, named)
            if any(axis > 0 for axis in free):
                axes = ", ".join(named[axis] or str(axis) for axis in free)
                filled.append(
                    f"{info.name!r} is {dimensions(shape)}: free dimensions ({axes}) were filled in by default; "
                    f"choose them with --shape {info.name}={dimensions(shape)}"
                )
    return shapes, filled


def _filled(shape: Sequence[int | None], named: Sequence[str], known: Mapping[str, int]) -> tuple[Shape, list[int]]:
    """Return a shape without free dimensions, and the axes that took their default."""
    found: list[int] = []
    free: list[int] = []
    own: dict[str, int] = {}
    for axis, extent in enumerate(shape):
        name = named[axis]
        if extent is not None:
            found.append(extent)
        elif name in known:
            found.append(known[name])
        else:
            found.append(own.get(name, _OPEN_EXTENT if axis else _OPEN_BATCH))
            free.append(axis)
        if name:
            own[name] = found[-1]
    return tuple(found), free


def _bind(known: dict[str, int], shape: Sequence[int], named: Sequence[str]) -> None:
    """Take the extents of an input for the dimensions that it is the first to name."""
    for extent, name in zip(shape, named, strict=False):
        if name:
            known.setdefault(name, extent)
