"""L-BFGS: J. Nocedal, S. Wright, Numerical optimization (2006), chapter 7; the line search is of chapter 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from telegrad._ops.functions import function
from telegrad._session.grad_mode import enable_grad, no_grad
from telegrad._tensor.tensor import Tensor
from telegrad_protocol.errors import ArgumentError

from ._line_search import _cubic_interpolate as _cubic_interpolate
from ._line_search import _strong_wolfe as _strong_wolfe
from ._line_search import strong_wolfe
from ._lists import real
from .foreach import number
from .optimizer import Optimizer, Parameters, check_at_least

Closure = Callable[[], Any]


class LBFGS(Optimizer):
    """Steps along an estimate of Newton's direction, of ``history_size`` past changes of parameters and gradients.

    ``step`` takes a closure that computes the loss and its gradients, and calls it several times. Whether it goes on
    depends on numbers, so every iteration waits for the server a few times.
    """

    def __init__(
        self, params: Parameters, lr: float | Tensor = 1, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        check_at_least("learning rate", lr)
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        })  # fmt: skip
        if len(self.param_groups) != 1:
            raise ArgumentError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params: list[Tensor] = self.param_groups[0]["params"]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._params = self.param_groups[0]["params"]

    def _gradient(self) -> Tensor:
        """Return all gradients as one vector, with zeros where there is none; complex ones as pairs."""
        parts = [_flat(function("zeros_like")(p.detach()) if p.grad is None else p.grad) for p in self._params]
        return function("cat")(parts)  # type: ignore[no-any-return]

    def _move(self, length: float, direction: Tensor) -> None:
        start = 0
        for parameter in self._params:
            own = real(parameter.detach())
            part = direction.narrow(0, start, own.numel()).view(own.shape)
            own.add_(part, alpha=length)
            start += own.numel()

    def _copies(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self._params]

    def _restore(self, copies: list[Tensor]) -> None:
        for parameter, copy in zip(self._params, copies, strict=True):
            parameter.copy_(copy)

    def _evaluate_at(self, closure: Closure, copies: list[Tensor], length: float, direction: Tensor) -> Any:
        """Return loss and gradient at a distance along the direction, and go back."""
        self._move(length, direction)
        loss = float(closure())
        gradient = self._gradient()
        self._restore(copies)
        return loss, gradient

    def step(self, closure: Closure) -> Any:  # type: ignore[override]
        """Make at most ``max_iter`` iterations; returns the loss of the first evaluation."""

        def evaluate() -> Any:
            with enable_grad():
                return closure()

        with no_grad():
            return self._iterate(evaluate)

    def _iterate(self, closure: Closure) -> Any:
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = closure()
        loss, evaluations, iterations = float(first), 1, 0
        state["func_evals"] += 1
        gradient = self._gradient()
        if _largest(gradient) <= group["tolerance_grad"]:
            return first
        before = loss
        while iterations < group["max_iter"]:
            iterations += 1
            state["n_iter"] += 1
            direction = self._direction(state, gradient, group["history_size"])
            state["prev_flat_grad"], before = gradient.clone(), loss
            state["prev_loss"] = loss
            rate = number(group["lr"])
            length = min(1.0, 1.0 / gradient.abs().sum().item()) * rate if state["n_iter"] == 1 else rate
            slope = gradient.dot(direction).item()
            if slope > -group["tolerance_change"]:
                state["d"], state["t"] = direction, length
                break
            count = 0
            if group["line_search_fn"] is not None:
                left = group["max_eval"] - evaluations
                loss, gradient, length, count = self._search(closure, length, direction, loss, gradient, slope, left)
                self._move(length, direction)
            else:
                self._move(length, direction)
                if iterations != group["max_iter"]:
                    loss, gradient, count = float(closure()), self._gradient(), 1
            state["d"], state["t"] = direction, length
            evaluations += count
            state["func_evals"] += count
            if iterations == group["max_iter"] or evaluations >= group["max_eval"]:
                break
            if _largest(gradient) <= group["tolerance_grad"]:
                break
            if _largest(direction) * abs(length) <= group["tolerance_change"]:
                break
            if abs(loss - before) < group["tolerance_change"]:
                break
        return first

    def _search(
        self, closure: Closure, length: float, direction: Tensor, loss: float, gradient: Tensor, slope: float,
        most: int,
    ) -> tuple[float, Tensor, float, int]:  # fmt: skip
        if self.param_groups[0]["line_search_fn"] != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        copies = self._copies()

        def evaluate(at: float) -> Any:
            return self._evaluate_at(closure, copies, at, direction)

        return strong_wolfe(evaluate, length, direction, loss, gradient, slope, most)

    def _direction(self, state: dict[str, Any], gradient: Tensor, size: int) -> Tensor:
        """Return minus the estimate of the inverse Hessian times the gradient, by the two loops over the history."""
        if state["n_iter"] == 1:
            state.update({"old_dirs": [], "old_stps": [], "ro": [], "H_diag": 1})
            return gradient.neg()
        change, step = gradient.sub(state["prev_flat_grad"]), state["d"].mul(state["t"])
        curvature = change.dot(step).item()
        if curvature > 1e-10:
            for name, value in (("old_dirs", change), ("old_stps", step), ("ro", 1.0 / curvature)):
                if len(state[name]) == size:
                    state[name].pop(0)
                state[name].append(value)
            state["H_diag"] = curvature / change.dot(change).item()
        past = list(zip(state["old_dirs"], state["old_stps"], state["ro"], strict=True))
        factors: list[Tensor] = []
        result: Tensor = gradient.neg()
        for change, step, inverse in reversed(past):
            factors.append(step.dot(result) * inverse)
            result = result - change * factors[-1]
        result = result * state["H_diag"]
        for (change, step, inverse), factor in zip(past, reversed(factors), strict=True):
            result = result + step * (factor - change.dot(result) * inverse)
        state["al"] = [*reversed(factors), *[None] * (size - len(factors))]
        return result


def _flat(tensor: Tensor) -> Tensor:
    flat: Tensor = real(tensor.detach()).reshape(-1)
    return flat


def _largest(vector: Tensor) -> float:
    return float(vector.abs().max().item())
