// Charts, timeline and steps in the places that the static page has for them.
const MOST_TICKS = 12;
const runAt = (element) => DATA.runs[Number(element.dataset.run)];

// The axes of all runs have the same scale.
function eventsOf(run, part) {
  const bounds = (events) => [Math.min(...events.map((row) => row[1])) / 1e9, Math.max(...events.map((row) => row[2])) / 1e9];
  const [low] = bounds(run[part]), most = Math.max(...DATA.runs.filter((one) => one[part].length).map((one) => { const [from, until] = bounds(one[part]); return until - from; }));
  return waterfallOf(run[part], low, low + (most || 1));
}

function epochsOf(run, place, title) {
  const rows = run.epochs, every = Math.ceil(rows.length / MOST_TICKS);
  const values = rows.map((row) => row[0]).filter((_, at) => at % every === 0);
  const known = rows.filter((row) => row[place] !== null);
  return known.length > 1 ? lineOf(known.map((row) => ({ x: row[0], y: row[place], tip: `epoch ${row[0]}: ${title} ${row[place]}` })), "epoch", title, { ticks: { values, format: "d" }, loose: true }) : null;
}

const rate = (row, place) => (row[place] === null ? null : (row[place] / (row[1] - row[0])) * 1e3);
const CURVES = {
  cpu: (run) => [`CPU, % of ${run.cores} cores`, (row) => 100 * row[2], { range: [0, 100] }],
  memory: () => ["memory, GB", (row) => row[3] / 1e9],
  read: () => ["disk read, MB/s", (row) => rate(row, 4)],
  written: () => ["disk written, MB/s", (row) => rate(row, 5)],
  loopback: () => ["loopback, MB/s", (row) => rate(row, 6)],
};

function usageOf(run, part) {
  const [title, pick, more] = CURVES[part](run), all = run.usage;
  const values = all.map((row) => ({ x: row[0] / 1e9, y: pick(row), tip: `${seconds(row[0])} to ${seconds(row[1])} s\n${title}: ${pick(row) === null ? "unknown" : pick(row).toFixed(2)}` })).filter((row) => row.y !== null);
  if (!values.length) return null;
  values.push({ ...values.at(-1), x: all.at(-1)[1] / 1e9 });
  return lineOf(values, "seconds since the window's start", title, { stretches: true, domain: [0, (run.wall_ns || 0) / 1e9], ...more });
}

const BUILD = {
  waterfall: eventsOf,
  icicle: (run) => icicleOf(run.icicle, DATA.longest_ns),
  ranks: (run) => ranksOf(run.ranks),
  loss: (run) => epochsOf(run, 1, "mean loss"),
  accuracy: (run) => epochsOf(run, 2, "test accuracy"),
  usage: usageOf,
};

function stepsOf(run) {
  const some = run.steps.ranks, top = Math.max(...some.map(usualStep));
  return [
    legend(some.map(({ rank }, place) => [`${rank} (${SHAPES[place]})`, LINES[place]])),
    chart(`Step times over the window of run ${run.id}`, stepTimesOf(some)),
    legend(PARTS.map((part, place) => [place === 1 && run.steps.channel_inside ? "compute, including the exchange, which is not measured separately" : part === "other" ? "other between steps, such as a checkpoint" : part, partFill(place)])),
    ...some.flatMap((rank) => [make("h4", {}, `${rank.rank}: ${rank.steps.toLocaleString("en")} steps`), chart(`Parts of steps of ${rank.rank}`, stepPartsOf(rank, top))]),
    paragraph("Step 0, which TensorFlow traces and compiles, is only in the first chart. With many steps, a mark shows several steps: minimum, median and maximum, or the mean. Bars beyond the axis are cut at the top.", "note"),
    run.steps.left_out ? paragraph(`${run.steps.left_out} more ranks are not drawn. The table of ranks has all ranks.`, "note") : "",
  ].filter(Boolean);
}

function build() {
  for (const element of document.querySelectorAll("[data-chart]")) {
    const found = BUILD[element.dataset.chart](runAt(element), element.dataset.part);
    if (found) chart("", found, null, element); else element.remove();
  }
  document.querySelectorAll(".lanes").forEach((element) => element.append(...timelineOf(runAt(element).timeline, runAt(element))));
  document.querySelectorAll(".steps").forEach((element) => element.append(...stepsOf(runAt(element))));
  document.querySelectorAll(".command").forEach((element) => {
    const button = make("button", { type: "button", onclick: () => copy(element.textContent, button) }, "Copy");
    element.after(button);
  });
  document.querySelectorAll(".record").forEach((element) => element.addEventListener("toggle", () => {
    const place = element.querySelector("pre");
    if (element.open && !place.textContent) place.textContent = JSON.stringify(runAt(element).record, null, 1);
  }));
}

// Printing opens all folded parts except run.json.
let opened = [];
addEventListener("beforeprint", () => { opened = [...document.querySelectorAll("details:not([open]):not(.record)")]; opened.forEach((one) => { one.open = true; }); });
addEventListener("afterprint", () => { opened.forEach((one) => { one.open = false; }); });

patterns();
build();
drawAll().then(() => { document.documentElement.dataset.ready = "yes"; });
