"""Mistakes that type checkers find: a line that ends in ``# wrong`` must be refused, and no other."""

from __future__ import annotations

import telegrad as tg
import telegrad.nn.functional as F
from telegrad import Tensor, nn, optim
from telegrad.nn import NoSuchLayer  # noqa: F401  # wrong


def functions(x: Tensor) -> None:
    tg.add(x)  # wrong
    tg.add(x, "two")  # wrong
    tg.add(x, 2, 3)  # wrong
    tg.zeros("two")  # wrong
    tg.zeros(2, dtype="float32")  # wrong
    tg.softmax(x, dim=0.5)  # wrong
    tg.cat(x, 0, out=1)  # wrong
    tg.ad(x, 1)  # wrong
    tg.int64(3)  # wrong
    x.add(1, beta=2)  # wrong
    x.sum(dims=0)  # wrong
    x.reshape("2, 3")  # wrong
    x.view(dtype=3)  # wrong
    x.no_such_method()  # wrong


def results(x: Tensor) -> None:
    print(tg.max(x, 1).value)  # wrong
    print(tg.max(x).value)  # wrong
    print(x.sort().values[0].counts)  # wrong
    _, _, _ = x.topk(2)  # wrong
    name: str = x.mean()  # wrong
    shape: str = x.shape  # wrong
    print(name, shape)


def operators(x: Tensor) -> None:
    print(x + "two")  # wrong
    print(-(2**x) % "two")  # wrong
    print(x["column"])  # wrong
    x[0] = "two"  # wrong


def modules(x: Tensor) -> None:
    nn.Linear("3", 4)  # wrong
    nn.Linear(3, 4, biased=True)  # wrong
    nn.Sequential(nn.ReLU(), 3)  # wrong
    model = nn.Linear(3, 4)
    optim.SGD(model.parameters(), learning_rate=0.1)  # wrong
    optim.AdamW(model.parameters(), betas=0.9)  # wrong
    F.cross_entropy(x)  # wrong
    F.relu(x, inplace="yes")  # wrong
    F.no_such_function(x)  # wrong
    x.requires_grad = "yes"  # wrong
    x.backward(retain_graphs=True)  # wrong


def right(x: Tensor) -> Tensor:
    """What looks odd and is meant is not refused."""
    tg.zeros((2, 3), device=0)
    tg.zeros(2, 3).add_(True).clamp(min=0.0, max=x.max())
    rows, columns = tg.where(x > 0)
    x[rows, columns] = 1
    x[..., None, 1:3, [0, 1]] += 2
    scale = 2 / (1 - x) ** 2 @ x.T
    return -scale.std(0, correction=0) if bool(x.any()) else abs(x // 2)
