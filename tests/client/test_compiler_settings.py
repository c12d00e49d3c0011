"""Settings and stances of the compiler, and compiled modules in files, are what PyTorch's programs expect."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pytest


def test_settings_of_the_compiler_are_changed_for_a_block(tg: Any) -> None:
    from telegrad.compiler import dynamo, inductor

    assert dynamo.config.recompile_limit + dynamo.config.accumulated_recompile_limit == 8 + 256
    with dynamo.config.patch({"recompile_limit": 3}), dynamo.config.patch("verbose", True):
        assert dynamo.config.recompile_limit == 3 and dynamo.config.verbose is True
    assert dynamo.config.recompile_limit == 8 and not dynamo.config.verbose

    @inductor.config.patch({"triton.cudagraphs": True}, debug=1)
    def inside() -> tuple[Any, Any]:
        return inductor.config.triton.cudagraphs, inductor.config.debug

    assert inside() == (True, 1)
    assert not inductor.config.triton.cudagraphs and not inductor.config.debug


def test_compiled_modules_go_through_files_and_pickle(tg: Any) -> None:
    compiled = tg.compile(tg.nn.Sequential(tg.nn.Linear(3, 4), tg.nn.ReLU()), fullgraph=True)
    x = tg.randn(2, 3)
    for _ in range(8):
        expected = compiled(x).tolist()
    file = io.BytesIO()
    tg.save(compiled, file)
    file.seek(0)
    for copied in (tg.load(file, weights_only=False), pickle.loads(pickle.dumps(compiled))):
        assert type(copied) is type(compiled) and list(copied.state_dict()) == list(compiled.state_dict())
        assert copied._compile_options == compiled._compile_options
        assert [copied(x).tolist() for _ in range(8)] == [expected] * 8


def test_a_backend_is_forced_in_the_default_stance_alone(tg: Any) -> None:
    with pytest.raises(ValueError, match="force_backend goes with"):
        tg.compiler.set_stance("force_eager", force_backend="eager")
    seen: list[bool] = []
    tg.compile(lambda: seen.append(tg.compiler.is_compiling()))()
    assert seen == [True]
