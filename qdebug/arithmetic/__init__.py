"""The search for the arithmetic of a quantized node: candidates, presets, the elements that decide, what is left.

It computes by `qdebug.replay` and reads recordings; comparisons, probes and the interpreter ask it. So it stands above
replay, which keeps what its kernels compute by, and below them.
"""
