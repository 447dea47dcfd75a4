// Pictures of micro-benchmarks. A row of a panel is [series, bytes, payload, value, low, high].
const BYTES = "datum.value < 1024 ? datum.value + ' B' : datum.value < 1048576 ? format(datum.value / 1024, '.3~r') + ' KiB' : format(datum.value / 1048576, '.4~r') + ' MiB'";
const REACH = 3; // an interval extends the axis at most by this factor
const PAD = { left: 66, right: 16, top: 6, bottom: 36 };
const nameOf = (series) => cut(DATA.series[series].name, 80);
const placeOf = (series) => DATA.series[series].place;
const colourAt = (series) => LINES[placeOf(series) % LINES.length];
const shapeAt = (series) => SHAPES[(placeOf(series) + Math.floor(placeOf(series) / LINES.length)) % SHAPES.length];
const seriesIn = (rows) => [...new Set(rows.map(([series]) => series))].sort((left, right) => left - right);
const number = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
const keys = (series) => legend(series.map((one) => [nameOf(one), colourAt(one)]));

// The scale is logarithmic over a wide range.
function scaleOf(rows) {
  const values = rows.map((row) => row[3]), least = Math.min(...values), most = Math.max(...values);
  const low = Math.max(least / REACH, Math.min(least, ...rows.map((row) => row[4] || least)));
  const high = Math.min(most * REACH, Math.max(most, ...rows.map((row) => row[5] || most)));
  return high > 4 * low ? { type: "log", domain: [low / 1.1, high * 1.1], nice: false } : { domain: [0, high * 1.05], nice: false };
}

const valueOf = ([series, bytes, payload, value, low, high], unit) => ({
  x: bytes, y: value, low, high,
  tip: `${nameOf(series)}, ${payload}: ${number(value)} ${unit}\n${low === null ? "no interval" : `95 % interval ${number(low)} to ${number(high)}`}`,
});

function linesOf(rows, unit, scale, sizes, fitted) {
  return (width) => {
    const some = seriesIn(rows), layers = [];
    const x = Q("x", { scale: { type: "log", base: 2, domain: [sizes[0] / 1.5, sizes.at(-1) * 1.5], nice: false }, axis: { title: "size of a message (log scale)", values: sizes, labelExpr: BYTES } });
    const y = (field) => Q(field, { scale, axis: { title: scale.type ? `${unit} (log scale)` : unit, format: ",~r", tickCount: 5 } });
    some.forEach((series, place) => {
      const look = { color: colourAt(series), clip: true, xOffset: (width > 500 ? 4 : 2) * (place - (some.length - 1) / 2) }; // intervals lie side by side
      const values = rows.filter((row) => row[0] === series).map((row) => valueOf(row, unit)).sort((left, right) => left.x - right.x);
      const [alpha, beta] = (fitted && DATA.series[series].fit) || [null];
      if (alpha !== null) {
        const at = Array.from({ length: 60 }, (_, step) => sizes[0] * (sizes.at(-1) / sizes[0]) ** (step / 59));
        const tip = `${nameOf(series)}: ${number(alpha)} ${unit} + ${number(1e6 * beta)} ${unit} per 10^6 bytes`;
        layers.push({ data: { values: at.map((bytes) => ({ x: bytes, y: alpha + bytes * beta, tip })) }, mark: { ...look, type: "line", strokeWidth: 1, strokeDash: [4, 3] }, encoding: { x, y: y("y"), ...TIP } });
      }
      layers.push(
        { data: { values: values.filter((row) => row.low !== null) }, mark: { ...look, type: "rule", strokeWidth: 1.5, opacity: 0.6 }, encoding: { x, y: y("low"), y2: { field: "high" }, ...TIP } },
        { data: { values }, mark: { ...look, type: "line", strokeWidth: 1.5 }, encoding: { x, y: y("y") } },
        { data: { values }, mark: { ...look, type: "point", filled: true, shape: shapeAt(series), opacity: 1, size: 45 }, encoding: { x, y: y("y"), ...TIP } },
      );
    });
    return frame(width, Math.min(360, Math.max(200, 0.6 * width)), PAD, layers);
  };
}

function distributionOf({ times, unit }) {
  return (width) => {
    const all = times.flatMap(([, some]) => some).filter((value) => value > 0);
    const x = Q("x", { scale: { type: "log", domain: [Math.min(...all), Math.max(...all)], nice: false }, axis: { title: `${unit} (log scale)`, format: ",~r", tickCount: 5 } });
    const y = Q("y", { scale: { domain: [0, 100], nice: false }, axis: { title: "calls or batches, %", tickCount: 5 } });
    return frame(width, 240, PAD, times.map(([series, some]) => ({
      data: { values: some.map((value, place) => ({ x: value, y: 100 * (some.length > 1 ? place / (some.length - 1) : 1), tip: `${nameOf(series)}: ${number(value)} ${unit}` })) },
      mark: { type: "line", color: colourAt(series), strokeWidth: 1.5, point: { color: colourAt(series), size: 6 } }, encoding: { x, y, ...TIP },
    })));
  };
}

function panel({ name, title, unit, rows, quantiles }) {
  if (!rows.length) return [];
  const some = seriesIn(rows), fitted = ["latency", "exchange"].includes(name) && some.some((series) => DATA.series[series].fit);
  const found = [make("h2", {}, title)], sizes = [...new Set(rows.map((row) => row[1]))].sort((left, right) => left - right);
  found.push(keys(some), chart(`${title}: figures over the size`, linesOf(rows, unit, scaleOf(rows), sizes, fitted)));
  if (fitted) found.push(paragraph("Dashed: the fit alpha + bytes * beta.", "note"));
  const known = Object.entries(quantiles), scale = scaleOf(known.flatMap(([, each]) => each)); // the percentiles have one scale
  if (known.length) found.push(make("div", { class: "panels" }, known.map(([label, each]) => make("div", {}, make("h4", {}, `${label}, ${unit}`), chart(`${title}: ${label} over the size`, linesOf(each, unit, scale, sizes))))));
  return found;
}

function distributions() {
  const known = DATA.distributions.filter(({ times }) => times.length);
  if (!known.length) return [];
  const place = make("div", {}), picker = make("select", { id: "point" }, known.map(({ name }, at) => make("option", { value: at }, name)));
  const element = chart("Cumulative distribution of the times at the chosen point", (width) => distributionOf(known[picker.value])(width));
  const entry = charts.at(-1), show = () => { entry.width = 0; place.replaceChildren(keys(seriesIn(known[picker.value].times))); };
  picker.addEventListener("change", () => { show(); drawAll(); });
  show();
  return [make("h2", {}, "Distribution of the times"), make("p", {}, make("label", { for: "point" }, "Point: "), picker), place, element,
    paragraph("All launches together, without the warm-up.", "note")];
}

const pictures = DATA.panels.flatMap(panel);
if (pictures.length) pictures.push(paragraph("Marks are medians over launches, and lines across them are 95 % intervals; one that ends at the edge of its chart is longer. Hover over a mark for its figures.", "note"));
document.getElementById("pictures").append(...pictures, ...distributions());
drawAll().then(() => { document.documentElement.dataset.ready = "yes"; });
