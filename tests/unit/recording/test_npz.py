"""Arrays in an .npz file: any names, any shapes, the same bytes for the same values."""

import numpy as np

from qdebug.recording.npz import write_arrays

ARRAYS = {
    "file": np.float32([1, 2]),  # numpy.savez has an argument of this name
    "allow_pickle": np.int8(3) * np.ones((), np.int8),
    "a/b": np.arange(6, dtype=np.int64).reshape(2, 3).T,
    "empty": np.zeros((0, 2), bool),
}


def test_numpy_reads_what_was_written(tmp_path):
    write_arrays(tmp_path / "a.npz", ARRAYS.items())
    with np.load(tmp_path / "a.npz") as read:
        assert list(read) == list(ARRAYS)
        for name, array in ARRAYS.items():
            assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)
            assert np.array_equal(read[name], array)


def test_the_same_values_give_the_same_bytes(tmp_path):
    for name in ("a.npz", "b.npz"):
        write_arrays(tmp_path / name, ARRAYS.items())
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
