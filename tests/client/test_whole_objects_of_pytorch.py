"""Modules, optimizers and storages that PyTorch has saved as they are, and plain pickles of its tensors."""

from __future__ import annotations

import pickle
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch

from telegrad import serialization, storage
from telegrad._programs.private import tensor_module, utilities
from telegrad._tensor.torch_files.objects import imported


def _doubled(module: Any, args: Any, output: Any) -> Any:
    return output * 2


def _saved(obj: Any, **options: Any) -> BytesIO:
    file = BytesIO()
    torch.save(obj, file, **options)
    return BytesIO(file.getvalue())


class _Served(pickle.Unpickler):
    """Finds in telegrad what a pickle names in ``torch``, as programs do where ``import torch`` is served."""

    def find_class(self, module: str, name: str) -> Any:
        places = {"torch._utils": utilities, "torch._tensor": tensor_module}
        for place in (places.get(module), imported(module, name) if module.startswith("torch") else None):
            if place is not None:
                return getattr(place, name) if place is places.get(module) else place
        return super().find_class(module, name)


def _unpickled(obj: Any) -> Any:
    return _Served(BytesIO(pickle.dumps(obj))).load()


def _with_hook() -> Any:
    layer = torch.nn.Linear(4, 4)
    layer.register_forward_hook(_doubled)
    return layer


MODULES = {
    "plain": lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.PReLU()),
    "hook": _with_hook,
    "attention": lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0).eval(),
}


@pytest.mark.parametrize("name", MODULES)
def test_whole_modules_are_called(tg: Any, rng: np.random.Generator, name: str) -> None:
    torch.manual_seed(int(rng.integers(1 << 31)))
    module = MODULES[name]().double()
    x = rng.standard_normal((3, 4))
    read = [tg.load(_saved(module), weights_only=False), _unpickled(module)]
    expected = module(torch.tensor(x)).detach().numpy()
    for ours in read:
        assert isinstance(ours, tg.nn.Module)
        np.testing.assert_allclose(ours(tg.tensor(x)).detach().numpy(), expected, rtol=1e-9)


def test_classes_are_found_in_the_module_above_that_of_pytorch(tg: Any) -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = tg.load(_saved(torch.optim.AdamW([parameter], lr=0.5)), weights_only=False)
    assert type(optimizer) is tg.optim.AdamW and optimizer.param_groups[0]["lr"] == 0.5
    normal = tg.load(_saved(torch.distributions.Normal(torch.zeros(2), torch.ones(2))), weights_only=False)
    assert type(normal) is tg.distributions.Normal and normal.log_prob(tg.zeros(2)).shape == (2,)
    assert imported("torch.optim.adamw.no", "AdamW") is tg.optim.AdamW
    assert imported("torch.no", "ones") is None


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_storages_by_themselves_are_read(tg: Any, is_zip: bool) -> None:
    tensor = torch.arange(6, dtype=torch.int32)
    options: Any = {"_use_new_zipfile_serialization": is_zip}
    typed = tg.load(_saved(tensor.storage(), **options), weights_only=False)
    assert isinstance(typed, storage.TypedStorage) and typed.tolist() == list(range(6)) and typed.dtype is tg.int32
    untyped = tg.load(_saved(tensor.untyped_storage(), **options), weights_only=False)
    assert type(untyped) is storage.UntypedStorage and untyped.tolist() == tensor.untyped_storage().tolist()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state:UserWarning")
def test_plain_pickles_of_tensors_are_read(tg: Any, rng: np.random.Generator) -> None:
    base = torch.tensor(rng.standard_normal((3, 4)))
    tensors = [base, base.T[1:], base.bfloat16(), torch.complex(base, base).conj(), base.int().requires_grad_(False)]
    for theirs in [*tensors, torch.nn.Parameter(base), base.to_sparse(), base.to_sparse_csr()]:
        ours = _unpickled(theirs)
        assert ours.dtype is getattr(tg, str(theirs.dtype).removeprefix("torch."))
        assert ours.requires_grad == theirs.requires_grad and ours.is_sparse == theirs.is_sparse
        assert isinstance(ours, tg.nn.Parameter) == isinstance(theirs, torch.nn.Parameter)
        ours, theirs = (t.detach().to_dense() if t.layout is not lib.strided else t.detach()
                        for t, lib in ((ours, tg), (theirs, torch)))  # fmt: skip
        assert ours.stride() == theirs.stride() and ours.tolist() == theirs.tolist()
    marked = torch.nn.Parameter(base)
    marked.note = "kept"  # type: ignore[attr-defined]
    assert _unpickled(marked).note == "kept"
    assert _unpickled(torch.empty_strided((2, 3), (1, 2), device="meta")).stride() == (1, 2)
    assert serialization._get_layout("torch.sparse_coo") is tg.sparse_coo
