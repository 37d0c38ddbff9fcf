"""Train a small conv net on the UCI digits that scikit-learn carries.

Writes digits.onnx and digits_test.npz (needs torch, scikit-learn, onnx); running the sample needs none of them.
"""

import sys

import numpy as np
import onnx
import torch
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh
from sklearn.datasets import load_digits


def build(out="."):
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    p = np.random.RandomState(0).permutation(len(x))
    x, y = x[p], y[p]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    nn = torch.nn
    m = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.ReLU(),
        nn.Conv2d(16, 24, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(96, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
    opt = torch.optim.Adam(m.parameters(), 2e-3)
    for e in range(40):
        for b in np.array_split(np.random.RandomState(e).permutation(1400), 22):
            loss = nn.functional.cross_entropy(m(torch.from_numpy(x[b])), torch.from_numpy(y[b]))
            opt.zero_grad()
            loss.backward()
            opt.step()
    w = {k: v.numpy() for k, v in m.state_dict().items()}
    nodes = []

    def add(op, src, dst, idx=None, **attrs):
        constants = [] if idx is None else [f"w{idx}.weight", f"w{idx}.bias"]
        nodes.append(h.make_node(op, [src, *constants], [dst], name=dst, **attrs))

    add("Conv", "x", "conv1", 0, pads=[1] * 4)
    add("Relu", "conv1", "relu1")
    add("Conv", "relu1", "conv2", 2, pads=[1] * 4)
    add("Relu", "conv2", "relu2")
    add("MaxPool", "relu2", "pool1", kernel_shape=[2, 2], strides=[2, 2])
    add("Conv", "pool1", "dwconv", 5, pads=[1] * 4, group=16)
    add("Relu", "dwconv", "relu3")
    add("Conv", "relu3", "pwconv", 7)
    add("Relu", "pwconv", "relu4")
    add("AveragePool", "relu4", "pool2", kernel_shape=[2, 2], strides=[2, 2])
    add("Flatten", "pool2", "flat")
    add("Gemm", "flat", "fc1", 11, transB=1)
    add("Relu", "fc1", "relu5")
    add("Gemm", "relu5", "logits", 13, transB=1)
    inputs = [h.make_tensor_value_info("x", T.FLOAT, ["n", 1, 8, 8])]
    outputs = [h.make_tensor_value_info("logits", T.FLOAT, ["n", 10])]
    g = h.make_graph(nodes, "digits", inputs, outputs, [nh.from_array(v, "w" + k) for k, v in w.items()])
    model = h.make_model(g, opset_imports=[h.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, f"{out}/digits.onnx")
    np.savez_compressed(f"{out}/digits_test.npz", x=x[1400:], y=y[1400:], calib=x[:384])


if __name__ == "__main__":
    build(*sys.argv[1:])
