#!/usr/bin/env python3
"""checkpoint_oracle.py - h5py reads our checkpoints: every tensor of model.h5 and of the shards, bit for bit.

    checkpoint_oracle.py TERN_BINARY EMPTY_FOLDER    makes checkpoints of known content and checks them
    checkpoint_oracle.py CKPT_DIR                    checks one: the view equals the shards

Needs h5py and, for compressed checkpoints, hdf5plugin. Prints one line a checkpoint; ends with 1 at the first difference.
"""
import json
import os
import shutil
import subprocess
import sys

import h5py
import numpy as np

try:
    import hdf5plugin  # noqa: F401  (registers filter 32015)
except ImportError:
    hdf5plugin = None

DTYPES = {"f32": "<f4", "bf16": "<u2", "f64": "<f8", "i32": "<i4", "i64": "<i8", "u16": "<u2", "u8": "u1"}


def require(condition, *words):
    if not condition:
        sys.exit("checkpoint_oracle: " + " ".join(str(word) for word in words))


def attribute(dataset, name):
    require(name in dataset.attrs, dataset.file.filename, dataset.name, "has no attribute", name)
    return dataset.attrs[name]


def check_shard_dataset(dataset, tensor, offset, count):
    where = f"{os.path.basename(dataset.file.filename)}:{dataset.name}"
    require(dataset.shape == (count, *tensor["shape"][1:]), where, "shape", dataset.shape)
    require(dataset.dtype == np.dtype(DTYPES[tensor["dtype"]]), where, "type", dataset.dtype)
    require(list(attribute(dataset, "global_shape")) == tensor["shape"], where, "global_shape")
    require(list(attribute(dataset, "offset")) == [offset] + [0] * (len(tensor["shape"]) - 1), where, "offset")
    if tensor["dtype"] == "bf16":
        require(bytes(attribute(dataset, "dtype")) == b"bfloat16", where, "attribute dtype")


def check_tensor(view, shards, tensor, expected):
    name = f"/{tensor['group']}/{tensor['name']}"
    whole = view[name]
    require(whole.is_virtual, "model.h5", name, "is not a virtual dataset")
    require(whole.shape == tuple(tensor["shape"]), "model.h5", name, "shape", whole.shape)
    parts = []
    for rank, offset, count in tensor["slabs"]:
        dataset = shards[rank][name]
        check_shard_dataset(dataset, tensor, offset, count)
        parts.append(dataset[...])
    joined = np.concatenate(parts)
    require(whole[...].tobytes() == joined.tobytes(), name, "differs between model.h5 and the shards")
    if expected:
        path = os.path.join(expected, name[1:].replace(f"/{tensor['name']}", f"@{tensor['name']}").replace("/", "+") + ".bin")
        with open(path, "rb") as file:
            require(file.read() == joined.tobytes(), name, "differs from what was written")
    return joined.nbytes, any(chunk is not None for chunk in [shards[tensor["slabs"][0][0]][name].chunks])


def check(folder, expected=None):
    """The view opened from another working folder, as users do."""
    with open(os.path.join(folder, "MANIFEST.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    shards = [h5py.File(os.path.join(folder, f["name"]), "r") for f in manifest["files"][:-1]]
    total = compressed = 0
    with h5py.File(os.path.join(folder, manifest["files"][-1]["name"]), "r") as view:
        for tensor in manifest["tensors"]:
            nbytes, is_chunked = check_tensor(view, shards, tensor, expected)
            total += nbytes
            compressed += is_chunked
        state = view["/state/json"][...].tobytes()
        require(isinstance(json.loads(state), dict), "/state/json is no object")
        require(shards[0]["/state/json"][...].tobytes() == state, "/state/json differs between view and shard")
    for shard in shards:
        shard.close()
    print(f"  {folder}: {len(manifest['tensors'])} tensors, {len(shards)} shards, {total} bytes equal, "
          f"{compressed} compressed")
    return compressed


def main():
    if len(sys.argv) == 2:
        check(os.path.abspath(sys.argv[1]))
        return
    require(len(sys.argv) == 3, "usage: checkpoint_oracle.py TERN_BINARY EMPTY_FOLDER | CKPT_DIR")
    require(hdf5plugin is not None, "hdf5plugin is not installed")
    folder = os.path.abspath(sys.argv[2])
    maker = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[1]))), "tests", "io_checkpoint_make")
    subprocess.run([maker, folder], check=True)
    expected = os.path.join(folder, "expected")
    counts = [check(os.path.join(folder, "run", "ckpt", f"step-{step:08d}"), expected) for step in (1, 2, 3)]
    require(counts[0] == 0 and counts[1] > 0 and counts[2] > 0, "compressed datasets:", counts)
    # Moved as a whole, under a name with spaces, it reads the same.
    moved = os.path.join(folder, "a copy", "step é")
    shutil.copytree(os.path.join(folder, "run", "ckpt", "step-00000003"), moved)
    shutil.rmtree(os.path.join(folder, "run"))
    check(moved, expected)


if __name__ == "__main__":
    main()
