"""Make torch_operators.json: single operators as PyTorch's quantized engines compute them, as the start of a hash each.

Provenance of the committed file: torch 2.13.0 (CPU) on x86-64 with AVX-512 VNNI. Codes of what is convolved stay within
7 bits, where an engine would saturate pairs of products on lesser processors. Run it from a clone where torch is
installed: python tests/kernels/make_torch_operators.py
"""

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
FILE = HERE / "torch_operators.json"
ENGINES = ("qnnpack", "fbgemm", "onednn", "x86")


@dataclass
class Codes:
    """A quantized tensor."""

    values: np.ndarray
    scale: object
    zero: int = 0
    axis: int | None = None

    @property
    def scales(self):
        return np.atleast_1d(np.asarray(self.scale, np.float32))

    @property
    def zeros(self):
        return np.broadcast_to(np.asarray(self.zero, np.int64), self.scales.shape)


@dataclass
class Case:
    """One operator: as ONNX has it, and as a function of torch's quantized tensors."""

    family: str
    name: str
    op: str
    inputs: list
    out: Codes
    run: Callable
    attrs: dict = field(default_factory=dict)
    engines: tuple = ENGINES


def drawn(rng, *shape, most=255):
    return rng.integers(0, most + 1, shape).astype(np.uint8)


def like(scale, zero):
    return Codes(np.empty(0, np.uint8), scale, zero)


def functions(rng):
    """Yield functions of every code; PyTorch chooses the scale of some outputs itself."""
    every = np.arange(256).astype(np.uint8).reshape(1, -1)
    for number in range(12):
        scale = 2.0**-5 if number < 2 else float(np.float32(rng.uniform(0.01, 0.2)))
        x = Codes(every, scale, int(rng.integers(30, 220)))
        free = like(float(np.float32(scale * rng.uniform(0.5, 1.5))), int(rng.integers(10, 80)))
        fixed, wide = like(1 / 256, 0), like(2 / 256, 128)
        sy, zy = float(free.scale), free.zero
        yield Case(
            "hard swish", str(number), "HardSwish", [x], free,
            lambda t, a, sy=sy, zy=zy: t.ops.quantized.hardswish(a, sy, zy),
        )  # fmt: skip
        yield Case(
            "leaky relu", str(number), "LeakyRelu", [x], free,
            lambda t, a, sy=sy, zy=zy: t.ops.quantized.leaky_relu(a, 0.13, False, sy, zy), {"alpha": 0.13},
        )  # fmt: skip
        yield Case(
            "elu", str(number), "Elu", [x], free,
            lambda t, a, sy=sy, zy=zy: t.ops.quantized.elu(a, sy, zy, 1.0), {"alpha": 1.0},
        )  # fmt: skip
        yield Case("sigmoid", str(number), "Sigmoid", [x], fixed, lambda t, a: t.sigmoid(a))
        yield Case("tanh", str(number), "Tanh", [x], wide, lambda t, a: t.tanh(a))
        slope = {"alpha": 1 / 6, "beta": 0.5}
        run = lambda t, a: t.nn.functional.hardsigmoid(a)  # noqa: E731  # a line, as the others are
        yield Case("hard sigmoid", str(number), "HardSigmoid", [x], fixed, run, slope)
        yield Case("relu", str(number), "Relu", [x], x, lambda t, a: t.relu(a))


def averages(rng):
    x = Codes(drawn(rng, 2, 16, 20, 20), 0.05, 117)
    window = {"kernel_shape": (3, 3), "strides": (2, 2)}
    around = window | {"pads": (1, 1, 1, 1)}

    def pooled(padding, counted):
        return lambda t, a: t.nn.functional.avg_pool2d(a, 3, 2, padding, count_include_pad=counted)

    yield Case("average pool", "0", "AveragePool", [x], x, pooled(0, True), window)
    counted = around | {"count_include_pad": 1}
    yield Case("average pool", "with padding", "AveragePool", [x], x, pooled(1, True), counted)
    # The engine qnnpack counts the padding there whatever it is told.
    yield Case("padded average pool", "0", "AveragePool", [x], x, pooled(1, False), around, ENGINES[1:])
    for number, axes in enumerate(((2, 3), (3,), (1,))):
        run = lambda t, a, axes=axes: t.mean(a, list(axes), keepdim=True)  # noqa: E731
        yield Case("mean", str(number), "ReduceMean", [x], x, run, {"axes": axes})
    small = Codes(drawn(rng, 8, 64, 7, 7), 0.05, 117)
    run = lambda t, a: t.nn.functional.adaptive_avg_pool2d(a, 1)  # noqa: E731
    yield Case("global average pool", "0", "GlobalAveragePool", [small], small, run)


