"""Every operation under autocast against PyTorch's: types of results and gradients, values, and who foresees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from server.engine.operators import BY_INDEX
from telegrad_protocol import autocast, dtypes
from telegrad_protocol.errors import DTypeError
from telegrad_protocol.meta import Device, Meta
from telegrad_protocol.ops import PUBLIC, TABLE
from tests.session.queued import GPU as QUEUED
from tests.session.queued import queued_host

from ..support.draws import drawn
from .adapters import OURS_TO_TORCH
from .autocasting import Refused, differences_on_cuda, download, run_both, run_here, upload
from .database import op_db
from .known import is_out_of_scope, is_random
from .test_opinfo import ours_of

SAMPLES = 8
LOWER = (torch.bfloat16, torch.float16)
MIXES_INSIDE = {"nn.functional.bilinear"}
"""PyTorch rounds products to the lower type inside of these, which no list says, and gives float32."""
COMPARED_ELSEWHERE = {
    "linalg.eigh",
    "linalg.lstsq",
    "linalg.pinv",  # up to a phase, or composed by the database: test_opinfo
    "matrix_exp",  # PyTorch overflows in half precision
    "linalg.matrix_power",  # PyTorch rounds the products that it is made of; telegrad keeps the precision
    "signal.windows.blackman",
    "special.ndtr",  # PyTorch's small numbers are rounding errors
}
TOLERANCE = {torch.float32: 5e-5, torch.bfloat16: 3e-2, torch.float16: 5e-3}
pytestmark = pytest.mark.filterwarnings("ignore")


def _cases() -> list[Any]:
    chosen = {}
    for info in op_db:
        name = ours_of(info.name)
        if info.name in COMPARED_ELSEWHERE:
            continue
        if name in PUBLIC and info.name not in ("as_strided", "normal") and info.supports_dtype(torch.float32, "cpu"):
            chosen[f"{info.name}-{info.variant_test_name or 'plain'}"] = info
    return [pytest.param(info, id=label) for label, info in chosen.items()]


def _listed_and_drawn() -> list[Any]:
    """All operations that autocast changes by their names, and of the others those that the default suite draws."""
    names = {TABLE[name].public for name in autocast._CPU | autocast._CUDA if name in TABLE}
    listed = [case for case in _cases() if ours_of(case.values[0].name) in names]
    return [*listed, *drawn([case for case in _cases() if ours_of(case.values[0].name) not in names], 30)]


@pytest.mark.parametrize("info", _listed_and_drawn())
def test_results_are_of_pytorchs_types_and_values(tg: Any, info: Any) -> None:
    for dtype in (torch.float32, *LOWER):
        for lower in LOWER if dtype is torch.float32 else (dtype,):
            if info.supports_dtype(dtype, "cpu"):
                _compare_samples(info, dtype, lower)


def _compare_samples(info: Any, dtype: torch.dtype, lower: torch.dtype) -> None:
    torch.manual_seed(0)
    count = 0
    for sample in info.sample_inputs("cpu", dtype):
        args = (sample.input, *sample.args)
        if is_out_of_scope(info.name, args, sample.kwargs):
            continue
        count += 1
        if count > SAMPLES:
            return
        expected, result, _ = run_both(info.op, str(ours_of(info.name)), args, sample.kwargs, lower)
        if expected is Refused or result is Refused:
            assert expected is result, f"{'PyTorch' if expected is Refused else 'telegrad'} refuses {args}"
            continue
        for theirs, mine in zip(expected, result, strict=True):
            if isinstance(theirs, torch.Tensor):
                _compare(theirs, mine, is_random(info.name) or info.name in MIXES_INSIDE)


def _compare(theirs: torch.Tensor, mine: Any, only_types: bool = False) -> None:
    data = download(mine)
    assert OURS_TO_TORCH[mine.dtype] is data.dtype, f"the client expects {mine.dtype}, the server has {data.dtype}"
    assert data.dtype is theirs.dtype
    assert data.shape == theirs.shape
    if only_types or not theirs.numel():
        return
    if data.dtype not in TOLERANCE:
        scale, tolerance = 1.0, 1e-4
    else:
        finite = theirs[torch.isfinite(theirs)].abs().float()
        scale, tolerance = (float(finite.max()) if finite.numel() else 0.0), TOLERANCE[data.dtype]
    torch.testing.assert_close(
        data, theirs.detach().contiguous(), rtol=tolerance, atol=tolerance * scale, equal_nan=True
    )


@pytest.mark.parametrize("lower", LOWER, ids=str)
@pytest.mark.parametrize("name", sorted({n for n in autocast._CPU if n in TABLE}))
def test_gradients_come_in_the_operands_types(tg: Any, name: str, lower: torch.dtype) -> None:
    infos = [info for info in op_db if ours_of(info.name) == TABLE[name].public and info.supports_autograd]
    for info in infos:
        torch.manual_seed(0)
        for sample in [s for s, _ in zip(info.sample_inputs("cpu", torch.float32, requires_grad=True), range(4))]:
            args = (sample.input, *sample.args)
            if is_out_of_scope(info.name, args, sample.kwargs):
                continue
            expected, result, pairs = run_both(info.op, TABLE[name].public, args, sample.kwargs, lower)
            if expected is Refused or not expected[0].requires_grad or expected[0].is_complex():
                continue
            _compare_gradients(tg, expected[0], result[0], [p for p in pairs if p[0].requires_grad and p[0].is_leaf])


def _compare_gradients(tg: Any, theirs: torch.Tensor, mine: Any, leaves: list[tuple[torch.Tensor, Any]]) -> None:
    wanted = torch.autograd.grad(theirs.sum(), [t for t, _ in leaves], allow_unused=True)
    result = tg.autograd.grad(mine.sum(), [m for _, m in leaves], allow_unused=True)
    for reference, gradient in zip(wanted, result, strict=True):
        assert (reference is None) == (gradient is None)
        if reference is not None:
            data = download(gradient)
            assert data.dtype is reference.dtype is OURS_TO_TORCH[gradient.dtype]
            scale = float(reference.abs().float().max()) if reference.numel() else 0.0
            tolerance = 3 * TOLERANCE[theirs.dtype if theirs.dtype in TOLERANCE else torch.float32]
            tolerance = max(tolerance, TOLERANCE[torch.bfloat16])
            torch.testing.assert_close(data, reference, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


@pytest.mark.parametrize("lists", [autocast._CPU, autocast._CUDA], ids=["cpu", "cuda"])
def test_what_is_listed_exists_in_its_plain_form(lists: dict[str, Any]) -> None:
    for name in lists:
        assert TABLE[name].base is TABLE[name], name


HALF, FULL, DOUBLE = dtypes.float16, dtypes.float32, dtypes.float64
GPU = Device("cuda", 0)


def _cast(name: str, *args: Any, lower: Any = HALF) -> Any:
    """Types of the operands, and ``dtype``, as the operation sees them in CUDA autocast."""
    op = TABLE[name]
    metas = [Meta.of((4, 4), a, GPU) if isinstance(a, dtypes.DType) else a for a in args]
    metas = [a[1] if isinstance(a, tuple) and a[0] == "dtype" else a for a in metas]
    bound = op.normalize(op.bind(tuple(metas), {}), lambda thing: isinstance(thing, Meta))
    region = autocast.Autocast.of([("cuda", lower)], True)
    _, seen = autocast.recast(op, bound, region)  # type: ignore[arg-type]
    return [a.dtype if isinstance(a, Meta) else a for a in seen if isinstance(a, (Meta, dtypes.DType))]


@pytest.mark.parametrize(
    ("name", "args", "seen"),
    [
        ("mm", (FULL, HALF), [HALF, HALF]),
        ("mm", (DOUBLE, FULL), [DOUBLE, HALF]),
        ("linear", (FULL, FULL, FULL), [HALF, HALF, HALF]),
        ("exp", (HALF,), [FULL]),
        ("exp", (DOUBLE,), [DOUBLE]),
        ("exp", (dtypes.int64,), [dtypes.int64]),
        ("exp_", (HALF,), [HALF]),
        ("add", (HALF, FULL), [HALF, FULL]),
        ("softmax", (HALF, 1), [HALF, FULL]),
        ("softmax", (HALF, 1, ("dtype", HALF)), [HALF, HALF]),
        ("sum", (dtypes.int64,), [dtypes.int64]),
        ("norm", (HALF,), [HALF, FULL]),
        ("atan2", (HALF, FULL), [FULL, FULL]),
        ("atan2", (HALF, HALF), [HALF, HALF]),
        ("atan2", (HALF, DOUBLE), [HALF, DOUBLE]),
        ("layer_norm", (HALF, (4,)), [FULL]),
        ("div", (HALF, 2.0), [HALF]),
        ("div", (2.0, HALF), [FULL]),
        ("pow", (2.0, HALF), [FULL]),
    ],
)
def test_cuda_lists(name: str, args: tuple[Any, ...], seen: list[Any]) -> None:
    assert _cast(name, *args) == seen


def test_what_cannot_be_promoted_or_is_unsafe_is_refused() -> None:
    with pytest.raises(DTypeError, match="cannot promote float16"):
        _cast("atan2", HALF, HALF, lower=dtypes.bfloat16)
    with pytest.raises(DTypeError, match="unsafe to autocast"):
        _cast("binary_cross_entropy", FULL, FULL)


@pytest.fixture
def queued_tg(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The client library on a device that claims to be a GPU; kernels for real ones cannot run there."""
    import telegrad

    for operator in BY_INDEX:
        monkeypatch.setattr(operator, "preparers", {})
    with telegrad.connect(in_process=queued_host()[0]):
        yield telegrad


