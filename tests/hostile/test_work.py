"""Operations whose shapes name years of work are refused before they run; the session goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import telegrad as tg
from telegrad.errors import LimitExceededError
from tests.end_to_end.server_process import ServerProcess

F = tg.nn.functional


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    """One session on a server with small limits, which every test finds in order."""
    limits = {"TELEGRAD_OPERATION_WORK": "1e9", "TELEGRAD_GRAPH_NODES": "20000"}
    with ServerProcess(**limits) as server, tg.connect(server.url):
        yield


def grown(shape: tuple[int, ...]) -> tg.Tensor:
    """A tensor of ones that takes no memory but one element's."""
    return tg.ones(1).expand(shape)


ATTACKS: dict[str, Callable[[], tg.Tensor]] = {
    "avg_pool": lambda: F.avg_pool1d(tg.ones(1, 1, 2_000_000), 1_000_000, stride=1),
    "max_pool": lambda: F.max_pool2d(tg.ones(1, 1, 2000, 2000), 1000, stride=1),
    "convolution": lambda: F.conv1d(tg.ones(1, 1, 4_000_000), tg.ones(1, 1, 1_000_000)),
    "transposed": lambda: F.conv_transpose1d(tg.ones(1, 1, 100_000), tg.ones(1, 1, 100_000)),
    "attention": lambda: F.scaled_dot_product_attention(*[grown((1, 1, 200_000, 8))] * 3),
    "mm": lambda: grown((2000, 2000)) @ grown((2000, 2000)),
    "bmm": lambda: grown((200, 400, 400)) @ grown((200, 400, 400)),
    "linear": lambda: F.linear(grown((2000, 2000)), grown((2000, 2000)), tg.ones(2000)),
    "svd": lambda: tg.linalg.svdvals(grown((800, 800))),
    "eigh": lambda: tg.linalg.eigvalsh(tg.eye(800)),
    "solve": lambda: tg.linalg.solve(tg.eye(1500), tg.ones(1500, 3)),
    "matrix_exp": lambda: tg.linalg.matrix_exp(tg.eye(800)),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_work_beyond_the_limit_is_refused_with_the_name_of_the_setting(attack: Callable[[], tg.Tensor]) -> None:
    for _ in range(2):  # the second time no plan of the first is found either
        with pytest.raises(LimitExceededError, match=r"multiply-adds on the CPU.*TELEGRAD_OPERATION_WORK") as told:
            attack().sum().item()
        assert __file__ in told.value.site
    assert tg.ones(3).sum().item() == 3


def test_work_within_the_limit_is_done() -> None:
    assert (tg.ones(900, 900) @ tg.ones(900, 900)).sum().item() == 900**3
    assert F.avg_pool1d(tg.ones(1, 1, 1000), 500, stride=1).sum().item() == 501
    for data_needs_grad, weight_needs_grad in (
        (False, True),
        (True, False),
        (True, True),
    ):  # some products are not made
        x, w = tg.ones(3, 4, requires_grad=data_needs_grad), tg.ones(2, 4, requires_grad=weight_needs_grad)
        F.linear(x, w).sum().backward()
        assert (x if data_needs_grad else w).grad is not None
        assert not data_needs_grad or x.grad.sum().item() == 24
        assert not weight_needs_grad or w.grad.sum().item() == 24
    assert tg.ones(10_000_000).sum().item() == 10_000_000  # large, and no more work than its bytes


def test_gradients_of_large_graphs_are_refused() -> None:
    x = tg.ones(1, requires_grad=True)
    y = x.tanh() * x.exp() * x.sigmoid()
    with pytest.raises(LimitExceededError, match=r"graph has \d+ nodes.*TELEGRAD_GRAPH_NODES"):
        for _ in range(12):
            (y,) = tg.autograd.grad(y.sum(), x, create_graph=True)
        y.item()
    assert tg.ones(3).sum().item() == 3
