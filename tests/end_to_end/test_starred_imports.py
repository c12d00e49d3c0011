"""What programs import from PyTorch's modules: all that a star brings, and what optimizers of their own ask for."""

from __future__ import annotations

from pathlib import Path

from tests.support.pytorch_process import PyTorchProcess

from .programs import run
from .server_process import ServerProcess

LISTED = """
import importlib, json, pkgutil, sys, warnings
import torch
warnings.simplefilter("ignore")
listed = {}
for base in sys.argv[1].split():
    above = importlib.import_module("torch." + base)
    below = pkgutil.walk_packages(getattr(above, "__path__", []), above.__name__ + ".", onerror=lambda name: None)
    for name in [above.__name__, *[info.name for info in below if "._" not in info.name]]:
        try:
            listed[name] = importlib.import_module(name).__all__
        except (ImportError, AttributeError):
            pass
json.dump(listed, open("listed.json", "w"))
"""
STARS = """
import importlib, json, torch
compared = 0
for name, listed in json.load(open("listed.json")).items():
    try:
        module = importlib.import_module(name)
    except ImportError:
        continue
    compared += 1
    there, starred = {one for one in listed if hasattr(module, one)}, {}
    exec(f"from {name} import *", starred)
    if starred.keys() - {"__builtins__"} != there:
        print(name, sorted(starred.keys() - {"__builtins__"} ^ there))
print(compared > 150)
"""
BASES = (
    "distributions nn optim utils autograd linalg fft special func amp cuda sparse masked nested random serialization "
    "storage functional profiler library signal fx export overrides quasirandom backends jit compiler onnx futures "
    "multiprocessing types monitor accelerator"
)


def test_stars_import_what_pytorchs_do(server: ServerProcess, pytorch: PyTorchProcess, tmp_path: Path) -> None:
    (tmp_path / "listed.py").write_text(LISTED)
    (tmp_path / "stars.py").write_text(STARS)
    expected = pytorch.run("listed.py", BASES, folder=tmp_path)
    assert expected.returncode == 0, expected.stderr
    found = run("-m", "telegrad", "stars.py", folder=tmp_path, url=server.url)
    assert found.stdout.splitlines() == ["True"], found.stderr


OWN = """
import torch
import torch.nn.functional as F
from torch._tensor_str import printoptions
from torch.optim.optimizer import (
    _capturable_doc, _default_to_fused_or_foreach, _device_dtype_check_for_fused, _differentiable_doc,
    _disable_dynamo_if_unsupported, _foreach_doc, _fused_doc, _get_capturable_supported_devices, _get_scalar_dtype,
    _get_value, _maximize_doc, _params_doc, _stack_if_compiling, _use_grad_for_differentiable, _view_as_real,
    DeviceDict, DeviceDtypeDict, Optimizer, ParamsT, StateDict,
)

docs = _capturable_doc, _differentiable_doc, _foreach_doc, _fused_doc, _maximize_doc, _params_doc
print([type(doc) for doc in docs], _get_value(torch.tensor(2.0)), StateDict)
for kind in (torch.float32, torch.float64):
    torch.set_default_dtype(kind)
    print(_get_scalar_dtype(), _get_scalar_dtype(is_fused=True))
torch.set_default_dtype(torch.float32)
parameters = [torch.ones(2), torch.full((2,), 1 + 2j)]
state = [torch.zeros(2), torch.full((2,), 3j)]
_view_as_real(parameters, state)
print(parameters, state, _stack_if_compiling(state) is state)

@_disable_dynamo_if_unsupported(single_tensor_fn=_get_value)
def step(x):
    return x + 1

print(step(2), step.__name__)
for parameter in (torch.ones(2), torch.ones(2, dtype=torch.int32), torch.ones(2, dtype=torch.complex64)):
    try:
        print(_device_dtype_check_for_fused(parameter))
    except RuntimeError as error:
        print("fused=True" in str(error))
with printoptions(precision=2):
    print(torch.tensor([1 / 3]))
print(torch.tensor([1 / 3]), F._Reduction.get_enum("mean"))
"""


def test_optimizers_written_like_pytorchs_find_what_they_import(
    server: ServerProcess, pytorch: PyTorchProcess, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(OWN)
    expected = pytorch.run("program.py", folder=tmp_path)
    found = run("-m", "telegrad", "program.py", folder=tmp_path, url=server.url)
    assert (expected.returncode, found.returncode) == (0, 0), found.stderr + expected.stderr
    assert found.stdout.splitlines() == expected.stdout.splitlines()
