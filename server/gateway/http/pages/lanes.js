// Draws lanes of boxes over time on a canvas, with an overview, a ruler and the pointer's and the keyboard's ways to move.

import { human } from "./trace.js";

const ROW = 18, LABEL = 18, OVERVIEW = 22, RULER = 20, LEAST_SPAN = 0.5;
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function colour(name) {
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + letter.charCodeAt(0)) >>> 0;
  return `hsl(${(hash * 137.508) % 360} 52% 58%)`;
}

function tickOf(span, most) {
  const power = 10 ** Math.floor(Math.log10(span / most));
  return power * ([1, 2, 5].find((digit) => span / (power * digit) <= most) ?? 10);
}

export class Lanes {
  // `onMove` is told when a person moves the picture, `onPoint` what is pointed at.
  constructor(canvas, onMove, onPoint) {
    Object.assign(this, { canvas, onMove, onPoint, lanes: [], boxes: [], whole: null, view: null, pointed: null, drag: null });
    canvas.addEventListener("pointerdown", (event) => this.grab(event));
    canvas.addEventListener("pointermove", (event) => this.point(event));
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, () => { this.drag = null; });
    canvas.addEventListener("pointerleave", () => this.show(null));
    canvas.addEventListener("dblclick", (event) => this.fill(event));
    canvas.addEventListener("wheel", (event) => this.turn(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.press(event));
    window.addEventListener("resize", () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  set({ lanes, whole }, view) {
    Object.assign(this, { lanes, whole, pointed: null });
    this.look(view);
  }

  // Shows a part of what there is, never more than all of it and never less than can be told apart.
  look([from, to]) {
    const [first, last] = this.whole, span = Math.min(Math.max(to - from, LEAST_SPAN), Math.max(last - first, LEAST_SPAN));
    const begin = Math.max(Math.min(from, last - span), first);
    this.view = [begin, begin + span];
    this.draw();
  }

  zoom(factor, at = (this.view[0] + this.view[1]) / 2) {
    this.onMove();
    this.look(this.view.map((end) => at + (end - at) * factor));
  }

  move(by) {
    this.onMove();
    this.look(this.view.map((end) => end + by));
  }

  get scale() { return this.canvas.clientWidth / (this.view[1] - this.view[0]); }

  draw() {
    if (!this.view) return;
    const ratio = window.devicePixelRatio || 1, width = this.canvas.clientWidth;
    const height = OVERVIEW + RULER + this.lanes.reduce((sum, lane) => sum + lane.rows * ROW + LABEL + 2, 4);
    this.canvas.style.height = `${height}px`;
    this.canvas.width = width * ratio; this.canvas.height = height * ratio;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio); pen.font = "11px system-ui, sans-serif"; pen.textBaseline = "middle";
    this.boxes = [];
    this.drawOverview(pen, width);
    this.drawRuler(pen, width, height);
    let top = OVERVIEW + RULER;
    for (const lane of this.lanes) {
      pen.fillStyle = style("--soft"); pen.fillText(lane.name, 0, top + 9);
      this.drawLane(pen, lane, top + LABEL, width);
      top += lane.rows * ROW + LABEL + 2;
    }
  }

  // Which columns of the whole have work, and which part of it is in view.
  drawOverview(pen, width) {
    const [first, last] = this.whole, scale = width / Math.max(last - first, LEAST_SPAN);
    pen.fillStyle = style("--line"); pen.fillRect(0, 0, width, OVERVIEW - 8);
    pen.fillStyle = style("--soft");
    for (const lane of this.lanes) {
      if (lane.kind === "frames") continue;
      const [top, high] = lane.kind === "host" ? [1, OVERVIEW - 12] : [OVERVIEW - 12, 3];
      for (const event of lane.events) {
        if (!event.depth) pen.fillRect((event.ts - first) * scale, top, Math.max(event.dur * scale, 0.5), high);
      }
    }
    const [from, to] = this.view.map((end) => (end - first) * scale);
    pen.strokeStyle = style("--ink"); pen.lineWidth = 2;
    pen.strokeRect(Math.max(from, 1), 1, Math.max(Math.min(to, width - 1) - Math.max(from, 1), 3), OVERVIEW - 10);
  }

  drawRuler(pen, width, height) {
    const [from, to] = this.view, zero = this.whole[0], tick = tickOf(to - from, Math.max(2, Math.floor(width / 110)));
    pen.strokeStyle = style("--line"); pen.lineWidth = 1; pen.fillStyle = style("--soft");
    for (let at = Math.ceil((from - zero) / tick) * tick; at <= to - zero; at += tick) {
      const x = Math.round((at + zero - from) * this.scale) + 0.5;
      pen.beginPath(); pen.moveTo(x, OVERVIEW); pen.lineTo(x, height); pen.stroke();
      const text = human(at);
      if (x + 4 + pen.measureText(text).width < width) pen.fillText(text, x + 4, OVERVIEW + 8);
    }
  }

  drawLane(pen, lane, top, width) {
    const from = this.view[0], ink = style("--ink");
    for (const event of lane.events) {
      const x = (event.ts - from) * this.scale, wide = Math.max(event.dur * this.scale, 1);
      if (x + wide < 0 || x > width) continue;
      const y = top + (event.depth ?? 0) * ROW;
      const hue = lane.kind === "frames" ? ink : colour(event.name), isLabel = event.cat === "user_annotation";
      pen.fillStyle = hue; pen.globalAlpha = isLabel ? 0.35 : 1;
      pen.fillRect(x, y, wide > 3 ? wide - 0.5 : wide, ROW - 2);
      pen.globalAlpha = 1;
      if (isLabel && wide > 3) { pen.strokeStyle = hue; pen.lineWidth = 1; pen.strokeRect(x + 0.5, y + 0.5, wide - 1.5, ROW - 3); }
      const left = Math.max(x, 0), seen = Math.min(x + wide, width) - left;
      if (seen > 36) this.write(pen, event.name, left, y, seen, isLabel ? ink : "#111");
      this.boxes.push({ event, lane, x, wide, top: y });
      if (event === this.pointed) { pen.strokeStyle = ink; pen.lineWidth = 2; pen.strokeRect(x, y, wide, ROW - 2); }
    }
  }

  write(pen, text, x, top, wide, ink) {
    pen.save(); pen.beginPath(); pen.rect(x, top, wide - 3, ROW); pen.clip();
    pen.fillStyle = ink; pen.fillText(text, x + 3, top + ROW / 2 - 1);
    pen.restore();
  }

  // Boxes that are narrower than a finger or a pointer are found within two pixels of them.
  at({ offsetX, offsetY }) {
    const row = this.boxes.filter((box) => offsetY >= box.top && offsetY < box.top + ROW);
    const away = (box) => Math.max(box.x - offsetX, offsetX - box.x - box.wide, 0);
    const nearest = row.reduce((best, box) => best && away(best) <= away(box) ? best : box, null);
    return nearest && away(nearest) <= 2 ? nearest : null;
  }

  show(box) {
    if ((box?.event ?? null) === this.pointed) return;
    this.pointed = box?.event ?? null;
    this.draw();
    this.onPoint(box);
  }

  grab(event) {
    if (!this.view) return;
    this.canvas.setPointerCapture(event.pointerId);
    if (event.offsetY < OVERVIEW) this.drag = { overview: true };
    else this.drag = { x: event.offsetX, view: this.view };
    if (this.drag.overview) this.centre(event);
  }

  centre({ offsetX }) {
    const [first, last] = this.whole, at = first + (last - first) * offsetX / this.canvas.clientWidth;
    this.move(at - (this.view[0] + this.view[1]) / 2);
  }

  point(event) {
    if (!this.drag) this.show(this.at(event));
    else if (this.drag.overview) this.centre(event);
    else if (Math.abs(this.drag.x - event.offsetX) > 2) {
      const moved = (this.drag.x - event.offsetX) / this.scale;
      this.onMove();
      this.look(this.drag.view.map((end) => end + moved));
    }
    if (event.pointerType !== "mouse" && this.drag && !this.drag.overview) this.show(this.at(event));
  }

  fill(event) {
    const box = this.at(event);
    if (!box) return;
    this.onMove();
    this.look([box.event.ts - box.event.dur / 20, box.event.ts + box.event.dur * 1.05]);
  }

  turn(event) {
    if (!this.view) return;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!event.ctrlKey && !event.metaKey && !sideways) return;
    event.preventDefault();
    if (sideways) this.move(event.deltaX / this.scale);
    else this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.view[0] + event.offsetX / this.scale);
  }

  press(event) {
    const step = this.view && (this.view[1] - this.view[0]) / 5;
    const deeds = {
      ArrowLeft: () => this.move(-step), ArrowRight: () => this.move(step),
      "+": () => this.zoom(0.8), "=": () => this.zoom(0.8), "-": () => this.zoom(1.25),
    };
    if (!this.view || !(event.key in deeds) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    deeds[event.key]();
  }
}
