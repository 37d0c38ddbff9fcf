"""What other frameworks call the operators of ONNX: a harness says what its own framework says.

Words of PyTorch (functions of torch.nn.functional and aten, classes of torch.nn), TensorFlow Lite (BuiltinOperator) and
OpenVINO (opset16), as their documentation lists them. Only what does the same is listed; attributes are not translated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from qdebug.model import AttrValue, Node

__all__ = ["in_words_of_onnx", "is_foreign", "kinds_of"]

_OURS = {
    "Conv": "conv conv1d conv2d conv3d convolution groupconvolution depthwiseconv2d",
    "ConvTranspose": "convtranspose1d convtranspose2d convtranspose3d transposeconv deconvolution "
    "convolutionbackpropdata groupconvolutionbackpropdata",
    "Gemm": "linear fullyconnected innerproduct addmm dense",
    "MatMul": "matmul mm bmm batchmatmul",
    "BatchNormalization": "batchnorm batchnorm1d batchnorm2d batchnorm3d batchnorminference",
    "InstanceNormalization": "instancenorm instancenorm1d instancenorm2d instancenorm3d",
    "LayerNormalization": "layernorm",
    "GroupNormalization": "groupnorm",
    "RMSNormalization": "rmsnorm",
    "Relu": "relu",
    "Clip": "clip clamp hardtanh",
    "LeakyRelu": "leakyrelu",
    "PRelu": "prelu",
    "Elu": "elu",
    "Gelu": "gelu",
    "HardSwish": "hardswish hswish",
    "HardSigmoid": "hardsigmoid",
    "Sigmoid": "sigmoid logistic",
    "Tanh": "tanh",
    "Softmax": "softmax",
    "LogSoftmax": "logsoftmax",
    "Softplus": "softplus",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Abs": "abs",
    "Neg": "neg negative",
    "Pow": "pow power",
    "Erf": "erf",
    "Add": "add",
    "Sub": "sub subtract",
    "Mul": "mul multiply",
    "Div": "div divide truediv",
    "Max": "maximum",
    "Min": "minimum",
    "MaxPool": "maxpool maxpool1d maxpool2d maxpool3d",
    "AveragePool": "avgpool avgpool1d avgpool2d avgpool3d averagepool averagepool2d",
    "GlobalAveragePool": "adaptiveavgpool1d adaptiveavgpool2d adaptiveavgpool3d globalavgpool globalaveragepool",
    "ReduceMean": "mean reducemean",
    "ReduceSum": "sum reducesum",
    "ReduceMax": "amax reducemax",
    "Concat": "cat concat concatenation concatenate",
    "Reshape": "reshape view unsafeview",
    "Flatten": "flatten",
    "Squeeze": "squeeze",
    "Unsqueeze": "unsqueeze expanddims",
    "Transpose": "permute transpose swapaxes",
    "Split": "split splitv variadicsplit chunk splitwithsizes",
    "Slice": "slice stridedslice",
    "Pad": "pad padv2 mirrorpad constantpadnd",
    "Gather": "gather embedding indexselect",
    "Expand": "expand broadcast broadcastto",
    "Tile": "tile repeat",
    "Resize": "resize interpolate resizebilinear resizenearestneighbor upsample upsamplebilinear2d upsamplenearest2d",
    "DepthToSpace": "depthtospace pixelshuffle",
    "SpaceToDepth": "spacetodepth",
    "QuantizeLinear": "quantize quantizepertensor quantizeperchannel",
    "DequantizeLinear": "dequantize dequantizepertensor dequantizeperchannel",
    "Shape": "shape shapeof",
    "Identity": "identity dropout dropout1d dropout2d dropout3d clone contiguous alias detach",
    "Cast": "cast convert",
    "LSTM": "lstm",
    "GRU": "gru",
}
_WORDS = {word: op for op, words in _OURS.items() for word in words.split()}
_WITH_ATTRS: Mapping[str, tuple[str, Mapping[str, AttrValue]]] = MappingProxyType(
    {
        "relu6": ("Clip", {"min": 0.0, "max": 6.0}),
        "silu": ("QuickGelu", {"alpha": 1.0}),  # x * Sigmoid(x)
        "swish": ("QuickGelu", {"alpha": 1.0}),
    }
)
_FUSED = ("fused_activation_function", "fused_activation")
_FUSED_WORDS = {"relu": ("Relu", ()), "relu6": ("Clip", (0.0, 6.0)), "relun1to1": ("Clip", (-1.0, 1.0))}
_OVERLOAD = re.compile(r"[._](?:default|tensor|scalar|int|dim|self)$")


def kinds_of(nodes: Iterable[Node]) -> Iterator[Node]:
    """Give one of the nodes that have the same operator and the very same attributes.

    For questions that only these two answer: most nodes of a large graph share both with many others.
    """
    seen: dict[tuple[str, int], Mapping[str, AttrValue]] = {}
    for node in nodes:
        kind = node.op, id(node.attrs)
        if kind not in seen:
            seen[kind] = node.attrs  # which stay alive, so that no others get their place in memory
            yield node


def is_foreign(node: Node) -> bool:
    """Tell whether a node is said in words of another framework that have words of ONNX."""
    return _translated(node.op)[0] != node.op or any(name in node.attrs for name in _FUSED)


def in_words_of_onnx(node: Node) -> Node:
    """Give a node with the operator that ONNX has for it, and the activation fused into it; itself if it is ONNX's."""
    op, attrs = _translated(node.op)
    fused = next((str(node.attrs[name]) for name in _FUSED if name in node.attrs), "")
    activation = _FUSED_WORDS.get(_word(fused))
    if op == node.op and not activation:
        return node
    said: dict[str, AttrValue] = {**attrs, **node.attrs}
    if activation is not None:
        said |= {"activation": activation[0], "activation_params": activation[1]}
    return replace(node, op=op, attrs=said)


@lru_cache(maxsize=4096)
def _translated(op: str) -> tuple[str, Mapping[str, AttrValue]]:
    """Give the operator of ONNX for a word of another framework, with what the word says beyond it."""
    word = _word(op)
    if op in _ONNX:
        return op, MappingProxyType({})
    if word in _WITH_ATTRS:
        return _WITH_ATTRS[word]
    return _WORDS.get(word, op), MappingProxyType({})


def _word(op: str) -> str:
    """Give the letters and digits of an operator's name without its framework and overload, in lower case."""
    name = op.rpartition("::")[2]
    name = name.removeprefix("aten.").lower()
    while (shorter := _OVERLOAD.sub("", name)) != name:
        name = shorter
    return re.sub(r"[^a-z0-9]", "", name)


_ONNX = frozenset(_OURS) | {"Dropout", "Mean", "Sum", "Swish", "Upsample"}
"""Operators of ONNX that are no word of another framework, whatever that means by theirs."""
