"""Float matrix products: Gemm, MatMul, Einsum and the fused forms of ONNX Runtime."""

from __future__ import annotations

import numpy as np

from qdebug.model import Node
from qdebug.replay.blockwise_weight import blockwise_weight, rounded_in_blocks, rounds_data
from qdebug.replay.kernels.activation import activate
from qdebug.replay.precision import float_of, is_real, narrow, widen
from qdebug.replay.registry import Call, kernel

__all__ = ["gemm"]


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply in one precision; integers exactly, in their own dtype."""
    if not is_real(a.dtype):
        return np.asarray(np.matmul(a, b)).astype(a.dtype, copy=False)
    dtype = float_of(a.dtype)
    return np.asarray(np.matmul(a.astype(dtype, copy=False), b.astype(dtype, copy=False)))


@kernel("MatMul")
def _matmul(call: Call) -> np.ndarray:
    """Multiply matrices (..., M, K) and (..., K, N) as numpy.matmul does."""
    a, b = call.array(0), call.array(1)
    return narrow(_product(a, b), a.dtype)


def gemm(call: Call) -> np.ndarray:
    """Compute alpha A B + beta C, with A and B transposed on request."""
    a, b, c = call.array(0), call.array(1), call.optional(2)
    out = _product(a.T if call.integer("transA") else a, b.T if call.integer("transB") else b)
    alpha, beta = call.real("alpha", 1.0), call.real("beta", 1.0)
    if alpha != 1:
        out = out * out.dtype.type(alpha)
    if c is not None and beta != 0:
        c = widen(c)
        out = out + (c if beta == 1 else c * c.dtype.type(beta))
    return narrow(out, a.dtype)


kernel("Gemm")(gemm)


@kernel("FusedGemm", domain="com.microsoft")
def _fused_gemm(call: Call) -> np.ndarray:
    """Compute Gemm, then the activation named by the attribute `activation`."""
    params = tuple(call.real(f"activation_{name}") for name in ("alpha", "beta") if f"activation_{name}" in call.attrs)
    return activate(gemm(call), call.text("activation"), params)


@kernel("FusedMatMul", "TransposeMatMul", domain="com.microsoft")
def _fused_matmul(call: Call) -> np.ndarray:
    """Compute alpha A B, with matrices (transA) or batch axes (transBatchA) transposed on request."""
    a, b = (_transposed(call, position, side) for position, side in ((0, "A"), (1, "B")))
    out = _product(a, b)
    alpha = call.real("alpha", 1.0)
    return narrow(out if alpha == 1 else out * out.dtype.type(alpha), a.dtype)


def _transposed(call: Call, position: int, side: str) -> np.ndarray:
    array = call.array(position)
    if call.integer(f"transBatch{side}") and array.ndim > 2:
        array = np.moveaxis(array, 0, -2)
    return np.swapaxes(array, -1, -2) if call.integer(f"trans{side}") and array.ndim > 1 else array


@kernel("MatMulNBits", domain="com.microsoft")
def _matmul_of_codes(call: Call) -> np.ndarray:
    """Multiply x (..., K) by a weight of packed codes, block by block with a scale of its own; add a bias.

    Where the node allows it, x is rounded to codes in the same blocks, as ONNX Runtime does if the CPU can.
    """
    names = tuple(str(slot) if array is not None else "" for slot, array in enumerate(call.inputs))
    node = Node(name=call.node, op=call.op, inputs=names, attrs=call.attrs)
    codes, scales = blockwise_weight(
        node, {str(slot): array for slot, array in enumerate(call.inputs) if array is not None}
    )
    x, bias = call.array(0), call.optional(5)
    data = rounded_in_blocks(widen(x), call.integer("block_size")) if rounds_data(node) else x
    out = _product(data, codes * scales)
    return narrow(out if bias is None else out + widen(bias), x.dtype)


@kernel("Einsum")
def _einsum(call: Call) -> np.ndarray:
    """Sum products as the attribute `equation` says."""
    operands = [widen(array) for array in call.given()]
    equation = call.text("equation").replace(" ", "")
    return narrow(np.asarray(np.einsum(equation, *operands, optimize=True)), call.array(0).dtype)
