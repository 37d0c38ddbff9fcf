"""The recording file: layout, writers, readers and checks; the only package that knows h5py."""
