// Draws the last steps of a session from its trace. No dependencies.
// Names of operations and files come from clients: they are only ever set as text.

const REFRESH_MS = 2000;
const ROW = 18, MOST_DEPTH = 8;
const $ = (id) => document.getElementById(id);
const state = { boxes: [], lanes: [], view: null, whole: null, hovered: null, drag: null, trace: null };

class Refused extends Error {}

function secrets() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of ["session", "key"]) if (given.get(name)) sessionStorage.setItem(`telegrad ${name}`, given.get(name));
  if (given.size) history.replaceState(null, "", location.pathname);
  for (const name of ["session", "key", "token"]) $(name).value ||= sessionStorage.getItem(`telegrad ${name}`) ?? "";
}

async function ask(method, query = "") {
  const token = $("token").value, key = $("key").value;
  const headers = { ...(token ? { Authorization: `Bearer ${token}` } : {}), "Telegrad-Session-Key": key };
  const path = `v1/sessions/${encodeURIComponent($("session").value)}/trace${query}`;
  const answer = await fetch(path, { method, headers, cache: "no-store" });
  if (answer.status === 401 || answer.status === 403) throw new Refused((await answer.json()).detail);
  if (!answer.ok) throw new Error((await answer.json()).detail ?? answer.statusText);
  return answer;
}

const human = (us) => us >= 1e6 ? `${(us / 1e6).toFixed(2)} s` : us >= 1e3 ? `${(us / 1e3).toFixed(2)} ms` : `${us.toFixed(1)} us`;
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function colour(name) {
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + letter.charCodeAt(0)) >>> 0;
  return `hsl(${(hash * 137.508) % 360} 52% 58%)`;
}

// Boxes of one lane are nested: each is drawn below the one that it lies in.
function depths(events) {
  const open = [];
  for (const event of events) {
    while (open.length && event.ts + event.dur > open.at(-1).ts + open.at(-1).dur + 0.002) open.pop();
    event.depth = Math.min(open.length, MOST_DEPTH - 1);
    event.parent = open.at(-1) ?? null;
    open.push(event);
  }
  return Math.max(0, ...events.map((event) => event.depth)) + 1;
}

const inOrder = (one, other) => one.ts - other.ts || other.dur - one.dur;

function layOut(trace) {
  const done = trace.traceEvents.filter((event) => event.ph === "X");
  const host = done.filter((event) => ["cpu_op", "user_annotation"].includes(event.cat)).sort(inOrder);
  const frames = done.filter((event) => event.cat === "wire");
  const streams = new Map();
  for (const event of done.filter((event) => ["kernel", "gpu_memcpy", "gpu_memset"].includes(event.cat)).sort(inOrder)) {
    const name = `GPU ${event.pid} stream ${event.tid}`;
    if (!streams.has(name)) streams.set(name, []);
    streams.get(name).push(event);
  }
  state.lanes = [{ name: "worker", events: host, rows: depths(host) }, { name: "frames", events: frames, rows: 1 }];
  for (const [name, events] of streams) state.lanes.push({ name, events, rows: 1 });
  const all = [...host, ...[...streams.values()].flat()];
  state.whole = all.length ? [Math.min(...all.map((e) => e.ts)), Math.max(...all.map((e) => e.ts + e.dur))] : null;
}

function draw() {
  const canvas = $("lanes"), ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  const height = state.lanes.reduce((sum, lane) => sum + lane.rows * ROW + 20, 4);
  canvas.style.height = `${height}px`;
  canvas.width = width * ratio; canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio); pen.font = "11px system-ui, sans-serif"; pen.textBaseline = "middle";
  state.boxes = [];
  if (!state.view) return;
  const [from, to] = state.view, scale = width / (to - from);
  let y = 0;
  for (const lane of state.lanes) {
    pen.fillStyle = style("--soft"); pen.fillText(lane.name, 0, y + 9);
    y += 18;
    for (const event of lane.events) {
      const x = (event.ts - from) * scale, wide = Math.max(event.dur * scale, 1);
      if (x + wide < 0 || x > width) continue;
      const top = y + (event.depth ?? 0) * ROW;
      pen.fillStyle = lane.name === "frames" ? style("--ink") : colour(event.name);
      pen.fillRect(x, top, wide, ROW - 2);
      if (wide > 40) write(pen, event.name, Math.max(x, 0), top, Math.min(wide, width - Math.max(x, 0)));
      state.boxes.push({ event, x, wide, top });
    }
    y += lane.rows * ROW + 2;
  }
}

function write(pen, text, x, top, wide) {
  pen.save(); pen.beginPath(); pen.rect(x, top, wide - 2, ROW); pen.clip();
  pen.fillStyle = "#111"; pen.fillText(text, x + 3, top + ROW / 2 - 1);
  pen.restore();
}

function figure(label, value) {
  const box = document.createElement("div"), number = document.createElement("b"), name = document.createElement("span");
  number.textContent = value; name.textContent = label; box.append(number, name);
  return box;
}

function covered(events) {
  let sum = 0, at = -Infinity;
  for (const event of [...events].sort(inOrder)) {
    sum += Math.max(0, event.ts + event.dur - Math.max(event.ts, at));
    at = Math.max(at, event.ts + event.dur);
  }
  return sum;
}

