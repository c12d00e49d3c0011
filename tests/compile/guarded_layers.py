"""A small model, and what a program changes of it between calls: each change is a case of a compiled function."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from .guarded import BUILDERS, Guarded, guarded

OF_LAYERS: list[Callable[[Any], Guarded]] = []
"""The cases of this module, which are among all cases, too."""


def layers(tg: Any) -> Any:
    """Return a small model whose layers come in several kinds of containers."""
    nn = tg.nn
    tg.manual_seed(5)

    class Block(nn.Module):
        """A layer with numbers, a list and an object among its attributes."""

        scale_of_class = 1.25

        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(4)
            self.line = nn.Linear(4, 4)
            self.drop = nn.Dropout(0.5)
            self.scale = 0.5
            self.factors = [1.0, 2.0]
            self.config = types.SimpleNamespace(shift=0.25, names={"power": 2})
            self.hidden = 3.0
            self.register_buffer("seen", tg.zeros(4))

        @property
        def shown(self) -> float:
            return self.hidden + 1

        def helper(self, x: Any, power: int = 2) -> Any:
            return x * self.factors[1] + self.config.shift**power

        def forward(self, x: Any) -> Any:
            y = self.drop(self.line(self.norm(x)))
            y = self.helper(y) * self.scale * self.scale_of_class
            return y + x ** self.config.names["power"] * self.shown

    class Net(nn.Module):
        """Blocks in a list, and some in order."""

        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Block(), Block()])
            self.rest = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.BatchNorm1d(4))

        def forward(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return self.rest(x)

    return Net()


def _of_net(change: Callable[[Any, Any], Any]) -> None:
    """Add a case in which something is done to the model."""

    def build(tg: Any) -> Guarded:
        net = layers(tg)
        return guarded(net, lambda: change(tg, net))

    build.__name__ = change.__name__
    BUILDERS.append(build)
    OF_LAYERS.append(build)


@_of_net
def number(tg: Any, net: Any) -> None:
    net.blocks[1].scale = 0.75


@_of_net
def element_of_a_list(tg: Any, net: Any) -> None:
    net.blocks[0].factors[1] = 3.0


@_of_net
def another_list(tg: Any, net: Any) -> None:
    net.blocks[0].factors = [7.0, 8.0]


@_of_net
def attribute_of_an_object(tg: Any, net: Any) -> None:
    net.blocks[0].config.shift = -1.0


@_of_net
def entry_of_a_dict(tg: Any, net: Any) -> None:
    net.blocks[0].config.names["power"] = 3


@_of_net
def what_a_property_reads(tg: Any, net: Any) -> None:
    net.blocks[0].hidden = 9.0


@_of_net
def attribute_of_the_class(tg: Any, net: Any) -> None:
    type(net.blocks[0]).scale_of_class = 0.5


@_of_net
def attribute_that_hides_the_class(tg: Any, net: Any) -> None:
    net.blocks[0].scale_of_class = 2.5


@_of_net
def method_of_the_class(tg: Any, net: Any) -> None:
    type(net.blocks[0]).helper = lambda self, x: x - 1


@_of_net
def forward_of_a_layer(tg: Any, net: Any) -> None:
    net.blocks[0].forward = lambda x: x * 2


@_of_net
def default_of_a_method(tg: Any, net: Any) -> None:
    type(net.blocks[0]).helper.__defaults__ = (3,)


@_of_net
def another_layer(tg: Any, net: Any) -> None:
    net.blocks[0].line = tg.nn.Linear(4, 4)


@_of_net
def one_more_layer(tg: Any, net: Any) -> None:
    net.blocks.append(tg.nn.Linear(4, 4))


@_of_net
def layers_in_another_order(tg: Any, net: Any) -> None:
    net.rest[0], net.rest[1] = net.rest[1], net.rest[0]


@_of_net
def another_parameter(tg: Any, net: Any) -> None:
    net.blocks[0].line.weight = tg.nn.Parameter(tg.ones(4, 4))


@_of_net
def data_of_a_parameter(tg: Any, net: Any) -> None:
    net.blocks[0].line.weight.data = tg.ones(4, 4) * 0.5


@_of_net
def parameter_written_to(tg: Any, net: Any) -> None:
    with tg.no_grad():
        net.blocks[0].line.weight.mul_(2)


@_of_net
def frozen_parameters(tg: Any, net: Any) -> None:
    net.blocks[0].line.weight.requires_grad_(False)


@_of_net
def all_frozen(tg: Any, net: Any) -> None:
    net.requires_grad_(False)


@_of_net
def another_type(tg: Any, net: Any) -> None:
    net.double()


@_of_net
def evaluation(tg: Any, net: Any) -> None:
    net.eval()


@_of_net
def a_hook(tg: Any, net: Any) -> None:
    net.blocks[0].line.register_forward_hook(lambda module, args, output: output + 1)


@_of_net
def a_hook_before(tg: Any, net: Any) -> None:
    net.register_forward_pre_hook(lambda module, args: (args[0] * 2,))


@_of_net
def a_parametrization(tg: Any, net: Any) -> None:
    class Doubled(tg.nn.Module):
        """Twice the weight."""

        def forward(self, weight: Any) -> Any:
            return weight * 2

    tg.nn.utils.parametrize.register_parametrization(net.blocks[0].line, "weight", Doubled())


@_of_net
def weight_norm(tg: Any, net: Any) -> None:
    tg.nn.utils.parametrizations.weight_norm(net.blocks[0].line)


@_of_net
def pruning(tg: Any, net: Any) -> None:
    tg.nn.utils.prune.l1_unstructured(net.blocks[0].line, "weight", 0.5)


@_of_net
def gradients_off(tg: Any, net: Any) -> None:
    tg.set_grad_enabled(False)


@_of_net
def another_default_type(tg: Any, net: Any) -> None:
    tg.set_default_dtype(tg.float64)
