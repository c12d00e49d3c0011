// A table whose columns sort it. What it shows comes from clients, and is only ever set as text.

const FIRST = 30;

function element(kind, text, properties = {}) {
  const made = document.createElement(kind);
  made.textContent = text;
  return Object.assign(made, properties);
}

export class Table {
  // A column has a `title`, the `value` of a row, by which it sorts, and how that is shown (`text`) if it is a number.
  constructor(table, columns, sorted, swatch) {
    Object.assign(this, { table, columns, sorted, swatch, rows: [], showsAll: false });
  }

  fill(rows) {
    this.rows = rows;
    this.draw();
  }

  draw() {
    const columns = this.columns.filter((column) => !column.shown || column.shown(this.rows));
    const value = (columns.find((column) => column.title === this.sorted) ?? columns[1]).value;
    const order = (one, other) => value(one) < value(other) ? 1 : value(one) > value(other) ? -1 : 0;
    const rows = [...this.rows].sort(order), shown = this.showsAll ? rows : rows.slice(0, FIRST);
    const head = document.createElement("thead"), body = document.createElement("tbody");
    this.drawHead(head.insertRow(), columns);
    for (const row of shown) this.drawRow(body.insertRow(), row, columns);
    if (rows.length > FIRST) this.drawRest(body.insertRow(), rows.length, columns.length + 1);
    this.table.replaceChildren(head, body);
  }

  drawHead(line, columns) {
    line.append(element("th", ""));
    for (const column of columns) {
      const cell = element("th", "", { className: column.text ? "number" : "", ariaSort: column.title === this.sorted ? "descending" : "none" });
      const button = element("button", column.title, { type: "button", title: column.help ?? "" });
      button.addEventListener("click", () => { this.sorted = column.title; this.draw(); });
      cell.append(button);
      line.append(cell);
    }
  }

  drawRow(line, row, columns) {
    const swatch = element("i", "", { className: "swatch" });
    swatch.style.background = this.swatch(row);
    line.insertCell().append(swatch);
    for (const column of columns) {
      const value = column.value(row), cell = line.insertCell();
      if (column.text) Object.assign(cell, { textContent: column.text(value, this.rows), className: "number" });
      else cell.append(element("span", column.short ? column.short(value) : value, { className: "name", title: value }));
    }
  }

  drawRest(line, count, width) {
    const cell = line.insertCell(), button = element("button", this.showsAll ? `the first ${FIRST}` : `all ${count}`, { type: "button" });
    button.addEventListener("click", () => { this.showsAll = !this.showsAll; this.draw(); });
    cell.colSpan = width;
    cell.append(button);
  }
}
