"""Tables that point nowhere, contradict each other or grow in memory: refused with a typed error."""

import json

import numpy as np

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


def rows(file, table, **columns):
    """Overwrite columns of a table's first row, or what `at` says."""
    at = columns.pop("at", 0)
    values = file[table][:]
    for column, value in columns.items():
        values[column][at] = value
    file[table][...] = values


def change_run(file, change):
    plain = json.loads(file["run"][:].tobytes())
    change(plain)
    put_bytes(file, "run", json.dumps(plain).encode())


def put_bytes(file, name, content):
    del file[name]
    file[name] = np.frombuffer(content, dtype=np.uint8)


def append(file, pool, values):
    """Add elements to a pool; give the offset of the first."""
    old = file[pool][:]
    del file[pool]
    file[pool] = np.concatenate([old, np.asarray(values, dtype=old.dtype)])
    return len(old)


# -- rows that share what they should not


@attack
def overlapping_texts(file, foreign):
    count = 200_000
    names = file["names"][:].tobytes() + b"x" * (1 << 20)
    table = file["strings"][:]
    bomb = np.zeros(count, dtype=table.dtype)
    bomb["length"] = len(names)
    bomb[: len(table)] = table
    put_bytes(file, "names", names)
    del file["strings"]
    file["strings"] = bomb


@attack
def overlapping_operands(file, foreign):
    operands = np.zeros(1 << 20, dtype="<i4")
    nodes = np.repeat(file["nodes"][:1], 20_000)
    nodes["inputs_off"], nodes["inputs_len"] = 0, len(operands)
    for name, values in (("operands", operands), ("nodes", nodes)):
        del file[name]
        file[name] = values


@attack
def overlapping_attributes(file, foreign):
    text = json.dumps({"a": ["ss", ["x" * 10] * 100_000]}).encode()
    nodes = np.repeat(file["nodes"][:1], 20_000)
    nodes["attrs_off"], nodes["attrs_len"] = 0, len(text)
    nodes["outputs_len"] = 0
    put_bytes(file, "attributes", text)
    del file["nodes"]
    file["nodes"] = nodes


@attack
def overlapping_scales(file, foreign):
    dims = append(file, "dims", [1 << 22])
    append(file, "scales64", np.ones(1 << 22))
    append(file, "integers", np.zeros(1 << 22))
    quants = np.repeat(file["quants"][:1], 5_000)
    quants["scale_dims"], quants["scale_ndim"], quants["scale_off"], quants["has"] = dims, 1, 0, 64 | 1
    quants["zero_point_off"] = 0
    del file["quants"]
    file["quants"] = quants


# -- numbers that point nowhere


@attack
def tensor_beyond_its_table(file, foreign):
    rows(file, "index", tensor=2**32 - 1)


@attack
def payload_beyond_the_group(file, foreign):
    rows(file, "index", payload=2**31)


@attack
def quantization_beyond_its_table(file, foreign):
    rows(file, "tensors", quant=99)


@attack
def event_quantization_beyond_its_table(file, foreign):
    rows(file, "index", quant=99)


@attack
def unknown_dtype_in_the_index(file, foreign):
    rows(file, "index", dtype=200)


@attack
def unknown_dtype_of_a_tensor(file, foreign):
    rows(file, "tensors", dtype=200)


@attack
def unknown_role(file, foreign):
    rows(file, "tensors", role=77)


@attack
def too_many_dimensions(file, foreign):
    rows(file, "index", ndim=255)


@attack
def another_dtype_in_the_index(file, foreign):
    rows(file, "index", at=1, dtype=int(file["index"][0]["dtype"]))


@attack
def sizes_that_contradict(file, foreign):
    rows(file, "index", nbytes=2**63)


@attack
def sizes_that_overflow(file, foreign):
    rows(file, "index", at=1, ndim=8, shape=[2**32] * 8, nbytes=0)


@attack
def two_rows_for_one_place(file, foreign):
    rows(file, "index", at=slice(1, 3), tensor=1, sample=0)


@attack
def a_sample_beyond_the_run(file, foreign):
    rows(file, "index", at=1, sample=2**32 - 1)


@attack
def a_constant_of_a_sample(file, foreign):
    rows(file, "index", sample=1)


@on("offset", "length")
def text_beyond_its_pool(file, column, foreign):
    rows(file, "strings", **{column: 2**32 - 1})


@attack
def text_that_wraps_around(file, foreign):
    rows(file, "strings", offset=2**64 - 2, length=4)


@attack
def text_that_is_no_utf8(file, foreign):
    put_bytes(file, "names", b"\xff" * file["names"].shape[0])


@attack
def two_tensors_of_one_name(file, foreign):
    rows(file, "tensors", at=slice(0, 2), name=0)


@on("name", "stands_for", "layout")
def tensor_text_beyond_its_table(file, column, foreign):
    rows(file, "tensors", **{column: 2**31 - 1})


@on("name", "op", "domain")
def node_text_negative(file, column, foreign):
    rows(file, "nodes", **{column: -2})


@on("inputs", "outputs", "origin", "attrs")
def node_run_beyond_its_pool(file, run, foreign):
    rows(file, "nodes", **{f"{run}_off": 2**64 - 1, f"{run}_len": 2})


@attack
def dimensions_beyond_their_pool(file, foreign):
    rows(file, "tensors", dims=2**64 - 1, ndim=3)


