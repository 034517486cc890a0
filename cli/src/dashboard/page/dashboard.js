"use strict";
// Values come from messages and from other programs. They are only ever set as text, never as HTML.
const COLOURS = ["#1f77b4", "#ff9f40", "#2ca02c", "#9467bd", "#17becf", "#d6619a", "#8c6d31", "#6b7f99", "#bcbd22", "#4b5bd1", "#e07b53", "#5aa57a"];
const STEPS = 300;
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);

let session = { allow_changes: false };
let overview = null;
let history = null;       // of the chosen limiter
let fixed = null;         // the position that the slider has chosen; null: live
let filter = null;        // of the list of dead letters
let next = null;          // its next page
let shownLimits = "";

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) node.append(child instanceof Node ? child : String(child));
  }
  return node;
}
function svg(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
const fill = (id, ...children) => $(id).replaceChildren(...children.filter((child) => child));
const empty = (...children) => el("p", { class: "empty" }, ...children);
const number = (value) => value === null || value === undefined ? "–" : Number(value).toLocaleString("en-US");
const utc = (text) => text ? text.replace("T", " ").replace(/\.\d+/, "").replace("Z", " UTC") : "–";
const clock = (ms) => new Date(ms).toISOString().slice(11, 19);

// columns: [title, class]; rows: lists of cells, each a text or a node
function table(columns, rows, each) {
  const head = el("tr", {}, ...columns.map(([title, kind]) => el("th", { class: kind || "" }, title)));
  const body = rows.map((cells, i) => {
    const row = el("tr", {}, ...cells.map((cell, c) => el("td", { class: columns[c][1] || "" }, cell)));
    if (each) each(row, i);
    return row;
  });
  return el("table", {}, el("thead", {}, head), el("tbody", {}, ...body));
}

async function ask(path, body) {
  const request = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Turnstile-Token": session.token || "" },
    body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, request);
  } catch {
    throw new Error("the dashboard does not answer: is turnstile dashboard still running?");
  }
  const json = await response.json().catch(() => ({ error: `unexpected answer (HTTP ${response.status})` }));
  if (!response.ok) throw new Error(json.error || `HTTP ${response.status}`);
  return json;
}
const parameters = (values) => new URLSearchParams(Object.entries(values).filter(([, value]) => value !== null && value !== "")).toString();

// --- problems, one line each ---
const problems = new Map();
function problem(of, text) {
  if (text) problems.set(of, text); else problems.delete(of);
  fill("problems", ...[...problems].map(([name, line]) => el("div", { "data-of": name }, `${name}: ${line}`)));
}
async function attempt(of, work) {
  try {
    await work();
    problem(of, null);
  } catch (error) {
    problem(of, error.message);
  }
}

// --- header and topics ---
const SOURCES = [["kafka", "Kafka"], ["token_log", "Token log"], ["postgres", "PostgreSQL"]];
function showSources() {
  fill("sources", ...SOURCES.map(([key, name]) => {
    const source = overview.sources[key];
    const state = source.state;
    problem(name, source.state === "unavailable" && source.why ? source.why : null);
    return el("span", { class: `source ${state}`, title: source.why || "" }, `${name}${state === "ok" ? "" : ` ${state}`}`);
  }));
  $("group").textContent = `group ${overview.group}`;
}
function showTopics() {
  const off = overview.sources.kafka.state === "off";
  if (overview.topics.length === 0) {
    fill("topics", empty(off ? "No broker is named. Give --kafka HOST:PORT, or write [kafka] into turnstile.toml."
      : overview.topics_known ? "No topic is known. Name topics: turnstile dashboard TOPIC, or write [topics.NAME] into turnstile.toml."
        : "Waiting for the first answer of Kafka …"));
  } else {
    const stalls = overview.stalled.length;
    fill("topics", table([["Topic"], ["Partitions", "num"], ["Rate, offsets/s", "num"], ["Lag, messages", "num"], ["Dead letters", "num"], ["State"]],
      overview.topics.map((topic) => [
        topic.topic, number(topic.partitions), topic.rate === null ? "–" : topic.rate.toFixed(1),
        number(topic.lag) + (topic.lag_unknown ? ` (${topic.lag_unknown} unknown)` : ""), number(topic.dead_letters), topicState(topic),
      ])));
    $("topics-note").textContent = stalls ? `${stalls} ${stalls === 1 ? "partition" : "partitions"} stalled` : "by committed offsets of the group";
  }
}
function topicState(topic) {
  if (!topic.exists) return el("span", { class: "bad" }, "does not exist");
  const pauses = (overview.pauses || []).filter((pause) => pause.topic === topic.topic);
  if (topic.paused) return el("span", { class: "warn" }, `paused by ${pauses[0] ? pauses[0].by : "an operator"}`);
  const stalled = overview.stalled.filter((stall) => stall.topic === topic.topic);
  if (stalled.length) {
    const longest = stalled.reduce((a, b) => a.for_ms > b.for_ms ? a : b);
    return el("span", { class: "bad" }, `${stalled.length} stalled, no progress for ${Math.round(longest.for_ms / 1000)} s`);
  }
  if (topic.paused_parts) return el("span", { class: "warn" }, `${topic.paused_parts} parts paused`);
  return el("span", { class: "good" }, "ok");
}