def moves(rng):
    x = Codes(drawn(rng, 2, 16, 20, 20), 0.05, 117)
    for size in ((37, 33), (11, 13), (40, 40)):
        sizes = np.array((2, 16, *size))
        for corners in (False, True):
            placing = "align_corners" if corners else "half_pixel"
            attrs = {"mode": "linear", "coordinate_transformation_mode": placing}
            for layout, memory in (("bilinear", "contiguous_format"), ("bilinear, channels last", "channels_last")):

                def run(t, a, size=size, corners=corners, memory=memory):
                    given = a.contiguous(memory_format=getattr(t, memory))
                    found = t.nn.functional.interpolate(given, size=size, mode="bilinear", align_corners=corners)
                    return found.contiguous()

                yield Case(layout, f"{size[0]} {placing}", "Resize", [x, None, None, sizes], x, run, attrs)
        attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        run = lambda t, a, size=size: t.nn.functional.interpolate(a, size=size, mode="nearest")  # noqa: E731
        yield Case("nearest", str(size[0]), "Resize", [x, None, None, sizes], x, run, attrs)
    for number in range(3):
        a, b = Codes(drawn(rng, 40, 300), 2.0**-5, 117), Codes(drawn(rng, 40, 200), rng.uniform(0.01, 0.1), 7)
        out = like(2.0**-4 if number else 0.04, 55)
        run = lambda t, a, b, s=float(out.scale): t.ops.quantized.cat([a, b], 1, s, 55)  # noqa: E731
        yield Case("concat", str(number), "Concat", [a, b], out, run, {"axis": 1})
    for length in (4, 50):
        a = Codes(drawn(rng, 300, length), 0.05, 117)
        run = lambda t, a: t.ops.quantized.softmax(a, 1, 1 / 256, 0)  # noqa: E731
        yield Case("softmax", str(length), "Softmax", [a], like(1 / 256, 0), run, {"axis": 1})


def products(rng):
    for tag, (sx, sw, sy) in {"generic": (0.05, 0.0113, 0.411), "dyadic": (2.0**-4, 2.0**-6, 2.0**-3)}.items():
        for per in (False, True):
            name = f"{tag} {'channels' if per else 'tensor'}"

            def weight(shape, axis, count, per=per, sw=sw, tag=tag):
                scale = rng.random(count) * 0.02 + 0.001 if tag == "generic" else 2.0 ** -rng.integers(4, 9, count)
                values = rng.integers(-127, 128, shape).astype(np.int8)
                return Codes(values, np.float32(scale) if per else sw, 0, axis if per else None)

            x, out = Codes(drawn(rng, 1, 16, 14, 14, most=127), sx, 11), like(sy, 99)
            for family, count, shape, groups in (
                ("conv", 24, (24, 16, 3, 3), 1),
                ("depthwise", 16, (16, 1, 3, 3), 16),
            ):
                w, bias = weight(shape, 0, count), (rng.normal(size=count) * 5).astype(np.float32)

                def run(t, a, w, bias, sy=sy, groups=groups):
                    packed = t.ops.quantized.conv2d_prepack(w, bias, [1, 1], [1, 1], [1, 1], groups)
                    return t.ops.quantized.conv2d(a, packed, sy, 99)

                yield Case(family, name, "Conv", [x, w, bias], out, run, {"pads": (1, 1, 1, 1), "group": groups})
            w, bias = weight((16, 24, 3, 3), 1, 24), (rng.normal(size=24) * 5).astype(np.float32)

            def turned(t, a, w, bias, sy=sy):
                packed = t.ops.quantized.conv_transpose2d_prepack(w, bias, [2, 2], [1, 1], [0, 0], [1, 1], 1)
                return t.ops.quantized.conv_transpose2d(a, packed, sy, 99)

            attrs = {"pads": (1, 1, 1, 1), "strides": (2, 2)}
            # Per channel the others refuse it, and those of oneDNN give numbers that have nothing to do with it.
            engines = ENGINES[:1] if per else ENGINES[:2]
            yield Case("transposed", name, "ConvTranspose", [x, w, bias], out, turned, attrs, engines)
            x, w = Codes(drawn(rng, 400, 100, most=127), sx, 11), weight((70, 100), 0, 70)
            bias = (rng.normal(size=70) * 5).astype(np.float32)

            def multiplied(t, a, w, bias, sy=sy):
                return t.ops.quantized.linear(a, t.ops.quantized.linear_prepack(w, bias), sy, 99)

            yield Case("linear", name, "Gemm", [x, w, bias], out, multiplied, {"transB": 1})


def cases():
    """Yield all cases; their data are drawn anew, the same each time."""
    for seed, family in enumerate((functions, averages, moves, products)):
        yield from family(np.random.default_rng(seed + 200))


def hashed(codes):
    """Return the start of the hash of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(codes).tobytes()).hexdigest()[:16]


def tensor(torch, given):
    """Return what the function reads: a quantized tensor, or a real one."""
    if isinstance(given, np.ndarray):
        return torch.from_numpy(given)
    values = torch.from_numpy(given.values)
    if given.axis is None:
        return torch._make_per_tensor_quantized_tensor(values, float(given.scales[0]), given.zero)
    scales, zeros = (torch.from_numpy(np.array(a)) for a in (given.scales.astype(np.float64), given.zeros))
    return torch._make_per_channel_quantized_tensor(values, scales, zeros, given.axis)


def main():
    """Run every case on every engine and write the hashes."""
    import torch

    warnings.simplefilter("ignore")
    golden = {}
    for case in cases():
        for engine in case.engines:
            torch.backends.quantized.engine = engine
            given = [tensor(torch, entry) for entry in case.inputs if entry is not None and case.op != "Resize"]
            if case.op == "Resize":
                given = [tensor(torch, case.inputs[0])]
            codes = case.run(torch, *given).int_repr().numpy()
            golden.setdefault(f"{case.family} {case.name}", {})[engine] = hashed(codes)
    FILE.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
