"""ONNX Runtime, recorded in the graph that it really runs."""
