// The timeline merges slices by pixels, so that each zoom level draws a few thousand at most. Sums are exact.
const ROW = 17;
const NARROW = 2; // pixels; narrower neighbours in one row are merged
const CHARACTER = 6; // pixels, on average
const MOST_BOXES = 2000;
const LISTED = 400;

function sliceOf(found, row) {
  const [lane, depth, start, end, source, resolution, more, ...rest] = row;
  const parts = [];
  for (let place = 0; place < rest.length; place += 3) {
    const text = found.names[rest[place]], split = text.indexOf("\n");
    parts.push({ layer: text.slice(0, split), name: text.slice(split + 1), count: rest[place + 1], ns: rest[place + 2] });
  }
  return { lane, depth, start, end, source: found.texts[source], resolution, more: found.texts[more], parts };
}

const counted = (slice) => slice.parts.reduce((sum, part) => sum + part.count, 0);

function merged(parts) {
  const all = new Map();
  for (const part of parts) {
    const key = `${part.layer}\n${part.name}`, before = all.get(key);
    all.set(key, before ? { ...before, count: before.count + part.count, ns: before.ns + part.ns } : part);
  }
  return [...all.values()].sort((left, right) => right.ns - left.ns);
}

function described(found, slice) {
  const lane = found.lanes[slice.lane].name, count = counted(slice);
  const where = `${seconds(slice.start)} to ${seconds(slice.end)} s`;
  if (count === 1) {
    const [part] = slice.parts;
    const known = slice.lane ? `\nsource: ${slice.source || "unknown"}, known to ${short(slice.resolution)}` : "";
    return `${cut(part.name)}: ${seconds(part.ns)} s\n${layerTitle(part.layer)}, lane ${lane}, ${where}${known}${slice.more ? `\n${cut(slice.more)}` : ""}`;
  }
  const lines = slice.parts.slice(0, 8).map((part) => `${part.count} × ${cut(part.name, 80)}: ${seconds(part.ns)} s together`);
  const left = slice.parts.length - lines.length;
  return `${count} merged spans: lane ${lane}, ${where}\n${lines.join("\n")}${left ? `\nand ${left} more names` : ""}`;
}

// Compute the boxes of the range [low, high]. Narrow slices are merged, so far that at most MOST_BOXES are drawn.
function drawn(found, slices, low, high, width, narrow = NARROW) {
  const scale = width / (high - low), result = [], open = new Map();
  for (const slice of slices) {
    if (slice.end < low || slice.start > high) continue;
    const key = slice.lane * 64 + slice.depth, last = open.get(key);
    const wide = (slice.end - slice.start) * scale >= narrow;
    if (!wide && last && (slice.end - last.start) * scale < 2 * narrow) {
      last.end = Math.max(last.end, slice.end);
      last.gathered.push(slice);
      continue;
    }
    const one = { lane: slice.lane, depth: slice.depth, start: slice.start, end: slice.end, gathered: [slice] };
    if (!wide) open.set(key, one); else open.delete(key);
    result.push(one);
  }
  return result.length > MOST_BOXES ? drawn(found, slices, low, high, width, 2 * narrow) : result;
}

const sliceIn = (box) => (box.gathered.length === 1 ? box.gathered[0]
  : { ...box.gathered[0], start: box.start, end: box.end, more: "", parts: merged(box.gathered.flatMap((slice) => slice.parts)) });

function ticksOf(low, high, most) {
  const unit = 10 ** Math.floor(Math.log10((high - low) / most));
  const step = unit * [1, 2, 5, 10].find((factor) => (high - low) / (unit * factor) <= most);
  const first = Math.ceil(low / step), digits = Math.max(0, -Math.floor(Math.log10(step)));
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, place) => [(first + place) * step, ((first + place) * step).toFixed(digits)]);
}

