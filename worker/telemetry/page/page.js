// Draws the worker's `status` every two seconds. The worker sends counters and buckets; rates are differences of two answers.
// The worker's values become text and attributes, never markup.

const EVERY = 2000, PATIENCE = 5000; // milliseconds: between two questions, for an answer
const KEPT = 300, FEWEST = 60, GAP = 7; // seconds: of a chart, and between points that a line connects
const SHORT = 6, LONG = 12; // seconds: of means, and of what comes seldom
const SOME_LOAD = 0.1, FULL_LOAD = 0.9; // shares: from which a rate is reckoned, and at which more is a backlog
const STILL = 5; // seconds: of a loop that does not turn; a rebalance that waits for running batches takes as long
const PHASES = {
  serving: "Serving", starting: "Starting", restoring: "Reading states back", draining: "Draining",
  cut_off: "Cut off from Kafka", topic_gone: "Without a request topic", stalled: "Nothing comes", gone: "No answer",
};
let status = null, history = [], points = [], answeredAt = null, isPaused = false, capacity = null;

// Text and elements

const byId = (id) => document.getElementById(id);
const say = (id, text) => { const node = byId(id); if (node.textContent !== text) node.textContent = text; };
const make = (name, properties, ...children) => {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
};
/** Replaces the content only if it differs, so that selected text, or text being read aloud, stays. */
const fill = (id, nodes) => {
  const next = make("div", {}, ...nodes);
  if (byId(id).innerHTML !== next.innerHTML) byId(id).replaceChildren(...next.childNodes);
};
const number = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
const percent = (value) => (value == null ? "–" : `${number(100 * value)} %`);
const rate = (value) => (value == null ? "–" : number(value));
const some = (value) => number(Number(value.toPrecision(2)));
const duration = (s) => {
  if (s == null) return "–";
  if (s < 1) return `${(1000 * s).toLocaleString("en", { maximumSignificantDigits: 2 })} ms`;
  if (s < 60) return `${s.toLocaleString("en", { maximumSignificantDigits: 2 })} s`;
  return s < 3600 ? `${Math.round(s / 60)} min` : `${number(s / 3600)} h`;
};
const bytes = (value) => {
  const power = value < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(value) / 10));
  return `${number(value / 1024 ** power)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
};

// From counters to figures

const total = (list, key) => list.reduce((sum, each) => sum + each[key], 0);
const minus = (later, earlier) => later.map((count, at) => count - earlier[at]);

function quantile(share, bounds, counts) {
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (!all) return null;
  let below = 0;
  for (let at = 0; at < bounds.length; at++) {
    if (below + counts[at] >= share * all) {
      const floor = at ? bounds[at - 1] : 0;
      return floor + (bounds[at] - floor) * ((share * all - below) / counts[at]);
    }
    below += counts[at];
  }
  return bounds[bounds.length - 1];
}

/** The figures between two answers; null where the loop has not turned in between. */
function between(earlier, later) {
  const seconds = later.at - earlier.at;
  if (!(seconds > 0)) return null;
  const batches = later.batches.map((each, at) => ({
    by: each.by, batches: each.batches - earlier.batches[at].batches, rows: each.rows - earlier.batches[at].rows,
  }));
  const closed = total(batches, "batches");
  const latency = minus(later.latency.counts, earlier.latency.counts);
  const settled = (later.settled - earlier.settled) / seconds;
  const hanging = later.running > seconds ? seconds : 0; // not among the finished ones yet
  const busy = (later.inference - earlier.inference + hanging) / (seconds * later.deployment.lanes);
  return {
    seconds, batches, closed,
    requests: (later.taken - earlier.taken) / seconds,
    settled,
    isUsual: !hanging && later.host.ended === earlier.host.ended, // a run that hangs or is ended says nothing of the others
    answers: Math.max(0, settled - (later.passed_over - earlier.passed_over) / seconds), // counted when taken
    rejections: minus(later.rejections.map((each) => each.count), earlier.rejections.map((each) => each.count)),
    rejected: (total(later.rejections, "count") - total(earlier.rejections, "count")) / seconds,
    p50: quantile(0.5, later.latency.bounds, latency),
    p99: quantile(0.99, later.latency.bounds, latency),
    rows: closed ? total(batches, "rows") / closed : null,
    fill: closed && later.most_rows ? total(batches, "rows") / closed / later.most_rows : null,
    busy: Math.min(1, busy),
    loop: Math.min(1, (later.loop - earlier.loop) / seconds),
    processor: (later.worker.processor - earlier.worker.processor) / seconds,
  };
}

/** The figures of about the last `seconds`; null without two answers. */
function lately(seconds) {
  const earlier = history.find((past) => past.at >= status.at - seconds - 0.5) || history[0];
  return earlier ? between(earlier, status) : null;
}

// Drawing

const SVG = "http://www.w3.org/2000/svg";
const shape = (name, attributes) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
};

const TILES = [
  ["requests", "Records", number, ["requests"]],
  ["answers", "Answers", number, ["answers"]],
  ["latency", "Latency", duration, ["p50", "p99"]],
  ["fill", "Batch fill", percent, ["fill"]],
  ["busy", "Lanes busy", percent, ["busy"]],
  ["rejected", "Rejected", number, ["rejected"]],
];
for (const [id, name, , lines] of TILES) {
  const chart = shape("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });
  chart.append(shape("line", { x1: 0, x2: 100, y1: 100, y2: 100 }));
  for (const [at, line] of lines.entries()) chart.append(shape("path", { "data-line": line, class: at ? "second" : "first" }));
  byId("tiles").append(make("section", { className: "tile", id: `tile-${id}` },
    make("h3", { textContent: name }), make("p", { id }), make("p", { id: `${id}-note`, className: "note" }), chart,
    make("div", { className: "axis" }, make("span", { className: "since" }), make("span", { textContent: "now" })), make("p", { id: `${id}-range`, className: "note" })));
}

/** Draws lines over the last `span` seconds, and writes their range. */
function chart(id, lines, shown, span) {
  const known = points.flatMap((point) => lines.map((line) => point[line])).filter((value) => value != null);
  const top = shown === percent ? 1 : Math.max(...known, 1e-9);
  for (const path of byId(`tile-${id}`).querySelectorAll("path")) {
    let line = "", last = null;
    for (const point of points) {
      const value = point[path.dataset.line];
      const isNext = last && last.value != null && point.at - last.at < GAP;
      const x = 100 - 100 * (status.at - point.at) / span;
      if (value != null) line += `${isNext ? "L" : "M"}${x.toFixed(1)} ${(100 - 100 * value / top).toFixed(1)}`;
      last = { at: point.at, value };
    }
    path.setAttribute("d", line);
  }
  const range = known.length ? [...new Set([Math.min(...known), Math.max(...known)].map(shown))] : [];
  say(`${id}-range`, range.join(" to "));
}

function tile(id, value, unit, ...note) {
  fill(id, [value, ...(unit && value !== "–" ? [make("small", { className: unit, textContent: ` ${unit}` })] : [])]);
  fill(`${id}-note`, note);
}

function drawTiles(now) {
  const few = now ? "nothing in the last 6 s" : "no data yet";
  tile("requests", rate(now?.requests), "/s", `${number(status.taken)} since the start${status.passed_over ? `, ${number(status.passed_over)} passed over` : ""}`);
  tile("answers", rate(now?.answers), "/s", `${number(Math.max(0, status.settled - status.passed_over))} acknowledged`);
  tile("latency", duration(now?.p50), "p50", ...(now?.p99 == null ? [few] : [`${duration(now.p99)} `, make("span", { className: "p99", textContent: "p99" })]));
  tile("fill", percent(now?.fill), "", now?.rows == null ? few : `${number(now.rows)} rows in a batch`);
  tile("busy", percent(now?.busy), "", `${status.deployment.lanes} ${status.deployment.lanes > 1 ? "lanes" : "lane"}; loop ${percent(now?.loop)}${status.running > 1 ? `, one run since ${duration(status.running)}` : ""}`);
  tile("rejected", rate(now?.rejected), "/s", `${number(total(status.rejections, "count"))} since the start`);
  const span = Math.max(FEWEST, points.length ? status.at - points[0].at : 0);
  for (const since of document.querySelectorAll(".since")) since.textContent = `${duration(span)} ago`;
  for (const [id, , shown, lines] of TILES) chart(id, lines, shown, span);
}

const cells = (head, ...rest) => {
  const row = make("tr", {}, make("th", { scope: "row" }, head));
  for (const each of rest) row.append(each instanceof Node ? make("td", { className: "share" }, each) : make("td", { className: "number", textContent: each }));
  return row;
};
const empty = (columns, text) => make("tr", {}, make("td", { colSpan: columns, className: "empty", textContent: text }));
const bar = (value) => {
  const full = make("span");
  full.style.width = `${100 * Math.min(1, value)}%`;
  return make("div", {}, percent(value), make("span", { className: "bar", ariaHidden: "true" }, full));
};

function drawBatches(now) {
  const closed = (now?.batches || []).filter((each) => each.batches > 0);
  closed.sort((one, other) => other.batches - one.batches);
  fill("batches", closed.length ? closed.map((each) => cells(each.by,
    bar(each.batches / now.closed), rate(each.batches / now.seconds), number(each.rows / each.batches)))
    : [empty(4, "No batch closed.")]);
}

function drawHeld() {
  fill("held", status.held.map((each) => {
    const shown = each.name === "bytes" ? bytes : number;
    return cells(each.name, bar(each.limit ? each.now / each.limit : 0), shown(each.now), each.limit ? shown(each.limit) : "–");
  }));
}

/** The name of a partition: a long topic is cut, and the number stays. */
const named = (partition) => {
  const at = partition.lastIndexOf("/");
  return make("div", { className: "named", title: partition }, make("span", { textContent: partition.slice(0, at) }), partition.slice(at));
};

function drawPartitions() {
  const { count, lag, shown } = status.partitions;
  say("partitions-of", count ? `${number(count)} held, ${number(lag)} behind` : "none held");
  fill("partitions", shown.length ? shown.map((each) => cells(named(each.partition), each.lag == null ? "–" : number(each.lag), duration(each.oldest)))
    : [empty(3, "This replica holds no partition yet.")]);
  say("more-partitions", shown.length < count ? `and ${number(count - shown.length)} more, which are less far behind` : "");
}

/** Partitions that stand, because the schema of their next record is not here. */
function waiting({ waiting, away }) {
  const stand = `Partitions that stand until a schema comes: ${number(waiting)} of ${number(status.partitions.count)}`;
  return `${stand}${away ? `; the registry has not answered for ${duration(away)}` : ""}.`;
}

/** One sentence: how much the worker could take, or what limits it. */
function verdict(now) {
  if (status.still > STILL) return `The loop has not turned for ${duration(status.still)}; the figures are of then.`;
  if (status.host.away) return `The model's process ended ${duration(status.host.away)} ago, and another one starts.`;
  if (status.schemas.waiting) return waiting(status.schemas);
  if (!now || status.phase !== "serving") return "";
  if (status.running > now.seconds && !now.answers) return `One run has gone on for ${duration(status.running)}, and nothing is answered meanwhile.`;
  const load = Math.max(now.busy, now.loop);
  if (now.settled && now.isUsual && load >= SOME_LOAD) capacity = now.settled / load;
  const more = capacity ? `: could take some ${some(capacity)} a second` : "";
  if (!now.requests && !now.settled) return `Idle${more}.`;
  if (load < FULL_LOAD) return `${load < SOME_LOAD ? "Hardly" : percent(load)} busy${more}.`;
  const limit = now.busy >= now.loop ? "the model is busy all the time" : "the loop is, which decodes and encodes";
  const { lag } = status.partitions;
  const wait = lag > now.settled ? `, and ${some(lag)} wait, ${duration(lag / now.settled)} of work` : "";
  return `At its limit with ${some(now.settled)} a second: ${limit}${wait}.`;
}

