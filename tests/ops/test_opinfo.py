"""Every operation against PyTorch's own operator database: its samples, its error cases, all forms.

Operations that the database lacks have samples in ``samples.py``.

``python -m pytest tests/ops/test_opinfo.py -k "add and float32"`` runs one. The default suite takes float32, int64 and
bool, and of many samples every fourth; ``-m slow`` adds the other dtypes and samples.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from server.engine.context import CudnnModes
from telegrad_protocol.errors import TelegradError
from telegrad_protocol.ops import PUBLIC, TABLE
from telegrad_protocol.ops.namespaces import public_of

from .adapters import TORCH_TO_OURS, EngineAdapter
from .database import op_db
from .harness import Comparison, tree_map
from .known import (
    ALIASES,
    LESS_EXACT,
    NUMBERS_TAKEN,
    ROUNDS_OFTEN,
    SLACK,
    SLACK_ON_GPU,
    SPECTRA,
    SUMS,
    VIEWS,
    WRONG_GRADIENTS,
    comparable,
    composed,
    has_own_strides,
    is_for_hosts,
    is_kink,
    is_out_of_scope,
    is_random,
)
from .samples import SAMPLES

QUICK = (torch.float32, torch.int64, torch.bool)
MAX_SAMPLES = 40
QUICK_STEP = 4
pytestmark = [
    pytest.mark.filterwarnings("ignore:stft with return_complex=False:UserWarning"),
    pytest.mark.filterwarnings("ignore:A window was not provided:UserWarning"),
    pytest.mark.filterwarnings("ignore:The length of signal is shorter:UserWarning"),
    pytest.mark.filterwarnings("ignore:torch.(cholesky|qr|svd|lu_solve|triangular_solve) is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter"),
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning"),
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning"),
    pytest.mark.filterwarnings("ignore:Casting complex values to real:UserWarning"),
]


def ours_of(name: str) -> str | None:
    head, _, last = name.rpartition(".")
    public = ALIASES.get(name) or (last if head in ("", "nn.functional") else public_of(name))
    return public if public in PUBLIC else None


def _cases() -> list[Any]:
    cases = []
    for info in op_db:
        if ours_of(info.name) is None:
            continue
        for dtype in TORCH_TO_OURS:
            if info.supports_dtype(dtype, "cpu"):
                marks = [] if dtype in QUICK else [pytest.mark.slow]
                label = f"{info.name}-{info.variant_test_name or 'plain'}-{str(dtype).removeprefix('torch.')}"
                cases.append(pytest.param(info, dtype, id=label, marks=marks))
    return cases


@pytest.fixture
def adapter() -> EngineAdapter:
    return EngineAdapter()


@pytest.mark.filterwarnings("ignore:Using torch.cross without specifying the dim")
@pytest.mark.parametrize(("info", "dtype"), _cases())
def test_agrees_with_pytorch(info: Any, dtype: torch.dtype, adapter: EngineAdapter) -> None:
    compare_samples(info, dtype, adapter, QUICK_STEP if dtype in QUICK else 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using torch.cross without specifying the dim")
@pytest.mark.parametrize(
    ("info", "dtype"), [pytest.param(*case.values, id=case.id) for case in _cases() if case.values[1] in QUICK]
)
def test_agrees_with_pytorch_in_all_samples(info: Any, dtype: torch.dtype, adapter: EngineAdapter) -> None:
    compare_samples(info, dtype, adapter)


_OWN_SAMPLES = [
    pytest.param(name, dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")
    for name, samples in SAMPLES.items()
    for dtype in samples.dtypes
]


@pytest.mark.parametrize(("name", "dtype"), _OWN_SAMPLES)
def test_agrees_with_its_reference(name: str, dtype: torch.dtype, adapter: EngineAdapter) -> None:
    compare_own_samples(name, dtype, adapter)


def compare_own_samples(name: str, dtype: torch.dtype, adapter: EngineAdapter) -> None:
    """Run the samples that this project has of an operation in torch and on the adapter's device, and compare them."""
    torch.manual_seed(0)
    for args in SAMPLES[name].inputs(dtype):
        Comparison(adapter).run(
            SAMPLES[name].reference, adapter.function(name), args, {}, gradients=dtype.is_floating_point
        )


