"""What linear algebra asks of a CPU is asked of a GPU's factories: they take it or leave it, and never fail."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from server.engine import keys, plan
from server.engine.cuda.families import import_families
from server.engine.cuda.runtime.launch import collecting
from server.engine.cuda.texts import DescribedDevice
from server.engine.operators import OPERATORS, Request
from tests.engine.cuda_registrations import on_a_gpu, registrations, withdraw

from .adapters import EngineAdapter
from .test_opinfo import compare_samples

_ = registrations
import_families()
withdraw()

INFOS = [
    info for info in op_db
    if (info.name.startswith("linalg.") or info.name in ("inverse", "lu_solve", "svd"))
    and info.variant_test_name != "subgradients_at_zero"  # which asks what the plain one does
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's own samples use what it will remove
@pytest.mark.parametrize("info", INFOS, ids=lambda info: f"{info.name}-{info.variant_test_name or 'plain'}")
def test_factories_take_or_leave_what_is_asked(info: Any, registrations: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, Any, Any]] = []
    make = plan.Plan._kernel_run

    def noted(self: Any, operator: Any, bound: Any) -> Any:
        asked.append((operator, on_a_gpu(bound), on_a_gpu(self.outs)))
        return make(self, operator, bound)

    monkeypatch.setattr(plan.Plan, "_kernel_run", noted)
    for operator in OPERATORS.values():
        monkeypatch.setattr(operator, "plans", {})
    compare_samples(info, torch.float32, EngineAdapter("cpu"))
    assert asked
    with collecting("sm_90"):
        for operator, bound, outs in asked:
            device: Any = DescribedDevice()
            request = Request(operator.op.base, device, bound[: len(operator.op.base.params)], outs or (), None)
            for preparer in operator.preparers.get(keys.CUDA, ()):
                preparer.factory(request)
