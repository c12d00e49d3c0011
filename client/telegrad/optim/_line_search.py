"""A line search for lengths that satisfy the strong Wolfe conditions: bracket one, then narrow the bracket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from telegrad._tensor.tensor import Tensor

Evaluate = Callable[[float], tuple[float, Tensor]]
"""Loss and gradient at a distance along the direction."""


class Point(NamedTuple):
    """A distance along the direction, the loss there, its gradient and its slope."""

    at: float
    loss: float
    gradient: Tensor
    slope: float


def _minimum_of_cubic(a: Point, b: Point, limits: tuple[float, float] | None = None) -> float:
    """Return where the cubic through two points with their slopes is least, within limits."""
    low, high = limits or (min(a.at, b.at), max(a.at, b.at))
    first = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.at - b.at)
    square = first**2 - a.slope * b.slope
    if square < 0:
        return (low + high) / 2.0
    second: float = square**0.5
    if a.at <= b.at:
        least = b.at - (b.at - a.at) * ((b.slope + second - first) / (b.slope - a.slope + 2 * second))
    else:
        least = a.at - (a.at - b.at) * ((a.slope + second - first) / (a.slope - b.slope + 2 * second))
    return min(max(least, low), high)


def strong_wolfe(
    evaluate: Evaluate, length: float, direction: Tensor, loss: float, gradient: Tensor, slope: float, most: int,
    c1: float = 1e-4, c2: float = 0.9, smallest: float = 1e-9,
) -> tuple[float, Tensor, float, int]:  # fmt: skip
    """Return loss and gradient at the length that was chosen, the length, and how often the loss was evaluated.

    After the first evaluation there are at most ``most`` others; the best end of the bracket is taken then.
    """
    scale = direction.abs().max().item()
    start = Point(0.0, loss, gradient, slope)

    def point(at: float) -> Point:
        loss, gradient = evaluate(at)
        return Point(at, loss, gradient, gradient.dot(direction).item())

    def is_too_high(p: Point) -> bool:
        return p.loss > loss + c1 * p.at * slope

    def is_flat(p: Point) -> bool:
        return abs(p.slope) <= -c2 * slope

    bracket, count = _bracketed(point, start, length, is_too_high, is_flat, most)
    if len(bracket) > 1:
        bracket, count = _narrowed(point, bracket, count, scale, smallest, most, is_too_high, is_flat)
    best = min(bracket, key=lambda p: p.loss)
    return best.loss, best.gradient, best.at, count


def _bracketed(
    point: Callable[[float], Point], start: Point, length: float, is_too_high: Any, is_flat: Any, most: int
) -> tuple[list[Point], int]:
    """Extend the length until a good one is passed: return the two ends, or the one point that is good itself."""
    before, new = start, point(length)
    count = 1
    for number in range(most):
        if is_too_high(new) or (number > 1 and new.loss >= before.loss):
            return [before, new], count
        if is_flat(new):
            return [new], count
        if new.slope >= 0:
            return [before, new], count
        limits = (new.at + 0.01 * (new.at - before.at), new.at * 10)
        longer = _minimum_of_cubic(before, new, limits)
        before, new = new, point(longer)
        count += 1
    return [start, new], count


def _narrowed(
    point: Callable[[float], Point], bracket: list[Point], count: int, scale: float, smallest: float, most: int,
    is_too_high: Any, is_flat: Any,
) -> tuple[list[Point], int]:  # fmt: skip
    """Replace one end at a time by a point between, until one is good or the bracket is too small."""
    low, high = sorted(bracket, key=lambda p: p.loss)
    made_little = False
    done = False
    while not done and count <= most:
        width = abs(high.at - low.at)
        if width * scale < smallest:
            break
        at, made_little = _between(low, high, made_little)
        new = point(at)
        count += 1
        if is_too_high(new) or new.loss >= low.loss:
            high = new
            low, high = (low, high) if low.loss <= high.loss else (high, low)
            continue
        done = is_flat(new)
        if not done and new.slope * (high.at - low.at) >= 0:
            high = low
        low = new
    return [low, high], count


def _between(low: Point, high: Point, made_little: bool) -> tuple[float, bool]:
    """Return the next length between two ends; away from an end that it would be close to twice in a row."""
    bounds = min(low.at, high.at), max(low.at, high.at)
    at = _minimum_of_cubic(low, high)
    margin = 0.1 * (bounds[1] - bounds[0])
    if min(bounds[1] - at, at - bounds[0]) >= margin:
        return at, False
    if made_little or at >= bounds[1] or at <= bounds[0]:
        is_near_top = abs(at - bounds[1]) < abs(at - bounds[0])
        return (bounds[1] - margin if is_near_top else bounds[0] + margin), False
    return at, True


def _strong_wolfe(
    obj_func: Callable[[Any, Any, Tensor], tuple[Any, Tensor]], x: Any, t: Any, d: Tensor, f: Any, g: Tensor, gtd: Any,
    c1: float = 1e-4, c2: float = 0.9, tolerance_change: float = 1e-9, max_ls: int = 25,
) -> tuple[Any, Tensor, Any, int]:  # fmt: skip
    """Do what `strong_wolfe` does, by the name and with the arguments that PyTorch's file has for it."""
    return strong_wolfe(lambda at: obj_func(x, at, d), t, d, f, g, gtd, max_ls, c1, c2, tolerance_change)


def _cubic_interpolate(
    x1: Any, f1: Any, g1: Any, x2: Any, f2: Any, g2: Any, bounds: tuple[Any, Any] | None = None
) -> Any:
    """Return where the cubic through two points with these losses and slopes is least, within ``bounds``."""
    unused: Any = None  # gradients
    return _minimum_of_cubic(Point(x1, f1, unused, g1), Point(x2, f2, unused, g2), bounds)
