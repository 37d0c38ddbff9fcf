"""TensorFlow Lite Micro, with its kernels for microcontrollers."""
