"""Make litert_hybrid.json: FULLY_CONNECTED of LiteRT on real data and a weight of codes.

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


def cases():
    """Yield names and cases: one scale or one a channel, either way to round, matrices and sequences."""
    maker, rng = _operators(), np.random.default_rng(31)
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
