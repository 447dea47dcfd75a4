// Tables that a click on a heading sorts, and that can be copied as CSV.
const KINDS = {
  s: (value) => seconds(value),
  ms: (value) => (value / 1e6).toFixed(3),
  mb: (value) => (value / 1e6).toFixed(3),
  share: (value) => percent(value),
  number: (value) => (Number.isInteger(value) ? value.toLocaleString("en") : Number(value.toPrecision(6)).toString()),
  text: (value) => (typeof value === "object" ? JSON.stringify(value) : String(value)),
};

const shown = (value, kind) => (value === null || value === undefined ? "unknown" : (KINDS[typeof value === "string" ? "text" : kind])(value));

function compareCells(left, right) {
  if (left === right) return 0;
  if (left === null || left === undefined) return 1; // unknown values come last
  if (right === null || right === undefined) return -1;
  return typeof left === "number" && typeof right === "number" ? left - right : String(left).localeCompare(String(right), "en", { numeric: true });
}

// An apostrophe keeps spreadsheets from evaluating a value as a formula.
function csvCell(value, kind) {
  let text = value === null || value === undefined ? "" : kind === "number" || typeof value === "boolean" ? String(value) : shown(value, kind);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csv(table, rows) {
  const head = table.columns.map((column) => csvCell(column.name, "text"));
  const body = rows.map((row) => row.map((value, place) => csvCell(value, table.columns[place].kind)).join(","));
  return [head.join(","), ...body].join("\r\n") + "\r\n";
}

async function copy(text, button) {
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = make("textarea", { "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.dataset.copied = text.length;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = words; }, 1500);
}

function tableOf(table, level) {
  if (!table.rows.length) return null;
  let rows = [...table.rows];
  const numeric = table.columns.map((column) => column.kind !== "text");
  const body = make("tbody", {});
  const fill = () => body.replaceChildren(...rows.map((row) => make("tr", {}, row.map((value, place) => {
    const text = shown(value, table.columns[place].kind);
    return make("td", { class: numeric[place] ? "n" : null }, text.length > 2000 ? make("div", { class: "long" }, text) : text);
  }))));
  const heads = table.columns.map((column, place) => {
    const head = make("th", { scope: "col", class: numeric[place] ? "n" : null });
    head.append(make("button", { type: "button", onclick: () => {
      const up = head.getAttribute("aria-sort") === (numeric[place] ? "descending" : "ascending") ? numeric[place] : !numeric[place];
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      rows = [...table.rows].sort((left, right) => {
        const order = compareCells(left[place], right[place]);
        const unknown = left[place] === null || right[place] === null;
        return up || unknown ? order : -order;
      });
      fill();
    } }, column.name));
    return head;
  });
  fill();
  const button = make("button", { type: "button", onclick: () => copy(csv(table, rows), button) }, "Copy as CSV");
  return make("section", { class: "data" },
    make("div", { class: "head" }, make(level || "h4", {}, table.title), button),
    make("div", { class: "table", tabindex: "0", role: "region", "aria-label": table.title },
      make("table", {}, make("thead", {}, make("tr", {}, heads)), body)),
    table.note ? paragraph(table.note, "note") : null);
}
