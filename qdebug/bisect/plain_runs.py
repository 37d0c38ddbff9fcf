"""Scripts that run a model in a runtime alone, without qdebug, and print a hash of each output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["plain_script", "plain_settings"]

_HEAD = """\
import hashlib
import json
import sys

import numpy as np

inputs = dict(np.load({inputs!r}))
settings = {settings!r}
settings |= json.loads(sys.argv[1]) if sys.argv[1:] else {{}}
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
options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, settings["level"])
options.intra_op_num_threads = settings["threads"]
session = onnxruntime.InferenceSession(
    {model!r}, options, providers=[settings["provider"]], disabled_optimizers=settings["disabled"]
)
names = [output.name for output in session.get_outputs()]
outputs = dict(zip(names, session.run(names, inputs)))
""",
    "litert": """\
from ai_edge_litert import interpreter as litert

interpreter = litert.Interpreter(
    {model!r},
    experimental_op_resolver_type=getattr(litert.OpResolverType, settings["resolver"]),
    num_threads=settings["threads"],
)
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

compiled = openvino.Core().compile_model({model!r}, settings["device"], settings["config"])
result = compiled(inputs)
outputs = {{str(at): result[port] for at, port in enumerate(compiled.outputs)}}
""",
    "torch": """\
import torch
from torch._inductor import config
from torch.utils import _pytree

torch.set_num_threads(settings["threads"] or torch.get_num_threads())
program = torch.export.load({model!r})
values = [torch.from_numpy(inputs[name]) for name in program.graph_signature.user_inputs]
args, kwargs = _pytree.tree_unflatten(values, program.call_spec.in_spec)
module = program.module()
if settings["compile"] != "none":
    module = torch.compile(module, fullgraph=True, dynamic=False)
with torch.no_grad(), config.patch({{"freezing": True}} | settings["inductor"]):
    results = _pytree.tree_leaves(module(*args, **kwargs))
outputs = {{str(at): result.numpy() for at, result in enumerate(results)}}
""",
}
_LEVELS = {"none": "DISABLE_ALL", "basic": "ENABLE_BASIC", "extended": "ENABLE_EXTENDED", "all": "ENABLE_ALL"}
_RESOLVERS = {"xnnpack": "AUTO", "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "reference": "BUILTIN_REF"}


def plain_settings(backend: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a script that correspond to a backend's options; empty if there is no script for it.

    Args:
        backend: Name of the backend.
        options: Options of the backend.
    """
    return _SETTINGS[backend](options) if backend in _SETTINGS else {}


def plain_script(backend: str, model: str, inputs: str, settings: Mapping[str, Any]) -> str:
    """Return a Python script that runs a model once. Its argument is a JSON object that overrides its settings.

    Args:
        backend: Name of a backend for which `plain_settings` returns settings.
        model: The model file.
        inputs: The .npz file of inputs.
        settings: Settings from `plain_settings`.
    """
    return _HEAD.format(inputs=inputs, settings=dict(settings)) + _BODIES[backend].format(model=model) + _TAIL


def _names_in(options: Mapping[str, str], option: str) -> list[str]:
    return [name for name in options.get(option, "").split("+") if name]


def _onnxruntime_settings(options: Mapping[str, str]) -> dict[str, Any]:
    return {
        "level": "ORT_" + _LEVELS[options.get("opt", "all")],
        "threads": int(options.get("threads", "0")),
        "provider": options.get("provider", "CPUExecutionProvider"),
        "disabled": _names_in(options, "disable"),
    }


def _litert_settings(options: Mapping[str, str]) -> dict[str, Any]:
    return {
        "resolver": _RESOLVERS[options.get("kernels", "xnnpack")],
        "threads": int(options.get("threads", "1")),
    }


def _openvino_settings(options: Mapping[str, str]) -> dict[str, Any]:
    config: dict[str, str | int] = {"PERFORMANCE_HINT": options.get("hint", "latency").upper()}
    if options.get("mode", "performance") != "performance":
        config["EXECUTION_MODE_HINT"] = options["mode"].upper()
    if options.get("precision", "default") != "default":
        config["INFERENCE_PRECISION_HINT"] = options["precision"]
    if int(options.get("threads", "0")):
        config["INFERENCE_NUM_THREADS"] = int(options["threads"])
    return {"device": options.get("device", "CPU"), "config": config}


def _torch_settings(options: Mapping[str, str]) -> dict[str, Any]:
    return {
        "compile": options.get("compile", "none"),
        "threads": int(options.get("threads", "0")),
        "inductor": dict.fromkeys(_names_in(options, "disable"), False)
        | dict.fromkeys(_names_in(options, "enable"), True),
    }


_SETTINGS: Mapping[str, Callable[[Mapping[str, str]], dict[str, Any]]] = {
    "onnxruntime": _onnxruntime_settings,
    "litert": _litert_settings,
    "openvino": _openvino_settings,
    "torch": _torch_settings,
}
