// The timeline merges slices by pixels, so that each zoom level draws a few thousand at most. Sums are exact.
const ROW = 17;
const NARROW = 2; // pixels; narrower neighbours in one row are merged
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

// Compute the boxes of the range [low, high], with narrow slices merged.
function drawn(found, slices, low, high, width, places) {
  const scale = width / (high - low), result = [], open = new Map();
  for (const slice of slices) {
    if (slice.end < low || slice.start > high) continue;
    const key = slice.lane * 64 + slice.depth, last = open.get(key);
    const wide = (slice.end - slice.start) * scale >= NARROW;
    if (!wide && last && !last.wide && (slice.end - last.start) * scale < 2 * NARROW) {
      last.end = Math.max(last.end, slice.end);
      last.gathered.push(slice);
      continue;
    }
    const one = { start: slice.start, end: slice.end, gathered: [slice], wide };
    if (!wide) open.set(key, one); else open.delete(key);
    result.push(one);
  }
  return result.map((one) => {
    const [first] = one.gathered;
    const slice = one.gathered.length === 1 ? first : { ...first, start: one.start, end: one.end, more: "", parts: merged(one.gathered.flatMap((each) => each.parts)) };
    const y = places[slice.lane] + slice.depth, [largest] = slice.parts;
    const from = Math.max(slice.start, low), until = Math.min(slice.end, high);
    const room = (until - from) * scale - 6;
    const count = counted(slice);
    return { x: from / 1e9, x2: Math.max(until, from + 0.7 / scale) / 1e9, y: y + 0.05, y2: y + 0.93, middle: y + 0.5,
      fill: fillOf(largest.layer, 0), dark: DARK.has(colourOf(largest.layer)), plain: !colourOf(largest.layer), room,
      text: room > 24 ? cut(count === 1 ? largest.name : `${count} × ${largest.name}`, 120) : "", tip: described(found, slice), slice };
  });
}

function timelineOf(found, run) {
  const slices = found.slices.map((row) => sliceOf(found, row)).sort((left, right) => left.start - right.start || left.depth - right.depth);
  const places = [];
  let total = 0;
  for (const lane of found.lanes) { places.push(total); total += lane.rows + 0.4; }
  const wall = Math.max(found.wall_ns || 1, DATA.longest_ns); // runs have the same axis
  const state = { low: 0, high: wall, view: null, pad: 0, width: 0, dragged: false };
  const status = make("span", { class: "note", role: "status" });
  const detail = make("div", { class: "detail", tabindex: "-1" });

  const element = chart(`Timeline of ${found.lanes.length} lanes of run ${run.id}`, (width) => {
    const left = width > 640 ? 118 : 74;
    state.pad = left;
    state.width = width - left - 12;
    const x = Q("x", { scale: { domainMin: { expr: "low" }, domainMax: { expr: "high" }, nice: false, zero: false }, axis: secondsAxis("seconds since the window's start") });
    const y = Q("y", { scale: rows(total), axis: null });
    const lanes = found.lanes.map((lane, place) => ({ y: places[place] + 0.5, name: lane.name, tip: lane.name, line: places[place] - 0.2 }));
    const words = (name) => ({ data: { name }, name, mark: { type: "text", align: "left", baseline: "middle", dx: 3, fontSize: 10.5, limit: { expr: "datum.room" } },
      encoding: { x: Q("x"), y: Q("middle", { axis: null }), text: { field: "text", type: "nominal" }, ...TIP } });
    return { ...frame(width, Math.ceil(total * ROW), { left, right: 12, top: 2, bottom: 36 }, [
      { data: { values: lanes }, name: "lanes", mark: { type: "rule" }, encoding: { y: Q("line", { scale: rows(total), axis: null }) } },
      { data: { name: "slices" }, name: "segment", mark: { type: "rect", clip: true, strokeWidth: 0.4 }, encoding: { x, x2: { field: "x2" }, y, y2: { field: "y2" }, fill: literal("fill"), ...TIP } },
      words("oncolour"), words("ondark"), names(lanes, left - 12),
    ]), params: [{ name: "low", value: state.low / 1e9 }, { name: "high", value: state.high / 1e9 }],
    datasets: { slices: [], oncolour: [], ondark: [] } };
  }, (view) => {
    state.view = view;
    view.addEventListener("click", (event, item) => { if (!state.dragged && item && item.datum && item.datum.slice) select(item.datum.slice); });
    show();
  });

  async function show() {
    const boxes = drawn(found, slices, state.low, state.high, Math.max(100, state.width), places);
    const labelled = boxes.filter((box) => box.text && !box.plain);
    status.textContent = `${seconds(state.low)} to ${seconds(state.high)} s; ${boxes.length.toLocaleString("en")} slices drawn`;
    host.dataset.low = state.low; host.dataset.high = state.high; host.dataset.slices = boxes.length;
    if (!state.view) return;
    await state.view.signal("low", state.low / 1e9).signal("high", state.high / 1e9).data("slices", boxes)
      .data("oncolour", labelled.filter((box) => !box.dark)).data("ondark", labelled.filter((box) => box.dark)).runAsync();
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
  if (found.lanes_left_out) notes.push(`${found.lanes_left_out} lanes with a smaller part of the wall time are not drawn. dlobd trace writes all lanes.`);
  if (found.too_deep) notes.push(`${found.too_deep.toLocaleString("en")} spans are nested more deeply than the drawn rows.`);
  return [tools, host, ...notes.map((text) => paragraph(text, "note")), detail];
}
