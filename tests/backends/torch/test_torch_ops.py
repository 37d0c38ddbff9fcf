"""How PyTorch's operators and tensors are described: names, arguments, and codes with their scales."""

import numpy as np
import pytest

from qdebug.backends.torch.ops import bind_arguments, codes_of, node_arguments, node_title, quant_of_codes, tensor_of

torch = pytest.importorskip("torch", reason="needs the extra torch")


@pytest.mark.parametrize(
    ("path", "kind", "op", "title"),
    [
        ("layers.0.fc", "torch.nn.modules.linear.Linear", "aten.linear.default", "layers.0.fc"),
        ("bn", "torch.nn.modules.batchnorm.BatchNorm2d", "aten._native_batch_norm_legit_no_training.default", "bn"),
        ("act", "torch.nn.modules.activation.ReLU", "aten.relu_.default", "act"),
        ("flat", "torch.nn.modules.flatten.Flatten", "aten.view.default", "flat.view"),
        ("attn", "torch.nn.modules.activation.MultiheadAttention", "aten.linear.default", "attn.linear"),
        ("conv", "mine.Conv", "aten.conv2d.default", "conv.conv2d"),
        ("", "mine.Net", "aten.add.Tensor", "add"),
        ("", "", "cond", "cond"),
    ],
)
def test_a_node_is_called_after_its_module_if_that_is_the_operator(path, kind, op, title):
    assert node_title(path, kind, op) == title


def test_arguments_are_inputs_attributes_and_constants():
    ops = torch.ops.aten
    x = torch.ones(1)

    def of(op, *args, **kwargs):
        given = bind_arguments(op, args, kwargs)
        return node_arguments(op._schema, given, node="n", name_of=lambda value: "x" if value is x else None)

    conv = of(ops.conv2d.default, x, x, None, [2, 2])
    assert conv.inputs == ("x", "x")
    assert conv.attrs == {"stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    clipped = of(ops.layer_norm.default, x, [1], None, x)
    assert clipped.inputs == ("x", "", "x")
    added = of(ops.add.Tensor, x, 2)
    assert (added.inputs, added.numbers, added.attrs) == (("x", "n.other"), {"n.other": np.asarray(2)}, {"alpha": 1})
    assert of(ops.cat.default, [x, x], -1).inputs == ("x", "x")
    assert of(ops.select.int, x, 0, 3).inputs == ("x", "n.index")
    assert of(ops.to.dtype, x, torch.float16).attrs["dtype"] == "float16"


@pytest.mark.parametrize(
    ("block", "scales", "axis", "size", "shape"),
    [
        ([-1, -1], 1, None, None, (1,)),
        ([1, 8], 4, 0, None, (4,)),
        ([4, 1], 8, 1, None, (8,)),
        ([1, 2], 16, 1, 2, (4, 4)),
        ([2, 1], 16, 0, 2, (2, 8)),
        ([1, 1], 32, 1, 1, (4, 8)),
    ],
)
def test_blocks_are_one_scale_one_for_each_channel_or_blocks_along_an_axis(block, scales, axis, size, shape):
    quant = quant_of_codes("int8", (4, 8), block, np.arange(1, scales + 1, dtype=np.float32))
    assert (quant.axis, quant.block_size, quant.scale.shape) == (axis, size, shape)
    assert quant.scale.ravel().tolist() == list(range(1, scales + 1))


@pytest.mark.parametrize(("block", "scales"), [([2, 2], 8), ([1, 3], 4), ([8], 4), ([1, 8], 3)])
def test_other_blocks_are_not_said(block, scales):
    assert quant_of_codes("int8", (4, 8), block, np.ones(scales, np.float32)) is None


class Codes:
    """A tensor as torchao has them: lists of what it holds, and how it is dequantized."""

    tensor_data_names = ("qdata", "scale")

    def __init__(self, qdata, scale, real, block_size):
        self.qdata, self.scale, self.real, self.block_size = qdata, scale, real, block_size

    def dequantize(self):
        return self.real


def test_codes_in_order_are_recorded_and_others_dequantized():
    codes = torch.arange(-8, 8, dtype=torch.int8).reshape(2, 8)
    scale = torch.tensor([[0.5], [0.25]])
    found = codes_of(Codes(codes, scale, codes * scale, [1, 8]))
    assert (found.array.dtype, found.quant.axis, found.note) == (np.int8, 0, "")
    turned = codes_of(Codes(codes.flip(1), scale, codes * scale, [1, 8]))
    assert turned.quant is None
    assert "Codes: recorded dequantized" in turned.note
    np.testing.assert_array_equal(turned.array, (codes * scale).numpy())


def test_two_codes_in_a_byte_are_taken_apart():
    codes = torch.arange(-8, 8, dtype=torch.int8).reshape(2, 8)
    scale = torch.tensor([[0.5, 1.0], [0.25, 2.0]])
    low, high = codes[:, ::2] & 15, codes[:, 1::2] & 15
    packed = (low | high << 4).to(torch.uint8)
    real = codes * scale.repeat_interleave(4, 1)
    found = codes_of(Codes(packed, scale, real, [1, 4]))
    assert (found.array.dtype.name, found.quant.block_size) == ("int4", 4)
    np.testing.assert_array_equal(found.array.astype(np.int8), codes.numpy())


def test_an_array_whose_dtype_is_equal_to_a_plain_one_is_taken():
    array = np.ones(3, np.dtype("f4").newbyteorder("="))
    assert array.dtype.isbuiltin == 0
    assert tensor_of(array).tolist() == [1, 1, 1]
