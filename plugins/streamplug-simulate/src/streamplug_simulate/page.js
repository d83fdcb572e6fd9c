const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

const SETTINGS = {
  shuffle: { label: "Shuffle", show: (v) => v === null ? "none" : v },
  block_size: { label: "Block size, samples", show: (v) => v === null ? "default" : number(v) },
  nodes: { label: "Nodes", show: number },
  canonical_nodes: { label: "Canonical nodes", show: (v) => v === null ? "default" : number(v) },
  predownload: { label: "Predownload, samples", show: (v) => v === null ? "auto" : number(v) },
  cache_limit: { label: "Cache limit of a node", show: (v) => v === null ? "none" : bytes(v) },
  bandwidth: { label: "Bandwidth of a node", show: (v) => bytes(v) + "/s" },
  step_seconds: { label: "Step time", show: seconds },
};
const FIXED = {
  ranks_per_node: ["Ranks per node", number], workers: ["Workers per rank", number],
  prefetch_factor: ["Prefetched batches per worker", number], batch_size: ["Batch size of a rank", number],
  latency: ["Latency of a request", seconds], epochs: ["Epochs", number],
  price: ["Price of 10⁹ bytes", (v) => v ? number(v) : "not given"],
};
const controls = {};
let run = Object.values(DATA.runs)[0];
let asked = 0;

/* -- controls ------------------------------------------------------------------------------- */

function build() {
  const form = byId("controls");
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const choice of DATA.choices) {
    const label = element("label");
    label.append(element("span", {}, SETTINGS[choice.name].label));
    const control = DATA.server ? typed(choice) : selected(choice);
    control.id = "set-" + choice.name;
    control.name = choice.name;
    control.addEventListener("change", changed);
    label.append(control);
    form.append(label);
    controls[choice.name] = control;
  }
  const back = element("button", { type: "button", id: "reset" }, "Reset");
  back.addEventListener("click", () => {
    for (const choice of DATA.choices) controls[choice.name].value = first(choice);
    changed();
  });
  form.append(back);
}

function selected(choice) {
  const select = element("select");
  choice.values.forEach((value, at) => {
    select.append(element("option", { value: at }, SETTINGS[choice.name].show(value)));
  });
  return select;
}

function written(choice, value) {
  if (value === null) return SETTINGS[choice.name].show(null);
  return String(value);
}

function typed(choice) {
  if (choice.name === "shuffle") {
    const select = element("select");
    for (const name of DATA.shuffles) select.append(element("option", { value: name }, name));
    select.value = written(choice, choice.values[0]);
    return select;
  }
  const input = element("input", { type: "text", autocomplete: "off", spellcheck: "false", list: "list-" + choice.name });
  const list = element("datalist", { id: "list-" + choice.name });
  for (const value of choice.values) list.append(element("option", { value: written(choice, value) }));
  document.body.append(list);
  input.value = first(choice);
  return input;
}

function first(choice) {
  return DATA.server ? written(choice, choice.values[0]) : "0";
}

function different() {
  return DATA.choices.filter((choice) => controls[choice.name].value !== first(choice)).map((choice) => choice.name);
}

/* Hides the block size, and resets it, if the shuffle ignores it. */
function hideBlockSize() {
  const [shuffle, block] = ["shuffle", "block_size"].map((name) => DATA.choices.find((c) => c.name === name));
  const value = controls.shuffle.value, name = DATA.server ? value : SETTINGS.shuffle.show(shuffle.values[value]);
  const ignored = DATA.without_block_size.includes(name);
  controls.block_size.closest("label").hidden = ignored;
  if (ignored) controls.block_size.value = first(block);
}

async function changed() {
  hideBlockSize();
  const names = different();
  for (const choice of DATA.choices) {
    const control = controls[choice.name], is = names.includes(choice.name);
    control.classList.toggle("changed", is);
    if (!DATA.server) control.disabled = names.length >= DATA.different && !is;
  }
  rule(names.length);
  const found = DATA.server ? await fromServer() : DATA.runs[DATA.choices.map((c) => controls[c.name].value).join(".")];
  if (found) show(found);
}

function rule(count) {
  const most = DATA.different;
  byId("rule").textContent = DATA.server
    ? "Sizes: 64mb, for example, which is 64 × 2²⁰ bytes. Times are in seconds, bandwidth in bytes per second."
    : `You can change ${most} of these settings at a time` +
      (count >= most ? ": reset one to change another." : ".");
}

async function fromServer() {
  asked += 1;
  const mine = asked;
  document.body.setAttribute("aria-busy", "true");
  const query = new URLSearchParams(DATA.choices.map((c) => [c.name, controls[c.name].value]));
  let found;
  try {
    found = await (await fetch("run?" + query)).json();
  } catch {
    found = { error: "The server does not answer. It may have stopped." };
  }
  if (mine !== asked) return null;
  document.body.removeAttribute("aria-busy");
  return found;
}