// --- permits over time ---
function showLimiterNames() {
  const names = overview.history.limiters;
  const select = $("limiter");
  if ([...select.options].map((option) => option.value).join("\n") === names.join("\n")) return;
  const chosen = select.value || names[0];
  select.replaceChildren(...names.map((name) => el("option", { value: name, selected: name === chosen }, name)));
}
async function loadHistory() {
  const limiter = $("limiter").value;
  if (!limiter) {
    history = null;
    const why = overview.history.why || "no process has a limiter yet. The first consumer with a limit over the cluster creates the token log";
    fill("chart"); fill("legend"); fill("at");
    fill("holders", empty(`No permits to show: ${why}.`));
    return;
  }
  problem("History", overview.history.ready ? overview.history.why : null);
  const seconds = Number($("window").value);
  const to = Date.now();
  const from = seconds === 0 ? overview.history.first_ms - 1 : to - seconds * 1000;
  const loaded = await ask(`api/permits/history?${parameters({ limiter, from: Math.round(Math.max(from, 0)), to, steps: STEPS })}`);
  // The slider refers to the history that it was moved on.
  if (fixed !== null || limiter !== $("limiter").value) return;
  history = loaded;
  draw();
}
function colour(i) { return COLOURS[i % COLOURS.length]; }
function niceStep(max) {
  const raw = max / 4, power = 10 ** Math.floor(Math.log10(raw));
  return Math.max(1, [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= raw));
}
function draw() {
  const chart = $("chart");
  const width = chart.clientWidth || 1200, height = 230, left = 46, right = 12, top = 10, bottom = 24;
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const count = history.times.length;
  const totals = history.times.map((_, i) => history.processes.reduce((sum, process) => sum + process.held[i], 0));
  const highest = Math.max(1, ...totals, ...history.limits.map((limit) => limit || 0));
  const max = highest * 1.08;
  const x = (i) => left + (width - left - right) * (count === 1 ? 0 : i / (count - 1));
  const y = (value) => height - bottom - (height - top - bottom) * value / max;
  const parts = [];
  const step = niceStep(highest);
  for (let value = 0; value <= max; value += step) {
    parts.push(svg("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), stroke: "#e6eaee" }));
    parts.push(svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, number(value)));
  }
  for (let i = 0; i <= 6; ++i) {
    const at = Math.round((count - 1) * i / 6);
    parts.push(svg("text", { x: x(at), y: height - 6, "text-anchor": i === 0 ? "start" : i === 6 ? "end" : "middle" }, clock(history.times[at]) + (i === 6 ? " UTC" : "")));
  }
  parts.push(svg("text", { x: left, y: top, "text-anchor": "start" }, "permits held"));
  const below = new Array(count).fill(0);
  history.processes.forEach((process, p) => {
    const upper = [], lower = [];
    for (let i = 0; i < count; ++i) {
      lower.push([x(i), y(below[i])]);
      below[i] += process.held[i];
      upper.push([x(i), y(below[i])]);
    }
    // Steps, not slopes: permits change at once.
    const stairs = (points) => points.map(([px, py], i) => i === 0 ? `${px},${py}` : `${px},${points[i - 1][1]} ${px},${py}`).join(" ");
    const backwards = lower.map(([px, py], i) => i === 0 ? `${px},${py}` : `${px},${lower[i - 1][1]} ${px},${py}`).join(" ").split(" ").reverse().join(" ");
    parts.push(svg("polygon", { points: `${stairs(upper)} ${backwards}`, fill: colour(p), "fill-opacity": 0.82 }));
  });
  let path = "", last = null;
  history.limits.forEach((limit, i) => {
    if (limit === null) return;
    path += last === null ? `M${x(i)},${y(limit)}` : limit === last ? `L${x(i)},${y(limit)}` : `L${x(i)},${y(last)}L${x(i)},${y(limit)}`;
    last = limit;
  });
  if (path) parts.push(svg("path", { d: path, fill: "none", stroke: "#b3261e", "stroke-width": 1.5, "stroke-dasharray": "5 3" }));
  const chosen = Number($("slider").value);
  if (fixed !== null) parts.push(svg("line", { x1: x(chosen), x2: x(chosen), y1: top, y2: height - bottom, stroke: "#1d2733", "stroke-width": 1.5 }));
  chart.replaceChildren(...parts);
  fill("legend",
    ...history.processes.map((process, p) => key(colour(p), process.name)),
    history.others ? el("span", { class: "dim" }, `and ${history.others} more`) : null,
    el("span", { class: "key" }, el("span", { class: "swatch line" }), "limit"));
  $("live").className = fixed === null ? "on" : "";
  if (fixed === null) showLive();
}
function key(fillColour, name) {
  const swatch = el("span", { class: "swatch" });
  swatch.style.background = fillColour;
  return el("span", { class: "key" }, swatch, name);
}
function nameOf(holder) {
  return holder.client || holder.host ? `${holder.client}@${holder.host}:${holder.pid}` : `member ${holder.member || ""}`;
}
function showLive() {
  const limiter = overview.limiters.find((entry) => entry.limiter === $("limiter").value);
  $("at").textContent = `Live, at position ${overview.position === null ? "–" : overview.position}`;
  if (!limiter || limiter.processes.length === 0) {
    fill("holders", empty("No process holds or wants a permit of this limiter now."));
    return;
  }
  fill("holders", table([["Process"], ["Held", "num"], ["In use", "num"], ["Waiting", "num"], ["State"]],
    limiter.processes.map((process) => [nameOf(process), number(process.held), number(process.in_use), number(process.waiting), process.draining ? "draining" : "member"])));
}
// Moving shows the chart's own figures at once. Then the token log is replayed up to that position.
let asked = 0;
async function slide() {
  if (!history) return;
  const i = Number($("slider").value);
  fixed = history.positions[i];
  draw();
  const limiter = $("limiter").value;
  if (fixed < 0) {
    $("at").textContent = `${clock(history.times[i])} UTC: before the beginning of the token log`;
    fill("holders", empty("The token log does not reach back so far."));
    return;
  }
  $("at").textContent = `${clock(history.times[i])} UTC, position ${fixed}: replaying the log …`;
  const mine = ++asked;
  await new Promise((done) => setTimeout(done, 150));
  if (mine !== asked) return;
  await attempt("Log replay", async () => {
    const replayed = await ask(`api/permits/at?position=${fixed}`);
    if (mine !== asked || fixed === null) return;
    $("at").textContent = `After position ${replayed.position} (${utc(replayed.time)}), as turnstile log replay --at ${replayed.position}`;
    const permits = replayed.permits.filter((permit) => permit.limiter === limiter && (permit.held > 0 || permit.wants > 0));
    fill("holders", permits.length === 0 ? empty("No process held or wanted a permit of this limiter then.")
      : table([["Process"], ["Held", "num"], ["In use", "num"], ["Wants", "num"], ["Since", "time"], ["Lease ends", "time"], ["State"]],
        permits.map((permit) => [nameOf(permit), number(permit.held), number(permit.busy), number(permit.wants), utc(permit.since), utc(permit.expires_at), permit.draining ? "draining" : "member"])));
  });
}
function goLive() {
  fixed = null;
  ++asked;
  $("slider").value = STEPS - 1;
  attempt("History", loadHistory);
}

// --- limits ---
function showLimits() {
  const state = JSON.stringify([overview.limiters.map((entry) => [entry.limiter, entry.limit, entry.set, entry.held, entry.in_use, entry.waiting]), overview.limit_changes]);
  const editing = document.activeElement && document.activeElement.classList.contains("short");
  if (state === shownLimits || editing) return;
  shownLimits = state;
  if (overview.limiters.length === 0) fill("limits", empty("No limiters: no running member has one, and none is set. See docs/guide/limits.md."));
  else {
    fill("limits", table([["Limiter"], ["Limit, permits", "num"], ["Decided by"], ["Held", "num"], ["In use", "num"], ["Waiting", "num"], ["Change"]],
      overview.limiters.map((entry) => {
        const latest = overview.limit_changes.find((change) => change.limiter === entry.limiter);
        const by = entry.set ? `an operator${latest && latest.by ? `: ${latest.by}, ${utc(latest.at)}` : ""}` : "configuration";
        const input = el("input", { class: "short", type: "number", min: 0, max: 1000000000, value: entry.limit, "aria-label": `new limit of ${entry.limiter}`, disabled: !session.allow_changes });
        const set = el("button", { type: "button", disabled: !session.allow_changes, onclick: () => setLimit(entry.limiter, Number(input.value), input) }, "Set");
        const unset = el("button", { type: "button", disabled: !session.allow_changes || !entry.set, onclick: () => setLimit(entry.limiter, null, input) }, "Unset");
        return [entry.limiter, number(entry.limit) + (entry.limit === 0 ? " (paused)" : ""), by, number(entry.held), number(entry.in_use), number(entry.waiting), el("span", {}, input, " ", set, " ", unset)];
      }), (row, i) => row.setAttribute("data-limiter", overview.limiters[i].limiter)),
      session.allow_changes ? null : el("p", { class: "empty" }, "To change limits here, start the dashboard with --allow-changes. 0 pauses a limiter."));
  }
  fill("changes", overview.limit_changes.length === 0 ? empty("No change is recorded. With the command line: turnstile limits set NAME N")
    : table([["Position", "num"], ["Time", "time"], ["Limiter"], ["Limit", "num"], ["By"]],
      overview.limit_changes.map((change) => [number(change.position), utc(change.at), change.limiter, change.limit === null ? "unset" : number(change.limit), change.by || "unknown"])));
}
async function setLimit(limiter, limit, input) {
  input.blur();
  fill("limit-result", el("div", { class: "note" }, `setting the limit of ${limiter} …`));
  try {
    const result = await ask("api/limits", { limiter, limit });
    const now = result.now;
    fill("limit-result", el("div", { class: "note" }, now ? `${limiter}: ${number(now.limit)} in effect (before: ${number(result.before.limit)}), by ${result.by}` : `${limiter}: no longer set`));
  } catch (error) {
    fill("limit-result", el("div", { class: "note error" }, error.message));
  }
  await refresh();
}

// --- dead letters ---
async function loadGroups() {
  await attempt("Dead letters", async () => {
    const byError = $("dead-by-error").checked;
    const query = parameters({ by: byError ? "" : "reason", all: $("dead-all").checked ? "1" : "" });
    const answer = await ask(`api/dead/groups?${query}`);
    if (answer.groups.length === 0) {
      fill("groups", empty("No dead letter waits. What failed permanently, or could not be run, would be here."));
      return;
    }
    fill("groups", table([["Count", "num"], ["Reason"], ["Topic"], ["Handler"], ...(byError ? [["Error"]] : []), ["Oldest", "time"], ["Newest", "time"]],
      answer.groups.map((group) => [number(group.count), group.reason, group.topic || "(unknown)", group.handler, ...(byError ? [group.error] : []), utc(group.oldest), utc(group.newest)]),
      (row, i) => {
        row.className = "pick";
        row.addEventListener("click", () => {
          for (const other of row.parentNode.children) other.classList.remove("on");
          row.classList.add("on");
          const group = answer.groups[i];
          if (!group.topic || !group.handler) { showUnknown(group); return; }
          filter = { reason: group.reason, topic: group.topic, handler: group.handler };
          openList();
        });
      }),
      answer.of_groups > answer.groups.length ? el("p", { class: "empty" }, `${number(answer.of_groups - answer.groups.length)} smaller groups are not shown.`) : null);
  });
}
// No filter matches them alone.
function showUnknown(group) {
  filter = null;
  for (const id of ["dead-list-card", "dead-one"]) $(id).hidden = true;
  fill("dead-unknown", el("div", { class: "note" }, `The tables no longer know the ${group.topic ? "handler" : "topic"} of these. One of them: turnstile dlq show ${group.example}`));
}
function openList() {
  fill("dead-unknown");
  $("dead-list-card").hidden = false;
  $("dead-one").hidden = true;
  fill("dead-one");
  $("dead-filter").textContent = `${filter.reason} in ${filter.topic}, handler ${filter.handler}, with any error`;
  fill("job");
  return loadList(null);
}
async function loadList(after) {
  await attempt("Dead letters", async () => {
    const page = await ask(`api/dead?${parameters({ ...filter, after: after || "", all: $("dead-all").checked ? "1" : "" })}`);
    next = page.next;
    $("dead-more").hidden = !next;
    if (page.dead.length === 0) { fill("dead-list", empty("None of these waits any more.")); return; }
    fill("dead-list", table([[""], ["Number", "num"], ["Died", "time"], ["From"], ["Id"], ["Runs", "num"], ["Error"], ["State"]],
      page.dead.map((letter) => [
        el("input", { type: "checkbox", class: "select", value: letter.number, "aria-label": `select ${letter.number}`, onclick: (event) => event.stopPropagation() }),
        letter.number, utc(letter.died_at), `${letter.topic}[${letter.partition}]@${letter.offset}`, letter.id || "none", letter.attempts, letter.error,
        letter.replayed_at ? "replayed" : letter.replay_in_doubt ? "may have been replayed" : letter.edits ? "edited" : "waits",
      ]),
      (row, i) => {
        row.className = "pick";
        row.setAttribute("data-number", page.dead[i].number);
        row.addEventListener("click", () => openLetter(page.dead[i].number));
      }));
  });
}
const shown = (value) => value === null ? "null" : typeof value === "string" ? value : `base64: ${value.base64}`;
async function openLetter(numberOf) {
  await attempt("Dead letters", async () => {
    const letter = await ask(`api/dead/${numberOf}`);
    const facts = el("dl", { class: "facts" });
    const fact = (name, value) => facts.append(el("dt", {}, name), el("dd", {}, value));
    fact("from", letter.place);
    fact("handler", letter.handler);
    fact("id", letter.id ? el("a", { href: `#message=${encodeURIComponent(letter.id)}` }, letter.id) : "none");
    fact("died", utc(letter.died_at));
    fact("reason", letter.reason);
    fact("error", letter.error);
    fact("runs", number(letter.attempts));
    for (const edit of letter.edited) fact("edited", `${utc(edit.at)} by ${edit.by}`);
    if (letter.damage) fact("damaged", letter.damage);
    fact("key", shown(letter.key));
    for (const header of letter.headers) fact("header", `${shown(header.name)}: ${shown(header.value)}`);
    const result = el("div", { id: "edit-result" });
    const isText = typeof letter.payload === "string";
    const payload = el("textarea", { id: "payload", spellcheck: "false" });
    payload.value = isText ? letter.payload : "";
    const why = letter.editable || (!isText ? "the payload is no text; use: turnstile dlq edit NUMBER --file FILE" : session.allow_changes ? "" : "start the dashboard with --allow-changes to edit and replay");
    const save = el("button", { type: "button", id: "save", onclick: async () => {
      try {
        await ask(`api/dead/${numberOf}/edit`, { payload: payload.value, edits: letter.edits });
        await openLetter(numberOf);
        $("edit-result").replaceChildren(el("div", { class: "note" }, "Saved. A replay publishes the new payload."));
      } catch (error) {
        result.replaceChildren(el("div", { class: "note error" }, error.message));
      }
    } }, "Save the payload");
    const replay = el("button", { type: "button", id: "replay-one", disabled: !session.allow_changes || letter.replayed_at !== null, onclick: () => startReplay({ numbers: [numberOf] }) }, "Replay this one");
    fill("dead-one", el("div", { class: "bar" }, el("h2", {}, `Dead letter ${letter.number}`), el("span", { class: "grow" }), replay),
      facts, el("h3", {}, "Payload"), why ? el("pre", { id: "payload" }, shown(letter.payload)) : payload,
      why ? el("p", { class: "empty" }, `Read-only: ${why}`) : el("div", { class: "bar" }, save, el("span", { class: "dim" }, "The id must stay. Headers: turnstile dlq edit NUMBER --header NAME=VALUE")), result);
    $("dead-one").hidden = false;
    $("dead-one").scrollIntoView({ block: "nearest" });
  });
}
async function startReplay(which) {
  try {
    showJob(await ask("api/replay", { ...which, rate: $("rate").value }));
    await followReplay();
  } catch (error) {
    fill("job", el("div", { class: "note error" }, error.message));
  }
}
function showJob(job) {
  if (!job) return;
  const text = `${job.running ? "Replaying" : "Replay ended"}: ${number(job.replayed)} of ${number(job.expected)} replayed`
    + (job.skipped ? `, ${number(job.skipped)} skipped` : "") + (job.in_doubt ? `, ${number(job.in_doubt)} in doubt` : "");
  fill("job", el("div", { class: "note", id: "job-state" }, text, " ", job.running ? el("button", { type: "button", onclick: () => ask("api/replay/stop", {}) }, "Stop") : null),
    job.error ? el("div", { class: "note error" }, job.error) : null,
    ...job.left_out.map((left) => el("div", { class: "note" }, `${number(left.count)} left out: ${left.why}`)),
    ...job.notes.slice(-10).map((note) => el("div", { class: "dim" }, `${note.number} ${note.result}: ${note.text}`)));
}
async function followReplay() {
  for (;;) {
    const job = await ask("api/replay");
    showJob(job);
    if (!job || !job.running) break;
    await new Promise((done) => setTimeout(done, 400));
  }
  await loadGroups();
  if (filter) await loadList(null);
}
async function previewReplay() {
  try {
    const answer = await ask("api/replay/preview", { ...filter, rate: $("rate").value });
    fill("job", el("div", { class: "note" }, `Dry run: would replay ${number(answer.would_replay)}${answer.seconds === null ? "" : ` in ${answer.seconds.toFixed(0)} s`}`),
      ...answer.would_skip.map((skip) => el("div", { class: "note" }, `would skip ${number(skip.count)}: ${skip.why}`)));
  } catch (error) {
    fill("job", el("div", { class: "note error" }, error.message));
  }
}

// --- message ---
async function lookUp(id) {
  $("message-id").value = id;
  fill("message", empty("Looking …"));
  try {
    const known = await ask(`api/message?${parameters({ id })}`);
    const events = [];
    for (const seen of known.seen) events.push([seen.seen_at, "took effect", seen.handler, where(seen)]);
    for (const claim of known.claims) events.push([claim.claimed_at, claim.state, claim.handler, `${where(claim)}, claim ${claim.fence}${claim.error ? `: ${claim.error}` : ""}`]);
    for (const letter of known.dead) {
      events.push([letter.died_at, `dead letter ${letter.number}`, letter.handler, `${letter.reason} after ${letter.attempts} runs, from ${where(letter)}: ${letter.error}`]);
      for (const edit of letter.edited) events.push([edit.at, "edited", letter.handler, `by ${edit.by}`]);
      if (letter.replayed_at) events.push([letter.replayed_at, "replayed", letter.handler, `dead letter ${letter.number}`]);
    }
    for (const reply of known.replies) events.push([reply.replied_at, "response stored", reply.handler, `${number(reply.bytes)} bytes`]);
    for (const record of known.outbox) events.push([record.written_at, record.state.includes("attempt") ? `retry: ${record.state}` : `outbox: ${record.state}`, "", `${record.id} to ${record.topic}${record.due_at ? `, due ${utc(record.due_at)}` : ""}${record.same_transaction ? " (of its transaction)" : ""}`]);
    events.sort((a, b) => a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0);
    const topic = el("select", {}, ...known.topics.map((name) => el("option", { value: name }, name)));
    const since = el("input", { value: "1h ago", size: 18, "aria-label": "since" });
    const found = el("div", { id: "deliveries" });
    const search = el("button", { type: "button", id: "search", onclick: async () => {
      found.replaceChildren(empty("Reading the topic …"));
      try {
        showDeliveries(found, await ask(`api/message/records?${parameters({ id, topic: topic.value, since: since.value })}`));
      } catch (error) {
        found.replaceChildren(el("div", { class: "note error" }, error.message));
      }
    } }, "Search");
    fill("message",
      el("dl", { class: "facts" }, el("dt", {}, "id"), el("dd", { id: "asked" }, known.asked), el("dt", {}, "stored as"), el("dd", {}, known.id)),
      el("h3", {}, "In the database"),
      events.length === 0 ? empty("Nothing is recorded under this id: it was not delivered yet, it runs now, or its row was deleted for its age.")
        : table([["Time", "time"], ["What"], ["Handler"], ["Details"]], events.map((event) => [utc(event[0]), event[1], event[2], event[3]])),
      el("h3", {}, "Deliveries in Kafka"),
      known.topics.length === 0 ? empty("No topic was read with this database.") : el("div", { class: "bar" }, el("label", {}, "Topic ", topic), el("label", {}, "Since ", since), search,
        el("span", { class: "dim" }, "finds each record with this id: the one that took effect, and duplicates")), found);
  } catch (error) {
    fill("message", el("div", { class: "note error" }, error.message));
  }
}
const where = (row) => row.topic === null ? "a call (HTTP or Inbox)" : `${row.topic}[${row.partition}]@${row.offset} (group ${row.group})`;
function showDeliveries(box, answer) {
  const note = `${number(answer.read)} records read${answer.complete ? "" : ", and the search ended before the end of the topic: choose a later start"}.`;
  if (answer.records.length === 0) { box.replaceChildren(empty(`No record with this id. ${note}`)); return; }
  box.replaceChildren(table([["Time", "time"], ["Record"], ["Fate"]],
    answer.records.map((record) => [utc(record.time), `${answer.topic}[${record.partition}]@${record.offset}`, record.fate])), el("p", { class: "empty" }, note));
}

// --- the page ---
function showTab() {
  const [name, value] = location.hash.slice(1).split("=");
  const tab = ["permits", "dead", "message", "limits"].includes(name) ? name : "permits";
  for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== `tab-${tab}`;
  for (const link of $("tabs").children) link.className = link.hash === `#${tab}` ? "on" : "";
  if (tab === "dead") loadGroups();
  if (tab === "message" && value) lookUp(decodeURIComponent(value));
  if (tab === "permits" && history) draw();
}
async function refresh() {
  await attempt("Dashboard", async () => {
    overview = await ask("api/overview");
    showSources();
    showTopics();
    showLimits();
    showLimiterNames();
  });
  if (overview && fixed === null) await attempt("History", loadHistory);
}
async function begin() {
  await attempt("Dashboard", async () => { session = await ask("api/session"); });
  $("mode").textContent = session.allow_changes ? "changes allowed" : "read-only";
  $("mode").className = session.allow_changes ? "changes" : "";
  for (const id of ["replay-preview", "replay-selected", "replay-all"]) {
    $(id).disabled = !session.allow_changes;
    if (!session.allow_changes) $(id).title = "start the dashboard with --allow-changes";
  }
  $("slider").addEventListener("input", slide);
  $("live").addEventListener("click", goLive);
  $("limiter").addEventListener("change", goLive);
  $("window").addEventListener("change", goLive);
  $("dead-refresh").addEventListener("click", loadGroups);
  $("dead-by-error").addEventListener("change", loadGroups);
  $("dead-all").addEventListener("change", loadGroups);
  $("dead-more").addEventListener("click", () => loadList(next));
  $("replay-preview").addEventListener("click", previewReplay);
  $("replay-all").addEventListener("click", () => startReplay(filter));
  $("replay-selected").addEventListener("click", () => {
    const numbers = [...document.querySelectorAll("#dead-list input.select:checked")].map((box) => Number(box.value));
    if (numbers.length) startReplay({ numbers });
    else fill("job", el("div", { class: "note" }, "Select dead letters in the list first."));
  });
  $("lookup").addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = `message=${encodeURIComponent($("message-id").value.trim())}`;
  });
  window.addEventListener("hashchange", showTab);
  window.addEventListener("resize", () => { if (history) draw(); });
  showTab();
  for (;;) {
    await refresh();
    await new Promise((done) => setTimeout(done, document.hidden ? 10000 : 2000));
  }
}
begin();
