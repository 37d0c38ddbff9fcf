"""OpenVINO, recorded in the graph that it really runs, and the model files that it reads."""
