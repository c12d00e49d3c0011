// Draws the allocator's segments and blocks, a second apart, from the server's own endpoints. No dependencies.
// Names of files and sessions come from clients: they are only ever set as text.

const REFRESH_MS = 1000;
const ROW = 30, GAP = 6, LEAST_WIDTH = 6, MOST_ROWS = 12;
const $ = (id) => document.getElementById(id);
const state = { snapshot: null, boxes: [], hovered: null, stats: {} };

class Refused extends Error {}

async function ask(path, options = {}) {
  const token = sessionStorage.getItem("telegrad token");
  const headers = { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...options.headers };
  const answer = await fetch(path, { ...options, headers, cache: "no-store" });
  if (answer.status === 401) throw new Refused();
  if (!answer.ok) throw new Error((await answer.json()).detail ?? answer.statusText);
  return answer;
}

function human(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return `${unit ? bytes.toFixed(bytes < 10 ? 2 : 1) : bytes} ${units[unit]}`;
}

const colour = (owner) => owner === 0 ? "#8a8f98" : `hsl(${(owner * 137.508) % 360} 58% 52%)`;
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const nameOf = (owner) => owner === 0 ? "the server" : state.snapshot.sessions?.[owner] ?? `number ${owner}`;

function segmentsHere() {
  const index = state.snapshot.devices.indexOf($("device").value);
  return state.snapshot.segments.filter((segment) => segment.device === Math.max(index, 0));
}

// Boxes flow like words: widths are to one scale, so that all of it fills a few rows.
function layOut(segments, width) {
  const total = segments.reduce((sum, segment) => sum + segment.total_size, 0);
  const rows = Math.min(MOST_ROWS, Math.max(2, Math.ceil(segments.length / 3)));
  const scale = total ? (rows * width * 0.9) / total : 0;
  let x = 0, y = 0;
  return segments.map((segment) => {
    const wide = Math.max(LEAST_WIDTH, Math.min(width, segment.total_size * scale));
    if (x > 0 && x + wide > width) { x = 0; y += ROW + GAP; }
    const box = { segment, x, y, width: wide };
    x += wide + GAP;
    return box;
  });
}

function draw() {
  const canvas = $("map"), ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  state.boxes = layOut(segmentsHere(), width);
  const height = (state.boxes.at(-1)?.y ?? 0) + ROW + 2;
  canvas.style.height = `${height}px`;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  for (const box of state.boxes) drawSegment(pen, box);
}

function drawSegment(pen, box) {
  pen.fillStyle = style("--cached");
  pen.fillRect(box.x, box.y, box.width, ROW);
  for (const block of box.segment.blocks) {
    if (block.state === "inactive") continue;
    const [x, wide] = place(box, block);
    pen.fillStyle = block.owner === null ? style("--frame") : colour(block.owner);
    pen.fillRect(x, box.y, wide, ROW);
    if (block.state === "active_awaiting_free") stripe(pen, x, box.y, wide);
    if (wide > 3) { pen.fillStyle = style("--paper"); pen.fillRect(x + wide - 0.5, box.y, 0.5, ROW); }
  }
  pen.strokeStyle = style("--frame");
  pen.strokeRect(box.x + 0.5, box.y + 0.5, box.width - 1, ROW - 1);
  if (state.hovered) outline(pen, box);
}

function place(box, block) {
  const per = box.width / box.segment.total_size;
  return [box.x + (block.address - box.segment.address) * per, Math.max(0.75, block.size * per)];
}

function stripe(pen, x, y, wide) {
  pen.save();
  pen.beginPath(); pen.rect(x, y, wide, ROW); pen.clip();
  pen.strokeStyle = style("--paper"); pen.lineWidth = 2;
  for (let at = x - ROW; at < x + wide; at += 6) { pen.beginPath(); pen.moveTo(at, y + ROW); pen.lineTo(at + ROW, y); pen.stroke(); }
  pen.restore();
}

function outline(pen, box) {
  const block = box.segment.blocks.find((each) => each.address === state.hovered);
  if (!block) return;
  const [x, wide] = place(box, block);
  pen.strokeStyle = style("--ink"); pen.lineWidth = 2;
  pen.strokeRect(x, box.y + 1, wide, ROW - 2); pen.lineWidth = 1;
}

function point(event) {
  const box = state.boxes.find((b) => event.offsetX >= b.x && event.offsetX <= b.x + b.width && event.offsetY >= b.y && event.offsetY <= b.y + ROW);
  const block = box?.segment.blocks.find((each) => { const [x, wide] = place(box, each); return event.offsetX >= x && event.offsetX <= x + wide; });
  state.hovered = block?.address ?? null;
  $("block").textContent = block ? describe(box.segment, block) : "";
  if (state.snapshot) draw();
}

