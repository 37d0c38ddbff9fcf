"""Known mistakes of kernels, each as a change to a node. Begin at `known`."""