@pytest.fixture(scope="module")
def cuda_adapter(cuda_device: str) -> EngineAdapter:
    made = EngineAdapter(cuda_device)
    made.context.cudnn = CudnnModes(allow_tf32=False)
    return made


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Using torch.cross without specifying the dim")
@pytest.mark.parametrize(
    ("info", "dtype"),
    [pytest.param(*case.values, id=case.id) for case in _cases() if case.values[1] is not torch.complex32],
)
def test_agrees_with_pytorch_on_cuda(info: Any, dtype: torch.dtype, cuda_adapter: EngineAdapter) -> None:
    cuda_adapter.activate()
    compare_samples(info, dtype, cuda_adapter)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "dtype"), _OWN_SAMPLES)
def test_agrees_with_its_reference_on_cuda(name: str, dtype: torch.dtype, cuda_adapter: EngineAdapter) -> None:
    cuda_adapter.activate()
    compare_own_samples(name, dtype, cuda_adapter)


def reference_of(info: Any, dtype: torch.dtype) -> Any:
    """PyTorch's operation; in a wider type with one rounding at the end where its own rounds many times."""
    if info.name == "logcumsumexp" and dtype.itemsize <= 8 and dtype is not torch.float64:
        return _widened(info.op, dtype, torch.complex128 if dtype.is_complex else torch.float64)
    if info.name in SPECTRA and dtype in (torch.float32, torch.complex64):
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return _widened(info.op, dtype, wide, torch.float32)
    if info.name == "nn.functional.scaled_dot_product_attention":
        return _widened(_attention, dtype) if dtype.itemsize == 2 else _attention
    if info.name in LESS_EXACT and dtype is torch.float64:
        return lambda input: torch.as_tensor(info.ref(input.numpy()))
    if info.name not in ROUNDS_OFTEN or dtype not in (torch.float16, torch.bfloat16):
        return info.op
    return _widened(info.op, dtype)