function describe(segment, block) {
  const kind = segment.is_expandable ? "expandable" : segment.segment_type;
  const what = { inactive: "cached", active_allocated: "in use", active_awaiting_free: "waits for a stream" }[block.state];
  const whose = block.state === "inactive" ? "" : `, session ${nameOf(block.owner)}, ${human(block.requested_size)} requested`;
  const frames = block.frames.map((frame) => frame.line ? `  ${frame.filename}:${frame.line} in ${frame.name}` : `  ${frame.name}`);
  return [
    `block   ${human(block.size)} at 0x${block.address.toString(16)}, ${what}${whose}`,
    `segment ${human(segment.total_size)}, ${kind}, stream 0x${segment.stream.toString(16)}`, ...frames,
  ].join("\n");
}

function group(blocks, keyOf) {
  const groups = new Map();
  for (const block of blocks) {
    const key = keyOf(block);
    const sums = groups.get(key) ?? { key, size: 0, requested: 0, count: 0, waiting: 0, block };
    sums.size += block.size; sums.requested += block.requested_size; sums.count += 1;
    if (block.state === "active_awaiting_free") sums.waiting += block.size;
    groups.set(key, sums);
  }
  return [...groups.values()].sort((one, other) => other.size - one.size);
}

function row(body, owner, texts) {
  const line = body.insertRow(), swatch = document.createElement("i");
  swatch.className = "swatch"; swatch.style.background = owner === null ? style("--frame") : colour(owner);
  line.insertCell().append(swatch);
  for (const [text, isNumber] of texts) { const cell = line.insertCell(); cell.textContent = text; if (isNumber) cell.className = "number"; }
}

function fillTables() {
  const active = segmentsHere().flatMap((segment) => segment.blocks).filter((block) => block.state !== "inactive");
  const sessions = $("sessions").tBodies[0];
  sessions.replaceChildren();
  for (const each of group(active, (block) => block.owner))
    row(sessions, each.key, [[nameOf(each.key)], [human(each.size), true], [each.count, true], [human(each.requested), true], [human(each.waiting), true]]);
  const known = group(active.filter((block) => block.frames.length), (block) => JSON.stringify([block.owner, block.frames])).slice(0, 12);
  $("holders").hidden = known.length === 0;
  const lines = $("holders").querySelector("tbody");
  lines.replaceChildren();
  for (const { block, size, count } of known) {
    const place = block.frames.find((frame) => frame.line);
    row(lines, block.owner, [[place ? `${place.filename}:${place.line}` : "-"], [block.frames[0].name], [human(size), true], [count, true]]);
  }
}

function fillFigures() {
  const stats = state.stats[$("device").value] ?? {};
  const figures = [["in use", "allocated_bytes.all.current"], ["peak", "allocated_bytes.all.peak"], ["reserved", "reserved_bytes.all.current"],
    ["not releasable", "inactive_split_bytes.all.current"]].map(([label, key]) => [label, human(stats[key] ?? 0)]);
  figures.push(["segments", state.boxes.length], ["retries / out of memory", `${stats.num_alloc_retries ?? 0} / ${stats.num_ooms ?? 0}`]);
  $("figures").replaceChildren(...figures.map(([label, value]) => {
    const figure = document.createElement("div"), number = document.createElement("b"), name = document.createElement("span");
    number.textContent = value; name.textContent = label; figure.append(number, name);
    return figure;
  }));
}

function fillDevices() {
  const known = [...$("device").options].map((option) => option.value);
  if (known.join() === state.snapshot.devices.join()) return;
  $("device").replaceChildren(...state.snapshot.devices.map((name) => new Option(name, name)));
}

async function refresh() {
  try {
    const [snapshot, stats] = await Promise.all([ask("memory_snapshot?traces=false"), ask("memory_stats")]);
    state.snapshot = await snapshot.json();
    state.stats = await stats.json();
    fillDevices();
    draw();
    fillFigures();
    fillTables();
    $("lines").checked = state.snapshot.records_lines ?? $("lines").checked;
    $("summary").textContent = await (await ask(`memory_summary?device=${encodeURIComponent($("device").value)}`)).text();
    const missing = snapshot.headers.get("Telegrad-Missing-Workers");
    $("state").textContent = new Date().toLocaleTimeString() + (missing ? `, no answer of worker ${missing}` : "");
    $("login").hidden = true;
  } catch (error) {
    $("login").hidden = !(error instanceof Refused);
    $("state").textContent = error instanceof Refused ? "a token is required" : `no answer: ${error.message}`;
  }
}

async function download(event) {
  event.preventDefault();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await (await ask("memory_snapshot?format=pickle")).blob());
  link.download = "snapshot.pickle";
  link.click();
  URL.revokeObjectURL(link.href);
}

$("map").addEventListener("mousemove", point);
$("map").addEventListener("mouseleave", point);
$("device").addEventListener("change", refresh);
$("download").addEventListener("click", download);
$("lines").addEventListener("change", async () => {
  const body = JSON.stringify({ enabled: $("lines").checked ? "state" : null });
  await ask("memory_history", { method: "POST", body, headers: { "Content-Type": "application/json" } });
});
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("telegrad token", $("token").value);
  refresh();
});
window.addEventListener("resize", () => state.snapshot && draw());
await refresh();
setInterval(() => $("live").checked && !document.hidden && refresh(), REFRESH_MS);
