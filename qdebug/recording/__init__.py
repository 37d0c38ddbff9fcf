"""The recording file: its layout, its writer, its readers, and what checks them; the only package that knows h5py."""
