"""Hold right networks in bfloat16 and float16 beside their float32 run: nothing may be called wrong.

python tests/backends/rounded.py FOLDER [--nets NAME ...] [--transformers N] [--compiled N]

FOLDER keeps the real nets. Each is run in float32 by ONNX Runtime, then by OpenVINO in bfloat16 and in float16, and by
ONNX Runtime after its own conversion to float16. A runtime that falls back to another format is left out.
Random transformers of two layers run in PyTorch, eagerly and, with --compiled, by inductor without and with the
roundings of eager mode between fused operators. One alarm is right: the conversion of `det` to float16 cuts off
variances of up to 9.8e7.
A line for each runtime and format:

  pairs       how many were compared
  alarms      nodes beyond a limit, or with rounding errors of one sign
  explained   nodes with a result in a short format that a placement of roundings reproduces bit for bit
  band        nodes within the rounding of their sums
  no          unexplained ones
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import ml_dtypes
import numpy as np

import qdebug
from qdebug.errors import QdebugError
from qdebug.running.record import record_run

NETS = ("cls", "file-type", "orientation", "marks", "swift-f0", "pitch-onnx", "voice", "det", "rec")
SHAPES = {
    "cls": {"x": (1, 3, 48, 192)},
    "rec": {"x": (1, 3, 48, 160)},
    "det": {"x": (1, 3, 160, 160)},
}
_TONE = 0.5 * np.sin(2 * np.pi * 220 * np.arange(16000) / 16000)
_NOISE = 0.01 * np.random.default_rng(0).standard_normal((1, 16000))
FEEDS = {"swift-f0": {"audio": _TONE + _NOISE, "fmin": 46.875, "fmax": 2093.75}}
"""Inputs that must mean something. The pitch of a few samples is NaN in float32 already, where OpenVINO has the largest
number, which is rightly reported. Roundings choose the pitch of noise alone, and the loudest of empty frequencies."""
_SIDE = 96


def _models():
    spec = importlib.util.spec_from_file_location("models", Path(__file__).with_name("models.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _inputs(model: Path, name: str) -> dict[str, np.ndarray]:
    """Return one random sample of the inputs of a net."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    rng, found = np.random.default_rng(0), {}
    for each in session.get_inputs():
        free = [1, 3, _SIDE, _SIDE]
        shape = SHAPES.get(name, {}).get(each.name) or tuple(
            size if isinstance(size, int) and size > 0 else free[min(at, 3)] for at, size in enumerate(each.shape)
        )
        is_whole = "int" in each.type
        found[each.name] = (
            rng.integers(0, 64, shape).astype(np.int64 if "64" in each.type else np.int32)
            if is_whole
            else rng.standard_normal(shape).astype(np.float32)
        )
    return found | {each: np.float32(values) for each, values in FEEDS.get(name, {}).items()}


