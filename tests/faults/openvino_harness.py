"""Record an ONNX model in OpenVINO, the way a user without an adapter would: every result made an output, and put."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from qdebug import Recorder
from qdebug.model import Recording


def _name(output: object) -> str:
    """Return the name of an operator's result: ONNX's where OpenVINO keeps it."""
    node = output.get_node()
    names = sorted(output.get_names())
    single = node.get_output_size() == 1
    return names[0] if names else node.get_friendly_name() + ("" if single else f":{output.get_index()}")


def _key(output: object) -> tuple[str, int]:
    return output.get_node().get_friendly_name(), output.get_index()


def record(model: Path, feeds: Mapping[str, np.ndarray]) -> Recording:
    """Run all samples of the feeds with every result tapped.

    Args:
        model: An ONNX file.
        feeds: Inputs, samples along the leading axis.
    """
    import openvino

    core = openvino.Core()
    hints = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    net = core.read_model(model)
    ends = [_name(result.input(0).get_source_output()) for result in net.get_results()]
    nodes = [op for op in net.get_ordered_ops() if op.get_type_name() not in ("Parameter", "Result")]
    called = {_key(out): _name(out) for op in net.get_ordered_ops() for out in op.outputs()}  # a tap gets other names
    taps = [out for op in nodes if op.get_type_name() != "Constant" for out in op.outputs() if _name(out) not in ends]
    names = [*ends, *(called[_key(tap)] for tap in taps)]
    for tap in taps:
        net.add_outputs(tap)
    tapped = core.compile_model(net, "CPU", hints)
    recorder = Recorder(None, backend="openvino")
    for op in nodes:
        if op.get_type_name() == "Constant":
            recorder.constant(called[_key(op.output(0))], op.get_data())
    for sample in range(len(next(iter(feeds.values())))):
        if sample:
            recorder.next_sample()
        feed = {name: array[sample] for name, array in feeds.items()}
        found = tapped(feed)
        values = {name: found[index] for index, name in enumerate(names)}
        for name, array in feed.items():
            recorder.put(name, array)
        for op in nodes:
            for out in op.outputs() if op.get_type_name() != "Constant" else ():
                recorder.put(
                    called[_key(out)],
                    values[called[_key(out)]],
                    node=op.get_friendly_name(),
                    op=op.get_type_name(),
                    inputs=tuple(called[_key(each.get_source_output())] for each in op.inputs()),
                    attrs={k: v for k, v in op.get_attributes().items() if isinstance(v, int | float | str | list)},
                )
        recorder.outputs(*ends)
    recorder.close()
    return recorder.recording
