"""What PyTorch warns of, telegrad warns of with a warning of the same class that begins alike."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from telegrad._session import own_code

PROGRAMS = {
    "float of what requires grad": "float(t.ones(1, requires_grad=True))",
    "int of what requires grad": "int(t.ones(1, requires_grad=True))",
    "create_graph": "(t.ones(1, requires_grad=True) * 2).backward(create_graph=True)",
    "autograd.grad": "x = t.ones(1, requires_grad=True); t.autograd.grad(x * x, x, create_graph=True)",
    "complex to real": "t.ones(2, dtype=t.complex64).float()",
    "complex to bool": "t.ones(2, dtype=t.complex64).bool()",
    "complex into real": "t.zeros(2, 5, 7).copy_(t.ones(2, 5, 7, dtype=t.complex64))",
    "sum of complex as real": "t.ones(2, dtype=t.complex64).sum(dtype=t.float32)",
    "kl_div": "t.nn.functional.kl_div(t.zeros(2, 3), t.ones(2, 3))",
    "kl_div by batch": "t.nn.functional.kl_div(t.zeros(2, 3), t.ones(2, 3), reduction='batchmean')",
    "size_average": "t.nn.functional.mse_loss(t.ones(2), t.ones(2), size_average=False)",
    "reduce": "t.nn.L1Loss(reduce=False)",
    "softmin": "t.nn.functional.softmin(t.ones(2, 3))",
    "gumbel_softmax": "t.nn.functional.gumbel_softmax(t.ones(2, 3), eps=1e-5)",
    "affine_grid": "t.nn.functional.affine_grid(t.ones(1, 2, 3), (1, 1, 2, 2))",
    "dropout2d of 3": "t.nn.functional.dropout2d(t.ones(2, 3, 4))",
    "dropout2d of 2": "t.nn.functional.dropout2d(t.ones(2, 3))",
    "dropout2d of 4": "t.nn.functional.dropout2d(t.ones(2, 3, 4, 5))",
    "range": "t.range(0, 2)",
    "lu": "t.lu(t.eye(2))",
    "qr": "t.qr(t.eye(2))",
    "cholesky": "t.cholesky(t.eye(2))",
    "linalg.cholesky": "t.linalg.cholesky(t.eye(2))",
    "chain_matmul": "t.chain_matmul(t.eye(2), t.eye(2))",
    "triangular_solve": "t.triangular_solve(t.eye(2), t.eye(2))",
    "searchsorted": "t.searchsorted(t.arange(3), t.arange(4).view(2, 2).t())",
    "no elements to initialize": "t.nn.init.kaiming_uniform_(t.ones(0, 2))",
    "Variable": "t.autograd.Variable(t.ones(1), volatile=True)",
    "complex module": "t.nn.Linear(1, 1).to(t.complex64)",
    "checkpoint": "from PACKAGE.utils.checkpoint import checkpoint as c; c(lambda x: x, t.ones(1, requires_grad=True))",
    "masked_fill_": "t.zeros(1).expand(2).masked_fill_(t.tensor([True, False]), 1.)",
    "steps of schedules": "p = t.ones(1, requires_grad=True)\n"
    "t.optim.lr_scheduler.StepLR(t.optim.SGD([p], lr=1.), 1).step(3)",
}


@pytest.fixture(autouse=True)
def _told() -> Iterator[None]:
    """Warnings that come once in a process come in each of these tests."""
    before = set(own_code.told)
    own_code.told.clear()
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(always)
    own_code.told.update(before)


def _warned(program: str, t: Any) -> list[tuple[str, str]]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        exec(program.replace("PACKAGE", t.__name__), {"t": t})  # noqa: S102 - the tests' own programs
    return sorted({(warning.category.__name__, str(warning.message)[:12]) for warning in told})


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_are_warned_as_by_pytorch(tg: Any, program: str) -> None:
    assert _warned(program, tg) == _warned(program, torch)


def test_what_comes_once_in_a_process_comes_once(tg: Any) -> None:
    loss = tg.ones(1, requires_grad=True) * 2
    assert _warned("", tg) == []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            float(loss)
    assert len(told) == 1
    assert told[0].filename == __file__