def _attention(*args: Any, **kwargs: Any) -> Any:
    """The plain computation: PyTorch's flash kernel has no second derivative."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(*args, **kwargs)


def _widened(
    operation: Any, dtype: torch.dtype, wider: torch.dtype = torch.float32, result: torch.dtype | None = None
) -> Any:
    """An operation on numbers of a type that computes in a wider one; ``result`` is the type of what it returns."""

    def widened(*args: Any, **kwargs: Any) -> Any:
        def widen(t: torch.Tensor) -> torch.Tensor:
            return t.to(wider) if t.dtype is dtype else t

        wide = tree_map(widen, lambda other: other, [list(args), kwargs])
        return operation(*wide[0], **wide[1]).to(result or dtype)

    return widened


def compare_samples(info: Any, dtype: torch.dtype, adapter: EngineAdapter, step: int = 1) -> None:
    """Run an operation's samples in torch on the CPU and in telegrad on the adapter's device, and compare all of it.

    The first ``step`` samples are taken, and so many steps on one each.
    """
    torch.manual_seed(0)
    differentiable = dtype in info.supported_backward_dtypes("cpu") and info.supports_autograd
    slack = SLACK.get(info.name, 1.0) * (1.0 if adapter.device.type == "cpu" else SLACK_ON_GPU.get(info.name, 1.0))
    comparison = Comparison(
        adapter, slack=slack, sums=info.name in SUMS or has_own_strides(info.name),
        check_strides=not has_own_strides(info.name),
    )  # fmt: skip
    failures: list[str] = []
    count = 0
    for sample in info.sample_inputs("cpu", dtype, requires_grad=differentiable):
        args = (sample.input, *sample.args)
        if is_out_of_scope(info.name, args, sample.kwargs):
            continue
        if adapter.device.type != "cpu" and is_for_hosts(info.name, sample.kwargs):
            continue
        count += 1
        if count > MAX_SAMPLES:
            break
        if count > step and count % step:
            continue
        try:
            comparison.run(
                comparable(info, reference_of(info, dtype), adapter.device.type),
                comparable(info, composed(info, adapter.function(ours_of(info.name))), adapter.device.type),
                args, sample.kwargs,
                gradients=differentiable and info.name not in WRONG_GRADIENTS and not is_random(info.name),
                second=differentiable
                and info.supports_gradgrad
                and dtype.itemsize >= 4
                and not is_kink(info.name, args),
                values=not is_random(info.name),
            )  # fmt: skip
        except Exception as error:  # every failing sample is listed, not only the first
            failures.append(
                f"{sample.summary() if hasattr(sample, 'summary') else args}: {type(error).__name__}: {error}"
            )
    assert not failures, f"{len(failures)} of {count} samples:\n" + "\n".join(failures[:8])


@pytest.mark.parametrize(
    "info",
    [
        pytest.param(i, id=f"{i.name}-{i.variant_test_name or 'plain'}")
        for i in op_db
        if ours_of(i.name) and i.inplace_variant and i.name not in VIEWS
    ],
)
def test_inplace_form_agrees_with_pytorch(info: Any, adapter: EngineAdapter) -> None:
    name = f"{ours_of(info.name)}_"
    if name not in PUBLIC:
        pytest.fail(f"{name} does not exist")
    torch.manual_seed(0)
    dtype = torch.float32 if info.supports_dtype(torch.float32, "cpu") else torch.int64
    for count, sample in enumerate(info.sample_inputs("cpu", dtype)):
        if count > MAX_SAMPLES or not isinstance(sample.input, torch.Tensor) or sample.broadcasts_input:
            continue
        if is_out_of_scope(info.name, (sample.input, *sample.args), sample.kwargs):
            continue
        theirs = sample.input.clone()
        mine = adapter.tensor(theirs)
        try:
            expected = info.inplace_variant(theirs, *sample.args, **sample.kwargs)
        except RuntimeError:
            with pytest.raises(TelegradError):
                _call_inplace(adapter, name, mine, sample)
            continue
        result = _call_inplace(adapter, name, mine, sample)
        assert result is mine
        Comparison(adapter).compare(result, expected, values=not is_random(info.name))


def _call_inplace(adapter: EngineAdapter, name: str, mine: Any, sample: Any) -> Any:
    args = tree_map(adapter.tensor, adapter.convert, list(sample.args))
    return adapter.function(name)(mine, *args, **tree_map(adapter.tensor, adapter.convert, sample.kwargs))


@pytest.mark.parametrize(
    "info",
    [
        pytest.param(i, id=f"{i.name}-{i.variant_test_name or 'plain'}")
        for i in op_db
        if ours_of(i.name) and i.error_inputs_func
    ],
)
def test_refuses_what_pytorch_refuses(info: Any, adapter: EngineAdapter) -> None:
    accepted = []
    for case in info.error_inputs("cpu"):
        sample = case.sample_input
        if info.name in NUMBERS_TAKEN and type(sample.args[0]) is int:
            continue
        if is_out_of_scope(info.name, (sample.input, *sample.args), sample.kwargs):
            continue
        try:
            args = tree_map(adapter.tensor, adapter.convert, [sample.input, *sample.args])
            kwargs = tree_map(adapter.tensor, adapter.convert, sample.kwargs)
            adapter.function(ours_of(info.name))(*args, **kwargs)
        except TelegradError as error:
            assert str(error), "the message is empty"
        else:
            accepted.append(f"{sample.input!r} {sample.args} {sample.kwargs}: torch says {case.error_regex!r}")
    assert not accepted, "accepted:\n" + "\n".join(accepted[:8])


def test_every_operation_of_the_table_is_covered() -> None:
    from .known import COVERED_ELSEWHERE

    tested = {ours_of(info.name) for info in op_db} | set(SAMPLES)
    missing = {op.public for op in TABLE.values() if op.base is op} - tested - COVERED_ELSEWHERE
    assert not missing, f"no operator test covers {sorted(missing)}"
