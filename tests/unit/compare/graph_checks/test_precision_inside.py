"""A part of which nothing between was recorded: the precision that its values show is tried inside, and named."""

import numpy as np

import qdebug

WIDTH = 64


def norm(dtype, *, kept=None, spoil=False):
    """Record a normalization that is taken apart, in a precision; `kept` alone of its tensors."""
    rng = np.random.default_rng(10)
    x = rng.normal(size=(2, 8, WIDTH)).astype(np.float32)
    x[0, 3, 5], x[1, 2, 7] = 300, -410
    values = {"x": x.astype(dtype)}
    with np.errstate(all="ignore"):
        values["mu"] = values["x"].mean(-1, keepdims=True, dtype=np.float32).astype(dtype)
        values["d"] = values["x"] - values["mu"]
        values["d2"] = values["d"] * values["d"]
        values["var"] = values["d2"].mean(-1, keepdims=True, dtype=np.float32).astype(dtype)
        values["sd"] = np.sqrt(values["var"] + dtype(1e-5)).astype(dtype)
        values["y"] = values["d"] / values["sd"]
    values["y"] = values["y"] * dtype(1.5) if spoil else values["y"]
    nodes = [
        ("ReduceMean", ("x",), "mu", {"axes": (-1,), "keepdims": 1}),
        ("Sub", ("x", "mu"), "d", {}),
        ("Mul", ("d", "d"), "d2", {}),
        ("ReduceMean", ("d2",), "var", {"axes": (-1,), "keepdims": 1}),
        ("Add", ("var", "eps"), "ve", {}),
        ("Sqrt", ("ve",), "sd", {}),
        ("Div", ("d", "sd"), "y", {}),
    ]
    infos = [qdebug.TensorInfo(name=name) for name in ("x", "mu", "d", "d2", "var", "ve", "sd", "y")]
    graph = qdebug.Graph(
        [qdebug.Node(name=f"n_{out}", op=op, inputs=ins, outputs=(out,), attrs=attrs) for op, ins, out, attrs in nodes],
        tensors=[*infos, qdebug.TensorInfo(name="eps", role="constant")],
        inputs=("x",),
        outputs=("y",),
        opset={"": 13},
    )
    with qdebug.Recorder(None, backend=str(dtype), graph=graph) as rec:
        rec.constant("eps", dtype(1e-5))
        for name, array in values.items():
            if kept is None or name in kept:
                rec.put(name, array)
    return rec.recording


def test_an_overflow_inside_is_named_with_its_node():
    result = qdebug.diff(norm(np.float32), norm(np.float16, kept=("x", "y")))
    (found,) = [each for each in result["n_y"].findings if each.role == "difference"]
    assert (str(found.kind), found.evidence) == ("precision", "float16")
    assert "Mul 'n_d2' overflows" in found.sentence
    assert "65504, the largest float16" in found.sentence


def test_what_no_precision_gives_is_not_said_of_the_same_operators():
    result = qdebug.diff(norm(np.float32), norm(np.float16, kept=("x", "y"), spoil=True))
    assert result["n_y"].status == "diverged"
    assert "does not compute what" not in result.verdict.sentence
    assert "and this tensor was recorded" in result.verdict.sentence


def test_the_same_operators_in_another_order_are_no_other_ones():
    x = np.random.default_rng(4).normal(size=(6, 8)).astype(np.float32)
    made = np.exp(x) * np.abs(x)

    def run(*order, spoil=0.0):
        nodes = {
            "e": qdebug.Node(name="n_e", op="Exp", inputs=("x",), outputs=("e",)),
            "a": qdebug.Node(name="n_a", op="Abs", inputs=("x",), outputs=("a",)),
        }
        last = qdebug.Node(name="n_y", op="Mul", inputs=("e", "a"), outputs=("y",))
        graph = qdebug.Graph([*(nodes[name] for name in order), last], inputs=("x",), outputs=("y",), opset={"": 13})
        with qdebug.Recorder(None, backend="x", graph=graph) as rec:
            rec.put("x", x)
            rec.put("y", (made + spoil * x**2).astype(np.float32))
        return rec.recording

    result = qdebug.diff(run("e", "a"), run("a", "e", spoil=0.3))
    assert result["n_y"].status == "diverged"
    assert "does not compute what" not in result.verdict.sentence
    assert "and this tensor was recorded" in result.verdict.sentence
