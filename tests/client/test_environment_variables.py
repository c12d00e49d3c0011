"""PyTorch's environment variables are settings of sessions, or of the server, or refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from telegrad_protocol.pytorch_variables import (
    VARIABLES,
    complaints,
    fixed_settings,
    initial_settings,
    is_blocking,
)

from ..end_to_end.server_process import clean_environment

PRINTS_SETTINGS = """
    import json, sys, warnings
    import telegrad as tg
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tg.ones(1, device="cpu")
        tg.disconnect()
        tg.connect(sys.argv[1]) if len(sys.argv) > 1 else tg.connect(devices="cpu")
    name = "cpu"
    print(json.dumps({
        "library": tg.backends.cuda.preferred_blas_library(),
        "tf32": tg.backends.cuda.matmul.allow_tf32,
        "tunable": [tg.cuda.tunable.is_enabled(), tg.cuda.tunable.get_max_tuning_duration()],
        "file": tg.cuda.tunable.get_filename(),
        "expandable": tg.cuda.memory._snapshot()["allocator_settings"]["expandable_segments"],
        "warnings": [[w.filename, w.lineno, str(w.message)] for w in told],
    }))
"""
SESSIONS_ARE_TOLD = """
    import json
    from telegrad._session import settings
    class Session:
        def submit(self, mode): print(json.dumps([mode.name, mode.value]))
    settings.put("allow_tf32", True)
    settings.announce(Session())
    print(json.dumps(["the program's own", settings.get("allow_tf32")]))
"""


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program with these variables and no other of telegrad's."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=clean_environment(**variables), capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_programs_variables_reach_its_sessions_and_its_private_server() -> None:
    done = run(
        PRINTS_SETTINGS, TELEGRAD_DEVICES="cpu", TORCH_BLAS_PREFER_CUBLASLT="1", TORCH_ALLOW_TF32_CUBLAS_OVERRIDE="1",
        PYTORCH_TUNABLEOP_ENABLED="1", PYTORCH_TUNABLEOP_MAX_TUNING_DURATION_MS="7",
        PYTORCH_TUNABLEOP_FILENAME="chosen.csv", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
        TORCHINDUCTOR_MAX_AUTOTUNE="1", TORCH_USE_CUDA_DSA="yes", PYTORCH_NVML_BASED_CUDA_CHECK="1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    told = seen.pop("warnings")
    assert seen == {
        "library": "cublaslt", "tf32": True, "tunable": [True, 7], "file": "chosen.csv", "expandable": True,
    }  # fmt: skip
    assert {(name, line) for name, line, _ in told} == {("<string>", 6)}, "once, at the line that connected"
    dsa, logs = sorted(message for *_, message in told)
    assert dsa.startswith("TORCHINDUCTOR_MAX_AUTOTUNE=1 changes nothing: nothing is traced")
    assert logs == "TORCH_USE_CUDA_DSA: 'yes' is ignored, expected 0 or 1"


def test_the_driver_s_override_of_tf32_outranks_the_program() -> None:
    done = run(SESSIONS_ARE_TOLD, NVIDIA_TF32_OVERRIDE="0")
    assert done.stdout.splitlines() == ['["cudnn_allow_tf32", false]', '["the program\'s own", true]'], done.stderr
    done = run(SESSIONS_ARE_TOLD, NVIDIA_TF32_OVERRIDE="1")
    assert done.stdout.splitlines() == ['["allow_tf32", true]', '["the program\'s own", true]'], done.stderr


def test_a_server_refuses_what_is_wrong_in_pytorch_s_allocator_options() -> None:
    command = [sys.executable, "-m", "server", "--port", "0", "--devices", "cpu"]
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        done = subprocess.run(
            command, env=clean_environment(**{name: "backend:cudaMallocAsync"}), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert done.stderr.strip() == (
            f"telegrad-server: {name}: backend:cudaMallocAsync: there is only the backend native"
        )


@pytest.mark.parametrize("name", ["CUDA_LAUNCH_BLOCKING", "TELEGRAD_LAUNCH_BLOCKING"])
def test_calls_wait_where_a_variable_says_so(name: str) -> None:
    assert is_blocking({name: "1"})
    assert not is_blocking({name: "0"}) and not is_blocking({name: ""}) and not is_blocking({})


def test_settings_begin_as_the_variables_say() -> None:
    assert initial_settings({}) == {} == fixed_settings({})
    everything = {
        "TORCH_BLAS_PREFER_CUBLASLT": "1", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1", "PYTORCH_TUNABLEOP_TUNING": "0",
        "PYTORCH_TUNABLEOP_MAX_TUNING_ITERATIONS": "9", "PYTORCH_TUNABLEOP_MAX_TUNING_DURATION_MS": "long",
    }  # fmt: skip
    assert initial_settings(everything) == {
        "preferred_blas_library": "cublaslt", "allow_tf32": True, "tunable": (False, False, 30, 9),
    }  # fmt: skip
    off = dict.fromkeys(("TORCH_BLAS_PREFER_CUBLASLT", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"), "0")
    assert initial_settings(off) == {}


def test_every_variable_tells_what_it_does_not_understand_or_do() -> None:
    for variable in VARIABLES:
        said = list(complaints(False, {variable.name: "\N{SNOWMAN}"}))
        assert bool(said) == (variable.accepts is not str or bool(variable.remark)), variable.name
        assert all(text.startswith(variable.name) for text in said)
        assert not list(complaints(False, {variable.name: ""}))
    remote = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    (said_once,) = complaints(False, remote)
    assert "TELEGRAD_ALLOC_CONF" in said_once
    assert not list(complaints(True, remote)), "the private server has read them"


@pytest.mark.gpu
def test_products_stay_exact_where_the_override_says_so() -> None:
    program = """
        import telegrad as tg
        tg.backends.cuda.matmul.allow_tf32 = True
        a = 1 + tg.rand(512, 512, device="cuda") / 4096
        exact = a.double() @ a.double()
        print(float(((a @ a).double() - exact).abs().max()))
    """
    errors = {override: float(run(program, NVIDIA_TF32_OVERRIDE=override).stdout) for override in ("0", "1")}
    assert errors["0"] < 1e-3 < errors["1"]
