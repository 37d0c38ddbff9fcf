"""Make quark_golden.json: block floating point and MX formats as AMD Quark's kernels for processors round to them.

The library that is given has both launchers of amd/Quark, quark/onnx/operators/custom_ops/src/bfp/cpu/bfp_kernel.cc,
as functions of C: bfp(input, output, n, bit_width, block_size, rounding_mode, compiler_version) and prime(input,
output, n, bit_width, block_size, sub_block_size, sub_block_shift_bits, rounding_mode); or that of mx/cpu/mx_kernel.cc
there: mx(input, output, n, block_size, ebits, mbits, emax, max_norm, min_norm, rounding_mode). Cases of what it has not
stay as they are.
Provenance of the committed file: what commit 1d27b5582e4e computes there, written as C functions, g++ on x86-64.
Run it from a clone: python tests/kernels/make_quark_golden.py LIBRARY
"""

import ctypes
import json
import sys
from pathlib import Path

import numpy as np

FILE = Path(__file__).resolve().parent / "quark_golden.json"
BLOCK = 16
ROUNDINGS = (0, 1, 2)


def data():
    """Return numbers of all sizes: ties, zeros, subnormal numbers, an infinity, a NaN, and some at the end of codes."""
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(6, 32)) * np.exp(2 * rng.normal(size=(6, 32)))).astype(np.float32)
    x[0, :8], x[1, 3], x[1, 20] = 0, np.inf, np.nan
    x[2, :16], x[3, :16] = np.arange(16) / 8 + 0.5, -np.arange(16) / 16
    x[4, :8], x[4, 8:16], x[4, 16:24] = 1e-40, 127.75, -127.9
    return x


def cases():
    """Yield attributes of a BFPQuantizeDequantize."""
    for rounding in ROUNDINGS:
        plain = {"axis": -1, "block_size": BLOCK, "rounding_mode": rounding}
        for bits in (16, 13):
            for compiler in (0, 1):
                yield {**plain, "bfp_method": "to_bfp", "bit_width": bits, "use_compiler_version_cpu_kernel": compiler}
        for bits, size, shift in ((13, 2, 1), (11, 4, 2)):
            parts = {"sub_block_size": size, "sub_block_shift_bits": shift}
            yield {**plain, "bfp_method": "to_bfp_prime", "bit_width": bits, **parts}


MX = {
    "fp8_e5m2": (5, 2, 15, 57344, -57344),
    "fp8_e4m3": (4, 3, 8, 448, -448),
    "fp6_e3m2": (3, 2, 4, 28, -28),
    "fp6_e2m3": (2, 3, 2, 7.5, -7.5),
    "fp4_e2m1": (2, 1, 2, 6, -6),
    "int8": (0, 8, 0, 127, -128),
}
"""Of each format of elements: bits of its exponent and fraction, its largest exponent, its limits."""


def micro_cases():
    """Yield attributes of a MXQuantizeDequantize."""
    for kind in MX:
        for rounding in ROUNDINGS if kind == "int8" else (2,):
            yield {"axis": -1, "block_size": BLOCK, "element_dtype": kind, "rounding_mode": rounding}


def name_of(attrs):
    return " ".join(str(attrs[name]) for name in sorted(attrs))


def words_of(out):
    words = np.where(np.isnan(out), np.uint32(0x7FFFFFFF), (out + np.float32(0)).view(np.uint32))
    return [int(word) for word in words.reshape(-1)]


def main():
    """Compute every case and write the bits of what it gives; those of any NaN as 0x7fffffff."""
    library, x, golden = ctypes.CDLL(sys.argv[1]), data(), json.loads(FILE.read_text(encoding="utf-8"))
    if hasattr(library, "mx"):
        for attrs in micro_cases():
            out, (ebits, mbits, emax, high, low) = np.zeros_like(x), MX[attrs["element_dtype"]]
            pointers = [each.ctypes.data_as(ctypes.c_void_p) for each in (x, out)]
            limits = ctypes.c_float(high), ctypes.c_float(low)
            library.mx(*pointers, x.size, BLOCK, ebits, mbits, emax, *limits, attrs["rounding_mode"])
            golden[name_of(attrs)] = words_of(out)
    for attrs in cases() if hasattr(library, "bfp") else ():
        out = np.zeros_like(x)
        pointers = [each.ctypes.data_as(ctypes.c_void_p) for each in (x, out)]
        bits, rounding = attrs["bit_width"], attrs["rounding_mode"]
        if attrs["bfp_method"] == "to_bfp":
            library.bfp(*pointers, x.size, bits, BLOCK, rounding, attrs["use_compiler_version_cpu_kernel"])
        else:
            parts = attrs["sub_block_size"], attrs["sub_block_shift_bits"]
            library.prime(*pointers, x.size, bits, BLOCK, *parts, rounding)
        golden[name_of(attrs)] = words_of(out)
    FILE.write_text(json.dumps(golden) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
