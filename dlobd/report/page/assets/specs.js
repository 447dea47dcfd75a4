// Vega-Lite specifications of the charts. Positions are computed here, in the units of the axis. Names from the data are
// used as values only, never as expressions or fields.
const Q = (field, more) => ({ field, type: "quantitative", ...more });
const literal = (field) => ({ field, type: "nominal", scale: null });
const TIP = { tooltip: { field: "tip", type: "nominal" } };
const secondsAxis = (title) => ({ title, format: ",~r" });

function frame(width, height, pad, layer) {
  return {
    autosize: { type: "none", contains: "content" },
    padding: pad,
    width: Math.max(80, width - pad.left - pad.right),
    height,
    layer,
  };
}

const rows = (count) => ({ domain: [0, Math.max(1, count)], reverse: true, nice: false, zero: false });

// Names at the left are text marks, because the domain of an axis would merge equal names.
function names(entries, limit) {
  return {
    data: { values: entries },
    name: "names",
    mark: { type: "text", align: "right", baseline: "middle", limit },
    encoding: { x: { value: -8 }, y: Q("y", { axis: null }), text: { field: "name", type: "nominal" }, ...TIP },
  };
}

function texts(name, values, more, dx) {
  return {
    data: { values },
    name,
    mark: { type: "text", align: "left", baseline: "middle", dx: dx === undefined ? 5 : dx, ...more },
    encoding: { x: Q("x"), y: Q("y", { axis: null }), text: { field: "text", type: "nominal" }, ...TIP },
  };
}

// A bar from the previous event to this event, in the colour of the layer with most of its time. On a narrow screen the
// name is above its bar.
function waterfallOf(events, low, high) {
  return (width) => {
    const wide = width > 760;
    const bars = [], labels = [], entries = [];
    events.forEach(([event, from, until, resolution, source, clock, lane, unlocks, layer], y) => {
      const words = `${event}: ${seconds(until)} s, ${until - from < resolution ? `< ${short(resolution)}` : `+${seconds(until - from)} s`} after the previous event\n` +
        `${layer ? `mostly ${layerTitle(layer)}\n` : ""}${unlocks ? `unlocks: ${unlocks}\n` : ""}source: ${source}, known to ${short(resolution)}, clock ${clock}${lane ? `, ${lane}` : ""}`;
      const [top, bottom] = wide ? [0.2, 0.8] : [0.55, 0.95];
      bars.push({ x: from / 1e9, x2: until / 1e9, y: y + top, y2: y + bottom, middle: y + (top + bottom) / 2, fill: layer ? fillOf(layer, 0) : "var(--bar)", tip: words });
      labels.push({ x: until / 1e9, y: y + (top + bottom) / 2, tip: words, text: wide && unlocks ? `+${seconds(until - from)}  → ${unlocks}` : `+${seconds(until - from)}` });
      entries.push({ y: y + (wide ? 0.5 : 0.28), name: cut(event, 80), tip: words });
    });
    const y = Q("y", { scale: rows(events.length), axis: null });
    const x = Q("x", { scale: { domain: [low, high], nice: false, zero: false }, axis: secondsAxis("seconds since the window's start") });
    // labels are right of their bar, or left if there is more space, and are cut to the space
    const left = wide ? 178 : 8, pixels = (width - left - 24) / ((high - low) * 1e9);
    const early = [], late = [];
    labels.forEach((row, place) => {
      const before = (bars[place].x - low) * 1e9 * pixels - 10, after = (high - row.x) * 1e9 * pixels + 14;
      if (after >= 6.4 * row.text.length || after >= before) early.push({ ...row, room: after });
      else late.push({ ...row, x: bars[place].x, room: before });
    });
    const fit = { limit: { expr: "datum.room" } }, place = names(entries, wide ? left - 12 : width - 16);
    if (!wide) Object.assign(place, { mark: { ...place.mark, align: "left" }, encoding: { ...place.encoding, x: { value: 0 } } });
    return frame(width, (wide ? 20 : 32) * events.length, { left, right: 24, top: 2, bottom: 36 }, [
      { data: { values: bars }, name: "bar", mark: { type: "rect" }, encoding: { x, x2: { field: "x2" }, y, y2: { field: "y2" }, fill: literal("fill"), ...TIP } },
      { data: { values: bars }, name: "tick", mark: { type: "tick", orient: "vertical", size: 14, thickness: 2 }, encoding: { x: Q("x2"), y: Q("middle", { axis: null }), ...TIP } },
      texts("early", early, fit), texts("late", late, { align: "right", ...fit }, -5), place,
    ]);
  };
}

