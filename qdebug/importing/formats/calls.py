"""Connect the calls of a dump: find the call that computed each input of a later call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import xxhash

from qdebug.importing.dump import DumpedTensor
from qdebug.recording.writing.write import Place

__all__ = ["Calls"]


class Calls:
    """The tensors of the calls so far, in the order of the run.

    These dumps contain the inputs of a call even if an earlier call computed them. An input is taken to be an earlier
    output if both have the same bytes, sample and step.
    """

    def __init__(self) -> None:
        self.tensors: list[DumpedTensor] = []
        self._names_by_content: dict[tuple[Place, bytes], str] = {}
        self._facts: dict[str, Mapping[str, Any]] = {}

    def add(
        self,
        node: str,
        op: str | None,
        *,
        inputs: Iterable[DumpedTensor],
        outputs: Iterable[DumpedTensor],
        parameters: Iterable[DumpedTensor] = (),
    ) -> None:
        """Add the tensors of a call.

        Args:
            node: Name of the call.
            op: Operator of the call; None if the dump does not state it.
            inputs: Tensors that the call reads.
            outputs: Tensors that the call computes.
            parameters: Constants that the call reads.
        """
        names = [self._add_input(tensor) for tensor in inputs]
        names += [self._add_input(replace(tensor, is_constant=True)) for tensor in parameters]
        for tensor in outputs:
            facts = self._facts.setdefault(tensor.name, {"node": node, "op": op, "inputs": tuple(names)})
            self.tensors.append(replace(tensor, facts=facts))
            self._names_by_content[_content_key(tensor)] = tensor.name

    def _add_input(self, tensor: DumpedTensor) -> str:
        """Return the name of an earlier tensor with the same bytes, or else add the input and return its own name."""
        name = self._names_by_content.setdefault(_content_key(tensor), tensor.name)
        if name == tensor.name:
            self.tensors.append(tensor)
        return name


def _content_key(tensor: DumpedTensor) -> tuple[Place, bytes]:
    kind = f"{tensor.dtype} {tensor.shape}".encode()
    return tensor.place, xxhash.xxh3_128_digest(kind + tensor.load().tobytes())
