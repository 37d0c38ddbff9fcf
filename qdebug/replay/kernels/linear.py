"""Float matrix products: Gemm, MatMul, Einsum and the fused forms of ONNX Runtime."""

from __future__ import annotations

from math import prod

import numpy as np

from qdebug.model import Node
from qdebug.replay.blockwise_weight import blockwise_weight, can_round_data, round_in_blocks
from qdebug.replay.extents import Cost, Shape, default_cost, product_cost
from qdebug.replay.kernels.activation import activate, apply_fused_activation
from qdebug.replay.precision import common_dtype, compute_dtype, is_real, narrow, widen
from qdebug.replay.registry import Call, kernel

__all__ = ["gemm", "gemm_cost", "gemm_rows", "matmul_cost", "node_of", "packed_matmul_cost", "unpack_weight"]


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply in a common precision. Integers are multiplied exactly, in their own dtype."""
    if not is_real(a.dtype):
        return np.asarray(np.matmul(a, b)).astype(a.dtype, copy=False)
    dtype = compute_dtype(a.dtype)
    return np.asarray(np.matmul(a.astype(dtype, copy=False), b.astype(dtype, copy=False)))


def matmul_cost(call: Call) -> Cost:
    """Estimate the cost of the matrix product of inputs 0 and 1."""
    return product_cost(gemm_rows(call, call.array(0), call.shape(1)).shape, call.shape(1))


@kernel("MatMul", cost=matmul_cost)
def _matmul(call: Call) -> np.ndarray:
    """Multiply matrices (..., M, K) and (..., K, N) as numpy.matmul does."""
    if len(call.inputs) > 2:
        # A third input is the bias of another framework's operator.
        raise ValueError("a product of two matrices has no third input")
    a, b = call.array(0), call.array(1)
    return narrow(_product(a, b), a.dtype)


def gemm_cost(call: Call, a: Shape, b: Shape) -> Cost:
    """Estimate the cost of a product of two matrices, each optionally transposed."""
    return product_cost(a[::-1] if call.integer("transA") else a, b[::-1] if call.integer("transB") else b)


def _gemm_cost(call: Call) -> Cost:
    return gemm_cost(call, gemm_rows(call, call.array(0), call.shape(1)).shape, call.shape(1))


def gemm_rows(call: Call, a: np.ndarray, b: Shape) -> np.ndarray:
    """Return the first operand of a Gemm; with `flatten`, reshaped to rows as long as the second operand's height.

    This is how TensorFlow Lite computes FULLY_CONNECTED without keep_num_dims
    (tensorflow/lite/kernels/fully_connected.cc).
    """
    if not call.integer("flatten") or not b:
        return a
    return a.reshape(-1, b[-1] if call.integer("transB") else b[0])


def gemm(call: Call) -> np.ndarray:
    """Compute alpha A B + beta C, with A and B optionally transposed."""
    b, c = call.array(1), call.optional(2)
    a = gemm_rows(call, call.array(0), b.shape)
    out = _product(a.T if call.integer("transA") else a, b.T if call.integer("transB") else b)
    alpha, beta = call.real("alpha", 1.0), call.real("beta", 1.0)
    if alpha != 1:
        out = out * out.dtype.type(alpha)
    if c is not None and beta != 0:
        c = widen(c)
        out = out + (c if beta == 1 else c * c.dtype.type(beta))
    return narrow(out, a.dtype)


kernel("Gemm", cost=_gemm_cost)(gemm)


@kernel("FusedGemm", domain="com.microsoft", cost=_gemm_cost)
def _fused_gemm(call: Call) -> np.ndarray:
    """Compute Gemm, then the activation of the attribute `activation`, whose parameters may be named."""
    if "activation_params" in call.attrs:
        return apply_fused_activation(call, gemm(call))
    params = tuple(call.real(f"activation_{name}") for name in ("alpha", "beta") if f"activation_{name}" in call.attrs)
    return activate(gemm(call), call.text("activation"), params)


@kernel(
    "FusedMatMul",
    "TransposeMatMul",
    domain="com.microsoft",
    cost=lambda call: product_cost(*(_transposed(call, at, side).shape for at, side in ((0, "A"), (1, "B")))),
)
def _fused_matmul(call: Call) -> np.ndarray:
    """Compute alpha A B, with matrices (transA) or batch axes (transBatchA) optionally transposed."""
    a, b = (_transposed(call, position, side) for position, side in ((0, "A"), (1, "B")))
    out = _product(a, b)
    alpha = call.real("alpha", 1.0)
    return narrow(out if alpha == 1 else out * out.dtype.type(alpha), a.dtype)


def _transposed(call: Call, position: int, side: str) -> np.ndarray:
    array = call.array(position)
    if call.integer(f"transBatch{side}") and array.ndim > 2:
        array = np.moveaxis(array, 0, -2)
    return np.swapaxes(array, -1, -2) if call.integer(f"trans{side}") and array.ndim > 1 else array


def packed_matmul_cost(call: Call) -> Cost:
    """Estimate the cost of a product with a packed weight. Only the stated size counts, whatever the weight holds."""
    rows, columns = abs(call.integer("K")), abs(call.integer("N"))
    lines = prod(call.shape(0)[:-1])
    return Cost(lines * columns, rows * columns + lines * (rows + abs(call.integer("block_size"))))


def node_of(call: Call) -> Node:
    """Return a call's node, with its inputs named by position."""
    names = tuple(str(slot) if array is not None else "" for slot, array in enumerate(call.inputs))
    return Node(name=call.node, op=call.op, inputs=names, attrs=call.attrs)


