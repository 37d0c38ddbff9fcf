"""Files made to harm their reader. Each is refused with a typed error before anything outside it is touched.

Where a file points to another one, that is a pipe that nobody writes to: who opens it waits for ever, and the
test with it.
"""

import os

import h5py
import numpy as np

from qdebug.recording.format.specification import TABLES

PAYLOAD = "t/00000001"
ATTACKS = {}


def attack(function):
    """Add a function that spoils an open HDF5 file; it gets the path of a foreign file too."""
    ATTACKS[function.__name__] = function
    return function


def on(*targets):
    """Add one attack for each dataset that it can be made on."""

    def add(function):
        for target in targets:
            ATTACKS[f"{function.__name__}[{target}]"] = lambda file, foreign, target=target: function(
                file, target, foreign
            )
        return function

    return add


EVERYWHERE = (PAYLOAD, "index", "names", "run", "integers")


def replace(file, name, **how):
    """Make a dataset anew from its values, in another way."""
    data = file[name][...]
    del file[name]
    return file.create_dataset(name, data=data, **how)


# -- storage and links


@on(*EVERYWHERE)
def external_storage(file, name, foreign):
    shape, kind = file[name].shape, file[name].dtype
    del file[name]
    file.create_dataset(name, shape, kind, external=[(os.fsencode(foreign), 0, h5py.h5f.UNLIMITED)])


@on(*EVERYWHERE, "t")
def external_link(file, name, foreign):
    del file[name]
    file[name] = h5py.ExternalLink(foreign, "/data")


@on(*EVERYWHERE, "t")
def soft_link(file, name, foreign):
    file.move(name, "elsewhere")
    file[name] = h5py.SoftLink("/elsewhere")


@on(*EVERYWHERE, "t")
def dangling_soft_link(file, name, foreign):
    del file[name]
    file[name] = h5py.SoftLink(f"/{name}")


@on(*EVERYWHERE)
def virtual_dataset(file, name, foreign):
    shape, kind = file[name].shape, file[name].dtype
    del file[name]
    layout = h5py.VirtualLayout(shape=shape, dtype=kind)
    layout[...] = h5py.VirtualSource(foreign, "data", shape=shape)
    file.create_virtual_dataset(name, layout)


@on("index", "names", "run", "nodes")
def chunked_table(file, name, foreign):
    replace(file, name, compression="gzip")


@on(*EVERYWHERE)
def compact_layout(file, name, foreign):
    data = file[name][...]
    kind = file[name].id.get_type()
    del file[name]
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    file.create_low_level(name, kind, h5py.h5s.create_simple(data.shape), plist)
    file[name][...] = data


@on(PAYLOAD, "t", "index")
def something_else(file, name, foreign):
    del file[name]
    if name == "t":
        file[name] = np.zeros(3)
    else:
        file.create_group(name)


@on(PAYLOAD, "index", "t")
def committed_type(file, name, foreign):
    del file[name]
    file[name] = np.dtype("f4")


@on(*EVERYWHERE, "t")
def missing(file, name, foreign):
    del file[name]


@attack
def payload_group_is_the_root(file, foreign):
    del file["t"]
    file["t"] = file["/"]


@attack
def payload_group_contains_itself(file, foreign):
    del file[PAYLOAD]
    file[PAYLOAD] = file["t"]


@on("tensors", "names", "strings", "nodes")
def hard_link_to_another_table(file, name, foreign):
    del file[name]
    file[name] = file["index"]


@attack
def names_are_the_run(file, foreign):
    del file["names"]
    file["names"] = file["run"]


@attack
def payload_is_a_table(file, foreign):
    del file[PAYLOAD]
    file[PAYLOAD] = file["names"]


@attack
def payload_is_another_payload(file, foreign):
    del file[PAYLOAD]
    file[PAYLOAD] = file["t/00000004"]


# -- types and filters


@on(*EVERYWHERE)
def variable_length_text(file, name, foreign):
    shape = file[name].shape
    del file[name]
    file.create_dataset(name, shape, h5py.string_dtype())


@on(*EVERYWHERE)
def variable_length_numbers(file, name, foreign):
    shape = file[name].shape
    del file[name]
    file.create_dataset(name, shape, h5py.vlen_dtype(np.int32))


@on(*EVERYWHERE)
def object_references(file, name, foreign):
    shape = file[name].shape
    del file[name]
    file.create_dataset(name, shape, h5py.ref_dtype)


