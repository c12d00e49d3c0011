"""Regions of autocast: nesting, decorators, threads, the cache of casts, training that follows PyTorch's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from telegrad_protocol.errors import ArgumentError, ArgumentTypeError, NotSupportedError
from telegrad_protocol.messages import Mode


def _engine(tg: Any) -> Any:
    """The server's session."""
    session = tg._session.current.current_session()
    session.flush()
    return session.transport._session


def _casts(tg: Any) -> int:
    casts = _engine(tg).state.context.casts
    return len(casts) if casts is not None else 0


def test_regions_nest_and_end(tg: Any) -> None:
    x = tg.ones(2, 2)
    with tg.autocast("cpu"):
        assert tg.is_autocast_enabled("cpu")
        assert not tg.is_autocast_enabled("cuda")
        assert (x @ x).dtype is tg.bfloat16
        with tg.autocast("cpu", enabled=False):
            assert (x @ x).dtype is tg.float32
            with tg.amp.autocast("cpu", dtype=tg.float16):
                assert tg.get_autocast_dtype("cpu") is tg.float16
                assert (x @ x).dtype is tg.float16
            assert (x @ x).dtype is tg.float32
        assert (x @ x).dtype is tg.bfloat16
    assert not tg.is_autocast_enabled("cpu")
    assert (x @ x).dtype is tg.float32


def test_a_region_ends_with_an_exception(tg: Any) -> None:
    with pytest.raises(ZeroDivisionError), tg.autocast("cpu"):
        _ = 1 / 0
    assert not tg.is_autocast_enabled("cpu")


def test_functions_and_generators_are_decorated(tg: Any) -> None:
    x = tg.ones(2, 2)

    @tg.autocast("cpu", dtype=tg.float16)
    def square(a: Any) -> Any:
        """Its own docstring."""
        return a @ a if a.dtype is tg.float16 else square(a.half())

    @tg.autocast("cpu")
    def squares() -> Iterator[Any]:
        for _ in range(2):
            yield x @ x

    assert square(x).dtype is tg.float16
    assert square.__doc__ == "Its own docstring."
    for result in squares():
        assert result.dtype is tg.bfloat16
        assert not tg.is_autocast_enabled("cpu")
    with pytest.raises(ArgumentTypeError, match="callable"):
        tg.autocast("cpu")(3)


def test_settings_are_told_and_changed(tg: Any) -> None:
    assert tg.get_autocast_dtype("cpu") is tg.bfloat16
    assert tg.get_autocast_dtype("cuda") is tg.float16
    tg.set_autocast_dtype("cpu", tg.float16)
    tg.set_autocast_enabled("cpu", True)
    try:
        assert tg.ones(2, 2).mm(tg.ones(2, 2)).dtype is tg.float16
    finally:
        tg.set_autocast_enabled("cpu", False)
        tg.set_autocast_dtype("cpu", tg.bfloat16)
    assert tg.amp.is_autocast_available("cpu")
    assert not tg.amp.is_autocast_available("tpu")


def test_bad_settings_are_refused_and_impossible_ones_disabled(tg: Any) -> None:
    with pytest.raises(NotSupportedError, match="tpu"):
        tg.get_autocast_dtype("tpu")
    with pytest.raises(ArgumentError, match="device_type"):
        tg.autocast(tg.float16)
    with pytest.raises(ArgumentTypeError, match="expected dtype to be a dtype"):
        tg.autocast("cpu", dtype=float)
    with tg.autocast("cpu", cache_enabled=1):
        assert (tg.ones(2, 2) @ tg.ones(2, 2)).sum().item() == 8.0
    with pytest.raises(ArgumentError, match="float16 or bfloat16"):
        tg.set_autocast_dtype("cpu", tg.float32)
    x = tg.ones(2, 2)
    with pytest.warns(UserWarning, match="CUDA is not available"), tg.autocast("cuda"):
        assert (x @ x).dtype is tg.float32
    with pytest.warns(UserWarning, match="not among the dtypes"), tg.autocast("cpu", dtype=tg.float32):
        assert (x @ x).dtype is tg.float32


def test_a_region_belongs_to_its_thread(tg: Any) -> None:
    x = tg.ones(2, 2)
    found = []

    def beside() -> None:
        found.append((x @ x).dtype)
        with tg.autocast("cpu", dtype=tg.float16):
            found.append((x @ x).dtype)

    with tg.autocast("cpu"):
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        found.append((x @ x).dtype)
    assert found == [tg.float32, tg.float16, tg.bfloat16]


