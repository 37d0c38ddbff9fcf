"""Dumps of engines and runtimes: those that they wrote, those built from their published source, and damaged ones."""

import csv
import json
import shutil
import sqlite3
import struct
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from qdebug import open_recording
from qdebug.errors import QdebugError
from qdebug.importing.dumps import read_dump
from qdebug.importing.import_dump import import_dump
from qdebug.model.dtypes import logical_dtype

FILES = Path(__file__).parent / "files"
BAD = r"damaged|no readable tensor"
VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def unpacked(engine, folder):
    shutil.unpack_archive(FILES / f"{engine}.zip", folder / engine)
    return folder / engine


def tensors(path):
    with read_dump(path) as (form, dump):
        return form, {(entry.name, entry.place[1]): entry.load() for entry in dump.tensors}, dump


def test_engines_name_the_same_tensors_alike(tmp_path):
    """The three ran one net on the same tokens, so a step of each has the same values."""
    dumps = {}
    for engine in ("sglang", "vllm", "transformers"):
        form, values, _ = tensors(unpacked(engine, tmp_path))
        assert form == engine
        dumps[engine] = values
    for name in ("model.embed_tokens", "model.layers.0.norm", "model.layers.0.mlp", "lm_head"):
        for engine in ("sglang", "transformers"):
            np.testing.assert_array_equal(dumps[engine][name, 0], dumps["vllm"][name, 0], strict=True)
        np.testing.assert_array_equal(dumps["sglang"][name, 1], dumps["vllm"][name, 1], strict=True)


def test_what_a_pass_of_sglang_makes_last_is_read_from_the_next_file(tmp_path):
    _, values, dump = tensors(unpacked("sglang", tmp_path))
    assert values["lm_head", 0].shape == (*values["model.forward_batch_info.input_ids", 0].shape, 5)
    assert ("lm_head", 2) not in values  # its file was never written
    folder = tmp_path / "sglang" / "TP0_PP0_Rank0_pid1"
    (folder / "Pass00000.pt").unlink()
    _, values, dump = tensors(folder)
    assert ("lm_head", 1) not in values
    assert ("lm_head", 0) in values
    assert "made by a pass whose file is missing" in dump.ignored.values()


def test_modules_of_vllm_are_connected_and_in_the_order_of_their_ends(tmp_path):
    import_dump(unpacked("vllm", tmp_path), tmp_path / "out.h5")
    with open_recording(tmp_path / "out.h5") as recording:
        nodes = {node.name: node for node in recording.graph.nodes}
        assert nodes["lm_head"].inputs == ("model",)
        assert [*nodes].index("model.layers.0.mlp") < [*nodes].index("model.layers.0")
        assert recording.steps == 2


def test_a_rank_at_a_time(tmp_path):
    folder = unpacked("sglang", tmp_path)
    shutil.copytree(folder / "TP0_PP0_Rank0_pid1", folder / "TP1_PP0_Rank1_pid2")
    with pytest.raises(QdebugError, match="several ranks"):
        tensors(folder)
    for rank in (0, 1):
        (tmp_path / "tllm_debug" / "PP_1" / f"TP_{rank}" / "iteration_3").mkdir(parents=True)
    with pytest.raises(QdebugError, match="several ranks"):
        tensors(tmp_path / "tllm_debug")


def test_calls_of_sglangs_dumper_are_named_by_their_tags(tmp_path):
    for index, (step, layer) in enumerate([(1, 0), (1, 1), (2, 0), (2, 0)]):
        name = f"step={step}___rank=0___dump_index={index}___name=hidden___layer_id={layer}.pt"
        shutil.copy(FILES / "alone.pt", tmp_path / name)
    form, values, _ = tensors(tmp_path)
    assert form == "sglang"
    assert [*values] == [
        ("hidden.layer_id.0", 0),
        ("hidden.layer_id.1", 0),
        ("hidden.layer_id.0", 1),
        ("hidden.layer_id.0.call1", 1),
    ]


def test_printed_tensors_of_transformers_are_refused(tmp_path):
    folder = unpacked("transformers", tmp_path)
    trace = folder / "Net_debug_tree_FULL_TENSORS.json"
    text = json.loads(trace.read_text())

    def print_values(value):
        if isinstance(value, dict):
            if "dtype" in value:
                value["value"] = ["tensor([1.0, ..."]
            for part in value.values():
                print_values(part)
        elif isinstance(value, list):
            for part in value:
                print_values(part)

    print_values(text)
    trace.write_text(json.dumps(text))
    with pytest.raises(QdebugError, match="only their printed form"):
        tensors(folder)


