// Sections of the page, from top to bottom.
const RUNS = DATA.runs, SEVERAL = RUNS.length > 1;
const page = document.getElementById("page"), contents = document.getElementById("contents");

// A section with one block per run, side by side for several runs.
function section(id, title, each, before, after) {
  const blocks = RUNS.map((run) => make("div", { class: "run" }, SEVERAL ? make("h3", {}, nameOf(run)) : null, each(run)));
  page.append(make("section", { id, "aria-label": title }, make("h2", {}, title), before || null, make("div", { class: SEVERAL ? "runs several" : "runs" }, blocks), after || null));
  contents.append(make("a", { href: `#${id}` }, title));
}

function nameOf(run) {
  const apart = run.differs.map(([name, value]) => `${name} ${shown(value, "text")}`).join(", ");
  return cut(`${run.id}${apart ? ` · ${apart}` : ""}`, 160);
}

function verdicts() {
  const blocks = RUNS.map((run) => make("div", {},
    make(SEVERAL ? "h3" : "h1", { class: run.status === "ok" ? "verdict" : "verdict bad" }, run.verdict),
    make("p", { class: "note" }, `run ${SEVERAL ? nameOf(run) : run.id}, ${run.experiment}, status ${run.status}, started ${run.started_at}`)));
  page.append(make("section", { id: "verdict", "aria-label": "Verdict", tabindex: "-1" },
    SEVERAL ? make("h1", {}, `${RUNS.length} runs side by side`) : null, blocks));
  contents.append(make("a", { href: "#verdict" }, "Verdict"));
}

function comparison() {
  const found = DATA.comparison;
  if (!found) return;
  const blocks = found.pairs.map((pair) => make("div", {}, make("h3", {}, `${pair.candidate} against ${pair.baseline}`), make("p", { class: "verdict" }, pair.sentence), list(pair.notes), tableOf(pair.table)));
  page.append(make("section", { id: "comparison", "aria-label": "Comparison" }, make("h2", {}, "Comparison"),
    found.refused ? make("div", { class: "warnings" }, paragraph(`No comparison, for the reason that dlobd compare prints: ${found.refused}`)) : null, blocks));
  contents.append(make("a", { href: "#comparison" }, "Comparison"));
}

function build() {
  document.getElementById("subject").textContent = [...new Set(RUNS.map((run) => run.experiment))].join(", ");
  const most = Math.max(1, ...RUNS.map((run) => run.wall_ns || 0));
  verdicts();
  comparison();
  section("findings", "How to make it faster", findings);
  section("warnings", "Warnings and circumstances", warnings);
  section("what", "What ran", (run) => [paragraph(run.settings), SEVERAL ? (run.differs.length ? settingsOf(run.differs) : paragraph("No setting that differs from the other runs.", "note")) : null],
    null, folded(SEVERAL ? `Common settings: ${DATA.common.length}` : `All settings: ${DATA.common.length}`, settingsOf(DATA.common)));
  section("layers", "Where the wall time went", (run) => breakdown(run, most), make("div", {}, layerLegend(), qualityLegend(),
      paragraph("Measured: start and end of one call or phase were observed. Between marks: two events enclose the time, without evidence in between. Named wait: a configured poll, heartbeat or sleep.", "note")),
    paragraph("The line at the end of a bar shows the bounds of the layer's time. They include time hidden in other layers.", "note"));
  section("anatomy", "Start-up and teardown", anatomy);
  section("icicle", "Layer, span and cause", hierarchy);
  section("timeline", "Timeline", lanes);
  section("ranks", "Ranks", ranks);
  section("steps", "Steps", steps);
  section("training", "Loss and accuracy", trained);
  section("usage", "Resource use", used);
  section("transport", "Transport", carried);
  section("overhead", "dlobd's own overhead", (run) => [paragraph(run.overhead)]);
  section("tables", "Tables", tablesOf);
  section("environment", "Environment", environment);
  section("reproduce", "To reproduce", (run) => [...again(run), record(run)]);
  page.append(make("footer", {}, `Written by dlobd ${DATA.dlobd}. "Unknown" means not measured.`));
}

function themes() {
  const root = document.documentElement, button = document.getElementById("theme");
  const order = ["", "light", "dark"];
  const say = () => { button.textContent = `Theme: ${root.dataset.theme || "automatic"}`; };
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(root.dataset.theme || "") + 1) % order.length];
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    say();
  });
  say();
}

let later = 0;
addEventListener("resize", () => { clearTimeout(later); later = setTimeout(drawAll, 200); });
// Printing opens all folded parts except run.json.
let opened = [];
addEventListener("beforeprint", () => { opened = [...document.querySelectorAll("details:not([open])")].filter((one) => one.closest("#reproduce") === null); opened.forEach((one) => { one.open = true; }); });
addEventListener("afterprint", () => { opened.forEach((one) => { one.open = false; }); });
addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

patterns();
themes();
build();
drawAll().then(() => { document.documentElement.dataset.ready = "yes"; });