function icicleOf(found, most) {
  return (width) => {
    const all = found.nodes, wall = found.wall_ns;
    const pixels = (width - 20) / (most / 1e9);
    const boxes = [], labels = [], dark = [];
    for (const [depth, from, until, layer, text] of all) {
      const words = `${text}\n${layer ? `${layerTitle(layer)}, ` : ""}${seconds(until - from)} s, ${percent((until - from) / wall)} % of the wall time`;
      const fill = depth === 0 ? "var(--card)" : depth === 3 ? (text === "unexplained" ? fillOf(layer, 3) : fillOf(layer, 2)) : fillOf(layer, 0);
      boxes.push({ x: from / 1e9, x2: until / 1e9, y: depth, y2: depth + 0.94, fill, tip: words });
      const room = ((until - from) / 1e9) * pixels - 6;
      if (room > 22 && depth < 3 && (depth === 0 || colourOf(layer))) (DARK.has(colourOf(layer)) ? dark : labels).push({ x: from / 1e9, y: depth + 0.48, text: cut(text), room, tip: words, depth });
    }
    const depths = 1 + Math.max(...all.map((node) => node[0]));
    const y = Q("y", { scale: rows(depths), axis: null });
    const x = Q("x", { scale: { domain: [0, most / 1e9], nice: false }, axis: secondsAxis("seconds, summed: this axis is not time") });
    const limit = { limit: { expr: "datum.room" } };
    return frame(width, 34 * depths, { left: 10, right: 10, top: 2, bottom: 36 }, [
      { data: { values: boxes }, name: "segment", mark: { type: "rect", strokeWidth: 0.75 }, encoding: { x, x2: { field: "x2" }, y, y2: { field: "y2" }, fill: literal("fill"), ...TIP } },
      texts("root", labels.filter((row) => row.depth === 0), limit, 4), texts("oncolour", labels.filter((row) => row.depth > 0), limit, 4), texts("ondark", dark, limit, 4),
    ]);
  };
}

function ranksOf(all) {
  return (width) => {
    const values = all.map(([rank, p50, p99, max], place) => ({ x: p50 / 1e6, x2: max / 1e6, y: place + 0.5, name: cut(String(rank), 60),
      tip: `${rank}: median ${(p50 / 1e6).toFixed(3)} ms, ${p99 === null ? "p99 unknown" : `p99 ${(p99 / 1e6).toFixed(3)} ms`}, longest ${(max / 1e6).toFixed(3)} ms` }));
    const y = Q("y", { scale: rows(values.length), axis: null });
    const x = Q("x", { scale: { type: "log", nice: true }, axis: { title: "ms per step (log scale)", format: ",~r", tickCount: 5 } });
    return frame(width, Math.max(40, 24 * values.length), { left: 108, right: 24, top: 2, bottom: 36 }, [
      { data: { values }, name: "interval", mark: { type: "rule" }, encoding: { x, x2: { field: "x2" }, y, ...TIP } },
      { data: { values }, name: "ink", mark: { type: "point", size: 60 }, encoding: { x: Q("x"), y, ...TIP } },
      { data: { values }, name: "hollow", mark: { type: "point", size: 60 }, encoding: { x: Q("x2"), y, ...TIP } },
      names(values, 100),
    ]);
  };
}

const SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"];

