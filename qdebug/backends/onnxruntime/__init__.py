"""ONNX Runtime, recorded with the graph that it actually runs."""
