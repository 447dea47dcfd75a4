// Static tables get headings that sort, and a button that copies them as CSV.
const cells = (row) => [...row.cells].map((cell) => cell.textContent.trim());
const numberOf = (text) => { const plain = text.replaceAll(",", ""); return plain !== "" && Number.isFinite(Number(plain)) ? Number(plain) : null; };

function compareCells(left, right) {
  const a = numberOf(left), b = numberOf(right);
  return a !== null && b !== null ? a - b : left.localeCompare(right, "en", { numeric: true });
}

// An apostrophe keeps spreadsheets from evaluating a value as a formula.
function csvCell(text, numeric) {
  const number = numeric ? numberOf(text) : null;
  if (numeric && text === "unknown") return "";
  const found = number !== null ? text.replaceAll(",", "") : /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(found) ? `"${found.replaceAll('"', '""')}"` : found;
}

function csv(table) {
  const heads = [...table.tHead.rows[0].cells], kept = heads.map((head, place) => place).filter((place) => !("plain" in heads[place].dataset));
  const lines = [heads.map((head) => head.textContent), ...[...table.tBodies[0].rows].map(cells)];
  return lines.map((line, row) => kept.map((place) => csvCell(line[place], row && heads[place].classList.contains("n"))).join(",")).join("\r\n") + "\r\n";
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

function sortBy(table, heads, place) {
  const numeric = heads[place].classList.contains("n"), first = numeric ? "descending" : "ascending", other = numeric ? "ascending" : "descending";
  const order = heads[place].getAttribute("aria-sort") === first ? other : first;
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[place].setAttribute("aria-sort", order);
  const keyed = [...table.tBodies[0].rows].map((row) => [row.cells[place].textContent.trim(), row]);
  keyed.sort(([left], [right]) => {
    if (left === "unknown" || right === "unknown") return (left === "unknown") - (right === "unknown"); // unknown values come last
    return order === "ascending" ? compareCells(left, right) : compareCells(right, left);
  });
  table.tBodies[0].append(...keyed.map(([, row]) => row));
}

function enhance(data) {
  const table = data.querySelector("table"), heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    if ("plain" in head.dataset) return;
    head.replaceChildren(make("button", { type: "button", onclick: () => sortBy(table, heads, place) }, ...head.childNodes));
  });
  const button = make("button", { type: "button", class: "copy", onclick: () => copy(csv(table), button) }, "Copy as CSV");
  data.querySelector(".table").before(button);
}

document.querySelectorAll(".data").forEach(enhance);
