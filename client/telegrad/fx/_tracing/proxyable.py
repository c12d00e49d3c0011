"""Classes whose construction is recorded while a function is traced."""

from __future__ import annotations

from typing import Any

from .._mapping import leaves
from ..proxy import Proxy
from .tracing_state import is_fx_tracing

proxyable_classes: dict[type, None] = {}


class ProxyableClassMeta(type):
    """The metaclass of such classes: with a proxy among its arguments, a class gives a proxy."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        proxyable_classes.setdefault(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return an instance, or what stands for one."""
        if is_fx_tracing():
            proxy = next((leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Proxy)), None)
            if proxy is not None:
                return proxy.tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)
