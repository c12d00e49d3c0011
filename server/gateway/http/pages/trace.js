// Reads a session's trace: lanes of boxes, steps, and sums by name. Knows nothing of the page, so that it runs anywhere.

const MOST_DEPTH = 8, FEWEST_STEPS = 3;
const GPU_WORK = ["kernel", "gpu_memcpy", "gpu_memset"];

export function human(us) {
  if (us >= 999995) return `${(us / 1e6).toFixed(2)} s`;
  return us >= 999.95 ? `${(us / 1e3).toFixed(2)} ms` : `${us.toFixed(1)} us`;
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${unit ? count.toFixed(count < 10 ? 2 : 1) : count} ${units[unit]}`;
}

export const share = (part, whole) => {
  if (!(whole > 0)) return "";
  const percent = part / whole * 100;
  return `${percent.toFixed(percent < 9.95 ? 1 : 0)} %`;
};

const inOrder = (one, other) => one.ts - other.ts || other.dur - one.dur;
const endOf = (event) => event.ts + event.dur;

// Boxes of one lane are nested: each is drawn below the one that it lies in, and takes its time from that one's own.
function nest(events) {
  const open = [];
  let rows = 1;
  for (const event of events) {
    while (open.length && endOf(event) > endOf(open.at(-1)) + 0.002) open.pop();
    event.depth = Math.min(open.length, MOST_DEPTH - 1);
    event.own = event.dur;
    rows = Math.max(rows, event.depth + 1);
    if (open.length) open.at(-1).own -= event.dur;
    open.push(event);
  }
  return rows;
}

// Steps begin where the program says so, else with backward passes, of which a training has one a step or a few.
function stepsOf(host) {
  const named = host.filter((event) => event.cat === "user_annotation" && event.name.startsWith("ProfilerStep#"));
  const begins = (named.length ? named : host.filter((event) => event.name === "telegrad::backward")).map((event) => event.ts);
  return { begins: begins.length >= FEWEST_STEPS ? begins : [], kind: named.length ? "step" : "backward pass" };
}

export function read(trace) {
  const done = trace.traceEvents.filter((event) => event.ph === "X").sort(inOrder);
  const host = done.filter((event) => event.cat === "cpu_op" || event.cat === "user_annotation");
  const frames = done.filter((event) => event.cat === "wire");
  const lanes = [{ name: "worker", kind: "host", events: host, rows: nest(host) }, { name: "frames", kind: "frames", events: frames, rows: 1 }];
  const streams = new Map();
  for (const event of done.filter((event) => GPU_WORK.includes(event.cat))) {
    const name = `GPU ${event.pid}, stream ${event.tid}`;
    if (!streams.has(name)) streams.set(name, { name, kind: "stream", events: [], rows: 1 });
    streams.get(name).events.push(event);
  }
  lanes.push(...streams.values());
  const all = [host, ...[...streams.values()].map((lane) => lane.events)].flat();
  const from = all.reduce((least, event) => Math.min(least, event.ts), Infinity);
  const to = all.reduce((most, event) => Math.max(most, endOf(event)), -Infinity);
  return { lanes, whole: all.length ? [from, to] : null, steps: stepsOf(host) };
}

// The part that shows the last three steps, or everything where no steps are known.
export function lastSteps({ whole, steps }) {
  return steps.begins.length ? [steps.begins.at(-FEWEST_STEPS - 1) ?? steps.begins[0], steps.begins.at(-1)] : whole;
}

export function covered(events) {
  let sum = 0, at = -Infinity;
  for (const event of events) {
    sum += Math.max(0, endOf(event) - Math.max(event.ts, at));
    at = Math.max(at, endOf(event));
  }
  return sum;
}

export function operationsOf({ lanes }) {
  const rows = new Map(), byId = new Map();
  for (const event of lanes[0].events) {
    const row = rows.get(event.name) ?? { name: event.name, calls: 0, own: 0, total: 0, gpu: 0, line: "" };
    row.calls += 1; row.total += event.dur; row.own += event.own; row.line ||= event.args["Call stack"] ?? "";
    rows.set(event.name, row);
    byId.set(event.args["External id"], row);
  }
  for (const lane of lanes.slice(2)) for (const event of lane.events) {
    const row = byId.get(event.args["External id"]);
    if (row) row.gpu += event.dur;
  }
  return [...rows.values()];
}

export function kernelsOf({ lanes }) {
  const rows = new Map();
  for (const lane of lanes.slice(2)) for (const event of lane.events) {
    const row = rows.get(event.name) ?? { name: event.name, calls: 0, total: 0 };
    row.calls += 1; row.total += event.dur;
    rows.set(event.name, row);
  }
  return [...rows.values()];
}

export function figuresOf({ lanes, whole, steps }, notes) {
  const span = whole ? whole[1] - whole[0] : 0;
  const busy = covered(lanes[0].events.filter((event) => event.cat === "cpu_op"));
  const figures = [["read", human(span)], ["worker busy", share(busy, span)], ["worker waits", human(span - busy)]];
  if (steps.begins.length) {
    const all = steps.begins.at(-1) - steps.begins[0];
    figures.push([`per ${steps.kind}, mean of ${steps.begins.length - 1}`, human(all / (steps.begins.length - 1))]);
  }
  figures.push(["frames", lanes[1].events.length], ["received", bytes(lanes[1].events.reduce((sum, event) => sum + event.args.bytes, 0))]);
  for (const lane of lanes.slice(2)) figures.push([`${lane.name} busy`, share(covered(lane.events), span)]);
  if (notes.dropped_events) figures.push(["older events not kept", notes.dropped_events]);
  return figures;
}
