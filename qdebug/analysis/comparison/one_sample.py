"""One sample of a recording, seen as a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qdebug.analysis.results.result import DiffResult
from qdebug.errors import RecordingError, UsageError
from qdebug.model import QuantParams, Recording
from qdebug.model.forwarding import ForwardingRecording
from qdebug.model.kept import Kept

__all__ = ["OneSample", "renumbered"]


class OneSample(ForwardingRecording):
    """A recording of which only one sample is looked at; it is numbered 0 in here.

    Args:
        recording: The whole recording.
        sample: The sample looked at.

    Raises:
        UsageError: The recording has no such sample.
    """

    def __init__(self, recording: Recording, sample: int) -> None:
        if sample >= recording.samples:
            last = recording.samples - 1
            held = "the sample 0 alone" if last == 0 else f"the samples 0 to {last}"
            raise UsageError(
                f"There is no sample {sample}: the recording of {recording.info.backend!r} holds {held}.",
                hint=f"Give --sample N with N at most {last}.",
            )
        super().__init__(recording)
        self._sample = sample

    @property
    def samples(self) -> int:
        """Always 1."""
        return 1

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Tell whether values of a tensor were kept for the sample and a step."""
        return sample == 0 and super().has(tensor, self._sample, step)

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Give the stored elements of the sample, read-only.

        Raises:
            RecordingError: No values are kept under this name and step, or it is another sample that is asked for.
        """
        if sample != 0:
            raise RecordingError(
                f"Only sample {self._sample} of {self.info.backend!r} is looked at; it is number 0 here.",
                hint="Ask for sample 0.",
            )
        return super().load(tensor, self._sample, step)

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Give what was kept of values that were not kept in full; None if they were, or there are none."""
        return super().kept(tensor, self._sample, step) if sample == 0 else None

    @property
    def event_quants(self) -> Mapping[tuple[str, int, int], QuantParams]:
        """Quantization of values that do not have their tensor's, by tensor, sample and step."""
        every = super().event_quants
        return {(name, 0, step): quant for (name, sample, step), quant in every.items() if sample == self._sample}


def renumbered(result: DiffResult, sample: int) -> DiffResult:
    """Give a comparison of one sample with the number that the sample has in the recordings.

    Args:
        result: A comparison of two `OneSample` recordings.
        sample: The sample's number.
    """
    nodes = []
    for node in result.nodes:
        samples = tuple(replace(entry, sample=sample) for entry in node.samples)
        metrics = node.metrics
        if metrics is not None and metrics.worst_sample is not None:
            metrics = replace(metrics, worst_sample=sample)
        nodes.append(replace(node, samples=samples, metrics=metrics))
    outputs = tuple(
        output if output.worst_sample is None else replace(output, worst_sample=sample) for output in result.outputs
    )
    verdict = result.verdict
    if verdict.worst_sample is not None:
        verdict = replace(verdict, worst_sample=sample)
    return replace(result, nodes=tuple(nodes), outputs=outputs, verdict=verdict)
