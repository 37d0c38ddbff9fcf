"""Write the dumps of engines in this folder, packed: python make_engines.py TENSOR_DUMP_FORWARD_HOOK.py

The argument is `sglang/srt/debug_utils/tensor_dump_forward_hook.py` of SGLang 0.5.23, whose own hook writes `sglang`;
the classes that it imports are replaced by empty ones. transformers 5.24 writes `transformers`. vLLM needs a device:
hooks here write `vllm` with the names of its `vllm/v1/intermediates/intermediates_logging.py`.
"""

import importlib.util
import shutil
import sys
import types
from pathlib import Path

import torch
from transformers.model_debugging_utils import model_addition_debugger_context

HERE = Path(__file__).parent


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(4)
        self.mlp = torch.nn.Linear(4, 4)

    def forward(self, x):
        return x + self.mlp(self.norm(x)), x


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(5, 4)
        self.layers = torch.nn.ModuleList([Layer()])

    def forward(self, ids, batch=None):
        return self.layers[0](self.embed_tokens(ids))[0]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.model = Model()
        self.lm_head = torch.nn.Linear(4, 5)

    def forward(self, ids, batch=None):
        return self.lm_head(self.model(ids, batch))


class ForwardBatch:
    def __init__(self, input_ids, seq_lens, positions):
        self.input_ids, self.seq_lens, self.positions = map(torch.tensor, (input_ids, seq_lens, positions))


PASSES = [([1, 2, 3, 0], [3, 1], [0, 1, 2, 0]), ([4, 2], [4, 2], [3, 1]), ([1, 1], [5, 3], [4, 2])]
"""Tokens, lengths of the two requests so far, and positions: a packed prefill and two steps."""


def write_sglang(hook_file):
    for name, classes in {
        "sglang.srt.layers.logits_processor": {"LogitsProcessorOutput": type("A", (), {})},
        "sglang.srt.model_executor.forward_batch_info": {
            "ForwardBatch": ForwardBatch,
            "PPProxyTensors": type("B", (), {}),
        },
    }.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(classes)
    spec = importlib.util.spec_from_file_location("hook", hook_file)
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    net, folder = Net(), HERE / "sglang"
    dumper = hook.register_forward_hook_for_model(net, str(folder), None, 1, 0, 0)
    for batch in PASSES:
        net(torch.tensor(batch[0]), ForwardBatch(*batch))
    Path(dumper.get_dump_dir()).rename(folder / "TP0_PP0_Rank0_pid1")


def write_vllm():
    net, state = Net(), {"step": 0}

    def save(value, path):
        if isinstance(value, torch.Tensor):
            torch.save(value, f"{path}_{str(value.device).replace(':', '_')}.pt")
        elif isinstance(value, (list, tuple)):
            for number, part in enumerate(value):
                save(part, f"{path}_{number}")

    def hooks(name):
        def begin(_module, inputs):
            folder = HERE / "vllm" / f"step_{state['step']}"
            (folder / name).mkdir(parents=True)
            with (folder / "module_calls.txt").open("a") as file:
                file.write(f"{name}\n")
            save(inputs, folder / name / "inputs")

        def end(_module, _inputs, outputs):
            save(outputs, HERE / "vllm" / f"step_{state['step']}" / name / "outputs")

        return begin, end

    for name, module in net.named_modules():
        if name:
            begin, end = hooks(name)
            module.register_forward_pre_hook(begin)
            module.register_forward_hook(end)
    for tokens, _, _ in PASSES[:2]:
        net(torch.tensor(tokens))
        state["step"] += 1


for engine in ("sglang", "vllm", "transformers"):
    shutil.rmtree(HERE / engine, ignore_errors=True)
with torch.no_grad():
    write_sglang(sys.argv[1])
    write_vllm()
    with model_addition_debugger_context(Net(), debug_path=str(HERE / "transformers"), use_repr=False) as context:
        context(torch.tensor(PASSES[0][0]))
for engine in ("sglang", "vllm", "transformers"):
    shutil.make_archive(str(HERE / engine), "zip", HERE / engine)
    shutil.rmtree(HERE / engine)
