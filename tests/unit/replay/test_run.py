from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from qdebug.errors import InputError, KernelError, NoKernelError
from qdebug.model import Graph, Node, Role, TensorInfo
from qdebug.replay import Arithmetic, one_thread, parse_variant, run_graph

X = np.array([[-1.0, 2.0]], np.float32)
W = np.array([[1.0, -1.0], [2.0, 0.5]], np.float32)


def graph(*extra):
    return Graph(
        [
            Node(name="mm", op="MatMul", inputs=("x", "w"), outputs=("a",)),
            Node(name="act", op="Relu", inputs=("a",), outputs=("b",)),
            Node(name="sum", op="Add", inputs=("b", "b"), outputs=("c",)),
            *extra,
        ],
        inputs=["x"],
        outputs=["c"],
        tensors=[TensorInfo(name="w", role=Role.CONSTANT)],
    )


def test_every_tensor_is_given_in_order():
    seen = {}
    out = run_graph(graph(), {"x": X}, {"w": W}, on_tensor=seen.__setitem__)
    assert list(seen) == ["a", "b", "c"]
    np.testing.assert_array_equal(seen["a"], X @ W)
    assert list(out) == ["c"]
    np.testing.assert_array_equal(out["c"], 2 * np.maximum(X @ W, 0))


def test_tensors_are_dropped_after_their_last_consumer():
    import weakref

    alive = {}
    counts = []

    def watch(name, array):
        alive[name] = weakref.ref(array)
        counts.append(sorted(n for n, ref in alive.items() if ref() is not None))

    run_graph(
        graph(Node(name="tail", op="Neg", inputs=("c",), outputs=("unused",))), {"x": X}, {"w": W}, on_tensor=watch
    )
    assert counts[2] == ["b", "c"]  # a went when b was there
    assert counts[3] == ["c", "unused"]


def test_an_output_may_be_an_input_or_a_constant():
    g = Graph([], inputs=["x"], outputs=["x", "w"], tensors=[TensorInfo(name="w", role=Role.CONSTANT)])
    out = run_graph(g, {"x": X}, {"w": W})
    np.testing.assert_array_equal(out["x"], X)
    np.testing.assert_array_equal(out["w"], W)


def test_an_unfed_input_is_named():
    with pytest.raises(InputError, match="'x' of the graph is not fed; the feed has: y"):
        run_graph(graph(), {"y": X}, {"w": W})


def test_a_missing_constant_is_named():
    with pytest.raises(KernelError, match=r"'w', which node 'mm' .MatMul. reads, has no values") as error:
        run_graph(graph(), {"x": X}, {})
    assert "--no-weights" in error.value.hint


def test_a_missing_kernel_stops_the_run():
    with pytest.raises(NoKernelError, match="Warp"):
        run_graph(graph(Node(name="w", op="Warp", inputs=("c",), outputs=("d",))), {"x": X}, {"w": W})


def test_a_fault_changes_what_follows():
    seen = {}
    run_graph(
        graph(), {"x": X}, {"w": W}, on_tensor=seen.__setitem__, faults={"act": lambda arrays: (arrays[0] * 0 + 7,)}
    )
    np.testing.assert_array_equal(seen["b"], np.full((1, 2), 7))
    np.testing.assert_array_equal(seen["c"], np.full((1, 2), 14))


def test_a_fault_keeps_the_number_of_outputs():
    with pytest.raises(KernelError, match="planted in node 'act' returns 2 arrays, not 1"):
        run_graph(graph(), {"x": X}, {"w": W}, faults={"act": lambda arrays: arrays * 2})


def test_arithmetic_reaches_the_kernels():
    g = Graph(
        [Node(name="q", op="QuantizeLinear", inputs=("x", "s", "z"), outputs=("y",))], inputs=["x"], outputs=["y"]
    )
    constants = {"s": np.array(1, np.float32), "z": np.array(0, np.int8)}
    feed = {"x": np.array([0.5, 2.5], np.float32)}
    assert run_graph(g, feed, constants)["y"].tolist() == [0, 2]
    away = Arithmetic(variants={"quantize": parse_variant("steps=div,away,zp,sat")})
    assert run_graph(g, feed, constants, arithmetic=away)["y"].tolist() == [1, 3]


def test_inputs_and_constants_are_left_alone():
    x, w = X.copy(), W.copy()
    x.flags.writeable = w.flags.writeable = False
    run_graph(graph(), {"x": x}, {"w": w})
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(w, W)


def blas_threads():
    return [entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"]


def test_blas_is_held_to_one_thread_and_let_go():
    before = blas_threads()
    with one_thread():
        assert set(blas_threads()) <= {1}
    assert blas_threads() == before


def test_blas_is_held_until_the_last_of_several_threads_lets_go():
    with threadpool_limits(3, user_api="blas"):
        before = blas_threads()
        first, second = one_thread(), one_thread()
        first.__enter__()
        with ThreadPoolExecutor(1) as other:
            other.submit(second.__enter__).result()
            first.__exit__(None, None, None)
            assert set(blas_threads()) <= {1}
            other.submit(second.__exit__, None, None, None).result()
        assert blas_threads() == before
