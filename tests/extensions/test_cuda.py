"""Extensions with CUDA: the seeds' load_inline as it stands, fused kernels, LLTM, streams, what waits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.gpu
FOLDER = Path(__file__).parent
PROGRAM = FOLDER.parent / "examples" / "seeds" / "load_inline.py"


@pytest.fixture
def kernels(kernel_cache: str, cuda_tg: Any) -> Any:
    """The extension of ``kernels.cu``, in the session of ``cuda_tg``."""
    from telegrad.utils.cpp_extension import load

    return load("test_kernels", FOLDER / "kernels.cu")


def test_the_program_of_the_seeds_runs_as_it_stands(kernel_cache: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "telegrad", "run", str(PROGRAM)]
    run = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert run.stdout == "tensor([[ 1.,  4.,  9.],\n        [16., 25., 36.]], device='cuda:0')\n", run.stderr


def test_kernels_of_all_floating_types_agree_with_pytorch(cuda_tg: Any, kernels: Any, rng: np.random.Generator) -> None:
    tg = cuda_tg
    a, b = (rng.standard_normal((33, 257)).astype(np.float32) for _ in range(2))
    for name, tolerance in (("float32", 1e-6), ("float64", 1e-6), ("float16", 2e-3), ("bfloat16", 2e-2)):
        x, y = (tg.tensor(array, device="cuda").to(getattr(tg, name)) for array in (a, b))
        exact = [torch.tensor(tensor.double().cpu().numpy()) for tensor in (x, y)]
        expected = torch.sigmoid(exact[0]) * exact[1]
        fused = kernels.gated(x, y)
        assert fused.dtype is x.dtype and fused.device == x.device
        assert np.allclose(fused.double().cpu().numpy(), expected.numpy(), rtol=tolerance, atol=tolerance)
    with pytest.raises(NotImplementedError, match="\"gated\" not implemented for 'Int'"):
        kernels.gated(tg.ones(2, 2, device="cuda", dtype=tg.int32), tg.ones(2, 2, device="cuda", dtype=tg.int32))
    with pytest.raises(RuntimeError, match="x must be a CUDA tensor"):
        kernels.gated(tg.ones(2, device="cpu"), tg.ones(2, device="cpu"))


def test_work_is_in_the_order_of_the_session_and_of_its_streams(cuda_tg: Any, kernels: Any) -> None:
    """Operations before and after a kernel that is launched on the default stream see it in its place."""
    tg = cuda_tg
    x = tg.zeros(1 << 22, device="cuda")
    for stream in (tg.cuda.current_stream(), tg.cuda.Stream()):
        with tg.cuda.stream(stream):
            for _ in range(20):
                x.add_(1)
                kernels.double_(x)
                x.sub_(1)
            assert kernels.first(x) == x[0].item() == x[-1].item()
            x.zero_()


def test_calls_on_a_gpu_do_not_wait_but_for_what_reads_elements(cuda_tg: Any, kernels: Any) -> None:
    tg = cuda_tg
    x = tg.ones(64, 64, device="cuda")
    session = x._session
    kernels.gated(x, x)
    before = session.round_trips
    for _ in range(50):
        y = kernels.gated(x, x)
        kernels.double_(y)
    assert session.round_trips == before
    assert y.sum().item() == pytest.approx(2 * 4096 / (1 + np.exp(-1.0)), rel=1e-5)
    for sizes in ((3,), (5,)):
        flags = tg.zeros(8, device="cuda")
        flags[: sizes[0]] = 1
        assert kernels.count_and_take(flags).shape == sizes


def test_a_cell_with_its_own_backward_kernel_trains_as_in_pytorch(
    cuda_tg: Any, kernels: Any, rng: np.random.Generator
) -> None:
    """An LLTM cell: forward and backward in C++ and CUDA, joined by an autograd.Function."""
    tg = cuda_tg

    class Cell(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, weights: Any, bias: Any, h: Any, c: Any) -> Any:
            new_h, new_c, *saved = kernels.lltm_forward(x, weights, bias, h, c)
            ctx.save_for_backward(*saved, weights)
            return new_h, new_c

        @staticmethod
        def backward(ctx: Any, grad_h: Any, grad_c: Any) -> Any:
            return tuple(kernels.lltm_backward(grad_h.contiguous(), grad_c.contiguous(), *ctx.saved_tensors))

    arrays = [rng.standard_normal(size) for size in [(5, 4), (9, 7), (9,), (5, 3), (5, 3)]]
    ours = [tg.tensor(array, device="cuda", requires_grad=True) for array in arrays]
    theirs = [torch.tensor(array, requires_grad=True) for array in arrays]
    h, c = Cell.apply(*ours)
    x, weights, bias, old_h, old_c = theirs
    gates = torch.addmm(bias, torch.cat([old_h, x], 1), weights.T).chunk(3, 1)
    expected_c = old_c + torch.nn.functional.elu(gates[2]) * torch.sigmoid(gates[0])
    expected_h = torch.tanh(expected_c) * torch.sigmoid(gates[1])
    (h.sum() + (c * c).sum()).backward()
    (expected_h.sum() + (expected_c * expected_c).sum()).backward()
    assert np.allclose(h.detach().cpu().numpy(), expected_h.detach().numpy())
    for mine, reference in zip(ours, theirs, strict=True):
        assert np.allclose(mine.grad.cpu().numpy(), reference.grad.numpy())
