"""Models and inputs that the ONNX Runtime tests share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

SAMPLES = Path(__file__).resolve().parents[3] / "samples" / "digits"

SaveModel = Callable[..., Path]


@pytest.fixture(scope="session")
def digits() -> np.ndarray:
    """Real test digits: float32 [397, 1, 8, 8]."""
    with np.load(SAMPLES / "digits_test.npz") as archive:
        return archive["x"]


@pytest.fixture
def save_model(tmp_path: Path) -> SaveModel:
    """Save nodes as a model: save_model(nodes, outputs=(...), constants={...})."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    def save(
        nodes: Sequence[onnx.NodeProto],
        *,
        inputs: Sequence[str] = ("x",),
        outputs: Sequence[str] = ("y",),
        constants: dict[str, np.ndarray] | None = None,
        shape: Sequence[int | str] | None = ("n", 4),
        kind: int = TensorProto.FLOAT,
        **saving,
    ) -> Path:
        graph = helper.make_graph(
            nodes,
            "net",
            [helper.make_tensor_value_info(name, kind, shape) for name in inputs],
            [onnx.ValueInfoProto(name=name) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        path = tmp_path / "net.onnx"
        onnx.save(model, str(path), **saving)
        return path

    return save
