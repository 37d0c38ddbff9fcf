"""Dumps of the LiteRT accuracy debugger, which runs each operator by itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from qdebug.errors import UsageError
from qdebug.importing.dump import Dump, DumpedTensor
from qdebug.importing.files import Files
from qdebug.importing.formats.description import describe_raw_file
from qdebug.model import Graph, Node, Role, TensorInfo

__all__ = ["read_litert_debugger"]

_OP_FILE = re.compile(r"op_(\d{1,9})_.*\.raw", re.DOTALL)


def read_litert_debugger(files: Files, source: Path, graph: Graph | None) -> Dump:
    """List the tensors that the LiteRT accuracy debugger wrote for an accelerator.

    The debugger runs each operator separately. An operator's input is a separate tensor if it differs in any bit from
    the output of the preceding operator.
    """
    if graph is None or not source.is_dir():
        raise UsageError(
            "The output of the LiteRT accuracy debugger cannot be imported without a graph: it has no shapes or types.",
            hint="Give the folder of one accelerator and its model: qdebug import OUT/cpu "
            "--source-format litert-debugger --graph MODEL.tflite -o OUT.h5.",
        )
    outputs: dict[str, DumpedTensor] = {}
    inputs: dict[tuple[int, str], DumpedTensor] = {}
    ignored: dict[str, str] = {}
    for path in sorted(files.files_below(source)):
        operand = _operand_of_file(graph, path)
        if operand is None:
            ignored[os.path.relpath(path, source)] = "not an operand of the model's operators"
            continue
        index, direction, tensor = operand
        entry = _raw_file_of_graph(files, path, graph.tensors[tensor])
        if direction == "out":
            outputs[tensor] = entry
        else:
            inputs[index, tensor] = entry
    own_inputs: dict[tuple[int, str], str] = {}
    for (index, tensor), entry in inputs.items():
        if tensor not in outputs and graph.producer(tensor) is None:
            outputs[tensor] = entry
        elif tensor not in outputs or outputs[tensor].load().tobytes() != entry.load().tobytes():
            own_inputs[index, tensor] = f"{tensor} into {graph.nodes[index].name}"
    input_tensors = [replace(inputs[key], name=name) for key, name in own_inputs.items()]
    count = "1 operand is" if len(own_inputs) == 1 else f"{len(own_inputs)} operands are"
    remarks = (
        [f"{count} not equal to the previous operator's output; operators ran by themselves"] if own_inputs else []
    )
    return Dump(
        tensors=[*outputs.values(), *input_tensors],
        ignored=ignored,
        graph=_with_own_inputs(graph, own_inputs),
        remarks=remarks,
    )


def _operand_of_file(graph: Graph, path: Path) -> tuple[int, str, str] | None:
    """Return the operator's index, the direction and the tensor that a file's name states; None if none matches."""
    number = _OP_FILE.fullmatch(path.name)
    index = int(number[1]) if number is not None else len(graph.nodes)
    if index >= len(graph.nodes):
        return None
    node = graph.nodes[index]
    for direction, names in (("out", node.outputs), ("in", node.inputs)):
        for name in filter(None, names):
            name_pattern = re.escape(re.sub(r"[()\[\]/: ]", "_", name))
            if re.fullmatch(rf"op_\d+_.+_{direction}_\d+_{name_pattern}\.raw", path.name, re.DOTALL):
                return index, direction, name
    return None


def _raw_file_of_graph(files: Files, path: Path, info: TensorInfo) -> DumpedTensor:
    """Describe a raw file with the dtype and shape that the model states for its tensor."""
    is_open = info.shape is None or None in info.shape
    entry = {"dtype": info.dtype, "shape": None if is_open else list(info.shape or ())}
    tensor = describe_raw_file(files, path, f"the model's {info.name!r}", path, entry, graph=True)
    return replace(tensor, name=info.name, location=os.path.relpath(path, files.folder))


def _with_own_inputs(graph: Graph, input_names: Mapping[tuple[int, str], str]) -> Graph:
    """Return the graph with some operator inputs replaced by separate tensors, which are graph inputs.

    Args:
        graph: The model's graph.
        input_names: New name of each such input, by the index of the operator and the old name.
    """
    nodes: list[Node] = [
        replace(node, inputs=tuple(input_names.get((index, name), name) for name in node.inputs))
        for index, node in enumerate(graph.nodes)
    ]
    input_infos = [
        replace(graph.tensors[tensor], name=name, role=Role.INPUT) for (_, tensor), name in input_names.items()
    ]
    return Graph(
        nodes,
        tensors=[*graph.tensors.values(), *input_infos],
        inputs=(*graph.inputs, *input_names.values()),
        outputs=graph.outputs,
        name=graph.name,
        opset=graph.opset,
    )
