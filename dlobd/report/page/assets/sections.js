// Sections of a run, in the order of the page. An empty section shows the reason.
function findings(run) {
  const all = run.findings;
  if (!all.length) return [paragraph(run.without_findings, "note")];
  const clear = all.filter((one) => one.above_noise), small = all.filter((one) => !one.above_noise);
  const open = clear.length ? [] : small.slice(0, 3);
  return [
    all.length > 1 ? paragraph(`Savings overlap; do not add them up.${clear.length ? ` Noise: ${run.noise}.` : ""}`, "note") : null,
    ...clear.map((one) => finding(one, run.wall_ns)),
    clear.length ? null : paragraph(run.without_findings, "note"),
    ...open.map((one) => finding(one, run.wall_ns)),
    small.length > open.length ? folded(`Below noise: ${small.length - open.length}${open.length ? " more" : ""}`, small.slice(open.length).map((one) => finding(one, run.wall_ns))) : null,
  ];
}

function finding(one, wall) {
  return make("article", { class: "finding" },
    make("b", {}, one.says),
    make("div", { class: "gain" }, wall ? `${one.saving} At most ${percent(one.saves_ns / wall)} % of the wall time.` : one.saving),
    make("div", {}, make("i", {}, "Remedy: "), one.remedy),
    make("div", {}, make("i", {}, "Unless: "), one.unless),
    folded("Evidence", list(one.evidence)),
    make("div", { class: "note" }, `docs/findings.md#${one.finding}`));
}

function warnings(run) {
  const rows = [...run.missing.map((line) => `bundle: ${line}`), ...run.warnings];
  return [
    rows.length ? make("div", { class: "warnings" }, list(rows)) : paragraph("No warning.", "note"),
    list(run.circumstances),
    run.not_measured.rows.length ? folded(`Not measured: ${run.not_measured.rows.length}`, tableOf(run.not_measured)) : null,
    run.corrections.rows.length ? folded("Corrections of the evidence", tableOf(run.corrections)) : null,
    run.checks.rows.length ? tableOf(run.checks) : null,
  ];
}

function settingsOf(rows) {
  return make("ul", { class: "settings" }, rows.map(([name, value]) => make("li", {}, make("span", {}, `${name} `), value === "" ? "(empty)" : shown(value, "text"))));
}

function breakdown(run, most) {
  if (run.wall_ns === null || !run.parts.length) return [paragraph(run.sum)];
  return [
    chart(`Stacked bar of the wall time of run ${run.id} by layer`, barOf(run, most)),
    chart(`Each layer of run ${run.id} with its interval and the quality of its evidence`, layersOf(run, most)),
    run.largest.length ? paragraph("The largest parts:") : null,
    run.largest.length ? list(run.largest.map(([layer, name, ns]) => `${layer}, ${name}: ${seconds(ns)} s, ${percent(ns / run.wall_ns)} %`)) : null,
    paragraph(run.sum, "note"),
  ];
}

function anatomy(run) {
  const found = [];
  for (const [title, events, table] of [["Start-up", run.startup, run.events.startup], ["Teardown", run.teardown, run.events.teardown]]) {
    found.push(make("h4", {}, title));
    if (!events.length) { found.push(paragraph("No event was recorded.", "note")); continue; }
    found.push(chart(`${title} of run ${run.id} as a waterfall`, waterfallOf(events)));
    found.push(folded("As a table", tableOf(table)));
  }
  return found;
}

function hierarchy(run) {
  if (!run.icicle.nodes.length) return [paragraph("There is no wall time to split.", "note")];
  return [
    chart(`Icicle of run ${run.id}: layer, span, cause`, icicleOf(run.icicle)),
    paragraph("Rows from the top: wall time, layers, spans, causes. Dots are named waits, crossed areas are unexplained time. The width of a box is its total time. The horizontal order is not chronological."
      + (run.icicle.by_span ? "" : " Causes are shown by layer, because run.json has no causes by span."), "note"),
  ];
}

function lanes(run) {
  if (!run.timeline) return [paragraph(`No timeline: ${run.missing.length ? run.missing[0] : "the run has no evidence"}.`, "note")];
  return timelineOf(run.timeline, run);
}

function ranks(run) {
  const table = run.ranks.table;
  if (!table.rows.length) return [paragraph("No rank is known.", "note")];
  const timed = table.columns.length > 3 ? table.rows.filter((row) => row[2] !== null && row[4] !== null && row[2] > 0) : [];
  const slowest = [...timed].sort((left, right) => right[2] - left[2]).slice(0, 40);
  const kept = timed.filter((row) => slowest.includes(row));
  return [
    kept.length ? chart(`Steps of each rank of run ${run.id}`, ranksOf(kept)) : null,
    timed.length > kept.length ? paragraph(`The chart shows the ${kept.length} slowest of ${timed.length} ranks by median step time. The table has all ranks.`, "note") : null,
    kept.length ? paragraph("Filled dots show the median step time, hollow dots the maximum.", "note") : null,
    ...run.ranks.lines.map((line) => paragraph(line)),
    tableOf(table),
  ];
}

