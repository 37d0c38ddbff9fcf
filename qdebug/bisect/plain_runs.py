"""Scripts that run a model in a runtime alone, without qdebug, and print a hash of each output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["plain_script"]

_HEAD = """\
import hashlib

import numpy as np

inputs = dict(np.load({inputs!r}))
"""
_TAIL = """\
for name, value in sorted(outputs.items()):
    value = np.ascontiguousarray(value)
    print(name, value.dtype, value.shape, hashlib.sha256(value.tobytes()).hexdigest()[:16], value.ravel()[:8])
"""
_BODIES: Mapping[str, str] = {
    "onnxruntime": """\
import onnxruntime

options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.{level}
options.intra_op_num_threads = {threads}
session = onnxruntime.InferenceSession(
    {model!r}, options, providers=[{provider!r}], disabled_optimizers={disabled!r}
)
names = [output.name for output in session.get_outputs()]
outputs = dict(zip(names, session.run(names, inputs)))
""",
    "litert": """\
from ai_edge_litert import interpreter as litert

resolver = litert.OpResolverType.{resolver}
interpreter = litert.Interpreter({model!r}, experimental_op_resolver_type=resolver, num_threads={threads})
details = interpreter.get_input_details()
for detail in details:
    if tuple(detail["shape"]) != inputs[detail["name"]].shape:
        interpreter.resize_tensor_input(detail["index"], inputs[detail["name"]].shape)
interpreter.allocate_tensors()
for detail in details:
    interpreter.set_tensor(detail["index"], inputs[detail["name"]])
interpreter.invoke()
outputs = {{detail["name"]: interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()}}
""",
    "openvino": """\
import openvino

config = {config!r}
compiled = openvino.Core().compile_model({model!r}, {device!r}, config)
result = compiled(inputs)
outputs = {{str(at): result[port] for at, port in enumerate(compiled.outputs)}}
""",
}
_LEVELS = {"none": "DISABLE_ALL", "basic": "ENABLE_BASIC", "extended": "ENABLE_EXTENDED", "all": "ENABLE_ALL"}
_RESOLVERS = {"xnnpack": "AUTO", "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "reference": "BUILTIN_REF"}


def plain_script(backend: str, model: str, inputs: str, options: Mapping[str, str], words: Sequence[str]) -> str:
    """Return a Python script that runs a model once, or "" if none is known for the run.

    Args:
        backend: Name of the backend.
        model: The model file.
        inputs: The .npz file of inputs.
        options: Options of the backend.
        words: Further arguments of the recording. A run of several samples or steps has no script.
    """
    if backend not in _BODIES or words:
        return ""
    threads = int(options.get("threads", "0"))
    precision = options.get("precision", "default")
    config: dict[str, str | int] = {} if precision == "default" else {"INFERENCE_PRECISION_HINT": precision}
    if threads and backend == "openvino":
        config["INFERENCE_NUM_THREADS"] = threads
    body = _BODIES[backend].format(
        model=model,
        level="ORT_" + _LEVELS.get(options.get("opt", "all"), "ENABLE_ALL"),
        threads=threads or int(backend == "litert"),
        provider=options.get("provider", "CPUExecutionProvider"),
        disabled=[name for name in options.get("disable", "").split("+") if name],
        resolver=_RESOLVERS.get(options.get("kernels", "xnnpack"), "AUTO"),
        device=options.get("device", "CPU"),
        config=config,
    )
    return _HEAD.format(inputs=inputs) + body + _TAIL