function drawRejections(now) {
  const counted = status.rejections.map((each, at) => ({ ...each, rate: now && now.rejections[at] / now.seconds })).filter((each) => each.count);
  say("rejections-of", counted.length ? "last 12 s" : "");
  fill("rejections", counted.length ? counted.map((each) => cells(each.code, rate(each.rate), number(each.count))) : [empty(3, "None since the start.")]);
  fill("reasons", status.reasons.length ? status.reasons.map((each) => make("li", {}, each.reason,
    make("small", { textContent: `${each.code}, ${number(each.count)} since the start, last ${each.source} ${duration(Math.max(1, Math.round(each.ago)))} ago` })))
    : [make("li", { className: "empty", textContent: "None." })]);
}

const pairs = (list) => list.filter(([, text]) => text).flatMap(([name, text]) => [make("dt", { textContent: name }), make("dd", { textContent: text })]);

function drawDeployment(now) {
  const { deployment, worker, host, model, schemas, state } = status;
  fill("setup", pairs([
    ["Model", model && `${model.name}, version ${model.version}`], ["File's SHA-256", model && (model.sha256 || model.file)],
    ["Device", model && model.device],
    ["Schema registry", schemas.away && `no answer for ${duration(schemas.away)}`],
    ["Linger in force", duration(status.linger)], ["Group", deployment.group], ["Records from", deployment.requests.join(", ")],
    ["Answers to", deployment.answers], ["Guarantee", deployment.guarantee.replaceAll("_", " ")],
    ["Worker", `${worker.version}, process ${worker.process} on ${worker.host}`], ["Up", duration(worker.up)],
    ["Model's process", [host.process, host.ended && `${number(host.ended)} ended`].filter(Boolean).join(", ")],
    ["Memory", worker.memory && `${bytes(worker.memory)}${worker.memory_limit ? ` of ${bytes(worker.memory_limit)}` : ""}`],
    ["Processor", now && `${percent(now.processor)} of a core`],
  ]));
  byId("stateful").hidden = !deployment.has_state;
  fill("state", pairs([
    ["Keys", number(state.keys)], ["Memory", bytes(state.bytes)], ["Waiting for their key", number(state.waiting)],
    ["Restoring", state.restoring ? `${number(state.restoring)} partitions, about ${number(state.left)} records to go` : "nothing"],
  ]));
  byId("replicas").hidden = !deployment.replicas.length;
  fill("replicas", deployment.replicas.map((each) => (/^https?:\/\//.test(each) ? make("a", { href: each, textContent: each }) : make("span", { textContent: each }))));
}

function drawPhase(phase, why) {
  document.body.dataset.phase = phase;
  say("phase", PHASES[phase]);
  byId("why").hidden = !why;
  say("why", why || "");
  document.title = `${PHASES[phase]}: ${status?.model?.name || "inference-worker"}`;
}

function draw() {
  const { model, deployment, worker } = status;
  say("model", model ? model.name : "inference-worker");
  say("about", [model && `version ${model.version}`, model && model.device, `group ${deployment.group}`, worker.host].filter(Boolean).join(" · "));
  drawPhase(status.phase, status.why && `${status.why[0].toUpperCase()}${status.why.slice(1)}.`);
  const now = lately(SHORT), seldom = lately(LONG);
  say("verdict", verdict(now));
  drawTiles(now);
  drawBatches(seldom);
  drawHeld();
  drawPartitions();
  drawRejections(seldom);
  drawDeployment(now);
}

// Asking

function take(answer) {
  if (status && status.worker.version !== answer.worker.version) return location.reload(); // another page may belong to it
  if (status && (status.worker.process !== answer.worker.process || status.worker.host !== answer.worker.host || answer.at < status.at)) {
    history = points = [];
    capacity = null;
  }
  if (answer.at != null) {
    const last = history[history.length - 1];
    const point = last && between(last, answer);
    if (point) points = [...points, { ...point, at: answer.at }].filter((each) => each.at > answer.at - KEPT);
    if (!last || point) history = [...history, answer].filter((each) => each.at > answer.at - 2 * LONG);
  }
  status = answer;
  answeredAt = new Date();
  draw();
}

function missing(reason) {
  const since = answeredAt ? `Last answer at ${answeredAt.toLocaleTimeString()}; the figures are of then.` : "There was none yet.";
  drawPhase("gone", `${reason} ${since} Trying again.`);
}

async function ask() {
  try {
    const response = await fetch("status", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    if (response.ok) take(await response.json());
    else missing(`The worker answers ${response.status}.`);
  } catch (error) {
    missing(error.name === "TimeoutError" ? "The worker does not answer." : "The worker has ended, or cannot be reached.");
  }
}

async function asking() {
  for (;;) {
    if (!isPaused) await ask();
    await new Promise((done) => setTimeout(done, EVERY));
  }
}

byId("pause").addEventListener("click", ({ target }) => {
  isPaused = !isPaused;
  target.setAttribute("aria-pressed", String(isPaused));
});
asking();