function steps(run) {
  const all = run.steps.ranks;
  if (!all.length) return [paragraph(run.timeline ? "No step was recorded." : "Unknown: the evidence cannot be read.", "note")];
  const some = all.slice(0, 8), top = Math.max(...some.map(usualStep));
  return [
    legend(some.map(({ rank }, place) => [`${rank} (${SHAPES[place]})`, LINES[place]])),
    chart(`Step times over the window of run ${run.id}`, stepTimesOf(all)),
    legend(PARTS.map((part, place) => [place === 1 && run.steps.channel_inside ? "compute, including the exchange, which is not measured separately" : part === "other" ? "other between steps, such as a checkpoint" : part, partFill(place)])),
    ...some.flatMap((rank) => [make("h4", {}, `${rank.rank}: ${rank.steps.toLocaleString("en")} steps`), chart(`Parts of steps of ${rank.rank}`, stepPartsOf(rank, top))]),
    paragraph("Step 0, which TensorFlow traces and compiles, is only in the first chart. With many steps, a mark shows several steps: minimum, median and maximum, or the mean. Bars beyond the axis are cut at the top.", "note"),
    all.length > some.length ? paragraph(`${all.length - some.length} more ranks are not drawn. The table of ranks has all ranks.`, "note") : null,
  ];
}

const MOST_TICKS = 12;

function trained(run) {
  const rows = run.training.table.rows, found = run.training.lines.map((line) => paragraph(line));
  const epochs = rows.map((row) => row[0]), every = Math.ceil(epochs.length / MOST_TICKS);
  const values = epochs.filter((_, place) => place % every === 0);
  const line = (place, title, more) => chart(title, lineOf(rows.filter((row) => row[place] !== null).map((row) => ({ x: row[0], y: row[place], tip: `epoch ${row[0]}: ${title} ${row[place]}` })), "epoch", title, { ticks: { values, format: "d" }, ...more }));
  if (rows.length > 1) found.push(line(2, "mean loss", { loose: true }));
  if (rows.filter((row) => row[3] !== null).length > 1) found.push(line(3, "test accuracy", { loose: true }));
  found.push(tableOf(run.training.table));
  return found.filter(Boolean).length ? found : [paragraph("Epochs, loss and accuracy are unknown: no epoch was recorded.", "note")];
}

function used(run) {
  const found = run.usage, wall = (run.wall_ns || 0) / 1e9, all = found.points;
  if (!all.length) return [paragraph(found.why || "No sample lies in the window.", "note"), found.line ? paragraph(found.line) : null, found.others ? paragraph(found.others) : null];
  const curve = (title, pick, more) => {
    const values = all.map((row) => ({ x: row[0] / 1e9, y: pick(row), tip: `${seconds(row[0])} to ${seconds(row[1])} s\n${title}: ${pick(row) === null ? "unknown" : pick(row).toFixed(2)}` })).filter((row) => row.y !== null);
    if (values.length) values.push({ ...values.at(-1), x: all.at(-1)[1] / 1e9 });
    return values.length ? chart(title, lineOf(values, "seconds since the window's start", title, { stretches: true, domain: [0, wall], ...more })) : null;
  };
  const rate = (row, place) => (row[place] === null ? null : (row[place] / (row[1] - row[0])) * 1e3);
  return [paragraph(found.line), curve(`CPU, % of ${found.cores} cores`, (row) => 100 * row[2], { range: [0, 100] }), curve("memory, GB", (row) => row[3] / 1e9),
    curve("disk read, MB/s", (row) => rate(row, 4)), curve("disk written, MB/s", (row) => rate(row, 5)), curve("loopback, MB/s", (row) => rate(row, 6)),
    found.others ? paragraph(found.others) : null];
}

function carried(run) {
  const found = run.transport.map((one) => make("div", {}, make("p", {}, make("b", {}, `${one.plane}: `), one.verdict), one.evidence.length ? list(one.evidence) : null));
  if (!found.length) found.push(paragraph(run.transport_known ? "No kind of traffic was observed." : "Unknown: the transport was not recorded.", "note"));
  return [...found, tableOf(run.exchange)];
}

const tablesOf = (run) => (run.tables.length ? run.tables.map((table) => tableOf(table)) : [paragraph("run.json has no figures for this section.", "note")]);
const environment = (run) => [tableOf(run.environment)];

function again(run) {
  const button = make("button", { type: "button", onclick: () => copy(run.command, button) }, "Copy");
  return [paragraph("Command line of the run, with the paths of the original machine.", "note"), make("pre", { tabindex: "0" }, run.command || "unknown"), button];
}

const record = (run) => {
  const shownRecord = make("pre", { tabindex: "0" });
  const details = folded("run.json, as dlobd show --json prints it", shownRecord);
  details.addEventListener("toggle", () => { if (details.open && !shownRecord.textContent) shownRecord.textContent = JSON.stringify(run.record, null, 1); });
  return details;
};
