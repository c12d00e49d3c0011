"""The GPUs that tests marked ``gpu`` run on: the first one, and the second where there is one."""

from __future__ import annotations

import pytest

from server.engine.device.current_device import device_count

NAMES = ["cuda:0", "cuda:1"] if device_count() > 1 else ["cuda:0"]
GPUS = [pytest.param(name, marks=pytest.mark.gpu) for name in NAMES]
ALL_DEVICES = ["cpu", *GPUS]

needs_two = pytest.mark.skipif(device_count() < 2, reason="needs two GPUs")