function stepTimesOf(ranks) {
  return (width) => {
    const layers = [];
    const x = Q("x", { scale: { zero: false, nice: false }, axis: secondsAxis("seconds since the window's start") });
    const y = (field) => Q(field, { scale: { type: "log", nice: true }, axis: { title: "ms per step (log)", format: ",~r", tickCount: 4 } });
    ranks.forEach(({ rank, bins }, place) => {
      const values = bins.map(([first, last, start, , low, middle, high]) => ({ x: start / 1e9, low: low / 1e6, middle: middle / 1e6, high: high / 1e6,
        tip: `${rank}, step ${first}${last > first ? ` to ${last}: median ${(middle / 1e6).toFixed(3)} ms, ${(low / 1e6).toFixed(3)} to ${(high / 1e6).toFixed(3)} ms` : `: ${(middle / 1e6).toFixed(3)} ms`}` }));
      if (bins.some((bin) => bin[1] > bin[0])) layers.push({ data: { values }, mark: { type: "rule", color: LINES[place], opacity: 0.5 }, encoding: { x, y: y("low"), y2: { field: "high" }, ...TIP } });
      layers.push({ data: { values }, name: `steps${place}`, mark: { type: "point", filled: true, shape: SHAPES[place], color: LINES[place], size: 34 }, encoding: { x, y: y("middle"), ...TIP } });
    });
    return frame(width, 170, { left: 66, right: 16, top: 6, bottom: 36 }, layers);
  };
}

// Upper bound of nearly all step times of a rank, plus a margin, in ms; gives all ranks the same axis.
function usualStep({ bins }) {
  const means = bins.filter(([first]) => first > 0).map(([first, last, , , , , , ...sums]) => sums.reduce((sum, ns) => sum + ns, 0) / (last - first + 1) / 1e6);
  return 1.25 * (means.sort((a, b) => a - b)[Math.floor(means.length * 0.95)] || 1);
}

// Mean step time by part, without the first step, which is much longer because it is traced and compiled.
function stepPartsOf({ bins }, top) {
  return (width) => {
    const values = [];
    for (const [first, last, , , , , , ...sums] of bins) {
      if (first === 0) continue;
      const count = last - first + 1;
      let at = 0;
      sums.forEach((ns, place) => {
        const mean = ns / count / 1e6;
        values.push({ x: first, x2: last + 1, y: at, y2: at + mean, fill: partFill(place), tip: `step ${first}${last > first ? ` to ${last}, mean` : ""}\n${PARTS[place]}: ${mean.toFixed(3)} ms` });
        at += mean;
      });
    }
    const x = Q("x", { scale: { nice: false, zero: false }, axis: { title: "step", format: "d", tickMinStep: 1 } });
    const y = Q("y", { scale: { domain: [0, top], clamp: true, nice: false }, axis: { title: "ms per step", format: ",~r", tickCount: 4 } });
    return frame(width, 130, { left: 66, right: 16, top: 6, bottom: 36 }, [
      { data: { values }, name: "parts", mark: { type: "rect", clip: true }, encoding: { x, x2: { field: "x2" }, y, y2: { field: "y2" }, fill: literal("fill"), ...TIP } },
    ]);
  };
}

function lineOf(values, xTitle, yTitle, more) {
  return (width) => {
    const x = Q("x", { scale: { nice: false, zero: false, ...(more && more.domain ? { domain: more.domain } : {}) }, axis: { ...secondsAxis(xTitle), ...(more && more.ticks) } });
    const y = Q("y", { scale: { zero: !(more && more.loose), nice: true, ...(more && more.range ? { domain: more.range, nice: false } : {}) }, axis: { title: yTitle, format: ",~r", tickCount: 4 } });
    const mark = more && more.stretches ? { type: "line", interpolate: "step-after", color: LINES[0], strokeWidth: 1.5 } : { type: "line", point: { size: 40, color: LINES[0] }, color: LINES[0] };
    return frame(width, 120, { left: 66, right: 16, top: 6, bottom: 36 }, [{ data: { values }, mark, encoding: { x, y, ...TIP } }]);
  };
}
