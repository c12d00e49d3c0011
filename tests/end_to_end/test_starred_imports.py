"""What ``from torch.MODULE import *`` brings into a program."""

from __future__ import annotations

from pathlib import Path

from .programs import run
from .server_process import ServerProcess

LISTED = """
import importlib, json, pkgutil, sys, warnings
import torch
warnings.simplefilter("ignore")
listed = {}
for base in sys.argv[1].split():
    above = importlib.import_module("torch." + base)
    below = pkgutil.walk_packages(getattr(above, "__path__", []), above.__name__ + ".", onerror=lambda name: None)
    for name in [above.__name__, *[info.name for info in below if "._" not in info.name]]:
        try:
            listed[name] = importlib.import_module(name).__all__
        except (ImportError, AttributeError):
            pass
json.dump(listed, open("listed.json", "w"))
"""
STARS = """
import importlib, json, torch
compared = 0
for name, listed in json.load(open("listed.json")).items():
    try:
        module = importlib.import_module(name)
    except ImportError:
        continue
    compared += 1
    there, starred = {one for one in listed if hasattr(module, one)}, {}
    exec(f"from {name} import *", starred)
    if starred.keys() - {"__builtins__"} != there:
        print(name, sorted(starred.keys() - {"__builtins__"} ^ there))
print(compared > 150)
"""
BASES = (
    "distributions nn optim utils autograd linalg fft special func amp cuda sparse masked nested random serialization "
    "storage functional profiler library signal fx export overrides quasirandom backends jit compiler onnx futures "
    "multiprocessing types monitor accelerator"
)


def test_stars_import_what_pytorchs_do(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "listed.py").write_text(LISTED)
    (tmp_path / "stars.py").write_text(STARS)
    expected = run("listed.py", BASES, folder=tmp_path)
    assert expected.returncode == 0, expected.stderr
    found = run("-m", "telegrad", "stars.py", folder=tmp_path, url=server.url)
    assert found.stdout.splitlines() == ["True"], found.stderr