@pytest.mark.parametrize("info", _listed_and_drawn())
def test_the_client_foresees_the_types_of_cuda_autocast(queued_tg: Any, info: Any) -> None:
    for dtype in (torch.float32, torch.float16):
        if not info.supports_dtype(dtype, "cpu"):
            continue
        for sample, _ in zip(info.sample_inputs("cpu", dtype), range(SAMPLES)):
            args = (sample.input, *sample.args)
            if is_out_of_scope(info.name, args, sample.kwargs):
                continue
            for mine in run_here(str(ours_of(info.name)), args, sample.kwargs, torch.float16, str(QUEUED)):
                data = download(mine)
                assert OURS_TO_TORCH[mine.dtype] is data.dtype, f"client {mine.dtype}, server {data.dtype}"


LOSS_OPTIONS: list[dict[str, Any]] = [{}, {"reduction": "sum"}, {"reduction": "none"}, {"label_smoothing": 0.1}]


@pytest.mark.parametrize("options", LOSS_OPTIONS, ids=str)
def test_the_loss_of_half_logits_is_as_if_they_were_converted(queued_tg: Any, options: dict[str, Any]) -> None:
    _compare_losses(queued_tg, str(QUEUED), 6, 5, options)
    logits, target = upload(torch.zeros(2, 3).half(), str(QUEUED)), upload(torch.tensor([0, 1]), str(QUEUED))
    with pytest.raises(ValueError, match="label_smoothing"), queued_tg.autocast("cuda"):
        queued_tg.nn.functional.cross_entropy(logits, target, label_smoothing=2.0)


