"""What PyTorch computes is what its nodes compute here, said in ONNX's words."""

import numpy as np
import pytest

import qdebug
from qdebug.running.record import record_run

torch = pytest.importorskip("torch", reason="needs the extra torch")


class Words(torch.nn.Module):
    """Operators whose settings are attributes or lists, none of which another node computes."""

    def forward(self, x, i):
        wave = torch.cos(x) + torch.sin(x)
        values, places = torch.topk(wave, 3, dim=0, largest=False)
        product = torch.einsum("ij,kj->ik", wave, wave)
        both = (x > 0) & (x <= 1)
        lower = torch.tril(product, diagonal=1) + torch.triu(product, -1)
        return (
            *(values, places, wave[i], wave[:, i], product, both, lower),
            *(torch.add(wave, x, alpha=0.9), torch.sub(wave, x, alpha=2), torch.rsqrt(wave * wave + 1)),
            torch.ones(6, 6) * product + torch.zeros_like(product) + torch.full((6, 6), 2.5),
            *((x >= 1) | (x == 0), torch.logical_not(both) ^ (x < 0), torch.arange(6) & i[0], torch.arange(1, 9, 2)),
            *((300 * x).to(kind).to(torch.float32) for kind in (torch.float8_e4m3fn, torch.float8_e5m2)),
            (100 * x).to(torch.float8_e4m3fnuz).to(torch.float32),
        )


def test_every_node_is_computed_as_torch_computes_it(tmp_path):
    generator = torch.Generator().manual_seed(4)
    x, i = torch.randn(6, 6, generator=generator) * 2, torch.tensor([0, 3, 5])
    torch.export.save(torch.export.export(Words(), (x, i)), tmp_path / "m.pt2")
    feed = {"x": x.numpy(), "i": i.numpy()}
    record_run(tmp_path / "m.pt2", backend="torch", inputs=feed, out=tmp_path / "run.h5")
    found = qdebug.explain(tmp_path / "run.h5")
    assert [(node.node, node.op, node.reason) for node in found.nodes if node.status != "in_band"] == []
    assert len(found.nodes) > 30


def test_a_sum_that_drops_the_factor_of_its_second_operand_is_found(tmp_path):
    rng = np.random.default_rng(2)
    x, y = (rng.normal(size=(4, 8)).astype(np.float32) for _ in range(2))
    with qdebug.Recorder(tmp_path / "run.h5", backend="torch") as rec:
        rec.put("x", x)
        rec.put("y", y)
        rec.put("z", x + y, node="add", op="aten.add.Tensor", inputs=("x", "y"), attrs={"alpha": 0.9})
        rec.put("w", x - np.float32(0.5) * y, node="sub", op="aten.sub.Tensor", inputs=("x", "y"), attrs={"alpha": 0.5})
    assert {node.node: node.status for node in qdebug.explain(tmp_path / "run.h5").nodes} == {
        "add": "unexplained",
        "sub": "in_band",
    }
