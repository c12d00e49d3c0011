"""The package of safetensors writes and reads files of our tensors as it does those of PyTorch."""

from __future__ import annotations

from pathlib import Path

from .both_libraries import on_pytorch, on_telegrad
from .server_process import ServerProcess

PROGRAM = """
from concurrent.futures import ThreadPoolExecutor
import torch
import safetensors.torch as files
from safetensors import safe_open
tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(3, dtype=torch.bfloat16), "c": torch.tensor(7),
           "d": torch.tensor([True, False]), "e": torch.zeros(0, 4)}
files.save_file(tensors, "x.safetensors", metadata={"by": "us"})
for read in (files.load_file("x.safetensors"), files.load(files.save(tensors))):
    print([(name, tensor.dtype, tensor.shape, tensor.tolist()) for name, tensor in sorted(read.items())])
with safe_open("x.safetensors", framework="pt", device="cpu") as file:
    part = file.get_slice("a")
    print(file.metadata(), sorted(file.keys()), part.get_shape(), part.get_dtype(), part[:, 1:].tolist())
    print(file.get_tensor("b").dtype, file.get_tensor("c").item())
many = {str(name): torch.full((3, 1000), float(name)) for name in range(64)}
files.save_file(many, "many.safetensors")
with safe_open("many.safetensors", framework="pt") as file, ThreadPoolExecutor(8) as pool:
    for _ in range(8):
        read = list(pool.map(lambda name: file.get_slice(name)[1:], many))
        print(all(torch.equal(one, many[name][1:]) for name, one in zip(many, read)))
model, copy = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
files.save_model(model, "m.safetensors")
print(files.load_model(copy, "m.safetensors"), torch.equal(model.weight, copy.weight))
with safe_open("m.safetensors", framework="np") as file:
    print(type(file.get_tensor("bias")).__name__)
print(torch.empty(1).is_mps, torch.is_autocast_enabled("mps"), isinstance(3, torch.SymInt))
print(torch.nn.functional.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2), stride=[2]).shape)
"""


def test_safetensors_files_are_written_and_read_by_their_own_package(server: ServerProcess, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert on_telegrad(program, tmp_path / "a", server.url) == on_pytorch(program, tmp_path / "b")
