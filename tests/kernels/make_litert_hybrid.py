"""Make litert_hybrid.json: products and convolutions of LiteRT on real data and a weight of codes.

Each case is a model of one node, run by LiteRT's reference, optimized and default kernels, the last of which are
XNNPACK's. Data and weights are drawn anew, the same each time; the file holds what was computed.
Provenance of the committed file: ai-edge-litert 2.3.0 on x86-64 with AVX-512 VNNI.
Run it from a clone where that is installed: python tests/kernels/make_litert_hybrid.py
"""

import importlib.util
import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
FILE = HERE / "litert_hybrid.json"
ROWS, WIDTH, UNITS = 6, 32, 8
ACTIVATIONS = ("NONE", "RELU")


def _operators():
    spec = importlib.util.spec_from_file_location("make_litert_operators", HERE / "make_litert_operators.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _windows(maker, rng):
    """Yield convolutions: one scale or one a channel, groups, depthwise, strides, dilations, padding, activations."""
    forms = [
        {}, {"channels": True}, {"channels": True, "stride": 2, "fused": 1}, {"channels": True, "valid": True},
        {"channels": True, "dilation": 2}, {"channels": True, "groups": 2}, {"channels": True, "multiplier": 1},
        {"channels": True, "multiplier": 2, "fused": 1}, {"channels": True, "multiplier": 1, "dilation": 2},
    ]  # fmt: skip
    for number, form in enumerate(forms):
        get, samples, size, depth = form.get, 2, 6, 4
        multiplier, stride, dilation = get("multiplier", 0), get("stride", 1), get("dilation", 1)
        filters = depth * multiplier or 6
        shape = (1, 3, 3, filters) if multiplier else (filters, 3, 3, depth // get("groups", 1))
        codes = rng.integers(-127, 128, shape).astype(np.int8)
        scale = (rng.random(filters) * 0.02 + 0.001).astype(np.float32) if get("channels") else np.float32(0.0113)
        axis = (3 if multiplier else 0) if get("channels") else None
        extent = -(-(size - 2) // stride) if get("valid") else -(-size // stride)
        made = maker.Codes(np.empty((samples, extent, extent, filters), np.float32), None)
        bias = maker.Codes(rng.normal(size=filters).astype(np.float32), None, constant=True)
        given = [
            maker.Codes(rng.normal(size=(samples, size, size, depth)).astype(np.float32), None),
            maker.Codes(codes, scale, 0, axis, constant=True),
            bias,
        ]
        options = {
            "padding": int(bool(get("valid"))), "strideW": stride, "strideH": stride, "dilationWFactor": dilation,
            "dilationHFactor": dilation, "fusedActivationFunction": get("fused", 0),
        }  # fmt: skip
        options |= {"depthMultiplier": multiplier} if multiplier else {}
        attrs = {
            "padding": options["padding"], "stride_w": stride, "stride_h": stride, "dilation_w_factor": dilation,
            "dilation_h_factor": dilation, "fused_activation_function": ACTIVATIONS[get("fused", 0)],
        }  # fmt: skip
        builtin, kind = ("DEPTHWISE_CONV_2D", "DepthwiseConv2D") if multiplier else ("CONV_2D", "Conv2D")
        case = maker.Case(
            "window",
            str(number),
            builtin,
            given,
            made,
            "",
            [],
            attrs,
            (f"{kind}Options", options),
            6 if multiplier else 5,
        )
        yield f"window {number}", case


def _matrices(maker, rng):
    """Yield products of matrices, either way to round, the second one turned or not."""
    for number in range(4):
        asymmetric, turned = (bool(number >> bit & 1) for bit in range(2))
        x = rng.normal(size=(2, ROWS, WIDTH)).astype(np.float32)
        x[0, 2] = 0
        codes = rng.integers(-127, 128, (2, UNITS, WIDTH) if turned else (2, WIDTH, UNITS)).astype(np.int8)
        made = maker.Codes(np.empty((2, ROWS, UNITS), np.float32), None)
        given = [maker.Codes(x, None), maker.Codes(codes, np.float32(0.0113), 0, None, constant=True)]
        options = {"adjX": False, "adjY": turned, "asymmetricQuantizeInputs": asymmetric}
        attrs = {"adj_x": 0, "adj_y": int(turned), "asymmetric_quantize_inputs": int(asymmetric)}
        case = maker.Case(
            "matrices", str(number), "BATCH_MATMUL", given, made, "", [], attrs, ("BatchMatMulOptions", options), 4
        )
        yield f"matrices {number}", case


def cases():
    """Yield names and cases: one scale or one a channel, either way to round, matrices and sequences."""
    maker = _operators()
    yield from _layers(maker, np.random.default_rng(31))
    yield from _windows(maker, np.random.default_rng(32))
    yield from _matrices(maker, np.random.default_rng(33))


def _layers(maker, rng):
    """Yield FULLY_CONNECTED, of matrices and of sequences."""
    for number in range(16):
        channels, asymmetric, sequence, fused = (bool(number >> bit & 1) for bit in range(4))
        x = rng.normal(size=(2, ROWS // 2, WIDTH) if sequence else (ROWS, WIDTH)).astype(np.float32)
        x.reshape(ROWS, WIDTH)[2] = 0
        scale = (rng.random(UNITS) * 0.02 + 0.001).astype(np.float32) if channels else np.float32(0.0113)
        codes = rng.integers(-127, 128, (UNITS, WIDTH)).astype(np.int8)
        weight = maker.Codes(codes, scale, 0, 0 if channels else None, constant=True)
        bias = maker.Codes(rng.normal(size=UNITS).astype(np.float32), None, constant=True)
        made = maker.Codes(np.empty((*x.shape[:-1], UNITS), np.float32), None)
        options = {
            "asymmetricQuantizeInputs": asymmetric, "keepNumDims": sequence, "fusedActivationFunction": int(fused)
        }  # fmt: skip
        attrs = {
            "asymmetric_quantize_inputs": int(asymmetric), "keep_num_dims": int(sequence),
            "fused_activation_function": ACTIVATIONS[fused],
        }  # fmt: skip
        given = [maker.Codes(x, None), weight, bias]
        case = maker.Case(
            "hybrid", str(number), "FULLY_CONNECTED", given, made, "", [], attrs, ("FullyConnectedOptions", options), 12
        )
        yield str(number), case


def main():
    """Run every case with every set of kernels and write what it gives."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    maker, golden = _operators(), {}
    for name, case in cases():
        data = maker.model_of(case)
        for kernels, resolver in {
            "reference": OpResolverType.BUILTIN_REF,
            "optimized": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            "default": OpResolverType.AUTO,
        }.items():
            net = Interpreter(model_content=data, experimental_op_resolver_type=resolver, num_threads=1)
            net.allocate_tensors()
            net.set_tensor(case.given[0].index, case.given[0].values)
            net.invoke()
            out = net.get_tensor(case.out.index)
            golden.setdefault(name, {})[kernels] = [float(value) for value in out.reshape(-1)]
    FILE.write_text(json.dumps(golden) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
