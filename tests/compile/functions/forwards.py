"""Functions that only compute forward: what is done with their graphs outside, by losses, hooks, second derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..harness import Built, batch, case


def _model(tg: Any) -> Any:
    tg.manual_seed(5)
    return tg.nn.Sequential(
        tg.nn.Linear(4, 8), tg.nn.GELU(), tg.nn.BatchNorm1d(8), tg.nn.Dropout(0.3), tg.nn.Linear(8, 3)
    )


def _differentiated(tg: Any, function: Callable[..., Any], use: Callable[[Any], Any], parameters: list[Any]) -> Built:
    """Return a function whose results are used outside of it, after each call."""
    results: list[Any] = []

    def kept(*args: Any) -> Any:
        results[:] = [function(*args)]
        return results[0]

    def state() -> Any:
        for parameter in parameters:
            parameter.grad = None
        try:
            told = use(results[0])
            tg.zeros(1).item()  # raises what the pass has failed for
        except RuntimeError as error:
            told = str(error).splitlines()[0]
        return [
            told,
            [parameter.grad for parameter in parameters],
            [type(p.grad_fn).__name__ for p in results if isinstance(p, tg.Tensor)],
        ]

    return Built(kept, batch(tg), state)


@case(calls=10)
def a_module_in_training(tg: Any) -> Built:
    model = _model(tg)
    optimizer = tg.optim.AdamW(model.parameters(), lr=1e-2)

    def use(y: Any) -> Any:
        y.square().mean().backward()
        optimizer.step()
        return list(model.state_dict().values())

    return _differentiated(tg, model, use, list(model.parameters()))


@case(calls=16)
def a_graph_used_twice(tg: Any) -> Built:
    model, calls = _model(tg), [0]

    def use(y: Any) -> None:
        y.sum().backward(retain_graph=True)
        y.square().sum().backward()
        calls[0] += 1
        if calls[0] % 4 == 0:
            y.sum().backward()  # it is freed by now

    return _differentiated(tg, model, use, list(model.parameters()))


@case()
def a_graph_with_second_derivatives(tg: Any) -> Built:
    model = tg.nn.Sequential(tg.nn.Linear(4, 5), tg.nn.Tanh(), tg.nn.Linear(5, 1))
    tg.nn.init.constant_(model[0].weight, 0.3)
    tg.nn.init.constant_(model[2].weight, -0.4)
    tg.nn.init.zeros_(model[0].bias)
    tg.nn.init.zeros_(model[2].bias)
    parameters = list(model.parameters())

    def use(y: Any) -> Any:
        first = tg.autograd.grad(y.sum(), parameters, create_graph=True)
        sum(one.square().sum() for one in first).backward()
        return [one.detach() for one in first]

    return _differentiated(tg, lambda x: model(x).exp() * 2, use, parameters)


@case()
def hooks_on_results(tg: Any) -> Built:
    model = _model(tg)

    def use(y: Any) -> Any:
        y.retain_grad()
        y.register_hook(lambda grad: grad * 2)
        y.sum().backward()
        return y.grad, y.grad_fn.name(), [edge[0].name() for edge in y.grad_fn.next_functions if edge[0] is not None]

    return _differentiated(tg, model, use, list(model.parameters()))


@case()
def results_in_place(tg: Any) -> Built:
    weight = tg.ones(4, requires_grad=True)

    def function(x: Any) -> Any:
        y = (x * weight).sin().cos()
        return y.clone().mul_(2), y.t()[1:3], y.view(-1)[::2]

    def use(results: Any) -> Any:
        y, part, flat = results
        part.mul_(3)
        y.add_(1)
        (y.sum() + part.square().sum() + flat.sum()).backward()
        return part.detach(), flat.detach()

    built = _differentiated(tg, function, use, [weight])
    return built._replace(state=lambda: built.state()[:2])  # type: ignore[index]


@case(calls=16)
def weights_are_changed_before_the_pass(tg: Any) -> Built:
    weight, calls = tg.full((4, 4), 0.25, requires_grad=True), [0]

    def function(x: Any) -> Any:
        return (x @ weight).relu() @ weight + weight.sum()

    def use(y: Any) -> None:
        calls[0] += 1
        if calls[0] % 4 == 0:
            with tg.no_grad():
                weight.add_(0.125)
        y.sum().backward()

    built = _differentiated(tg, function, use, [weight])
    return built._replace(state=lambda: built.state()[:1])  # type: ignore[index]


@case()
def gradients_of_inputs(tg: Any) -> Built:
    model = _model(tg)
    inputs: list[Any] = []

    def function(x: Any) -> Any:
        inputs[:] = [x.requires_grad_()]
        return model(x).softmax(-1)

    def use(y: Any) -> Any:
        y[:, 0].sum().backward()
        return inputs[0].grad

    return _differentiated(tg, function, use, list(model.parameters()))


@case()
def blocks_that_are_compiled(tg: Any) -> Built:
    tg.manual_seed(5)
    blocks = [tg.nn.Sequential(tg.nn.Linear(4, 4), tg.nn.LayerNorm(4), tg.nn.SiLU()) for _ in range(3)]

    def function(x: Any) -> Any:
        for block in blocks:
            x = x + block(x)
        return x

    return _differentiated(tg, function, lambda y: y.square().sum().backward(), [
        parameter for block in blocks for parameter in block.parameters()
    ])  # fmt: skip


@case()
def blocks_one_by_one(tg: Any) -> Built:
    tg.manual_seed(5)
    blocks = [tg.nn.Sequential(tg.nn.Linear(4, 4), tg.nn.LayerNorm(4), tg.nn.SiLU()) for _ in range(3)]
    compiled = [tg.compile(block) for block in blocks]

    def use(y: Any) -> None:
        for block in compiled[1:]:
            y = y + block(y)
        y.square().sum().backward()

    parameters = [parameter for block in blocks for parameter in block.parameters()]
    return _differentiated(tg, blocks[0], use, parameters)


@case()
def an_encoder_and_two_heads(tg: Any) -> Built:
    tg.manual_seed(5)
    encoder, heads = tg.nn.Linear(4, 6), [tg.nn.Linear(6, 2), tg.nn.Linear(6, 3)]

    def function(x: Any) -> Any:
        hidden = encoder(x).relu_()
        a, b = [head(hidden) for head in heads]
        return {"a": a, "b": b.view(-1), "hidden": hidden, "detached": hidden.detach(), "cat": tg.cat([a, b], 1)}

    def use(results: Any) -> Any:
        results["a"].sum().backward(retain_graph=True)
        (results["b"].square().sum() + results["cat"].exp().sum() + results["hidden"].mean()).backward()
        return results["detached"]

    parameters = [*encoder.parameters(), *heads[0].parameters(), *heads[1].parameters()]
    built = _differentiated(tg, function, use, parameters)
    return built._replace(state=lambda: built.state()[:2])  # type: ignore[index]


@case(tolerance=2e-2)
def a_module_under_autocast(tg: Any) -> Built:
    model = _model(tg)

    def function(x: Any) -> Any:
        with tg.autocast("cpu", dtype=tg.bfloat16):
            return model(x)

    return _differentiated(tg, function, lambda y: y.float().square().sum().backward(), list(model.parameters()))


@case()
def attention_and_convolution(tg: Any) -> Built:
    tg.manual_seed(5)
    attention, convolution = tg.nn.MultiheadAttention(4, 2, batch_first=True), tg.nn.Conv1d(1, 2, 3, padding=1)
    lstm = tg.nn.LSTM(4, 3, batch_first=True)

    def function(x: Any) -> Any:
        attended, weights = attention(x[None], x[None], x[None])
        output, (hidden, _) = lstm(attended)
        return (convolution(output[0][:, None]).amax(1) * hidden.sum() + weights.sum()).log_softmax(-1)

    parameters = [*attention.parameters(), *convolution.parameters(), *lstm.parameters()]
    return _differentiated(tg, function, lambda y: y.square().sum().backward(), parameters)