// The browser draws the timeline without Vega, which needs ten times as long for a frame.
function timelineOf(found, run) {
  const slices = found.slices.map((row) => sliceOf(found, row)).sort((left, right) => left.start - right.start || left.depth - right.depth);
  const places = [];
  let total = 0;
  for (const lane of found.lanes) { places.push(total); total += lane.rows + 0.4; }
  const wall = Math.max(found.wall_ns || 1, DATA.longest_ns), height = Math.ceil(total * ROW); // runs have the same axis
  const state = { low: 0, high: wall, pad: 0, width: 0, dragged: false };
  const status = make("span", { class: "note", role: "status" });
  const detail = make("div", { class: "detail", tabindex: "-1" });
  const layers = Object.fromEntries(["role-axis-grid", "segment_marks", "oncolour_marks", "ondark_marks", "role-axis-label"].map((name) => [name, svg("g", { class: name })]));

  const element = chart(`Timeline of ${found.lanes.length} lanes of run ${run.id}`, null, (width) => {
    state.pad = width > 640 ? 118 : 74;
    state.width = width - state.pad - 12;
    const heads = found.lanes.flatMap((lane, place) => {
      const name = svg("text", { x: state.pad - 8, y: (places[place] + 0.5) * ROW + 4, "text-anchor": "end" }, cut(lane.name, Math.floor((state.pad - 12) / CHARACTER)));
      name.tip = () => lane.name;
      return [svg("line", { x1: state.pad, x2: state.pad + state.width, y1: (places[place] - 0.2) * ROW, y2: (places[place] - 0.2) * ROW }), name];
    });
    const moving = svg("g", { transform: `translate(${state.pad} 0)` }, ...Object.values(layers));
    const title = svg("text", { x: state.pad + state.width / 2, y: height + 30, "text-anchor": "middle" }, "seconds since the window's start");
    element.replaceChildren(svg("svg", { width, height: height + 36 }, svg("g", { class: "lanes_marks" }, ...heads), moving, title));
    show();
  });

  function show() {
    if (!state.width) return;
    const { low, high } = state, scale = state.width / (high - low), labels = [], dark = [];
    const boxes = drawn(found, slices, low, high, state.width);
    layers.segment_marks.replaceChildren(...boxes.map((box) => {
      const slice = sliceIn(box), [{ layer, name }] = slice.parts, count = counted(slice);
      const from = (Math.max(box.start, low) - low) * scale, until = (Math.min(box.end, high) - low) * scale;
      const y = (places[box.lane] + box.depth) * ROW, room = Math.floor((until - from - 6) / CHARACTER);
      const mark = svg("rect", { x: from, y: y + 0.05 * ROW, width: Math.max(until - from, 0.7), height: 0.88 * ROW, fill: fillOf(layer, 0) });
      mark.slice = slice;
      mark.tip = () => described(found, slice);
      if (room > 3 && colourOf(layer)) {
        (DARK.has(colourOf(layer)) ? dark : labels).push(svg("text", { x: from + 3, y: y + 0.5 * ROW + 4 }, cut(count === 1 ? name : `${count} × ${name}`, room)));
      }
      return mark;
    }));
    layers.oncolour_marks.replaceChildren(...labels);
    layers.ondark_marks.replaceChildren(...dark);
    const ticks = ticksOf(low / 1e9, high / 1e9, Math.max(2, state.width / 110)).map(([at, text]) => [(at * 1e9 - low) * scale, text]);
    layers["role-axis-grid"].replaceChildren(...ticks.map(([x]) => svg("line", { x1: x, x2: x, y1: 0, y2: height })));
    layers["role-axis-label"].replaceChildren(...ticks.map(([x, text]) => svg("text", { x, y: height + 14, "text-anchor": "middle" }, text)));
    status.textContent = `${seconds(low)} to ${seconds(high)} s; ${boxes.length.toLocaleString("en")} slices drawn`;
    Object.assign(host.dataset, { low, high, slices: boxes.length });
  }

  let asked = false;
  function range(low, high) {
    const length = Math.min(wall, Math.max(1000, high - low));
    state.low = Math.min(Math.max(0, low), wall - length);
    state.high = state.low + length;
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; show(); });
  }
  const length = () => state.high - state.low;
  const zoom = (factor, at) => { const middle = at === undefined ? (state.low + state.high) / 2 : at; range(middle - (middle - state.low) * factor, middle + (state.high - middle) * factor); };
  const move = (share) => range(state.low + share * length(), state.high + share * length());
  const whole = () => range(0, wall);
  const timeAt = (event) => state.low + Math.min(1, Math.max(0, (event.clientX - element.getBoundingClientRect().left - state.pad) / state.width)) * length();

  function select(slice) {
    const lane = found.lanes[slice.lane].name;
    const inside = slices.filter((one) => one.lane === slice.lane && one.depth === slice.depth && one.end >= slice.start && one.start <= slice.end && one.start < Math.max(slice.end, slice.start + 1));
    const columns = [["name"], ["layer"], ["from, s", "n"], ["until, s", "n"], ["spans", "n"], ["together, s", "n"], ["source"], ["known to"], ["more"]];
    const listed = inside.slice(0, LISTED).flatMap((one) => one.parts.map((part) => [cut(part.name, 200), layerTitle(part.layer), seconds(one.start), seconds(one.end), String(part.count), seconds(part.ns), one.source, one.resolution ? short(one.resolution) : "", one.more]));
    const left = inside.length - Math.min(inside.length, LISTED);
    const title = `Spans of lane ${lane}, ${seconds(slice.start)} to ${seconds(slice.end)} s`;
    const row = (tag, values) => make("tr", {}, values.map((value, place) => make(tag, { class: columns[place][1], scope: tag === "th" ? "col" : null }, value)));
    const table = make("table", {}, make("thead", {}, row("th", columns.map(([name]) => name))), make("tbody", {}, listed.map((values) => row("td", values))));
    const data = make("div", { class: "data" }, make("h4", {}, title), make("div", { class: "table", tabindex: "0", role: "group", "aria-label": title }, table));
    enhance(data);
    detail.replaceChildren(data, paragraph(left ? `${left} more spans are not listed; zoom in to list them.` : "", "note"));
    detail.focus({ preventScroll: true });
    detail.scrollIntoView({ block: "nearest" });
  }

  const button = (text, label, action) => make("button", { type: "button", "aria-label": label, onclick: action }, text);
  const seen = () => select({ lane: 0, depth: 0, start: state.low, end: state.high });
  const tools = make("div", { class: "tools" }, button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)),
    button("←", "Earlier", () => move(-0.5)), button("→", "Later", () => move(0.5)), button("Whole run", "Show the whole run", whole),
    button("List the wall time", "List the wall time in this range", seen), status);
  const host = make("div", { class: "timeline", tabindex: "0", role: "application", "aria-label": "Timeline: plus and minus zoom, arrows move, 0 shows the whole run, Enter lists" }, element);
  host.addEventListener("keydown", (event) => {
    const action = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25), 0: whole, Home: whole, Enter: seen }[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
  host.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return; // without a modifier, the wheel scrolls the page
    event.preventDefault();
    zoom(Math.exp((event.deltaY || event.deltaX) / 300), timeAt(event));
  }, { passive: false });
  host.addEventListener("click", (event) => { if (!state.dragged && event.target.slice) select(event.target.slice); });
  host.addEventListener("pointermove", (event) => showTip(null, event, null, event.target.tip ? event.target.tip() : ""));
  host.addEventListener("pointerleave", () => { tip.hidden = true; });
  host.addEventListener("dblclick", (event) => zoom(0.25, timeAt(event)));
  let drag = null;
  host.addEventListener("pointerdown", (event) => { state.dragged = false; if (event.button === 0) drag = { x: event.clientX, low: state.low, high: state.high }; });
  addEventListener("pointermove", (event) => {
    if (!drag || Math.abs(event.clientX - drag.x) < 3) return;
    state.dragged = true; // the mouse-up after a drag is not a click
    const shift = ((drag.x - event.clientX) / state.width) * (drag.high - drag.low);
    range(drag.low + shift, drag.high + shift);
  });
  addEventListener("pointerup", () => { drag = null; });

  const notes = ["Zoom with the buttons, the keys + and -, Ctrl and the mouse wheel, or a double click. Move with the mouse or the arrow keys. Hover over a slice for source and resolution; click to list its spans.", `${found.spans.toLocaleString("en")} spans in ${found.lanes.length - 1} lanes. Slices too narrow to draw are merged with their neighbours. A merged slice shows the number of spans and their exact total time.`];
  if (found.merged_below_ns) notes.push(`This page merges spans shorter than ${short(found.merged_below_ns)} at each zoom level. dlobd trace writes all spans of the bundle.`);
  if (found.lanes_left_out) notes.push(`${found.lanes_left_out} more lanes, with a smaller part of the wall time, are not drawn. dlobd trace writes all lanes.`);
  if (found.too_deep) notes.push(`${found.too_deep.toLocaleString("en")} spans are nested more deeply than the drawn rows.`);
  return [tools, host, ...notes.map((text) => paragraph(text, "note")), detail];
}
