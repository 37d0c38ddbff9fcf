"""Make torch_golden.json: hashes of what PyTorch's quantized engines compute.

Provenance of the committed file: torch 2.13.0 (CPU) on x86-64 with AVX-512 VNNI. Codes of inputs stay within 7 bits
where an engine would saturate pairs of products on lesser processors. Run it where torch is installed:
python tests/kernels/make_torch_golden.py
"""

import hashlib
import json
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ENGINES = ("qnnpack", "fbgemm", "onednn", "x86")
PAIR_SCALES = ((0.013, 0.0271, 0.0305), (0.0625, 0.125, 0.25), (0.4, 0.011, 0.37))
CONV_SCALES = ((0.03, 0.0113, 0.4, 127), (2**-4, 2**-4, 2.0, 2))
"""Scales of input, weight and output, and the largest weight."""


def pairs():
    """Yield name, codes and scales of each pair of operands; zero points are 121, 7 and 99."""
    rng = np.random.default_rng(11)
    for number, scales in enumerate(PAIR_SCALES):
        a, b = (rng.integers(0, 256, (64, 300)).astype(np.uint8) for _ in range(2))
        yield number, a, b, scales


def convolutions():
    """Yield name, codes, real bias and scales of each convolution; zero points are 11, 0 and 99."""
    rng = np.random.default_rng(12)
    for number, (sx, sw, sy, most) in enumerate(CONV_SCALES):
        x = rng.integers(0, 128, (1, 8, 14, 14)).astype(np.uint8)
        w = rng.integers(-most, most + 1, (16, 8, 3, 3)).astype(np.int8)
        bias = (rng.normal(size=16) * 5).astype(np.float32)
        yield number, x, w, bias, (sx, sw, sy)


def hashed(codes):
    """Return the hash of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(codes).tobytes()).hexdigest()


def computed(engine):
    """Yield name and codes of everything that one engine computes."""
    import torch

    def tensor(codes, scale, zero):
        return torch._make_per_tensor_quantized_tensor(torch.from_numpy(codes), scale, zero)

    torch.backends.quantized.engine = engine
    quantized = torch.ops.quantized
    for number, a, b, (sa, sb, sc) in pairs():
        sides = tensor(a, sa, 121), tensor(b, sb, 7)
        yield f"add {number} {engine}", quantized.add(*sides, sc, 99)
        yield f"add_relu {number} {engine}", quantized.add_relu(*sides, sc, 99)
        yield f"mul {number} {engine}", quantized.mul(*sides, sc, 99)
    for number, x, w, bias, (sx, sw, sy) in convolutions():
        packed = quantized.conv2d_prepack(tensor(w, sw, 0), torch.from_numpy(bias), [1, 1], [1, 1], [1, 1], 1)
        yield f"conv {number} {engine}", quantized.conv2d(tensor(x, sx, 11), packed, sy, 99)


def main():
    """Run everything on every engine and write the hashes."""
    warnings.simplefilter("ignore")
    golden = {name: hashed(out.int_repr().numpy()) for engine in ENGINES for name, out in computed(engine)}
    (HERE / "torch_golden.json").write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