def test_modes_of_gradients_and_autocast_do_not_disturb_each_other(tg: Any) -> None:
    w = tg.ones(2, 2, requires_grad=True)
    with tg.autocast("cpu"):
        with tg.no_grad():
            assert not (w @ w).requires_grad
            with tg.inference_mode():
                assert (w @ w).dtype is tg.bfloat16
        assert (w @ w).requires_grad
    with tg.no_grad(), tg.autocast("cpu"):
        assert (w @ w).dtype is tg.bfloat16
        assert not (w @ w).requires_grad
    assert tg.is_grad_enabled()


def test_operations_in_place_and_into_tensors_run_as_they_are(tg: Any) -> None:
    x, y = tg.ones(2, 2), tg.ones(2, 2)
    with tg.autocast("cpu"):
        x.addmm_(y, y)
        tg.mm(y, y, out=y)
    assert x.dtype is y.dtype is tg.float32
    np.testing.assert_array_equal(x.numpy(), np.full((2, 2), 3, np.float32))


def test_a_view_of_a_cast_is_no_view_of_the_operand(tg: Any) -> None:
    pairs = tg.ones(3, 2).bfloat16()
    with tg.autocast("cpu"):
        numbers = tg.view_as_complex(pairs)
    numbers.mul_(2)
    assert numbers.dtype is tg.complex64
    np.testing.assert_array_equal(pairs.float().numpy(), np.ones((3, 2), np.float32))


def test_weights_are_cast_once_in_a_region(tg: Any) -> None:
    w = tg.ones(4, 4, requires_grad=True)
    x = tg.ones(4, 4)
    with tg.autocast("cpu"):
        with tg.autocast("cpu"):
            for _ in range(3):
                y = x @ w
        assert _casts(tg) == 1, "the cast outlives an inner region"
        (y + x @ w).sum().backward()
        assert _casts(tg) == 1
    assert _casts(tg) == 0
    assert w.grad.dtype is tg.float32
    np.testing.assert_array_equal(w.grad.numpy(), np.full((4, 4), 8, np.float32))


def test_casts_are_not_kept_where_that_is_off(tg: Any) -> None:
    w = tg.ones(4, 4, requires_grad=True)
    with tg.autocast("cpu", cache_enabled=False):
        assert not tg.is_autocast_cache_enabled()
        _ = w @ w
        assert _casts(tg) == 0
    assert tg.is_autocast_cache_enabled()


def test_only_leaves_that_are_no_views_are_kept(tg: Any) -> None:
    w, plain = tg.ones(4, 4, requires_grad=True), tg.ones(4, 4)
    with tg.autocast("cpu"):
        _ = (w * 2) @ plain
        _ = w.t() @ plain
        assert _casts(tg) == 0
        _ = w @ plain
        assert _casts(tg) == 1
        tg.clear_autocast_cache()
        assert _casts(tg) == 0


def test_a_weight_that_was_modified_is_cast_again(tg: Any) -> None:
    w, x = tg.ones(2, 2, requires_grad=True), tg.ones(2, 2)
    with tg.autocast("cpu"):
        before = x @ w
        with tg.no_grad():
            w.add_(1)
        after = x @ w
    np.testing.assert_array_equal(before.detach().float().numpy(), np.full((2, 2), 2, np.float32))
    np.testing.assert_array_equal(after.detach().float().numpy(), np.full((2, 2), 4, np.float32))


def test_a_cast_made_without_gradients_is_not_used_with_them(tg: Any) -> None:
    w, x = tg.ones(2, 2, requires_grad=True), tg.ones(2, 2)
    with tg.autocast("cpu"):
        with tg.no_grad():
            _ = x @ w
        (x @ w).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.full((2, 2), 2, np.float32))


def test_a_region_leaves_no_memory_behind(tg: Any) -> None:
    w = tg.ones(64, 64, requires_grad=True)
    before = tg.cuda.memory_allocated()
    with tg.autocast("cpu"):
        y = w @ w
        del y
        assert tg.cuda.memory_allocated() > before
    assert tg.cuda.memory_allocated() == before


def test_a_region_costs_no_round_trip(tg: Any) -> None:
    w = tg.ones(4, 4, requires_grad=True)
    session = tg._session.current.current_session()
    trips = session.round_trips
    for _ in range(3):
        with tg.autocast("cpu"):
            loss = (w @ w).sum()
        loss.backward()
    assert session.round_trips == trips


def test_the_trace_shows_autocast_above_autograd(tg: Any) -> None:
    session = tg._session.current.current_session()
    w = tg.ones(2, 2, requires_grad=True)
    session.submit(Mode("trace", True))
    with tg.autocast("cpu"):
        _ = w.mm(w)
    lines = session.query("trace")
    assert lines[0] == "[call] op=mm, keys=[AutocastCPU, Autograd, CPU]"
    assert "[call] op=_to_copy, keys=[Autograd, CPU]" in lines
    assert "[call] op=mm, keys=[Autograd, CPU]" in lines


