"""Write the files of this folder with the libraries that define their formats.

Run it where they are installed: python make.py (written with torch 2.13.0, safetensors 0.6 and Polygraphy 0.53.6).
"""

from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent


class Output(dict):
    """As the output classes of model libraries."""


def main() -> None:
    values = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    torch.save(
        {
            "layers": [{"out": values, "half": values.to(torch.bfloat16)}, {"out": values + 1}],
            "turned": values.t(),
            "row": values[1],
            "expanded": torch.ones(1, 3).expand(4, 3),
            "parameter": torch.nn.Parameter(values),
            "codes": torch.quantize_per_tensor(values, 0.5, 3, torch.quint8),
            "whole": torch.tensor([1, 2, 3]),
            "state": OrderedDict(weight=values.double(), flag=torch.tensor([True, False])),
            "output": Output(logits=values * 2),
            "float8": values.to(torch.float8_e4m3fn),
            "steps": 3,
        },
        HERE / "nested.pt",
    )
    torch.save(values, HERE / "alone.pt")
    try:
        from safetensors.torch import save_file

        save_file({"a": values, "b": values.to(torch.bfloat16), "c": torch.tensor([1, 2])}, HERE / "three.safetensors")
    except ImportError:
        pass
    from polygraphy.comparator import IterationResult, RunResults
    from polygraphy.json import save_json

    results = RunResults()
    iterations = [IterationResult(outputs={"y": np.full((2, 3), each, np.float32)}, runtime=0.1) for each in range(2)]
    results.append(("onnxrt-runner", iterations))
    results.save(str(HERE / "results.json"))
    save_json([{"x": np.ones((1, 2), np.float32)}], str(HERE / "inputs.json"))


if __name__ == "__main__":
    main()
