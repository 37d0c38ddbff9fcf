"""Record an ONNX model in OpenVINO with every result tapped, so that a fault can be blamed on one node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qdebug import open_recording
from qdebug.model import Recording
from qdebug.running.record import record_run


def record(model: Path, feeds: Mapping[str, np.ndarray], *, taps: str = "all") -> Recording:
    """Run all samples of the feeds.

    Args:
        model: An ONNX file; the recording gets its name.
        feeds: Inputs, samples along the leading axis.
        taps: Which tensors are tapped.
    """
    made = record_run(
        model,
        backend="openvino",
        inputs=feeds,
        out=model.with_suffix(f".{taps}.openvino.h5"),
        options={"precision": "f32"},
        samples=len(next(iter(feeds.values()))),
        taps=taps,
        force=True,
    )
    return open_recording(made.path)
