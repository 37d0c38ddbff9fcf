"""Models as OpenVINO reads them: names, constants of every type, attributes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from qdebug.backends import load_reader
from qdebug.errors import UsageError

openvino = pytest.importorskip("openvino", reason="needs the extra openvino")
ops = pytest.importorskip("openvino.opset13", reason="needs the extra openvino")


def read(tmp_path, results, parameters):
    path = tmp_path / "net.xml"
    openvino.save_model(openvino.Model(results, parameters, "net"), path, compress_to_fp16=False)
    return load_reader(path)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("bf16", ml_dtypes.bfloat16),
        ("f16", np.float16),
        ("i4", ml_dtypes.int4),
        ("u4", ml_dtypes.uint4),
        ("i8", np.int8),
    ],
)
def test_constants_of_every_type_are_read(tmp_path, kind, dtype):
    values = np.arange(6).reshape(2, 3).astype(np.float32)
    x = ops.parameter([2, 3], np.float32, name="x")
    constant = ops.constant(values, dtype=getattr(openvino.Type, kind))
    constant.set_friendly_name("w")
    source = read(tmp_path, [ops.add(x, ops.convert(constant, "f32"))], [x])
    found = source.constant("w")
    assert found.dtype == dtype
    assert found.astype(np.float32).tolist() == values.tolist()
    assert source.graph.tensors["w"].dtype == np.dtype(dtype).name


def test_names_graph_and_attributes(tmp_path):
    x = ops.parameter([1, 2, 5, 5], np.float32, name="x")
    parts = ops.split(x, 1, 2)
    pooled = ops.avg_pool(parts.output(0), [2, 2], [0, 0], [0, 0], [2, 2], exclude_pad=True)
    source = read(tmp_path, [pooled, ops.relu(parts.output(1))], [x])
    split = next(node for node in source.graph.nodes if node.op == "Split")
    assert len(set(split.outputs)) == 2
    assert split.attrs["num_splits"] == 2
    pool = next(node for node in source.graph.nodes if node.op == "AvgPool")
    assert pool.attrs["kernel"] == (2, 2)
    assert source.graph.inputs == ("x",)
    assert len(source.graph.outputs) == 2
    assert len(source.sha256) == 64
    with pytest.raises(UsageError, match="no constant 'nothing'"):
        source.constant("nothing")
