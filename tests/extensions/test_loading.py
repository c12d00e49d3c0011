"""Loading extensions: inline texts, compile errors, permission, crashes, and the caches."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from server.worker.host import Host
from telegrad import errors
from telegrad.utils import cpp_extension
from telegrad.utils.cpp_extension import load_inline

from ..end_to_end.server_process import ServerProcess
from .conftest import load_functions


def test_compile_errors_name_the_lines_of_the_program(tg: Any, kernel_cache: str, tmp_path: Path) -> None:
    text = "torch::Tensor f(torch::Tensor x) {\n  return x.nonsense();\n}"
    with pytest.raises(errors.CompilationError, match=r"main\.cpp:2:.*nonsense"):
        load_inline("broken", text, functions="f", extra_cflags=["-O0"], build_directory=tmp_path / "made")
    assert "nonsense" in (tmp_path / "made" / "main.cpp").read_text()
    assert "main.cpp:2" in (tmp_path / "made" / "build.log").read_text()
    kept = Path(kernel_cache, "extensions").glob("*.*/")  # directories of builds that are under way are called so, too
    assert not [entry for entry in kept if not entry.name.startswith("headers.")]


def test_inline_texts_are_compiled_once(tg: Any, kernel_cache: str, capfd: pytest.CaptureFixture[str]) -> None:
    texts = ["int64_t twice(int64_t n) { return FACTOR * n; }", "#line 7\nint64_t other(int64_t n) { return n; }"]
    options: Any = {"functions": {"twice": 'it "doubles"'}, "extra_cflags": ["-DFACTOR=2", "-O0"], "verbose": True}
    first = load_inline("inline_functions", texts, **options)
    assert first.twice(4) == 8 and 'it "doubles"' in first.twice.__doc__
    assert "-DFACTOR=2" in capfd.readouterr().err
    assert load_inline("inline_functions", texts, **options) is first
    changed = load_inline("inline_functions", texts, **{**options, "extra_cflags": ["-DFACTOR=3", "-O0"]})
    assert changed.__name__ == "inline_functions_v1" and (first.twice(4), changed.twice(4)) == (8, 12)


def test_a_library_is_charged_to_the_memory_of_the_host(extension: Any) -> None:
    """The library was built before, by the same process."""
    import telegrad

    class SmallHost(Host):
        def open(self, number: int, options: dict[str, Any]) -> Any:
            return super().open(number, options | {"host_quota_bytes": 100_000})

    with telegrad.connect(in_process=SmallHost(["cpu"])):
        with pytest.raises(errors.ExtensionError, match="TELEGRAD_HOST_QUOTA_BYTES"):
            load_functions()
        assert telegrad.ones(3).sum().item() == 3.0


def test_types_that_no_class_names_are_refused(tg: Any, kernel_cache: str) -> None:
    functions = "struct Own {}; enum Kind { A }; int f(Own own, Kind) { return 1; } int g(void*) { return 1; }"
    with pytest.raises(errors.CompilationError, match="cannot take or return this type"):
        load_inline("pointer_in_cpp", functions, functions="g", extra_cflags=["-O0", "-fsyntax-only"])
    with pytest.raises(errors.ExtensionError, match="takes or returns the unregistered type"):
        load_inline("class_in_cpp", functions, functions="f", extra_cflags=["-O0"])


def test_a_server_runs_no_code_of_clients_unless_it_is_allowed(
    tg: Any, kernel_cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting, remedy in (("0", "TELEGRAD_ALLOW_HOST_CODE=1"), ("1", r"own_worker=True")):
        monkeypatch.setenv("TELEGRAD_ALLOW_HOST_CODE", setting)
        with pytest.raises(errors.NotAllowedError, match=remedy) as raised:
            load_inline("refused", "int f() { return 1; }", functions="f")
        assert isinstance(raised.value, PermissionError)


SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension
setup(
    name="scaled",
    packages=["package"],
    ext_modules=[
        CppExtension(
            name="package.scaled",
            sources=["src/binding.cpp", "src/scaled.cpp"],
            include_dirs=["headers"],
            define_macros=[("BY", "3")],
            extra_compile_args={"cxx": ["-O0"], "nvcc": ["-O3"]},
        ),
    ],
    cmdclass={"build_ext": BuildExtension},
)
"""
FILES = {
    "setup.py": SETUP,
    "package/__init__.py": "",
    "headers/scaled.h": "#include <torch/extension.h>\ntorch::Tensor scaled(torch::Tensor x, double s);\n",
    "src/scaled.cpp": '#include "scaled.h"\ntorch::Tensor scaled(torch::Tensor x, double s) { return x * s * BY; }\n',
    "src/binding.cpp": '#include "scaled.h"\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scaled", &scaled); }\n',
    "use.py": "import torch\nfrom package import scaled\nprint(scaled.scaled(torch.ones(2), 2.5).tolist())\n",
    "wrong.py": SETUP.replace('"src/binding.cpp", "src/scaled.cpp"', '"src/wrong.cpp"'),
    "src/wrong.cpp": "#include <vector>\nint wrong() { return nothing; }\n",
}


