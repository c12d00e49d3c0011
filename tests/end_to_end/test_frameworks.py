"""Names that training frameworks import and look for, in a program that runs under both libraries as it is."""

from __future__ import annotations

from pathlib import Path

from .both_libraries import on_pytorch, on_telegrad
from .server_process import ServerProcess

PROGRAM = """
import collections
import torch
from torch._utils import _take_tensors
from torch.distributed.fsdp.api import LocalOptimStateDictConfig, StateDictSettings
from torch.distributions.transforms import _clipped_sigmoid
from torch.nn.modules.conv import _ConvTransposeMixin, _ConvTransposeNd
from torch.nn.parameter import _ParameterMeta
from torch.utils.data._utils.pin_memory import pin_memory

print([name for name in dir(torch.optim) if not hasattr(torch.optim, name)])
print(torch.utils.data._utils.collate.default_collate([1, 2]), torch.utils.data._utils.collate.collate.__name__)
print(isinstance(torch.nn.Linear(1, 1), _ConvTransposeNd), issubclass(_ConvTransposeMixin, _ConvTransposeNd))
print(type(torch.nn.Parameter) is _ParameterMeta, _clipped_sigmoid(torch.tensor([0.0, 300.0])))

Pair = collections.namedtuple("Pair", "a b")
x = torch.ones(2)
print([(len(group), str(group[0].dtype)) for group in _take_tensors([x, x, x.long(), torch.ones(9), x], 16)])
print(pin_memory({"a": "text", "b": Pair(1, [2, None]), "c": range(2)}))


def annotated(device: str | torch.DeviceObjType, number: torch.FloatType) -> torch.TensorType:
    return torch.legacy_contiguous_format


print(annotated("cpu", 1.0), torch._C._get_cudnn_enabled())
"""


def test_names_of_frameworks_are_there(server: ServerProcess, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ours = on_telegrad(program, tmp_path / "a", server.url)
    assert ours == on_pytorch(program, tmp_path / "b")
