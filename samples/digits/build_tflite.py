"""Make digits_float.tflite and digits_int8.tflite (full int8, NHWC) from weights.npz (needs tensorflow)."""

from pathlib import Path

import numpy as np
import tensorflow as tf


def main() -> None:
    w, data = np.load("weights.npz"), np.load("digits_test.npz")
    layers = tf.keras.layers
    m = tf.keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPool2D(2),
            layers.DepthwiseConv2D(3, padding="same", activation="relu"),
            layers.Conv2D(24, 1, activation="relu"),
            layers.AveragePooling2D(2),
            layers.Permute((3, 1, 2)),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            layers.Dense(10),
        ]
    )

    def conv(i):
        return [w[f"w{i}.weight"].transpose(2, 3, 1, 0), w[f"w{i}.bias"]]

    def dense(i):
        return [w[f"w{i}.weight"].T, w[f"w{i}.bias"]]

    weights = [conv(0), conv(2), [w["w5.weight"].transpose(2, 3, 0, 1), w["w5.bias"]], conv(7), dense(11), dense(13)]
    for layer, value in zip([x for x in m.layers if x.weights], weights, strict=True):
        layer.set_weights(value)
    x = data["x"].transpose(0, 2, 3, 1)
    print("float accuracy", (m.predict(x, verbose=0).argmax(1) == data["y"]).mean())
    c = tf.lite.TFLiteConverter.from_keras_model(m)
    Path("digits_float.tflite").write_bytes(c.convert())
    c = tf.lite.TFLiteConverter.from_keras_model(m)
    c.optimizations = [tf.lite.Optimize.DEFAULT]
    c.representative_dataset = lambda: ([v[None].transpose(0, 2, 3, 1)] for v in data["calib"])
    c.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    c.inference_input_type = c.inference_output_type = tf.int8
    Path("digits_int8.tflite").write_bytes(c.convert())


if __name__ == "__main__":
    main()
