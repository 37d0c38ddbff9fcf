import numpy as np
import pytest

from qdebug.errors import KernelError, NoKernelError, RefusedSizeError
from qdebug.model import Node
from qdebug.replay import Call, find_kernel, has_kernel, known_kernels, registry, run_node
from qdebug.replay.registry import refuse_large


def node(op="Relu", inputs=("x",), outputs=("y",), **more):
    return Node(name="n7", op=op, inputs=inputs, outputs=outputs, **more)


def test_kernels_are_found_by_domain_and_operator():
    assert has_kernel("Conv")
    assert has_kernel("Conv", "ai.onnx")
    assert has_kernel("QGemm", "com.microsoft")
    assert not has_kernel("QGemm")
    assert not has_kernel("Conv", "com.acme")
    assert find_kernel(node("Conv")) is find_kernel(node("Conv", domain="ai.onnx"))
    assert ("", "Conv") in known_kernels()
    assert list(known_kernels()) == sorted(known_kernels())


def test_a_missing_kernel_is_named():
    with pytest.raises(NoKernelError, match=r"com.acme::Warp of node 'n7'") as error:
        run_node(node("Warp", domain="com.acme"), {"x": np.zeros(1)})
    assert "--backend" in error.value.hint


def test_left_out_inputs_and_outputs():
    values = {"x": np.arange(4, dtype=np.float32), "high": np.array(2, np.float32)}
    out = run_node(node("Clip", inputs=("x", "", "high")), values, {"": 13})
    assert list(out) == ["y"]
    assert out["y"].tolist() == [0, 1, 2, 2]
    pooled = run_node(node("Split", outputs=("", "b"), attrs={"axis": 0}), values, {"": 13})
    assert list(pooled) == ["b"]
    assert pooled["b"].tolist() == [2, 3]


def test_inputs_without_values_are_named():
    with pytest.raises(KernelError, match=r"Input 'x' of node 'n7' .Relu. has no values"):
        run_node(node(), {})


def test_required_inputs_are_demanded():
    with pytest.raises(KernelError, match=r"'n7' .Conv. has no input 1"):
        run_node(node("Conv", inputs=("x", "")), {"x": np.zeros((1, 1, 3), np.float32)})


def test_shapes_are_named_where_a_kernel_fails():
    values = {"x": np.zeros((2, 3), np.float32), "w": np.zeros((2, 3), np.float32)}
    with pytest.raises(KernelError, match=r"float32\[2, 3\], float32\[2, 3\]"):
        run_node(node("MatMul", inputs=("x", "w")), values)


def test_too_few_outputs_are_an_error():
    with pytest.raises(KernelError, match="has 2 outputs"):
        run_node(node(outputs=("y", "z")), {"x": np.zeros(1, np.float32)})


def test_wrong_attributes_are_named():
    values = {"x": np.zeros((1, 1, 3), np.float32)}
    with pytest.raises(KernelError, match=r"'axis' of node 'n7' .Softmax. is 'last'; expected an integer"):
        run_node(node("Softmax", attrs={"axis": "last"}), values)
    with pytest.raises(KernelError, match=r"'perm'.*expected a list of integers"):
        run_node(node("Transpose", attrs={"perm": "210"}), values)
    with pytest.raises(KernelError, match=r"'reduction'.*is 'median'; expected one of none, add, mul, max, min"):
        run_node(
            node("ScatterND", inputs=("x", "at", "x"), attrs={"reduction": "median"}),
            {**values, "at": np.zeros((1, 1))},
        )


def test_ranks_and_dtypes_that_an_operator_is_not_for_are_named():
    values = {"x": np.zeros((1, 3), np.float32), "flag": np.zeros(3, np.bool_)}
    with pytest.raises(KernelError, match=r"'n7' .Conv. has input 0 of rank 2; expected at least 3"):
        run_node(node("Conv", inputs=("x", "x")), values)
    with pytest.raises(KernelError, match=r"'n7' .Conv. has input 1 of rank 1; expected at least 3"):
        refuse_large(node("Conv", inputs=("x", "flag")), [np.zeros((1, 1, 3)), values["flag"]])
    with pytest.raises(KernelError, match=r"'n7' .Sigmoid. has input 0 of bool; expected integers or real numbers"):
        run_node(node("Sigmoid", inputs=("flag",)), values)


def test_lists_and_single_integers_among_the_inputs_are_checked():
    call = Call(inputs=(np.array([2, 3]), np.array([[2]]), np.array(3 + 1j)))
    assert call.extents(0) == (2, 3)
    assert call.whole(1) == 2
    for read, position, said in (
        (call.extents, 1, "int64 of rank 2; expected a list of integers"),
        (call.whole, 0, "int64 of 2 elements; expected one integer"),
        (call.whole, 2, "complex128 of 1 elements; expected one integer"),
    ):
        with pytest.raises(ValueError, match=f"input {position} is {said}"):
            read(position)


def test_operator_sets_are_told_apart():
    x = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32).reshape(1, 2, 2)
    joint = run_node(node("Softmax"), {"x": x}, {"": 11})["y"]  # all axes from 1 on together
    last = run_node(node("Softmax"), {"x": x}, {"": 13})["y"]
    np.testing.assert_allclose(joint.sum(), 1, rtol=1e-6)
    np.testing.assert_allclose(last.sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_array_equal(run_node(node("Softmax"), {"x": x}, {"ai.onnx": 11})["y"], joint)
    np.testing.assert_array_equal(run_node(node("Softmax"), {"x": x})["y"], last)  # the newest is assumed


def test_overflow_is_a_value_and_no_warning():
    out = run_node(node("Exp"), {"x": np.array([1000, -np.inf, np.nan], np.float32)})["y"]
    assert out.tolist()[:2] == [np.inf, 0]
    assert np.isnan(out[2])


def test_call_gives_attributes_with_defaults():
    call = Call(inputs=(None,), attrs={"k": np.int64(3), "alpha": 0.5, "pads": np.array([1, 2])}, op="Op", node="n")
    assert call.integer("k") == 3
    assert call.integer("group", 1) == 1
    assert call.real("alpha") == 0.5
    assert call.text("mode", "constant") == "constant"
    assert call.integers("pads") == (1, 2)
    assert call.choice("mode", ("edge", "wrap"), "edge") == "edge"
    assert call.integers("strides") is None
    assert call.optional(0) is None
    assert call.optional(5) is None


def test_kernels_refuse_no_inputs_with_a_typed_error():
    for domain, op in known_kernels():
        node = Node(name="n", op=op, domain=domain, outputs=("a", "b", "c", "d", "e"))
        with pytest.raises(KernelError):  # whose traceback tells which
            run_node(node, {})


def test_a_kernel_that_runs_out_of_memory_is_refused_for_its_size(monkeypatch):
    def exhausted(call):
        raise MemoryError

    monkeypatch.setitem(registry._KERNELS, ("", "Abs"), exhausted)
    node = Node(name="n", op="Abs", inputs=("x",), outputs=("y",))
    with pytest.raises(RefusedSizeError, match=r"'n' \(Abs\) runs out of memory on inputs float32\[2\]"):
        run_node(node, {"x": np.zeros(2, np.float32)})
