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
    settings = load_settings(allow_kernels=setting)
    assert grants_kernels(settings, asks) == granted and needs_own_worker(settings, asks) == own_worker
    for_tenants = load_settings(allow_kernels=setting, isolation="tenant")
    assert grants_kernels(for_tenants, asks) == granted and not needs_own_worker(for_tenants, asks)


def test_who_asks_where_it_is_not_allowed_is_told_of_the_setting() -> None:
    assert load_settings().allow_kernels == "0"
    with pytest.raises(NotAllowedError, match="TELEGRAD_ALLOW_KERNELS=1"):
        grants_kernels(load_settings(), True)
    with pytest.raises(ConfigurationError, match="TELEGRAD_ALLOW_KERNELS"):
        load_settings(allow_kernels="perhaps")
