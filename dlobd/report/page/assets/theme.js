// Colours, patterns, and embedding of charts. Text and lines take their colours from the style sheet, so a change of
// theme or printing needs no redraw.
const DATA = JSON.parse(document.getElementById("data").textContent);
const LAYER = new Map(DATA.layers.map((row) => [row.name, row]));
const PARTS = ["input wait", "compute", "channel", "other"];
const PART_COLOURS = ["#E69F00", "#0072B2", "#56B4E9", "#999999"];
const LINES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#999999"];
const DARK = new Set(DATA.dark); // colours that need white labels
const layerTitle = (name) => (LAYER.has(name) ? LAYER.get(name).title : name);

const colourOf = (layer) => (LAYER.has(layer) && LAYER.get(layer).colour ? LAYER.get(layer).colour : null);

function fillOf(layer, quality) {
  if (!colourOf(layer)) return "url(#p-unexplained)";
  return quality ? `url(#p-${layer}-${quality})` : colourOf(layer);
}

function pattern(id, size, ...children) {
  return svg("pattern", { id, width: size, height: size, patternUnits: "userSpaceOnUse" }, ...children);
}

const back = (size, fill) => svg("rect", { width: size, height: size, style: `fill:${fill}` });
const stripes = (size, stroke, both) => svg("path", {
  d: `M-1,1 l2,-2 M0,${size} l${size},-${size} M${size - 1},${size + 1} l2,-2${both ? ` M0,0 l${size},${size}` : ""}`,
  style: `stroke:${stroke};stroke-width:1.6;fill:none`,
});

function patterns() {
  const found = [pattern("p-unexplained", 6, back(6, "var(--bg)"), stripes(6, "var(--fg)", true))];
  for (const { name, colour } of DATA.layers) {
    if (!colour) continue;
    found.push(
      pattern(`p-${name}-2`, 6, back(6, "var(--bg)"), svg("circle", { cx: 3, cy: 3, r: 1.9, style: `fill:${colour}` })),
      pattern(`p-${name}-3`, 6, back(6, "var(--bg)"), stripes(6, "var(--fg)", true)),
    );
  }
  found.push(
    pattern("p-part-0", 6, back(6, "var(--bg)"), svg("circle", { cx: 3, cy: 3, r: 1.9, style: `fill:${PART_COLOURS[0]}` })),
    pattern("p-part-2", 7, back(7, PART_COLOURS[2]), stripes(7, "var(--bg)")),
    pattern("p-part-3", 6, back(6, "var(--bg)"), stripes(6, PART_COLOURS[3], true)),
  );
  document.body.append(svg("svg", { id: "defs", "aria-hidden": "true" }, svg("defs", {}, ...found)));
}

const partFill = (place) => (place === 1 ? PART_COLOURS[1] : `url(#p-part-${place})`);

function legend(rows) {
  return make("ul", { class: "legend" }, rows.map(([text, fill]) => make("li", {},
    svg("svg", { viewBox: "0 0 22 13", "aria-hidden": "true" },
      svg("rect", { x: 0.5, y: 0.5, width: 21, height: 12, style: `fill:${fill};stroke:var(--muted)` })), text)));
}

const tip = document.getElementById("tip");

function showTip(handler, event, item, value) {
  if (value === null || value === undefined || value === "") { tip.hidden = true; return; }
  tip.textContent = String(value);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${Math.max(4, event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 16)}px`;
}

const CONFIG = {
  background: "transparent",
  view: { stroke: null },
  font: "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif",
  axis: { grid: true, gridOpacity: 0.6, domain: false, labelFontSize: 11, titleFontSize: 11, titleFontWeight: "normal", tickCount: 8, labelOverlap: true },
  text: { fontSize: 11 },
};

const charts = [];

async function draw(one) {
  const width = Math.max(260, Math.floor(one.element.clientWidth));
  if (one.width === width) return;
  one.width = width;
  if (!one.build) { one.done(width); return; }
  if (one.result) one.result.finalize();
  one.result = await vegaEmbed(one.element, { $schema: "https://vega.github.io/schema/vega-lite/v6.json", config: CONFIG, ...one.build(width) },
    { mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false, logLevel: 1, tooltip: showTip });
}

// `build` returns Vega-Lite's specification for a width; without it, `done` draws the chart.
function chart(label, build, done, element) {
  const at = element || make("div", { class: "chart", role: "img", "aria-label": label });
  charts.push({ element: at, build, done });
  return at;
}

async function drawAll() {
  for (const one of charts) {
    if (!one.element.isConnected || !one.element.clientWidth) continue;
    try {
      await draw(one);
    } catch (error) { // an error in one chart must not stop the remaining charts
      one.element.replaceChildren(make("p", { class: "bad" }, `This chart could not be drawn: ${error.message}`));
    }
  }
}

let later = 0;
addEventListener("resize", () => { clearTimeout(later); later = setTimeout(drawAll, 200); });
addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