@pytest.mark.gpu
@pytest.mark.parametrize("options", LOSS_OPTIONS, ids=str)
def test_the_loss_of_half_logits_on_a_gpu(cuda_tg: Any, options: dict[str, Any]) -> None:
    _compare_losses(cuda_tg, "cuda:0", 300, 5003, options)


def _compare_losses(tg: Any, device: str, samples: int, classes: int, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    logits = (3 * torch.randn(samples, classes)).bfloat16().requires_grad_()
    target = torch.randint(0, classes, (samples,))
    target[2] = -100
    wanted = torch.nn.functional.cross_entropy(logits.float(), target, **options)
    mine = upload(logits, device)
    with tg.autocast("cuda", dtype=tg.bfloat16):
        result = tg.nn.functional.cross_entropy(mine, upload(target, device), **options)
    assert result.dtype is tg.float32
    torch.testing.assert_close(download(result), wanted.detach(), rtol=1e-5, atol=1e-5)
    wanted.sum().backward()
    result.sum().backward()
    assert logits.grad is not None
    scale = float(logits.grad.abs().max())
    torch.testing.assert_close(download(mine.grad), logits.grad, rtol=1e-2, atol=1e-3 * scale)


@pytest.mark.gpu
@pytest.mark.parametrize("lower", LOWER, ids=str)
def test_the_types_of_cuda_autocast_are_pytorchs(queued_tg: Any, lower: torch.dtype) -> None:
    """PyTorch runs on the GPU; ours only has to say of which types results are."""
    wrong: set[str] = set()
    for info in [case.values[0] for case in _cases() if _is_listed_alike(case.values[0].name)]:
        for dtype in (torch.float32, lower):
            if info.supports_dtype(dtype, "cuda") and info.supports_dtype(dtype, "cpu"):
                wrong.update(_wrong_types(info, dtype, lower))
    assert not wrong, "\n".join(sorted(wrong))


def _is_listed_alike(name: str) -> bool:
    """``rms_norm`` is in the lists of PyTorch since 2.12; ``pinverse`` rounds inside there, as ``linalg.pinv`` does."""
    if name == "pinverse":
        return False
    return name != "nn.functional.rms_norm" or torch._C._dispatch_has_kernel_for_dispatch_key(
        "aten::rms_norm", "AutocastCUDA"
    )


def _wrong_types(info: Any, dtype: torch.dtype, lower: torch.dtype) -> list[str]:
    result = []
    for sample, _ in zip(info.sample_inputs("cpu", dtype), range(4)):
        args = (sample.input, *sample.args)
        if not is_out_of_scope(info.name, args, sample.kwargs):
            result += differences_on_cuda(info, str(ours_of(info.name)), args, sample.kwargs, lower, str(QUEUED))
    return result