@pytest.mark.parametrize(
    "value",
    [3, [True], [1, []], [True, [["tpu", 5]]], [True, [["cpu", 6]]], [True, [["cpu", 99]]], [True, [["cpu", -1]]]],
)
def test_malformed_settings_are_refused(tg: Any, value: Any) -> None:
    from telegrad import TelegradError

    session = tg._session.current.current_session()
    session.submit(Mode("autocast", value))
    with pytest.raises(TelegradError, match="autocast"):
        session.synchronize()


def test_einsum_is_cast_as_one_where_it_is_listed(tg: Any) -> None:
    from telegrad._functions.cast_as_one import _targets
    from telegrad_protocol.autocast import Autocast
    from telegrad_protocol.meta import Device, Meta

    class Somewhere:
        def __init__(self, device: str, dtype: Any) -> None:
            self._meta = Meta.of((2,), dtype, Device(device))

    region: Any = Autocast.of([("cuda", tg.float16)], True)
    full, half, host = (
        Somewhere(d, t) for d, t in (("cuda:0", tg.float32), ("cuda:0", tg.float16), ("cpu", tg.float32))
    )
    assert _targets("einsum", [full, half], region) == {"cuda": tg.float16}  # type: ignore[list-item]
    assert _targets("tensordot", [full, half], region) == {"cuda": tg.float32}  # type: ignore[list-item]
    assert _targets("einsum", [host], region) == {}  # type: ignore[list-item]


COMPOSED = """
fun.soft_margin_loss(a, sign)
fun.hinge_embedding_loss(a, sign)
fun.poisson_nll_loss(a, b)
fun.cosine_embedding_loss(a, b, sign[:, 0])
fun.margin_ranking_loss(a, b, sign)
fun.triplet_margin_loss(a, b, b + 1)
fun.multi_margin_loss(a, t.arange(4))
fun.multilabel_margin_loss(a, t.arange(16).reshape(4, 4) % 4)
fun.ctc_loss(-a, t.tensor([1, 2]), (4,), (2,))
fun.grid_sample(a.reshape(1, 1, 4, 4), b[:2].reshape(1, 2, 2, 2), align_corners=False)
fun.fractional_max_pool2d(a.reshape(1, 1, 4, 4), 2, output_size=2, _random_samples=b[:1, :2].reshape(1, 1, 2))
t.cdist(a, b)
t.quantile(a, 0.3)
t.nanquantile(a, b[0], 1)
t.pinverse(a + 4 * t.eye(4, dtype=a.dtype))
"""


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_losses_and_distances_of_half_precision_are_computed_in_float32(
    tg: Any, rng: np.random.Generator, name: str
) -> None:
    drawn = rng.random((2, 4, 4)).astype(np.float32)
    for call in COMPOSED.strip().splitlines():
        found = []
        for t in (tg, torch):
            a, b = (t.tensor(values).to(getattr(t, name)) for values in drawn)
            names = {"t": t, "fun": t.nn.functional, "a": a, "b": b, "sign": (b > 0.5) * 2 - 1}
            with t.autocast("cpu", dtype=getattr(t, name)):
                found.append(eval(call, names))  # noqa: S307 - the expressions above
        assert found[0].dtype is tg.float32, call
        np.testing.assert_allclose(found[0].numpy(), found[1].numpy(), 1e-3, 1e-4, err_msg=call)


class _Twin:
    """The same network, data and optimizer on one of the two sides."""

    def __init__(self, t: Any, make: Any, state: dict[str, np.ndarray] | None) -> None:
        self.t = t
        self.model = make(t.nn)
        if state is not None:
            self.model.load_state_dict({k: t.tensor(v) for k, v in state.items()})
        self.optimizer = t.optim.AdamW(self.model.parameters(), lr=1e-2)

    def step(self, x: Any, y: Any, lower: Any) -> Any:
        self.optimizer.zero_grad()
        with self.t.autocast("cpu", dtype=lower):
            loss = self.t.nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss


def _network(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5))


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_training_follows_pytorch(tg: Any, rng: np.random.Generator, name: str) -> None:
    theirs = _Twin(torch, _network, None)
    ours = _Twin(tg, _network, {k: v.detach().numpy().copy() for k, v in theirs.model.state_dict().items()})
    x = rng.normal(size=(40, 12)).astype(np.float32)
    y = rng.integers(0, 5, 40)
    losses = []
    for _ in range(25):
        mine = ours.step(tg.tensor(x), tg.tensor(y), getattr(tg, name)).item()
        reference = theirs.step(torch.tensor(x), torch.tensor(y), getattr(torch, name)).item()
        losses.append((mine, reference))
    assert losses[-1][0] < 0.7 * losses[0][0]
    tolerance = 0.05 if name == "bfloat16" else 0.01
    for mine, reference in losses:
        assert abs(mine - reference) < tolerance * losses[0][1], losses
