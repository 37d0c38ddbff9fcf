"""Make litert_digits.npz and litert_golden.json: the int8 digits net as LiteRT's three sets of kernels compute it.

The first holds the net's constants and quantization parameters, the second a hash of every tensor for each set of
kernels, over the first digits of samples/digits/digits_test.npz. Provenance of the committed files: ai-edge-litert
2.3.0 on x86-64 with AVX-512 VNNI, samples/digits/digits_int8.tflite. Run it from a clone where LiteRT is installed:
python tests/kernels/make_litert_golden.py
"""

import hashlib
import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
DIGITS = HERE.parents[1] / "samples" / "digits"
SAMPLES = 60
CONSTANTS = {
    "w1": 16,
    "b1": 15,
    "w2": 14,
    "b2": 13,
    "w3": 12,
    "b3": 11,
    "w4": 10,
    "b4": 9,
    "w5": 8,
    "b5": 7,
    "w6": 6,
    "b6": 5,
}
ACTIVATIONS = {
    "x": 0,
    "conv1": 17,
    "conv2": 18,
    "max": 19,
    "depthwise": 20,
    "pointwise": 21,
    "average": 22,
    "fc1": 28,
    "fc2": 29,
}
"""Names of the net's tensors and their numbers in the file."""


def images():
    """Return the digits (N, 1, 8, 8) in float32."""
    return np.load(DIGITS / "digits_test.npz")["x"][:SAMPLES]


def quantized(images, scale, zero_point):
    """Return the codes of the input, channels last."""
    codes = np.clip(np.round(images / np.float32(scale)) + zero_point, -128, 127)
    return codes.astype(np.int8).transpose(0, 2, 3, 1)


def hashed(codes):
    """Return the hash of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(codes).tobytes()).hexdigest()


def main():
    """Run the net with each set of kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kinds = {
        "reference": OpResolverType.BUILTIN_REF,
        "optimized": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        "default": OpResolverType.AUTO,
    }
    golden, stored = {}, {}
    for kind, resolver in kinds.items():
        net = Interpreter(
            str(DIGITS / "digits_int8.tflite"),
            experimental_op_resolver_type=resolver,
            experimental_preserve_all_tensors=True,
            num_threads=1,
        )
        net.allocate_tensors()
        details = {entry["index"]: entry["quantization_parameters"] for entry in net.get_tensor_details()}
        for name, index in (CONSTANTS | ACTIVATIONS).items():
            stored[f"{name}.scale"] = np.asarray(details[index]["scales"], np.float32)
            stored[f"{name}.zero"] = np.asarray(details[index]["zero_points"], np.int32)
        codes = quantized(images(), stored["x.scale"][0], stored["x.zero"][0])
        found = {name: [] for name in ACTIVATIONS}
        for image in codes:
            net.set_tensor(0, image[None])
            net.invoke()
            for name, index in ACTIVATIONS.items():
                found[name].append(net.get_tensor(index).copy())
        golden |= {f"{name} {kind}": hashed(np.concatenate(arrays)) for name, arrays in found.items()}
        stored |= {name: net.get_tensor(index).copy() for name, index in CONSTANTS.items()}
    np.savez_compressed(HERE / "litert_digits.npz", **stored)
    (HERE / "litert_golden.json").write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
