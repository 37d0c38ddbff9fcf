"""Compare two recordings in an object store: bytes moved against bytes compared.

    python tests/benchmarks/remote_bytes.py FOLDER [--gigabytes 2]

It makes two recordings in FOLDER, uploads them to moto's S3 server on the loopback, and compares them through s3://. It
needs moto[server] and s3fs, and counts the bytes of all ranges that are fetched.
"""

import argparse
import os
import shutil
import time
from pathlib import Path

import numpy as np

import qdebug
from qdebug.recording.reading.remote import RemoteFile

TENSOR_BYTES = 16 << 20


def make(path, count, *, noise):
    """Record tensors of 16 MB."""
    rng = np.random.default_rng(1)
    with qdebug.Recorder(path, backend="bench", force=True) as rec:
        for number in range(count):
            values = rng.standard_normal(TENSOR_BYTES // 4).astype(np.float32)
            rec.put(f"t{number}", values + np.float32(noise))
        rec.outputs(f"t{count - 1}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    arguments = parser.parse_args()
    import boto3
    from moto.server import ThreadedMotoServer

    count = max(int(arguments.gigabytes * (1 << 30) / TENSOR_BYTES), 2)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    paths = [arguments.folder / name for name in ("ref.h5", "be.h5")]
    for path, noise in zip(paths, (0.0, 1e-3), strict=True):
        make(path, count, noise=noise)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": url}
    os.environ["AWS_DEFAULT_REGION"] = "us-east-1"
    store = boto3.client("s3", endpoint_url=url)
    store.create_bucket(Bucket="runs")
    for path in paths:
        store.upload_file(str(path), "runs", path.name)
    fetched = []
    fetch = RemoteFile._fetch

    def counting(self, offset, size):
        fetched.append(size)
        return fetch(self, offset, size)

    RemoteFile._fetch = counting
    start = time.monotonic()
    result = qdebug.diff("s3://runs/ref.h5", "s3://runs/be.h5", quick=True)
    seconds = time.monotonic() - start
    compared = 2 * count * TENSOR_BYTES
    stored = sum(path.stat().st_size for path in paths)
    print(f"stored      {stored / 1e6:9.1f} MB in two recordings, {count} tensors each")
    print(f"compared    {compared / 1e6:9.1f} MB of tensors")
    moved = sum(fetched)
    print(f"moved       {moved / 1e6:9.1f} MB in {len(fetched)} requests: {moved / compared:.3f} times that")
    print(f"time        {seconds:9.1f} s; status {result.status}")
    server.stop()
    shutil.rmtree(arguments.folder)


if __name__ == "__main__":
    main()