def _real_pairs(folder: Path, names: list[str]) -> Iterator[tuple[str, Path, Path]]:
    """Yield the kind of each pair, and the recordings in float32 and in a short format."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    models = _models()
    for name in names:
        model = models.net(name, folder)
        feed = _inputs(model, name)
        with TemporaryDirectory() as scratch:
            half = Path(scratch) / "half.onnx"
            onnx.save(convert_float_to_float16(onnx.load(model), keep_io_types=True), half)
            reference = Path(scratch) / "reference.h5"
            record_run(model, backend="onnxruntime", options={"opt": "none"}, inputs=feed, out=reference)
            for kind, file, backend, options in (
                ("openvino bf16", model, "openvino", {"precision": "bf16"}),
                ("openvino f16", model, "openvino", {"precision": "f16"}),
                ("onnxruntime f16", half, "onnxruntime", {}),
            ):
                made = Path(scratch) / f"{kind}.h5"
                try:
                    record_run(file, backend=backend, options=options, inputs=feed, out=made)
                except QdebugError as error:
                    print(f"{name}, {kind}: not recorded: {error}", flush=True)
                    continue
                used = qdebug.open_recording(made).info.options.get("effective_precision", "")
                if used and not kind.endswith(used):
                    print(f"{name}, {kind}: no pair, as the runtime computes in {used} here", flush=True)
                    continue
                yield f"{kind}|{name}", reference, made


def _transformer(seed: int):
    """Make a transformer of two layers with random weights, scales and shifts."""
    import torch
    from torch import nn

    width, heads = (64, 128)[seed % 2], 4
    activation = (nn.functional.silu, nn.functional.gelu, torch.relu)[seed % 3]

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            norm = nn.RMSNorm if seed // 3 % 2 else nn.LayerNorm
            self.first, self.second = norm(width), norm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.gate, self.up, self.down = (nn.Linear(a, b) for a, b in ((width, 256), (width, 256), (256, width)))

        def forward(self, x):
            count, length, _ = x.shape
            q, k, v = self.qkv(self.first(x)).view(count, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
            shares = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
            x = x + self.out((shares @ v).transpose(1, 2).reshape(count, length, width))
            y = self.second(x)
            return x + self.down(activation(self.gate(y)) * self.up(y))

    torch.manual_seed(seed)
    net = nn.Sequential(Block(), Block()).eval()
    with torch.no_grad():
        for values in net.parameters():
            if values.ndim == 1:
                values.add_(torch.randn_like(values) * 0.2)
    return net, torch.randn(2, 40, width) * (1 + seed % 4)


def _transformer_pairs(count: int) -> Iterator[tuple[str, Path, Path]]:
    import torch

    from qdebug.backends.torch import record

    for seed in range(count):
        net, x = _transformer(seed)
        with TemporaryDirectory() as scratch, torch.no_grad():
            reference = Path(scratch) / "reference.h5"
            with record(net, reference):
                net(x)
            for short in (torch.bfloat16, torch.float16):
                made = Path(scratch) / f"{short}.h5"
                narrow = copy.deepcopy(net).to(short)
                with record(narrow, made):
                    narrow(x.to(short))
                yield f"torch eager {str(short).removeprefix('torch.')}|{seed}", reference, made


def _compiled_pairs(count: int) -> Iterator[tuple[str, Path, Path]]:
    import torch

    for seed in range(count):
        net, x = _transformer(seed)
        with TemporaryDirectory() as scratch:
            reference = Path(scratch) / "reference.h5"
            program = Path(scratch) / "net.pt2"
            torch.export.save(
                torch.export.export(net.to(torch.bfloat16), (x.to(torch.bfloat16),), strict=True), program
            )
            arrays = {"input": x.float().numpy().astype(ml_dtypes.bfloat16)}
            record_run(program, backend="torch", inputs=arrays, out=reference)
            for kind, options in (
                ("torch inductor", {"compile": "inductor"}),
                ("torch inductor, casts", {"compile": "inductor", "enable": "emulate_precision_casts"}),
            ):
                made = Path(scratch) / f"{kind}.h5"
                record_run(program, backend="torch", options=options, inputs=arrays, out=made)
                yield f"{kind} bfloat16|{seed}", reference, made


def main() -> None:
    """Compare all pairs and print the table, then each alarm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nets", nargs="*", default=list(NETS))
    parser.add_argument("--transformers", type=int, default=95, help="transformers, each in two formats (default: 95)")
    parser.add_argument("--compiled", type=int, default=0)
    options = parser.parse_args()
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    alarms = []
    pairs = [
        _real_pairs(options.folder.resolve(), options.nets),
        _transformer_pairs(options.transformers),
        _compiled_pairs(options.compiled),
    ]
    for kind, reference, made in (pair for group in pairs for pair in group):
        runtime, _, name = kind.partition("|")
        result, explanation = qdebug.diff(reference, made), qdebug.explain(made)
        beyond = [
            f"{name}, {runtime}: {node.node} ({node.op}) {node.status}: {node.reason}"
            for node in result.nodes
            if node.status in ("diverged", "nonfinite") or any(each.kind == "one_sided" for each in node.findings)
        ]
        alarms += beyond
        counts = Counter(str(node.status) for node in explanation.nodes)
        rows[runtime] += counts + Counter(pairs=1, alarms=len(beyond))
        print(f"{runtime}, {name}: {result.verdict.status}, {len(beyond)} alarms, {dict(counts)}", flush=True)
    print(f"\n{'runtime':30}{'pairs':>7}{'alarms':>8}{'explained':>11}{'band':>7}{'no':>5}")
    for runtime, counts in rows.items():
        print(
            f"{runtime:30}{counts['pairs']:7}{counts['alarms']:8}{counts['explained']:11}{counts['in_band']:7}"
            f"{counts['unexplained']:5}"
        )
    print("", *alarms, sep="\n")


if __name__ == "__main__":
    main()