def test_iterations_of_tensorrt_llm_are_steps(tmp_path):
    for number in (7, 8):
        folder = tmp_path / "tllm_debug" / "PP_1" / "TP_1" / f"iteration_{number}"
        folder.mkdir(parents=True)
        np.save(folder / "request_ids.npy", np.int64([number]))
        np.save(folder / "transformer.layers.0.mlp.npy", VALUES + number)
    form, values, _ = tensors(tmp_path / "tllm_debug")
    assert form == "tensorrt-llm"
    np.testing.assert_array_equal(values["transformer.layers.0.mlp", 1], VALUES + 8)


FLOATS = ["float32", "float16", "float64", "bfloat16", "float8_e4m3fn"]


@pytest.mark.parametrize("dtype", [*FLOATS, "uint8", "int8", "int64", "bool", "int4", "uint4"])
@pytest.mark.parametrize("raw", [True, False])
def test_tensors_of_onnx_are_decoded_as_its_package_does(tmp_path, dtype, raw):
    number = onnx.helper.np_dtype_to_tensor_dtype(logical_dtype(dtype))
    values = np.array([[0, 1, 3], [2, 5, 7]])
    message = onnx.helper.make_tensor("/a/b", number, values.shape, values.reshape(-1).tolist())
    if raw:
        message = numpy_helper.from_array(numpy_helper.to_array(message), "/a/b")
    (tmp_path / "_a_b.tensorproto").write_bytes(message.SerializeToString())
    form, found, _ = tensors(tmp_path)
    expected = numpy_helper.to_array(message)
    assert form == "arrays"
    assert found["/a/b", 0].dtype.name == dtype
    np.testing.assert_array_equal(found["/a/b", 0].astype(np.float64), expected.astype(np.float64))


def database(path, rows, tensors="Create table"):
    """Write a database with the statements of ONNX Runtime's source."""
    with sqlite3.connect(path) as connection:
        connection.execute(
            f"{tensors} Tensors (Step int not null, Name text not null, Value TensorProto, DeviceType text, "
            "TracedProducer NodeArg, TracedConsumers NodeArgList, primary key (Step, Name))"
            if tensors == "Create table"
            else tensors
        )
        connection.execute(
            "Create table Nodes (ExecutionCounter int, Name text primary key not null, OpType text not null, "
            "ExecutionProvider text)"
        )
        connection.execute("insert into Nodes values (0, 'n0', 'Relu', 'CPUExecutionProvider')")
        connection.execute("insert into Nodes values (1, 'n1', 'Conv', 'CPUExecutionProvider')")
        for row in rows:
            connection.execute("insert into Tensors values (?, ?, ?, 'CPU', ?, '')", row)
    connection.close()
    return path


def test_runs_of_onnxruntimes_database_are_samples_in_the_order_of_its_nodes(tmp_path):
    def message(name, values):
        return numpy_helper.from_array(values, name).SerializeToString()

    rows = [
        (step, name, message(name, VALUES + step), producer)
        for step in (1, 2)
        for name, producer in (("y", "n1:0"), ("h", "n0:0"), ("x", ""))
    ]
    path = database(tmp_path / "execution-trace-pid1.db", rows)
    with read_dump(path) as (form, dump):
        assert form == "onnxruntime"
        assert [(entry.name, entry.place[0]) for entry in dump.tensors] == [
            ("x", 0), ("h", 0), ("y", 0), ("x", 1), ("h", 1), ("y", 1),
        ]  # fmt: skip
        np.testing.assert_array_equal(dump.tensors[-1].load(), VALUES + 2, strict=True)
        assert dump.remarks == ["nodes ran on CPUExecutionProvider (2)"]


@pytest.mark.parametrize("content", [b"\x09\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x08\x05\x10\x01\x4a\x04abcd", b"abc"])
def test_damaged_messages_get_one_sentence(tmp_path, content):
    path = tmp_path / "bad.pb"
    path.write_bytes(content)
    with pytest.raises(QdebugError, match=BAD):
        tensors(path)
    with pytest.raises(QdebugError, match=BAD):
        tensors(database(tmp_path / "bad.db", [(1, "x", content, "")]))


def test_queries_of_a_hostile_database_are_not_run(tmp_path):
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select i as Step, i as Name, i as Value"
    path = database(tmp_path / "bad.db", [], f"create view Tensors as {endless} from n")
    with pytest.raises(QdebugError, match="has no table"):
        tensors(path)
    path.write_bytes(b"SQLite format 3\0" + bytes(200))
    with pytest.raises(QdebugError, match="damaged"):
        tensors(path)