@on(*EVERYWHERE)
def opaque_elements(file, name, foreign):
    shape = file[name].shape
    del file[name]
    file.create_dataset(name, shape, np.dtype("V4"))


@on(*EVERYWHERE)
def fixed_length_text(file, name, foreign):
    shape = file[name].shape
    del file[name]
    file.create_dataset(name, shape, np.dtype("S4"))


@on("index", "tensors", "nodes", "quants", "strings")
def variable_length_member(file, name, foreign):
    table = file[name]
    wider = np.dtype([*((f, table.dtype[f]) for f in table.dtype.names), ("more", h5py.string_dtype())])
    shape = table.shape
    del file[name]
    file.create_dataset(name, shape, wider)


@on(*TABLES)
def big_endian_table(file, name, foreign):
    table = file[name][:]
    swapped = table.dtype.newbyteorder(">")
    if table.dtype.itemsize == 1:
        swapped = np.dtype(">i2")
    del file[name]
    file[name] = table.astype(swapped)


@on(PAYLOAD)
def payload_of_another_type(file, name, foreign):
    data = file[name][...]
    del file[name]
    file[name] = data.astype(np.int32)


@on(PAYLOAD)
def payload_of_another_shape(file, name, foreign):
    data = file[name][...]
    del file[name]
    file[name] = data.reshape(-1)


@on(PAYLOAD)
def filter_lzf(file, name, foreign):
    replace(file, name, compression="lzf")


@on(PAYLOAD)
def filter_scale_offset(file, name, foreign):
    replace(file, name, scaleoffset=3)


@on(PAYLOAD)
def filter_that_nobody_has(file, name, foreign):
    shape, kind = file[name].shape, file[name].id.get_type()
    del file[name]
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk(shape)
    plist.set_filter(h5py.h5z.FILTER_DEFLATE, h5py.h5z.FLAG_OPTIONAL, (1,))
    plist.set_filter(31999, h5py.h5z.FLAG_OPTIONAL, (1,))
    file.create_low_level(name, kind, h5py.h5s.create_simple(shape), plist)


# -- sizes


@on(*EVERYWHERE)
def huge_shape_without_storage(file, name, foreign):
    kind = file[name].dtype
    del file[name]
    file.create_dataset(name, (2**40,), kind)


@on(PAYLOAD)
def huge_compressed_shape(file, name, foreign):
    kind = file[name].dtype
    del file[name]
    file.create_dataset(name, (2**40,), kind, chunks=(2**20,), compression="gzip")


@on(PAYLOAD)
def huge_chunk(file, name, foreign):
    kind = file[name].dtype
    del file[name]
    file.create_dataset(name, (2**25,), kind, chunks=(2**25,), compression="gzip")[...] = 0


@on(PAYLOAD)
def huge_shape_in_the_index_too(file, name, foreign):
    kind = file[name].dtype
    del file[name]
    file.create_dataset(name, (2**20, 2**20), kind, chunks=(1024, 1024), compression="gzip")
    index = file["index"][:]
    index["shape"][1][:2] = 2**20
    index["nbytes"][1], index["count"][1] = 2**42, 2**40
    file["index"][...] = index


# -- attributes of the root


@attack
def format_of_variable_length(file, foreign):
    del file.attrs["format"]
    file.attrs["format"] = "qdebug.recording"


@attack
def format_huge(file, foreign):
    del file.attrs["format"]
    file.attrs["format"] = np.bytes_(b"q" * 60_000)


@attack
def version_of_variable_length(file, foreign):
    del file.attrs["format_version"]
    file.attrs["format_version"] = "1"


@attack
def version_array(file, foreign):
    del file.attrs["format_version"]
    file.attrs["format_version"] = np.ones(5000, np.int32)


@attack
def complete_reference(file, foreign):
    del file.attrs["complete"]
    file.attrs.create("complete", file["index"].ref, dtype=h5py.ref_dtype)


def test_each_is_refused_in_little_memory_and_what_was_not_spoiled_is_read(use_corpus):
    found, peak_mb = use_corpus(ATTACKS)
    innocent = found.pop("innocent")
    assert innocent["outcome"] == "read", innocent["what"]
    assert found.keys() == ATTACKS.keys()
    assert not {name: result for name, result in found.items() if result["outcome"] != "refused"}
    assert peak_mb < 500
