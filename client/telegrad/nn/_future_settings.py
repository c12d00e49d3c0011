"""``torch.__future__``: what conversions of modules do with their parameters."""

from __future__ import annotations

from telegrad_protocol.errors import NotSupportedError

_swaps = False


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Note whether conversions swap parameters; they stay the same objects either way."""
    global _swaps
    _swaps = bool(value)


def get_swap_module_params_on_conversion() -> bool:
    """Return what ``set_swap_module_params_on_conversion`` has set."""
    return _swaps


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Accept False alone: conversions change the parameters that there are, and make no others."""
    if value:
        raise NotSupportedError(
            "set_overwrite_module_params_on_conversion: conversions of modules change the parameters that there are; "
            "assign new ones to the module's attributes"
        )


def get_overwrite_module_params_on_conversion() -> bool:
    """Return False: conversions make no parameters."""
    return False
