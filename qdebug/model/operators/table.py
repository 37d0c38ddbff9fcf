"""The known operators, one row each, with all their traits.

Operators are from ONNX (https://onnx.ai/onnx/operators) and ONNX Runtime (docs/ContribOperators.md). Names in other
frameworks are from the documentation of PyTorch (functions of torch.nn.functional and aten, classes of torch.nn),
TensorFlow Lite (BuiltinOperator) and OpenVINO (opset16). Only equivalent operators are listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

from qdebug.model.operators.operator import Count, Domain, Gate, Move, Operator, PackedWeight, RealForm, Sums

__all__ = ["ROWS"]

_FIRST = (0,)
_BOTH = (0, 1)
_WEIGHT = ("input", "weight", "bias")
_SCALE = ("input", "scale", "bias")


def _rows_like(row: Operator, names: str) -> Iterator[Operator]:
    """Yield a row with the same traits for each name in a text."""
    return (replace(row, name=name) for name in names.split())


def _products() -> Iterator[Operator]:
    """Convolutions and matrix products of real numbers and of codes."""
    yield Operator(
        name="Conv", words="conv conv1d conv2d conv3d convolution groupconvolution depthwiseconv2d",
        sums=Sums.FILTER, windowed=True, ordered=True, unit="conv", folds=True,
        data=_BOTH, bias=2, added=3, titles=_WEIGHT,
    )  # fmt: skip
    yield Operator(name="FusedConv", sums=Sums.FILTER, unit="conv", bias=2, added=3)
    yield from _rows_like(Operator(name="", sums=Sums.FILTER, bias=2), "NhwcConv NhwcFusedConv")
    yield Operator(
        name="ConvTranspose", words="convtranspose1d convtranspose2d convtranspose3d transposeconv deconvolution "
        "convolutionbackpropdata groupconvolutionbackpropdata",
        sums=Sums.SCATTER, windowed=True, ordered=True, unit="conv", folds=True, data=_BOTH, bias=2, titles=_WEIGHT,
    )  # fmt: skip
    yield Operator(
        name="Gemm", family="MatMul", words="linear fullyconnected innerproduct addmm dense fc",
        sums=Sums.MATRIX, ordered=True, gives_scores=True, unit="linear", folds=True,
        data=_BOTH, bias=2, titles=_WEIGHT,
    )  # fmt: skip
    yield Operator(name="FusedGemm", sums=Sums.MATRIX, unit="linear", bias=2)
    yield Operator(
        name="MatMul", words="matmul mm bmm batchmatmul", sums=Sums.MATRIX, ordered=True, gives_scores=True,
        unit="linear", folds=True, data=_BOTH, titles=_WEIGHT,
    )  # fmt: skip
    yield Operator(name="FusedMatMul", sums=Sums.MATRIX, unit="linear", data=_BOTH)
    yield Operator(name="TransposeMatMul", plain="MatMul", sums=Sums.MATRIX)
    yield Operator(name="Einsum", words="einsum")
    yield Operator(name="ConvInteger", plain="Conv", takes_codes=True, sums_codes=True)
    yield Operator(name="MatMulInteger", words="intmm", plain="MatMul", takes_codes=True, sums_codes=True)
    yield Operator(
        name="MatMulIntegerToFloat", plain="MatMul", takes_codes=True, scales_sums=True,
        bias=6, added=6, title_positions=(0, 1, 6),
    )  # fmt: skip
    yield Operator(
        name="DynamicQuantizeMatMul", plain="MatMul", takes_codes=True, scales_sums=True, chooses_scale=True,
        bias=4, added=4, title_positions=(0, 1, 4),
    )  # fmt: skip
    # Not an ONNX operator: it stands for TensorFlow Lite's convolutions of float data with quantized weights.
    yield Operator(
        name="DynamicQuantizeConv", plain="Conv", takes_codes=True, chooses_scale=True, windowed=True, ordered=True,
        bias=4, title_positions=(0, 1, 4),
    )  # fmt: skip
    packed = Operator(name="", plain="MatMul", takes_codes=True)
    yield replace(
        packed,
        name="MatMulNBits",
        packed=PackedWeight(layout="columns", inputs=(1, 2, 3)),
        bias=5,
        title_positions=(0, 1, 5),
    )
    # It has no bias: input 2 holds the scales, and the position 3 of a bias does not exist.
    yield replace(
        packed, name="MatMulBnb4", packed=PackedWeight(layout="levels", inputs=(1, 2)), title_positions=(0, 1, 3)
    )


def _quantized_rows() -> Iterator[Operator]:
    """Operators with scales and zero points among their inputs."""
    quantize_row = Operator(
        name="QuantizeLinear", words="quantize quantizepertensor quantizeperchannel quantizepertoken quantizeaffine",
        real=RealForm(op="Identity", data=_FIRST), keeps_values=True, quantizes=True, data=_FIRST,
    )  # fmt: skip
    dequantize_row = Operator(
        name="DequantizeLinear",
        words="dequantize dequantizepertensor dequantizeperchannel dequantizepertoken dequantizeaffine",
        real=RealForm(op="Identity", data=_FIRST), keeps_values=True, dequantizes=True, data=_FIRST,
    )  # fmt: skip
    for row in (quantize_row, dequantize_row):
        yield row
        # AMD Quark uses these names for them.
        yield from _rows_like(replace(row, plain=row.name, words=""), f"Extended{row.name} Vitis{row.name}")
    yield Operator(name="FakeQuantize", fake_quantizes=True, unit="quantize", data=_FIRST)
    # The quantizers of QONNX and AMD Quark return real numbers, and no tensor holds their codes.
    quantizer = Operator(name="", fake_quantizes=True, data=_FIRST)
    yield from _rows_like(quantizer, "Quant IntQuant BipolarQuant Trunc MultiThreshold")
    yield from _rows_like(quantizer, "BFPQuantizeDequantize BFPFixNeuron MXQuantizeDequantize MXFixNeuron")
    yield Operator(name="DynamicQuantizeLinear", takes_codes=True, chooses_scale=True, gives_scale=True)
    table = PackedWeight(layout="table", inputs=(0, 2, 3))
    yield Operator(name="GatherBlockQuantized", plain="Gather", takes_codes=True, packed=table)
    yield Operator(name="QAttention", plain="Attention", takes_codes=True)
    yield Operator(
        name="QEmbedLayerNormalization",
        plain="EmbedLayerNormalization",
        takes_codes=True,
        title_positions=(0, 5, 6),
        mask=7,
    )
    yield Operator(name="QMoE", takes_codes=True)
    yield Operator(name="DynamicQuantizeLSTM", plain="LSTM", takes_codes=True, chooses_scale=True)
    yield Operator(name="QLinearConv", real=RealForm(op="Conv", data=(0, 3, 8), out=6), bias=8)
    yield Operator(name="QLinearMatMul", real=RealForm(op="MatMul", data=(0, 3), out=6))
    yield Operator(name="QGemm", plain="Gemm", real=RealForm(op="Gemm", data=(0, 3, 6), out=7), bias=6)
    yield Operator(name="QLinearAdd", real=RealForm(op="Add", data=(0, 3), out=6))
    yield Operator(name="QLinearMul", real=RealForm(op="Mul", data=(0, 3), out=6))
    yield Operator(name="QLinearWhere", real=RealForm(op="Where", data=(0, 1, 4), out=7))
    yield Operator(name="QLinearConcat", real=RealForm(op="Concat", data=(2,), out=0, step=3))
    for op in ("AveragePool", "GlobalAveragePool", "ReduceMean", "Sigmoid", "LeakyRelu", "Softmax"):
        yield Operator(name=f"QLinear{op}", real=RealForm(op=op, data=_FIRST, out=3))


def _movements() -> Iterator[Operator]:
    """Operators that move or select elements."""
    move = Operator(name="", moves=Move.OTHER, unit="requantize", folds=True, data=_FIRST)
    yield replace(move, name="Transpose", words="permute transpose swapaxes t numpyt", moves=Move.TRANSPOSE)
    yield replace(move, name="Reshape", words="reshape view unsafeview unflatten", moves=Move.RESHAPE)
    yield replace(move, name="Flatten", words="flatten flattenusingints", moves=Move.RESHAPE)
    yield replace(move, name="Squeeze", words="squeeze squeezedims", moves=Move.SQUEEZE)
    yield replace(move, name="Unsqueeze", words="unsqueeze expanddims", moves=Move.UNSQUEEZE)
    yield replace(move, name="Slice", words="slice stridedslice", moves=Move.SLICE)
    yield replace(move, name="Gather", words="gather embedding indexselect select index", moves=Move.GATHER)
    yield replace(move, name="Expand", words="expand broadcast broadcastto")
    yield replace(move, name="Tile", words="tile repeat", folds=False)
    yield replace(
        move, name="Identity", keeps_values=True,
        words="identity dropout dropout1d dropout2d dropout3d clone contiguous alias detach",
    )  # fmt: skip
    yield Operator(
        name="Split", words="split splitv variadicsplit chunk splitwithsizes splitsizes", moves=Move.OTHER, data=_FIRST
    )
    yield Operator(name="Unbind", words="unbind unpack unstack", moves=Move.OTHER, data=_FIRST)
    yield Operator(
        name="Concat",
        words="cat concat concatenation concatenate",
        moves=Move.JOIN,
        unit="concat",
        folds=True,
        data=(),
    )
    yield Operator(name="ReorderInput", moves=Move.TO_BLOCKS, keeps_values=True, data=_FIRST)
    yield Operator(name="ReorderOutput", moves=Move.FROM_BLOCKS, keeps_values=True, data=_FIRST)
    yield Operator(name="Dropout", keeps_values=True, data=_FIRST)

    channels = replace(move, moves=None, folds=False, selects=True, moves_channels=True, ordered=True)
    yield replace(channels, name="DepthToSpace", words="depthtospace pixelshuffle")
    yield replace(channels, name="SpaceToDepth", words="spacetodepth")
    yield from _rows_like(Operator(name="", selects=True, data=(0, 2)), "Scatter ScatterElements ScatterND")
    yield from _rows_like(
        Operator(name="", selects=True, data=_FIRST), "Compress GatherElements GatherND ReverseSequence"
    )
    yield Operator(name="Trilu", words="tril triu", selects=True, data=_FIRST)
    yield Operator(name="Unique", selects=True, indices_beside=True)
    yield Operator(
        name="TopK",
        words="topk topkv2",
        selects=True,
        indices_beside=True,
        picks_index=True,
        default_axis=-1,
        data=_FIRST,
    )
    yield Operator(
        name="Pad", words="pad padv2 mirrorpad constantpadnd", selects=True, unit="pad", folds=True,
        in_codes=(2,), data=_FIRST,
    )  # fmt: skip
    yield Operator(name="Where", words="where maskedfill", selects=True, unit="where", folds=True, data=(1, 2))
    yield Operator(name="Max", words="maximum", selects=True, commutes=True, elementwise=True, in_codes=(1,))
    yield Operator(name="Min", words="minimum", selects=True, commutes=True, elementwise=True, in_codes=(1,))


def _index_and_truth_rows() -> Iterator[Operator]:
    """Operators that return indices, extents and truth values, and operators without inputs."""
    truth_row = Operator(name="", counts=Count.OTHER)
    comparison = replace(truth_row, counts=Count.COMPARISON, elementwise=True)
    yield replace(comparison, name="Equal", words="eq equal")
    yield replace(comparison, name="Greater", words="gt greater")
    yield replace(comparison, name="GreaterOrEqual", words="ge greaterequal")
    yield replace(comparison, name="Less", words="lt less")
    yield replace(comparison, name="LessOrEqual", words="le lessequal")
    for name in ("And", "Or", "Xor"):
        word = name.lower()
        yield replace(truth_row, name=name, words=f"{word} logical{word} bitwise{word}", elementwise=True)
    yield replace(truth_row, name="Not", words="logicalnot", elementwise=True)
    yield replace(truth_row, name="Range", words="arange arangestart arangestartstep")
    yield from _rows_like(truth_row, "IsNaN IsInf NonMaxSuppression NonZero SequenceLength Size")
    yield from _rows_like(
        Operator(name="", counts=Count.OTHER, picks_index=True, reduces=True, data=_FIRST), "ArgMax ArgMin"
    )
    yield Operator(name="Shape", words="shape shapeof", counts=Count.EXTENTS)
    yield Operator(name="Cast", words="cast convert tocopy todtype", casts=True, data=_FIRST)
    yield Operator(name="ReadVariable", words="readvariable readvalue", reads_state=True)
    yield Operator(name="AssignVariable", words="assignvariable assign", writes_state=True)
    yield Operator(name="CastLike", casts=True, data=_FIRST)
    yield Operator(name="OneHot", exact=True)
    yield Operator(name="Constant", constant=True, reads_nothing=True)
    yield from _rows_like(Operator(name="", reads_nothing=True), "RandomNormal RandomUniform")
    yield from _rows_like(Operator(name="", holds_nodes=True), "If Loop Scan")
    yield from _rows_like(Operator(name=""), "BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor EyeLike Mod")
    yield Operator(name="ConstantOfShape", words="ones zeros full oneslike zeroslike fulllike newones newzeros newfull")


def _elementwise() -> Iterator[Operator]:
    """Arithmetic on corresponding elements of the operands."""
    pair = Operator(name="", folds=True, data=_BOTH, elementwise=True)
    yield replace(pair, name="Add", words="add", unit="add", sums=Sums.OPERANDS, adds=True, neutral=0.0, commutes=True)
    yield replace(pair, name="Sub", words="sub subtract", unit="sub", adds=True, neutral=0.0)
    yield replace(pair, name="Mul", words="mul multiply", unit="mul", neutral=1.0, commutes=True)
    yield replace(pair, name="Div", words="div divide truediv", unit="div", neutral=1.0, divisor=1)
    yield replace(
        pair, name="SquaredDifference", words="squareddifference", unit="squared_difference", commutes=True, folds=False
    )
    yield Operator(name="Sum", sums=Sums.OPERANDS, adds=True, commutes=True, elementwise=True)
    yield Operator(name="Mean", sums=Sums.OPERANDS, commutes=True, real_inside=True, elementwise=True)
    yield Operator(
        name="Pow", words="pow power powtensorscalar powtensortensor", real_inside=True, elementwise=True, is_power=True
    )
    function = Operator(name="", unit="lookup", data=_FIRST, elementwise=True)
    yield replace(function, name="Abs", words="abs", exact=True)
    yield replace(function, name="Neg", words="neg negative", exact=True)
    yield replace(function, name="Ceil", words="ceil ceiling", exact=True)
    yield from _rows_like(replace(function, exact=True), "Floor Round")
    yield Operator(name="Sign", exact=True, data=_FIRST, elementwise=True)
    yield replace(function, name="Exp", words="exp")
    yield replace(function, name="Log", words="log", domain=Domain(function="logarithm", low=0, includes_ends=False))
    yield replace(function, name="Sqrt", words="sqrt", domain=Domain(function="root", low=0))
    yield replace(
        function,
        name="Rsqrt",
        words="rsqrt",
        domain=Domain(function="root", low=0, includes_ends=False),
        forms=("root31",),
    )
    yield replace(function, name="Cos", words="cos")
    yield replace(function, name="Sin", words="sin")
    yield replace(function, name="Reciprocal", divisor=0)
    plain = Operator(name="", data=_FIRST, elementwise=True)
    yield from _rows_like(plain, "Asinh Atan Cosh Sinh Tan")
    yield replace(plain, name="Acos", domain=Domain(function="inverse cosine", low=-1, high=1))
    yield replace(plain, name="Asin", domain=Domain(function="inverse sine", low=-1, high=1))
    yield replace(plain, name="Acosh", domain=Domain(function="inverse hyperbolic cosine", low=1))
    yield replace(
        plain, name="Atanh", domain=Domain(function="inverse hyperbolic tangent", low=-1, high=1, includes_ends=False)
    )
    yield from _rows_like(Operator(name="", data=_FIRST, accumulates=True), "CumSum CumProd")


def _activations() -> Iterator[Operator]:
    """Functions of one element."""
    clamp = Operator(
        name="",
        family="Relu",
        unit="requantize",
        folds=True,
        data=_FIRST,
        activation=True,
        contracts=True,
        elementwise=True,
    )
    yield replace(clamp, name="Relu", words="relu", selects=True, least=0.0)
    yield replace(
        clamp, name="Clip", words="clip clamp hardtanh", selects=True, bounded=True,
        parameters=("min", "max"), in_codes=(1, 2),
    )  # fmt: skip
    function = Operator(name="", unit="lookup", folds=True, data=_FIRST, elementwise=True)
    fusable = replace(function, activation=True)
    yield replace(
        fusable, name="LeakyRelu", words="leakyrelu", family="LeakyRelu", contracts=True, parameters=("alpha",),
        forms=("leaky",),
    )  # fmt: skip
    yield Operator(
        name="PRelu",
        words="prelu",
        family="LeakyRelu",
        activation=True,
        unit="prelu",
        folds=True,
        data=_BOTH,
        elementwise=True,
    )
    yield replace(
        fusable,
        name="Sigmoid",
        words="sigmoid logistic",
        gives_scores=True,
        rounds_like_one=True,
        forms=("mlas", "fixed"),
    )
    yield replace(fusable, name="Tanh", words="tanh", forms=("fixed",))
    yield replace(fusable, name="HardSigmoid", words="hardsigmoid hsigmoid", parameters=("alpha", "beta"))
    hard_gate_attrs = MappingProxyType({"alpha": 1 / 6, "beta": 0.5})  # as ONNX defines HardSwish
    yield replace(
        fusable,
        name="HardSwish",
        words="hardswish hswish",
        gate=Gate(op="HardSigmoid", attrs=hard_gate_attrs),
        forms=("hswish16",),
    )
    yield replace(fusable, name="Elu", words="elu", parameters=("alpha",))
    for name in ("Erf", "Gelu", "Softplus", "Softsign", "Mish"):
        yield replace(function, name=name, words=name.lower(), through_exp=name in ("Softplus", "Mish"))
    yield from _rows_like(function, "Celu Selu")
    yield from _rows_like(replace(function, folds=False), "Swish ThresholdedRelu")
    # x * Sigmoid(alpha * x), which ONNX Runtime fuses into this operator (quick_gelu_fusion.cc)
    yield Operator(
        name="QuickGelu", gate=Gate(op="Sigmoid", factor="alpha", default_factor=1.702), unit="lookup", data=_FIRST
    )
    yield from _rows_like(Operator(name=""), "BiasGelu FastGelu Shrink")
    yield Operator(
        name="Softmax", words="softmax", hides_small_values=True, gives_scores=True, unit="softmax", folds=True,
        data=_FIRST,
        through_exp=True,
        along_axis=True,
        gives_probabilities=True,
    )  # fmt: skip
    yield Operator(name="LogSoftmax", words="logsoftmax", gives_scores=True, data=_FIRST, along_axis=True)
    yield Operator(name="Hardmax", data=_FIRST, along_axis=True)


def _reductions() -> Iterator[Operator]:
    """Pools, reductions over axes, changes of extents."""
    pool = Operator(name="", windowed=True, ordered=True, data=_FIRST)
    yield replace(
        pool, name="MaxPool", words="maxpool maxpool1d maxpool2d maxpool3d", selects=True, indices_beside=True,
        unit="max_pool", folds=True,
    )  # fmt: skip
    yield replace(pool, name="GlobalMaxPool", selects=True, unit="max_pool")
    yield Operator(name="NhwcMaxPool", selects=True, data=_FIRST)
    yield replace(
        pool, name="AveragePool", words="avgpool avgpool1d avgpool2d avgpool3d averagepool averagepool2d",
        sums=Sums.WINDOW, real_inside=True, unit="average_pool", folds=True,
    )  # fmt: skip
    yield replace(
        pool, name="GlobalAveragePool", family="ReduceMean", sums=Sums.AXES, real_inside=True, gives_scores=True,
        words="adaptiveavgpool1d adaptiveavgpool2d adaptiveavgpool3d globalavgpool globalaveragepool",
        unit="global_average_pool", folds=True,
    )  # fmt: skip
    yield replace(pool, name="LpPool", real_inside=True)
    reduction = Operator(name="", reduces=True, data=_FIRST)
    yield replace(
        reduction, name="ReduceMean", words="mean reducemean", sums=Sums.AXES, real_inside=True, gives_scores=True,
        unit="reduce_mean", folds=True,
    )  # fmt: skip
    yield replace(reduction, name="ReduceSum", words="sum reducesum", sums=Sums.AXES)
    yield replace(reduction, name="ReduceMax", words="amax reducemax")
    yield replace(reduction, name="ReduceMin", words="amin reducemin")
    yield replace(reduction, name="ReduceProd", words="prod reduceprod")
    yield from _rows_like(reduction, "ReduceL1 ReduceSumSquare")
    yield from _rows_like(replace(reduction, real_inside=True), "ReduceL2 ReduceLogSum")
    yield replace(reduction, name="ReduceLogSumExp", real_inside=True, through_exp=True)
    resize = Operator(name="", family="Resize", resizes=True, real_inside=True, unit="resize", data=_FIRST)
    yield replace(
        resize, name="Resize", folds=True,
        words="resize interpolate resizebilinear resizenearestneighbor upsample upsamplebilinear2d upsamplenearest2d",
    )  # fmt: skip
    yield replace(resize, name="Upsample")
    yield from _rows_like(Operator(name="", real_inside=True), "DeformConv GridSample ImageDecoder RoiAlign")


def _normalizations() -> Iterator[Operator]:
    """Normalizations, recurrent operators, attention."""
    yield Operator(
        name="BatchNormalization", words="batchnorm batchnorm1d batchnorm2d batchnorm3d batchnorminference "
        "nativebatchnormlegitnotraining",
        scales_channels=True, ordered=True, titles=("input", "scale", "bias", "mean", "variance"),
    )  # fmt: skip
    yield Operator(
        name="InstanceNormalization", words="instancenorm instancenorm1d instancenorm2d instancenorm3d", ordered=True
    )
    yield Operator(name="GroupNormalization", words="groupnorm", ordered=True)
    yield Operator(name="LRN", ordered=True)
    layers = Operator(name="LayerNormalization", family="LayerNormalization", titles=_SCALE)
    yield replace(layers, words="layernorm nativelayernorm", along_axis=True)
    yield replace(layers, name="SkipLayerNormalization", title_positions=(0, 2, 3))
    yield replace(layers, name="EmbedLayerNormalization", title_positions=(0, 5, 6), mask=7)
    squares = Operator(name="RMSNormalization", family="RMSNormalization", titles=_SCALE[:2])
    yield replace(squares, words="rmsnorm", along_axis=True)
    yield replace(squares, name="SimplifiedLayerNormalization")
    yield replace(squares, name="SkipSimplifiedLayerNormalization", title_positions=(0, 2))
    recurrent_row = Operator(
        name="RNN", recurrent=True, ordered=True, titles=("input", "weight", "recurrent weight", "bias")
    )
    yield recurrent_row
    yield replace(recurrent_row, name="GRU", words="gru")
    yield replace(recurrent_row, name="LSTM", words="lstm")
    yield from _rows_like(Operator(name=""), "LpNormalization MeanVarianceNormalization")
    yield Operator(name="Attention", words="scaleddotproductattention")
    yield from _rows_like(Operator(name=""), "GroupQueryAttention MultiHeadAttention RotaryEmbedding")


ROWS: tuple[Operator, ...] = (
    *_products(),
    *_quantized_rows(),
    *_movements(),
    *_index_and_truth_rows(),
    *_elementwise(),
    *_activations(),
    *_reductions(),
    *_normalizations(),
)
"""Every known operator, once."""