def test_statistics_of_both_debuggers_are_tensors_of_one_element(tmp_path):
    fields = [
        "op_name",
        "tensor_idx",
        "num_elements",
        "stddev",
        "mean_squared_error",
        "scale",
        "zero_point",
        "tensor_name",
    ]
    with (tmp_path / "tflite.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow(fields)
        writer.writerow(["CONV_2D", 7, 512.0, 0.01, 1e-4, 0.02, -3, "net/conv;net/bias"])
        writer.writerow(["ADD", 8, 512.0, "", 2e-4, 0.02, -3, "net/add"])
    form, values, dump = tensors(tmp_path / "tflite.csv")
    assert form == "statistics"
    assert values["net/conv;net/bias:mean_squared_error", 0] == 1e-4
    assert values["net/add:zero_point", 0] == -3
    assert dump.ignored == {"line 3, stddev": "not a number"}
    (tmp_path / "litert.csv").write_text(
        "Index,Op Code,Tensor Name,Max Diff,MSE,Cos Sim,SNR (dB),PSNR (dB),NaN,Min Ref,Max Ref,Min Accel,Max Accel,"
        "Status\n"
        "0,CONV_2D,y,0.5,0.1,0.99,inf,40.00,Y,-1,1,-1,nan,REGRESSION\n1,ADD,,0,0,0,0,0,N,0,0,0,0,ACCEL_RUN_FAILED\n"
    )
    _, values, dump = tensors(tmp_path / "litert.csv")
    assert (values["y:NaN", 0], values["y:SNR (dB)", 0]) == (1, np.inf)
    assert dump.ignored == {"line 3": "ACCEL_RUN_FAILED"}


@pytest.fixture
def gguf():
    return pytest.importorskip("gguf", reason="the extra gguf is not installed")


def gguf_file(gguf, path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b" * 70])
    weights = np.random.default_rng(1).normal(size=(4, 256)).astype(np.float32)
    weights[0, :32] = 0
    for form in gguf.GGMLQuantizationType:
        try:
            content = weights if form.name == "F32" else gguf.quants.quantize(weights, form)
        except (NotImplementedError, KeyError):
            continue
        writer.add_tensor(form.name, content, raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_blocks_of_gguf_give_the_values_of_its_package_bit_for_bit(gguf, tmp_path):
    path = gguf_file(gguf, tmp_path / "w.gguf")
    import_dump(path, tmp_path / "out.h5")
    expected = {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(path).tensors
    }
    assert len(expected) > 8
    with open_recording(tmp_path / "out.h5") as recording:
        for name, values in expected.items():
            info, stored = recording.graph.tensors[name], recording.load(name)
            if info.quant is not None:
                scales = np.repeat(info.quant.scale.reshape(4, -1), 32, axis=1)
                stored = stored.astype(np.float32) * scales.astype(np.float32)
            np.testing.assert_array_equal(stored.astype(np.float32), values, err_msg=name)
        assert {name for name in expected if recording.graph.tensors[name].quant is not None} == {
            "Q8_0",
            "Q4_0",
            "Q5_0",
        }


@pytest.mark.parametrize("where", [4, 8, 16, 24, -30, -200, -400])
def test_damaged_headers_of_gguf_get_one_sentence(gguf, tmp_path, where):
    path = gguf_file(gguf, tmp_path / "w.gguf")
    content = bytearray(path.read_bytes())
    content[where : where + 8] = b"\xff" * 8
    path.write_bytes(content if where > 0 else content[:-where])
    with pytest.raises(QdebugError, match=BAD):
        import_dump(path, tmp_path / "out.h5")


def test_tensors_of_gguf_do_not_overlap_or_leave_the_file(gguf, tmp_path):
    def text(value):
        return struct.pack("<Q", len(value)) + value

    def row(name, extent, offset):
        return text(name) + struct.pack("<IQIQ", 1, extent, 0, offset)

    for rows, reason in (
        ([row(b"a", 1 << 40, 0)], "ends after the file"),
        ([row(b"a", 4, 0), row(b"b", 4, 8)], "overlaps"),
        ([row(b"a", 4, 1 << 62)], "ends after the file"),
        ([row(b"a", 4, 0), row(b"a", 4, 32)], "same name"),
    ):
        header = b"GGUF" + struct.pack("<IQQ", 3, len(rows), 0) + b"".join(rows)
        path = tmp_path / "bad.gguf"
        path.write_bytes(header + bytes(-len(header) % 32 + 64))
        with pytest.raises(QdebugError, match=reason):
            tensors(path)