def unpack_weight(call: Call) -> tuple[np.ndarray, np.ndarray]:
    """Return the packed weight of a call: codes or levels, and their scales."""
    values = {str(slot): array for slot, array in enumerate(call.inputs) if array is not None}
    return blockwise_weight(node_of(call), values)


@kernel("MatMulNBits", domain="com.microsoft", cost=packed_matmul_cost)
def _matmul_of_codes(call: Call) -> np.ndarray:
    """Multiply x (..., K) by a weight of packed codes with one scale per block, and add a bias.

    If the node permits it, x is rounded to codes in the same blocks, as ONNX Runtime does on CPUs that support it.
    """
    codes, scales = unpack_weight(call)
    x, bias = call.array(0), call.optional(5)
    data = round_in_blocks(widen(x), call.integer("block_size")) if can_round_data(node_of(call)) else x
    out = _product(data, codes * scales)
    return narrow(out if bias is None else out + widen(bias), x.dtype)


@kernel("MatMulBnb4", domain="com.microsoft", cost=packed_matmul_cost)
def _matmul_of_levels(call: Call) -> np.ndarray:
    """Multiply x (..., K) by a weight of 4-bit levels, with each block scaled by its largest magnitude."""
    levels, scales = unpack_weight(call)
    return narrow(_product(call.array(0), levels * scales), call.array(0).dtype)


def _einsum_cost(call: Call) -> Cost:
    """Estimate the cost of an Einsum. With more than two operands, every combination of indices counts."""
    shapes, equation = call.shapes(), call.text("equation").replace(" ", "")
    terms, _, out = equation.partition("->")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms.split(","), shapes, strict=False):
        if "." in term:
            return default_cost(*shapes)
        sizes.update((label, max(size, sizes.get(label, 1))) for label, size in zip(term, shape, strict=False))
    if "->" not in equation:
        out = "".join(label for label in sizes if terms.count(label) == 1)
    passed = prod(sizes.values()) if len(shapes) > 2 else 0
    return Cost(prod(sizes.get(label, 1) for label in out), passed)


@kernel("Einsum", cost=_einsum_cost)
def _einsum(call: Call) -> np.ndarray:
    """Sum products as the attribute `equation` describes."""
    operands = [widen(array) for array in call.all_inputs()]
    equation = call.text("equation").replace(" ", "")
    for term, operand in zip(equation.partition("->")[0].split(","), operands, strict=True):
        if "." not in term and len(term) != operand.ndim:
            raise ValueError(f"{term!r} does not name the axes of an operand of {list(operand.shape)}")
    if common_dtype(*operands).kind == "V":
        raise ValueError(f"sums of {operands[0].dtype} products are not supported")
    return narrow(np.asarray(np.einsum(equation, *operands, optimize=True)), call.array(0).dtype)
