"""``torch.utils.tensorboard`` writes what PyTorch's writer does: the same program's files hold the same records."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.support.pytorch_process import PyTorchProcess

from .programs import run
from .server_process import ServerProcess

pytest.importorskip("tensorboard", reason="an environment that was made before it became a requirement")

PROGRAM = """
import glob, os, sys
import numpy as np
import torch
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

rng = np.random.default_rng(int(sys.argv[1]))
draw = lambda *shape: torch.tensor(rng.standard_normal(shape), dtype=torch.float32)
unit = lambda *shape: torch.tensor(rng.random(shape), dtype=torch.float32)
w, at = SummaryWriter("logs", purge_step=3), {"walltime": 5.0}
w.add_scalar("a/loss", draw(1)[0], 1, **at)
w.add_scalar("number", np.float64(3), 1, **at)
w.add_scalar("new", 2.5, 1, new_style=True, **at)
w.add_scalar("double", 2.5, 1, new_style=True, double_precision=True, **at)
w.add_scalars("m/x", {"p": 1.0, "q": draw(1)}, 2, **at)
for bins in ("tensorflow", "auto", 10):
    w.add_histogram(f"drawn {bins}", draw(100), 1, bins=bins, **at)
w.add_histogram("zeros", torch.zeros(5), **at)
w.add_histogram("integers", torch.arange(10), **at)
w.add_histogram("coarse", draw(100), max_bins=20, **at)
w.add_histogram("coarser", draw(100), bins=50, max_bins=7, **at)
w.add_histogram_raw("raw", 0, 1, 3, 2, 3, bucket_limits=[0.5, 1.0], bucket_counts=[1, 2], **at)
image = unit(3, 8, 8)
w.add_image("image", image, **at)
w.add_image("grey", image[0], dataformats="HW", **at)
w.add_image("bytes", (image * 255).to(torch.uint8), **at)
w.add_image("last", image.permute(1, 2, 0), dataformats="HWC", **at)
w.add_image("alpha", unit(4, 6, 6), **at)
w.add_images("batch", unit(10, 3, 4, 5), **at)
w.add_images("grey batch", unit(3, 1, 4, 5), **at)
w.add_text("text", "hello *world*", 1, **at)
w.add_audio("sound", draw(200).clamp(-1, 1), 1, 8000, **at)
labels, predictions = torch.tensor(rng.integers(0, 2, 50)), unit(50)
w.add_pr_curve("curve", labels, predictions, 1, **at)
w.add_pr_curve("weighted", labels, predictions, 1, num_thresholds=20, weights=rng.random(50), **at)
w.add_pr_curve_raw("raw curve", *[np.arange(5) for _ in range(6)], num_thresholds=5, **at)
w.add_custom_scalars({"c": {"x": ["Multiline", ["a", "b"]], "y": ["Margin", ["a", "b", "c"]]}})
w.add_mesh("mesh", draw(1, 4, 3), faces=torch.tensor([[[0, 1, 2]]]), config_dict={"k": 1}, **at)
w.add_hparams({"lr": 0.1, "n": 3, "b": True, "s": "x", "none": None}, {"acc": 1.0}, {"n": [3, 4]}, run_name="run")
w.add_embedding(draw(5, 3), metadata=list("abcde"), label_img=unit(5, 3, 4, 4), global_step=2)
w.add_embedding(draw(5, 3), metadata=[[1, 2]] * 5, metadata_header=["a", "b"], tag="x/y")
print(len(hparams({}, {})), w.get_logdir())
for wrong in (
    lambda: w.add_hparams([], {}), lambda: w.add_hparams({"a": [1]}, {}), lambda: w.add_histogram("x", draw(0)),
    lambda: w.add_image("x", draw(3, 4)), lambda: w.add_scalar("x", draw(3)),
):
    try:
        print("accepted", wrong())
    except (ValueError, TypeError, AssertionError):
        print("refused")
w.close()
w.add_scalar("after", 1.0, **at)
w.close()

def shown(raw):
    event = Event.FromString(raw)
    for value in event.summary.value:
        content = "" if value.tag == "_hparams_/session_start_info" else value  # a map, which has no order
        print(event.step, event.wall_time == 5.0, value.tag, str(content).replace(chr(10), " "))
    print(event.file_version and "version", event.session_log.status, event.step)

files = [path for path in glob.glob("logs/**/*", recursive=True) if os.path.isfile(path)]
for path in sorted(files, key=lambda path: (os.path.dirname(path), os.path.getmtime(path))):
    if "tfevents" in path:
        print(os.path.dirname(path))
        for raw in RawEventFileLoader(path).Load():
            shown(raw)
    elif path.endswith("pbtxt"):
        print(sorted(line.strip() for line in open(path)))
    else:
        print(path, open(path, "rb").read())
"""


def test_files_hold_pytorchs_records(
    server: ServerProcess, pytorch: PyTorchProcess, tmp_path: Path, rng: np.random.Generator
) -> None:
    seed = int(rng.integers(2**32))
    printed = []
    ours = partial(run, "-W", "ignore", "-m", "telegrad", url=server.url)
    for name, run_program in (("theirs", pytorch.run), ("ours", ours)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "program.py").write_text(PROGRAM)
        done = run_program("program.py", seed, folder=folder)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.splitlines())
    assert printed[0] == printed[1]
