// Watches a session and shows the last that it executed. No dependencies.
// Names of operations and files come from clients: they are only ever set as text.

import { Lanes, colour } from "./lanes.js";
import { Table } from "./table.js";
import { bytes, figuresOf, human, kernelsOf, lastSteps, operationsOf, read, share } from "./trace.js";

const REFRESH_MS = 2000;
const $ = (id) => document.getElementById(id);
const state = { trace: null, shown: null, watching: false, part: lastSteps };

class Refused extends Error {}
class Gone extends Error {}

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
  if (answer.ok) return answer;
  const why = (await answer.json().catch(() => ({}))).detail ?? answer.statusText;
  throw new ({ 401: Refused, 403: Refused, 404: Gone }[answer.status] ?? Error)(why);
}

const whole = (rows, field) => rows.reduce((sum, row) => sum + row[field], 0);
const place = (line) => line.replace(/^.*[/\\](?=[^/\\]*\(\d+\))/, "");
const hasWork = (rows) => rows.some((row) => row.gpu > 0);
const count = (value) => value.toLocaleString();
const operations = new Table($("operations"), [
  { title: "operation", value: (row) => row.name },
  { title: "calls", value: (row) => row.calls, text: count },
  { title: "own", value: (row) => row.own, text: human, help: "time on the worker's host without its parts" },
  { title: "of all", value: (row) => row.own, text: (value, rows) => share(value, whole(rows, "own")), help: "share of all own time" },
  { title: "with parts", value: (row) => row.total, text: human, help: "time on the worker's host with its parts" },
  { title: "GPU", value: (row) => row.gpu, text: human, shown: hasWork, help: "time of its kernels and copies" },
  { title: "line", value: (row) => row.line, short: place, help: "the line of the program that called it first" },
], "own", (row) => colour(row.name));
const kernels = new Table($("kernels"), [
  { title: "kernel or copy", value: (row) => row.name },
  { title: "calls", value: (row) => row.calls, text: count },
  { title: "time", value: (row) => row.total, text: human },
  { title: "of all", value: (row) => row.total, text: (value, rows) => share(value, whole(rows, "total")), help: "share of all kernels' time" },
  { title: "mean", value: (row) => row.total / row.calls, text: human },
], "time", (row) => colour(row.name));

function describe(box) {
  if (!box) return "";
  const { event } = box, lines = [`${event.name}, ${human(event.dur)}, from ${human(event.ts - state.shown.whole[0])} on`];
  if (event.own < event.dur) lines[0] += `, ${human(event.own)} without its parts`;
  if (event.args["Call stack"]) lines.push(event.args["Call stack"]);
  if (event.args.grid) lines.push(`grid ${event.args.grid.join(" x ")}, block ${event.args.block.join(" x ")}`);
  if (event.args.bytes !== undefined) lines.push(bytes(event.args.bytes));
  return lines.join("\n");
}

const lanes = new Lanes($("lanes"), () => { $("live").checked = false; }, (box) => { $("block").textContent = describe(box); });

function show(trace) {
  const shown = read(trace), isFirst = state.shown === null;
  $("empty").hidden = shown.whole !== null;
  if (!shown.whole) return;
  Object.assign(state, { trace, shown });
  $("shown").hidden = false; $("download").disabled = false;
  $("steps").disabled = !shown.steps.begins.length;
  lanes.set(shown, state.part(shown));
  $("figures").replaceChildren(...figuresOf(shown, trace.telegrad).map(([label, value]) => {
    const box = document.createElement("div"), number = document.createElement("b"), name = document.createElement("span");
    number.textContent = value; name.textContent = label; box.append(number, name);
    return box;
  }));
  if (isFirst && hasWork(operationsOf(shown))) operations.sorted = "GPU";
  operations.fill(operationsOf(shown));
  $("work").hidden = shown.lanes.length < 3;
  kernels.fill(kernelsOf(shown));
}

async function refresh() {
  if (!$("session").value) return;
  try {
    if (!state.watching) { await ask("PUT"); state.watching = true; }
    const trace = await (await ask("GET", `?last=${$("last").value}`)).json();
    show(trace);
    $("state").textContent = [new Date().toLocaleTimeString(), ...trace.telegrad.notes].join("; ");
    $("login").hidden = true;
  } catch (error) {
    state.watching = false;
    const isOver = error instanceof Gone && state.shown;
    if (isOver) $("live").checked = false;
    $("login").hidden = Boolean(isOver);
    $("empty").hidden = true;
    if (isOver) $("state").textContent = "the session has ended; this is the last of it";
    else $("state").textContent = error instanceof Refused || error instanceof Gone ? error.message : `no answer: ${error.message}`;
  }
}

function look(part) {
  state.part = part;
  lanes.look(part(state.shown));
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(state.trace)], { type: "application/json" }));
  link.download = "trace.json";
  link.click();
  URL.revokeObjectURL(link.href);
}

$("nearer").addEventListener("click", () => lanes.zoom(0.5));
$("farther").addEventListener("click", () => lanes.zoom(2));
$("steps").addEventListener("click", () => look(lastSteps));
$("all").addEventListener("click", () => look(({ whole }) => whole));
$("download").addEventListener("click", download);
$("last").addEventListener("change", refresh);
$("live").addEventListener("change", () => $("live").checked && refresh());
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  for (const name of ["session", "key", "token"]) sessionStorage.setItem(`telegrad ${name}`, $(name).value);
  state.watching = false;
  $("live").checked = true;
  refresh();
});
window.addEventListener("pagehide", () => { if (state.watching) ask("DELETE").catch(() => null); });
secrets();
await refresh();
setInterval(() => $("live").checked && !document.hidden && refresh(), REFRESH_MS);