function fillFigures(trace) {
  const span = state.whole ? state.whole[1] - state.whole[0] : 0;
  const host = covered(state.lanes[0].events.filter((event) => event.cat === "cpu_op"));
  const share = (part) => span ? `${(part / span * 100).toFixed(0)} %` : "-";
  const frames = state.lanes[1].events;
  const figures = [figure("shown", human(span)), figure("worker busy", share(host)), figure("worker waits", human(span - host)),
    figure("frames", frames.length), figure("bytes received", frames.reduce((sum, event) => sum + event.args.bytes, 0))];
  for (const lane of state.lanes.slice(2)) figures.push(figure(`${lane.name} busy`, share(covered(lane.events))));
  if (trace.telegrad.dropped_events) figures.push(figure("older events", trace.telegrad.dropped_events));
  $("figures").replaceChildren(...figures);
}

function fillTable(trace) {
  const rows = new Map(), byId = new Map();
  for (const event of state.lanes[0].events) {
    const row = rows.get(event.name) ?? { name: event.name, calls: 0, own: 0, host: 0, gpu: 0, line: "" };
    row.calls += 1; row.host += event.dur; row.own += event.dur; row.line ||= event.args["Call stack"] ?? "";
    if (event.parent) rows.get(event.parent.name).own -= event.dur;
    rows.set(event.name, row);
    byId.set(event.args["External id"], row);
  }
  for (const lane of state.lanes.slice(2)) for (const event of lane.events) {
    const row = byId.get(event.args["External id"]);
    if (row) row.gpu += event.dur;
  }
  const body = $("operations").tBodies[0];
  body.replaceChildren();
  for (const row of [...rows.values()].sort((one, other) => other.gpu - one.gpu || other.own - one.own).slice(0, 40)) {
    const line = body.insertRow(), swatch = document.createElement("i");
    swatch.className = "swatch"; swatch.style.background = colour(row.name);
    line.insertCell().append(swatch);
    for (const [text, isNumber] of [[row.name], [row.calls, true], [human(row.own), true], [human(row.host), true], [human(row.gpu), true], [row.line]]) {
      const cell = line.insertCell();
      cell.textContent = text;
      if (isNumber) cell.className = "number";
    }
  }
}

function describe(event) {
  const lines = [`${event.name}, ${human(event.dur)}`];
  if (event.args["Call stack"]) lines.push(event.args["Call stack"]);
  if (event.args.grid) lines.push(`grid ${event.args.grid.join(" x ")}, block ${event.args.block.join(" x ")}`);
  if (event.args.bytes !== undefined) lines.push(`${event.args.bytes} bytes`);
  return lines.join("\n");
}

function point(event) {
  if (state.drag) {
    const per = (state.view[1] - state.view[0]) / $("lanes").clientWidth, moved = (state.drag.x - event.offsetX) * per;
    state.view = state.drag.view.map((at) => at + moved);
    draw();
    return;
  }
  const hits = state.boxes.filter((b) => event.offsetX >= b.x && event.offsetX <= b.x + b.wide && event.offsetY >= b.top && event.offsetY <= b.top + ROW);
  $("block").textContent = hits.length ? describe(hits.at(-1).event) : "";
}

function zoom(event) {
  if (!state.view) return;
  event.preventDefault();
  $("live").checked = false;
  const [from, to] = state.view, at = from + (to - from) * event.offsetX / $("lanes").clientWidth;
  const factor = event.deltaY > 0 ? 1.25 : 0.8;
  state.view = [at - (at - from) * factor, at + (to - at) * factor];
  draw();
}

async function refresh() {
  if (!$("session").value) return;
  try {
    if (!state.watching) { await ask("PUT"); state.watching = true; }
    const trace = await (await ask("GET", `?last=${$("last").value}`)).json();
    state.trace = trace;
    layOut(trace);
    state.view = state.whole;
    draw(); fillFigures(trace); fillTable(trace);
    $("state").textContent = new Date().toLocaleTimeString() + (trace.telegrad.notes.length ? `; ${trace.telegrad.notes.join("; ")}` : "");
    $("login").hidden = true;
  } catch (error) {
    state.watching = false;
    $("login").hidden = false;
    $("state").textContent = error instanceof Refused ? error.message : `no answer: ${error.message}`;
  }
}

function download(event) {
  event.preventDefault();
  if (!state.trace) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(state.trace)], { type: "application/json" }));
  link.download = "trace.json";
  link.click();
  URL.revokeObjectURL(link.href);
}

$("lanes").addEventListener("mousemove", point);
$("lanes").addEventListener("mousedown", (event) => { if (state.view) { state.drag = { x: event.offsetX, view: state.view }; $("live").checked = false; } });
window.addEventListener("mouseup", () => { state.drag = null; });
$("lanes").addEventListener("wheel", zoom, { passive: false });
$("download").addEventListener("click", download);
$("last").addEventListener("change", refresh);
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  for (const name of ["session", "key", "token"]) sessionStorage.setItem(`telegrad ${name}`, $(name).value);
  state.watching = false;
  refresh();
});
window.addEventListener("pagehide", () => { if (state.watching) ask("DELETE").catch(() => null); });
window.addEventListener("resize", draw);
secrets();
await refresh();
setInterval(() => $("live").checked && !document.hidden && refresh(), REFRESH_MS);
