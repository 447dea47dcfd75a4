// Elements get text nodes only: strings of the data are never parsed as HTML.
const LONG = 400; // maximum characters of a text in charts and tooltips

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "onclick") element.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const paragraph = (text, kind) => make("p", { class: (kind || "") + (String(text).length > 2000 ? " long" : "") }, String(text));
const cut = (text, most) => (text.length > (most || LONG) ? `${text.slice(0, most || LONG)}…` : text);
const seconds = (ns) => (ns / 1e9).toFixed(3);
const percent = (share) => (100 * share).toFixed(1);

function short(ns) {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
    if (ns >= size) return `${Number((ns / size).toPrecision(3))} ${unit}`;
  }
  return `${ns} ns`;
}

function themes() {
  const root = document.documentElement, button = document.getElementById("theme");
  const order = ["", "light", "dark"];
  const say = () => { button.textContent = `Theme: ${root.dataset.theme || "automatic"}`; };
  button.hidden = false;
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(root.dataset.theme || "") + 1) % order.length];
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    say();
  });
  say();
}

themes();