/* -- results -------------------------------------------------------------------------------- */

function show(found) {
  byId("error").hidden = !found.error;
  byId("error").textContent = found.error || "";
  if (found.error) return;
  run = found;
  tiles();
  byId("notes").replaceChildren(...run.notes.map((text) => element("li", {}, text)));
  plots();
  tables();
}

function tiles() {
  const epoch = run.epochs[0], sum = (key) => run.epochs.reduce((total, each) => total + each[key], 0);
  const waited = sum("waited") + sum("first_batch"), all = sum("seconds");
  const about = epoch.simulated < epoch.steps ? "about " : "";
  const rows = [
    [seconds(epoch.first_batch), "to the first batch"],
    [number(100 * waited / (all || 1)) + " %", `of ${seconds(all)} spent waiting for data`],
    [about + bytes(epoch.all_bytes), "egress of the first epoch"],
    ...(run.price ? [[(run.complete ? "" : "≤ ") + number(run.cost), "cost of all epochs"]] : []),
    [number(100 * epoch.all_bytes / (DATA.set.bytes || 1)) + " %", "of the data set downloaded in the first epoch, by all nodes"],
    [number(run.quality.shards_per_batch), "shards in a global batch"],
    [number(100 * run.quality.same_shard) + " %", "of samples follow one of the same shard"],
    [number(run.quality.displacement), "samples, mean displacement by the shuffle"],
  ];
  byId("tiles").replaceChildren(...rows.map(([value, text]) => {
    const tile = element("div", { class: "tile" });
    tile.append(element("b", {}, value), element("span", {}, text));
    return tile;
  }));
}

function plots() {
  const series = run.series, points = Object.values(series.fetched)[0].length;
  const x = Array.from({ length: points }, (_, i) => i * series.end / (points - 1));
  const over = { x, xLabel: "time", xUnit: "s", yUnit: "bytes" };
  draw(byId("fetched"), { ...over, yLabel: "downloaded", lines: series.fetched });
  draw(byId("held"), { ...over, yLabel: "cached", lines: series.held, limit: run.cache_limit });
  const steps = series.mean_wait.map((_, i) => i * series.each);
  const many = { [`mean of ${series.each} steps`]: series.mean_wait, "longest of them": series.longest_wait };
  draw(byId("waits"), {
    x: series.mean_wait.length > 1 ? steps : [0, 1], xLabel: "step", yLabel: "wait", yUnit: "s",
    bars: series.each > 1 ? many : { "each step": series.mean_wait },
  });
  draw(byId("moved"), {
    labels: ["5 %", "25 %", "50 %", "75 %", "95 %"], x: [0, 1, 2, 3, 4], xLabel: "share of samples",
    yLabel: "moves less, samples", yUnit: "", bars: { samples: run.quality.displacement_quantiles },
  });
}

function table(place, caption, heads, rows) {
  const body = element("tbody"), head = element("thead"), top = element("tr");
  heads.forEach((text) => top.append(element("th", { scope: "col" }, text)));
  head.append(top);
  for (const row of rows) {
    const line = element("tr");
    row.forEach((text, at) => line.append(element(at ? "td" : "th", at ? {} : { scope: "row" }, text)));
    body.append(line);
  }
  place.replaceChildren(element("caption", {}, caption), head, body);
}

function tables() {
  table(byId("epochs"), "Epochs", ["epoch", "steps simulated", "first batch", "later waits", "duration", "downloaded"],
    run.epochs.map((e) => [
      number(e.epoch), `${number(e.simulated)} of ${number(e.steps)}`, seconds(e.first_batch), seconds(e.waited),
      seconds(e.seconds), bytes(e.bytes),
    ]));
  const shown = run.nodes.slice(0, 16);
  const more = run.nodes.length > shown.length ? ` (${shown.length} of ${run.nodes.length})` : "";
  table(byId("nodes"), "Nodes" + more, ["node", "downloaded", "downloads", "cache hits", "evictions"],
    shown.map((n, at) => [number(at), bytes(n.bytes), number(n.shards), number(n.hits), number(n.evictions)]));
}

function fixed() {
  byId("urls").textContent = DATA.title.replace("Simulated run of ", "");
  byId("set").textContent =
    `${number(DATA.set.samples)} samples in ${number(DATA.set.shards)} shards, ${bytes(DATA.set.bytes)} stored`;
  for (const [name, [label, format]] of Object.entries(FIXED)) {
    byId("fixed").append(element("dt", {}, label), element("dd", {}, format(DATA.scenario[name])));
  }
}

let drawn = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== drawn) { drawn = window.innerWidth; plots(); }
});
build();
hideBlockSize();
fixed();
rule(0);
show(run);