@on("operands", "origins")
def pool_value_out_of_range(file, pool, foreign):
    file[pool][0] = 2**31 - 1


@on("scale", "multiplier", "shift")
def quantization_shape_beyond_its_pool(file, part, foreign):
    rows(file, "quants", **{f"{part}_ndim": 5, f"{part}_dims": 2**63, "has": 16 | 32})


@attack
def negative_extent_of_scales(file, foreign):
    rows(file, "quants", scale_ndim=1, scale_dims=append(file, "dims", [-5]))


@attack
def extents_of_scales_that_overflow(file, foreign):
    rows(file, "quants", scale_ndim=3, scale_dims=append(file, "dims", [2**62, 2**62, 2**62]))


@on("scale_off", "zero_point_off")
def scales_beyond_their_pool(file, column, foreign):
    rows(file, "quants", **{column: 2**63})


@attack
def cycle_in_the_graph(file, foreign):
    nodes = file["nodes"][:]
    first, second = int(nodes["inputs_off"][0]), int(nodes["outputs_off"][1])
    file["operands"][first] = file["operands"][second]


@attack
def two_producers(file, foreign):
    nodes = file["nodes"][:]
    file["operands"][int(nodes["outputs_off"][1])] = file["operands"][int(nodes["outputs_off"][0])]


# -- text that should be JSON


RUNS = {
    "not_json": b"hello",
    "empty": b"",
    "no_object": b"[]",
    "null": b"null",
    "lacks_all": b"{}",
    "deep": b"[" * 200_000,
    "long_number": b'{"samples": ' + b"9" * 20_000 + b"}",
    "no_text": b"\xff\xfe\x00",
}
for title, content in RUNS.items():
    ATTACKS[f"run[{title}]"] = lambda file, foreign, content=content: put_bytes(file, "run", content)

CHANGES = {
    "samples_zero": lambda run: run.update(samples=0),
    "samples_text": lambda run: run.update(samples="2"),
    "samples_true": lambda run: run.update(samples=True),
    "samples_huge": lambda run: run.update(samples=10**30),
    "samples_infinite": lambda run: run.update(samples=float("inf")),
    "steps_negative": lambda run: run.update(steps=-1),
    "input_beyond": lambda run: run["graph"].update(inputs=[10**6]),
    "input_huge": lambda run: run["graph"].update(inputs=[10**30]),
    "input_negative": lambda run: run["graph"].update(inputs=[-1]),
    "outputs_text": lambda run: run["graph"].update(outputs="abc"),
    "opset_list": lambda run: run["graph"].update(opset=[1]),
    "placements_list": lambda run: run["graph"].update(placements=["CPU"]),
    "placements_text": lambda run: run["graph"].update(placements={"CPU": "0"}),
    "placements_beyond": lambda run: run["graph"].update(placements={"CPU": [10**30]}),
    "placements_true": lambda run: run["graph"].update(placements={"CPU": [True]}),
    "placements_twice": lambda run: run["graph"].update(placements={"CPU": [0], "GPU": [0]}),
    "name_number": lambda run: run["graph"].update(name=3),
    "no_info": lambda run: run.pop("info"),
    "info_list": lambda run: run.update(info=[]),
    "fidelity": lambda run: run["info"].update(fidelity="excellent"),
    "versions_list": lambda run: run["info"].update(versions=["a"]),
    "options_number": lambda run: run["info"].update(options=3),
}
for title, change in CHANGES.items():
    ATTACKS[f"run[{title}]"] = lambda file, foreign, change=change: change_run(file, change)

ATTRIBUTES = {
    "not_json": b"hello",
    "deep": b'{"a": ["ss", ' + b"[" * 200_000,
    "list": b"[]",
    "unknown_kind": b'{"a": ["zz", 1]}',
    "unhashable_kind": b'{"a": [["i"], 1]}',
    "no_pair": b'{"a": 1}',
    "infinite_int": b'{"a": ["i", 1e999]}',
    "text_for_list": b'{"a": ["is", 5]}',
    "array_too_long": b'{"a": ["a", {"dtype": "int8", "shape": [99999999999999999999], "data": ""}]}',
    "array_too_short": b'{"a": ["a", {"dtype": "int32", "shape": [1], "data": "AAA="}]}',
    "array_no_base64": b'{"a": ["a", {"dtype": "int8", "shape": [1], "data": "!!"}]}',
    "array_dtype": b'{"a": ["a", {"dtype": "object", "shape": [1], "data": "AA=="}]}',
    "array_shape": b'{"a": ["a", {"dtype": "int8", "shape": "x", "data": "AA=="}]}',
    "array_negative": b'{"a": ["a", {"dtype": "int8", "shape": [-5], "data": "AA=="}]}',
}
for title, content in ATTRIBUTES.items():

    def spoil(file, foreign, content=content):
        put_bytes(file, "attributes", content)
        rows(file, "nodes", at=slice(None), attrs_off=0, attrs_len=0)
        rows(file, "nodes", attrs_len=len(content))

    ATTACKS[f"attributes[{title}]"] = spoil


def test_each_is_refused_in_little_memory_and_what_was_not_spoiled_is_read(use_corpus):
    found, peak_mb = use_corpus(ATTACKS)
    innocent = found.pop("innocent")
    assert innocent["outcome"] == "read", innocent["what"]
    assert found.keys() == ATTACKS.keys()
    assert not {name: result for name, result in found.items() if result["outcome"] != "refused"}
    assert peak_mb < 500
