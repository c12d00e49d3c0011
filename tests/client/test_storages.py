"""Storages of tensors, ``Tensor.data``, and selective checkpoints."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from telegrad.errors import AutogradError, NotSupportedError
from telegrad.storage import STORAGE_CLASSES
from telegrad.utils._python_dispatch import TorchDispatchMode
from telegrad.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from .twins import assert_same, evaluate


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_storages_tell_what_shares_memory(tg: Any) -> None:
    told = []
    for library in (torch, tg):
        base = library.arange(12, dtype=library.int32).reshape(3, 4)
        row, other = base[1], library.zeros(2)
        whole, part = base.untyped_storage(), row.untyped_storage()
        assert whole.data_ptr() == part.data_ptr() == base.data_ptr() == row.data_ptr() - 16
        assert whole.data_ptr() != other.untyped_storage().data_ptr()
        told.append((whole.nbytes(), whole.size(), len(part), str(whole.device), row.storage_offset()))
        typed = row.storage()
        told.append((typed.size(), typed.tolist(), typed[5], typed.element_size(), typed.nbytes()))
        typed[5] = 77
        assert base[1, 1].item() == 77 and row.tolist() == [4, 77, 6, 7]
    assert told[:2] == told[2:]
    assert tg.ones(2).untyped_storage() != tg.ones(2).untyped_storage()
    assert tg.empty(5, device="meta").untyped_storage().nbytes() == 20


MADE = [
    "t.UntypedStorage([1, 2, 255]).tolist()", "t.UntypedStorage(4).nbytes()", "t.UntypedStorage().size()",
    "t.TypedStorage([1, 2], dtype=t.int32).tolist()", "t.TypedStorage(2, dtype=t.int8).dtype", "t.TypedStorage(1, 2)",
    "str(t.UntypedStorage([1, 2]))", "str(t.TypedStorage([1.0, 2.0]))",
    "str(t.TypedStorage([True, False], dtype=t.bool))",
    "t.TypedStorage(wrap_storage=t.UntypedStorage([0, 0, 128, 63]), dtype=t.float32).tolist()",
    "t.TypedStorage(0, wrap_storage=t.UntypedStorage(4), dtype=t.float32)", "t.TypedStorage('text', dtype=t.int8)",
    "t.TypedStorage(wrap_storage=t.TypedStorage(4), dtype=t.float32)",
    "t.UntypedStorage([0, 0, 64, 64]).float().tolist()",
    "[getattr(t.TypedStorage([-1, 0, 2], dtype=t.int16), name)().tolist() for name in ('float', 'byte', 'bool')]",
    "t.TypedStorage([1.5, 2.5]).complex_double().dtype", "t.TypedStorage([1.5]).cpu().tolist()",
    "t.FloatTensor(t.TypedStorage([1.0, 2.0]))", "t.FloatTensor(t.TypedStorage([1, 2], dtype=t.int32))",
    "t.ones(2).view(t.int32).storage().tolist()", "t.UntypedStorage.from_buffer(b'ab', dtype=t.uint8).tolist()",
]  # fmt: skip


@pytest.mark.parametrize("call", MADE)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_programs_make_storages(call: str, tg: Any) -> None:
    assert_same(*evaluate(call, tg))


BUFFERS = [
    ("ByteStorage", "a"), ("ShortStorage", "a, 'big'"), ("IntStorage", "a, 'little'"), ("FloatStorage", "a, 'big'"),
    ("BoolStorage", "a"), ("BoolStorage", "a, 'little'"), ("DoubleStorage", "a, 'native'"), ("IntStorage", "a"),
    ("ComplexFloatStorage", "a, 'big'"), ("IntStorage", "a, 'middle'"), ("IntStorage", "a, 'little', 1, 4"),
    ("LongStorage", "a[:3], 'little'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), BUFFERS)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_storages_have_the_elements_of_buffers(name: str, arguments: str, tg: Any) -> None:
    program = f"""
    a = bytearray([64, 16, 0, 0, 1, 2, 3, 4])
    made = (kinds if t is not torch else theirs)["{name}"].from_buffer({arguments})
    (made.tolist(), made.dtype, made.type(), isinstance(made, (kinds if t is not torch else theirs)["{name}"]))
    """
    theirs = {name: getattr(torch, name) for name in STORAGE_CLASSES}
    assert_same(*evaluate(program, tg, torch=torch, kinds=STORAGE_CLASSES, theirs=theirs))


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
def test_a_tensor_shows_the_storage_that_it_is_made_of(tg: Any) -> None:
    program = """
    storage = t.TypedStorage([1.0, 2.0, 3.0])
    x, y = t.FloatTensor(storage), t.empty(0).set_(storage)
    x[0], y[1] = 9, 7
    swapped = t.UntypedStorage([1, 2, 3, 4, 5, 6, 7, 8])
    swapped.byteswap(t.int32)
    (storage.tolist(), storage.untyped() == x.untyped_storage(), swapped.tolist())
    """
    assert_same(*evaluate(program, tg))


def test_storages_are_shown_by_other_tensors_and_copied(tg: Any, rng: np.random.Generator) -> None:
    values, told = rng.normal(size=(6,)), []
    for library in (torch, tg):
        x = library.tensor(values)
        storage = x.untyped_storage()
        part = library.empty(0, dtype=library.float64).set_(storage, 1, (2, 2), (2, 1))
        words = library.empty(0, dtype=library.int32).set_(storage)
        copied = library.empty(0, dtype=library.float64).set_(storage.clone())
        part.mul_(2)
        told.append([t[:4].tolist() for t in (x, part, words, copied)])
    assert told[0] == told[1]
    with pytest.raises(RuntimeError, match="does not have the type"):
        tg.empty(0).set_(tg.ones(2, dtype=tg.int32).storage())


def test_storages_that_are_freed_and_filled_again_keep_their_tensors(tg: Any, rng: np.random.Generator) -> None:
    values, told = rng.normal(size=(3, 2)), []
    for library in (torch, tg):
        x = library.tensor(values).clone()
        row, storage, gathered = x[1], x.untyped_storage(), library.tensor(values) * 2
        storage.resize_(0)
        told.append((storage.size(), x.untyped_storage().nbytes(), len(row.untyped_storage()), tuple(x.shape)))
        storage.resize_(48)
        x.copy_(gathered)
        told.append((storage.size(), row.tolist(), x.tolist()))
    assert told[:2] == told[2:]
    with pytest.raises(NotSupportedError, match="96 bytes are not within the 48"):
        storage.resize_(96)
    del x, row, storage
    assert tg.ones(3, 2, dtype=tg.float64).untyped_storage().size() == 48


def test_what_is_written_through_data_is_no_modification_for_autograd(tg: Any, rng: np.random.Generator) -> None:
    values = rng.normal(size=(3,))
    gradients = []
    for library in (torch, tg):
        w = library.tensor(values, requires_grad=True)
        x = library.tensor([1.0, 2.0, 3.0], dtype=library.float64, requires_grad=True)
        loss = (w * x).exp().sum()
        w.data.clamp_(-0.1, 0.1)
        x.data.mul_(2).data.add_(1)
        shown = x.detach()
        loss.backward()
        gradients.append((w.grad.numpy(), x.grad.numpy(), w.detach().numpy(), shown.numpy()))
    for theirs, ours in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    w = tg.tensor(values, requires_grad=True)
    loss = (w * w).sum()
    kept = w.data
    del w
    assert kept.mul_(0).tolist() == [0.0] * 3
    w = tg.ones(2, requires_grad=True)
    y = w.exp()
    y.detach().add_(1)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        y.sum().backward()
        w.grad.tolist()


class _Counted(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[Any] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[func] += 1
        return func(*args, **(kwargs or {}))


def test_selective_checkpoints_do_not_compute_again_what_a_policy_saves(tg: Any, rng: np.random.Generator) -> None:
    aten = tg.ops.aten
    weight = tg.tensor(rng.normal(size=(4, 4)), requires_grad=True)
    x = tg.tensor(rng.normal(size=(3, 4)), requires_grad=True)

    def block(x: Any) -> Any:
        return ((x @ weight).sin() @ weight).sin()

    def run(**options: Any) -> tuple[Any, Any]:
        x.grad = weight.grad = None
        with _Counted() as mode:
            loss = checkpoint(block, x, use_reentrant=False, **options).sum() if options else block(x).sum()
            loss.backward()
        return mode.seen, (x.grad.numpy(), weight.grad.numpy())

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        is_product = op is aten.mm.default
        return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE

    plain, gradients = run()
    again, _ = run(preserve_rng_state=False)
    saving, by_policy = run(context_fn=lambda: create_selective_checkpoint_contexts(policy))
    _, by_list = run(context_fn=lambda: create_selective_checkpoint_contexts([aten.sin.default]))
    assert (plain[aten.mm.default], again[aten.mm.default]) == (6, 8)
    assert (saving[aten.mm.default], saving[aten.sin.default]) == (6, again[aten.sin.default])
    for found in (by_policy, by_list):
        for ours, expected in zip(found, gradients, strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-12)
