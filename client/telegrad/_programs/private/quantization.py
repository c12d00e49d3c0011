"""``torch.ao`` and ``torch.ao.quantization``: models have stubs where numbers would be quantised, which change nothing.

Packages name classes and settings, to ask with ``isinstance`` and as defaults. Quantising itself is refused.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, NoReturn

from telegrad.nn import Module
from telegrad_protocol.errors import NotSupportedError


class QuantStub(Module):
    """Where a model that is prepared for it quantises its input; here it returns that."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        return x


class DeQuantStub(QuantStub):
    """Where such a model has its output as it was; here it returns that."""


class ObserverBase(Module):
    """What would record the range of numbers, for ``isinstance``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse()

    @classmethod
    def with_args(cls, **kwargs: Any) -> Constructor:
        """Return what makes such an object with these settings."""
        return Constructor(partial(cls, **kwargs))

    with_callable_args = with_args


class Constructor:
    """Makes an observer with settings that were given beforehand, as settings of a package name it."""

    def __init__(self, made: partial[Any]) -> None:
        self.p = made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.p(*args, **kwargs)

    def with_args(self, **kwargs: Any) -> Constructor:
        """Return one that has these settings, too."""
        return Constructor(partial(self.p, **kwargs))


class FakeQuantizeBase(ObserverBase):
    """What would round numbers as if they were quantised, for ``isinstance``."""


_OBSERVERS = (
    "UniformQuantizationObserverBase MinMaxObserver MovingAverageMinMaxObserver PerChannelMinMaxObserver "
    "MovingAveragePerChannelMinMaxObserver HistogramObserver FixedQParamsObserver PlaceholderObserver "
    "RecordingObserver NoopObserver"
)
_FAKES = "FakeQuantize FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize"
for _base, _names in ((ObserverBase, _OBSERVERS), (FakeQuantizeBase, _FAKES)):
    globals().update(
        {name: type(name, (_base,), {"__doc__": _base.__doc__, "__module__": __name__}) for name in _names.split()}
    )


class QConfig(NamedTuple):
    """Which observers a module would have."""

    activation: Any
    weight: Any


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise NotSupportedError(
        "ao.quantization: telegrad does not quantise; use half precision (torch.autocast, Module.half)"
    )


convert = fuse_modules = fuse_modules_qat = prepare = prepare_qat = quantize = quantize_dynamic = _refuse
get_default_qconfig = get_default_qat_qconfig = _refuse
default_observer = default_weight_observer = default_per_channel_weight_observer = _refuse