def test_setup_scripts_are_run_as_they_are(kernel_cache: str, tmp_path: Path) -> None:
    pytest.importorskip("setuptools", reason="Python 3.12 has it no more")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with ServerProcess(TELEGRAD_ALLOW_HOST_CODE="shared", TELEGRAD_KERNEL_CACHE=kernel_cache) as server:

        def run(*command: str) -> subprocess.CompletedProcess[str]:
            told = [sys.executable, "-m", "telegrad", "run", "--url", server.url, *command]
            return subprocess.run(told, capture_output=True, text=True, cwd=tmp_path)

        built = run("setup.py", "-q", "build_ext", "--inplace")
        assert built.returncode == 0, built.stderr
        assert (tmp_path / "package" / "scaled.py").is_file()
        used = run("use.py")
        assert used.stdout == "[7.5, 7.5]\n", used.stderr
        failed = run("wrong.py", "-q", "build_ext")
        assert failed.returncode and "wrong.cpp:2" in failed.stderr and "nothing" in failed.stderr


def test_what_setup_scripts_describe_wrongly_is_refused() -> None:
    pytest.importorskip("setuptools", reason="Python 3.12 has it no more")
    with pytest.raises(errors.ArgumentError, match="device code is not linked"):
        cpp_extension.CUDAExtension("name", ["a.cu"], dlink=True)
    with pytest.raises(errors.NotSupportedError, match="no SYCL"):
        cpp_extension.SyclExtension("name", ["a.cpp"])
    assert cpp_extension.include_paths() == []


def test_a_crash_ends_the_worker_of_its_session_and_no_other(kernel_cache: str) -> None:
    import telegrad as tg

    variables = {"TELEGRAD_ALLOW_HOST_CODE": "1", "TELEGRAD_KERNEL_CACHE": kernel_cache}
    with ServerProcess(**variables) as server, tg.connect(server.url) as neighbour:
        kept = tg.ones(3)
        with pytest.raises(errors.NotAllowedError, match="own_worker=True"):
            load_functions()
        with tg.connect(server.url, own_worker=True):
            extension = load_functions()
            assert extension.scale(tg.ones(2)).tolist() == [2.0, 2.0]
            with pytest.raises(errors.WorkerCrashedError, match=r"SIGSEGV in .* test_functions\.crash"):
                extension.crash(tg.ones(2))
        assert neighbour.session.is_open and kept.tolist() == [1.0] * 3


def test_what_is_set_for_a_tenant_comes_before_what_is_set_for_all(kernel_cache: str, tmp_path: Path) -> None:
    """Off means off for a tenant where all others may run host code, and the other way round."""
    import telegrad as tg

    tables = [
        f'[{name}]\ntoken_sha256 = "{sha256(name.encode()).hexdigest()}"\nhost_code = "{allowed}"\n'
        for name, allowed in (("refused-tenant", "0"), ("allowed-tenant", "shared"))
    ]
    (tmp_path / "tenants.toml").write_text("".join(tables))
    variables = {"TELEGRAD_TENANTS": str(tmp_path / "tenants.toml"), "TELEGRAD_KERNEL_CACHE": kernel_cache}
    for for_all in ("0", "shared"):
        with ServerProcess(**variables, TELEGRAD_ALLOW_HOST_CODE=for_all) as server:
            with (
                tg.connect(server.url, token="refused-tenant"),
                pytest.raises(errors.NotAllowedError, match="runs no host code"),
            ):
                load_functions()
            with tg.connect(server.url, token="allowed-tenant"):
                assert load_functions().scale(tg.ones(2)).tolist() == [2.0, 2.0]


def test_a_private_server_runs_host_code(kernel_cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import telegrad as tg

    monkeypatch.delenv("TELEGRAD_ALLOW_HOST_CODE")
    with tg.connect(devices="cpu"):
        assert load_functions().scale(tg.ones(2)).tolist() == [2.0, 2.0]
