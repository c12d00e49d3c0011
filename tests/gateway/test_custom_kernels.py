"""Who may run kernels of their own: what the operator's setting says of a session that asks for them."""

from __future__ import annotations

import pytest

from server.gateway.custom_kernels import grants_kernels, needs_own_worker
from server.gateway.settings import load_settings
from telegrad_protocol.errors import ConfigurationError, NotAllowedError


@pytest.mark.parametrize(
    ("setting", "asks", "granted", "own_worker"),
    [("1", True, True, True), ("shared", True, True, False), ("1", False, False, False), ("0", False, False, False)],
)
def test_the_operator_decides(setting: str, asks: bool, granted: bool, own_worker: bool) -> None:
    allowed = load_settings(allow_kernels=setting).allow_kernels
    assert grants_kernels(allowed, asks) == granted and needs_own_worker(allowed, "shared", asks) == own_worker
    assert not needs_own_worker(allowed, "tenant", asks)


def test_who_asks_where_it_is_not_allowed_is_told_of_the_setting() -> None:
    assert load_settings().allow_kernels == "0"
    with pytest.raises(NotAllowedError, match="TELEGRAD_ALLOW_KERNELS=1"):
        grants_kernels("0", True)
    with pytest.raises(ConfigurationError, match="TELEGRAD_ALLOW_KERNELS"):
        load_settings(allow_kernels="perhaps")
