// Each view: its part of the API, whether it is live, and what a document looks like.
import { course, sparkline, waiting } from "./charts.js";
import { bytes, counted, duration, facts, h, link, number, table, time, to } from "./dom.js";

const minute = () => Math.floor(Date.now() / 60000);

const lag = (row) => (row.lag === null && row.known_lag !== undefined
  ? `at least ${number(row.known_lag)}` : number(row.lag));
const age = (seconds) => (seconds > 300
  ? h("span", { class: "look" }, duration(seconds)) : duration(seconds));

function filter(kind, params, label, more = []) {
  return h("form", { "data-keep": `form:${kind}`, "data-view": kind, role: "search" },
    h("label", {}, label, h("input", { name: "q", value: params.q ?? "", type: "search" })),
    more, h("button", {}, "Show"));
}

function choice(name, label, options, chosen) {
  return h("label", {}, label, h("select", { name }, options.map(([value, text]) =>
    h("option", { value, selected: value === (chosen ?? "") }, text))));
}

const unread = (found) => found.unread.map((text) => h("p", { class: "notice" }, text));

function pages(kind, document, params, one) {
  const at = (page, text) => (page < 0 || page >= document.pages ? h("span", { class: "quiet" }, text)
    : h("a", { href: to([kind], { ...params, page }) }, text));
  return h("p", { class: "pages" }, counted(document.total, one, kind), document.pages > 1
    ? [at(document.page - 1, "Earlier page"), `page ${document.page + 1} of ${document.pages}`,
      at(document.page + 1, "Later page")] : null);
}

export const overview = {
  api: "overview",
  render: (found) => [
    h("h1", {}, "Is anything wrong?"),
    h("ul", { class: "lines" }, found.lines.map((line) => h("li", {},
      h("span", { class: line.status === "ok" ? "ok" : "look" }, line.status === "ok" ? "OK" : "Look"),
      link(line.name, line.view), h("span", {}, line.text)))),
    h("p", { class: "quiet" }, "Log ", h("code", {}, found.root),
      ". Keys: 0 to 5 open a view, / goes to its filter."),
  ],
};

export const groups = {
  api: "groups",
  render: (found, _, params) => [
    h("h1", {}, "Consumer groups"), filter("groups", params, "Name contains"), ...unread(found),
    table("Consumer groups", [
      ["Group", (row) => link(row.group, "groups", row.group), "name"],
      ["Lag (records)", lag, "number"],
      ["Lag (time)", (row) => age(row.lag_seconds), "number"],
      ["Last hour", (row) => waiting(`trend:${row.group}:${minute()}`, "trend")],
      ["Topics", (row) => number(row.topics), "number"],
      ["Pending", (row) => number(row.pending), "number"],
      ["Owner", (row) => row.owner, "name"],
    ], found.groups, "No consumer group has committed an offset here."),
    found.sorts_all ? null : h("p", { class: "quiet" }, "So many groups are listed by name, and sorted "
      + "by lag within a page; the filter finds one."),
    pages("groups", found, params, "group"),
  ],
};

export const group = {
  api: "group",
  render: (found, [name], params) => [
    h("h1", {}, `Group ${found.group}`), ...unread(found),
    facts([["Lag", lag({ ...found,
      known_lag: found.partitions.reduce((sum, each) => sum + (each.lag ?? 0), 0) })], ["Oldest unread record", age(found.lag_seconds)],
      ["Owner", found.owner], ["Last commit", time(found.last_commit)],
      ["In transaction", found.last_commit_transaction
      && link(found.last_commit_transaction, "transactions", found.last_commit_transaction)]]),
    h("p", {}, "Lag since ", ["15m", "1h", "6h", "1d"].flatMap((since) => [
      h("a", { href: to(["groups", name], { since }),
        "aria-current": since === (params.since ?? "1h") ? "true" : null }, since), " "])),
    h("div", { class: "chart", "data-keep": `chart:${name}:${params.since ?? "1h"}:${minute()}` }),
    h("h2", {}, "Partitions"),
    table("Partitions", [
      ["Topic", (row) => link(row.topic, "topics", row.topic), "name"],
      ["Partition", (row) => row.partition, "number"],
      ["Offset", (row) => (row.current_offset === null ? "none" : number(row.current_offset)), "number"],
      ["End", (row) => number(row.log_end_offset), "number"],
      ["Lag", lag, "number"], ["Age", (row) => age(row.lag_seconds), "number"],
      ["Undecided", (row) => number(row.undecided), "number"],
      ["Committed", (row) => time(row.committed_at), "number"],
    ], found.partitions, "It reads no partition."),
    found.pending.length ? [h("h2", {}, "Offsets that wait for a transaction"), table("Pending", [
      ["Transaction", (row) => link(row.transaction, "transactions", row.transaction), "name"],
      ["Owner", (row) => row.transactional_id, "name"], ["Outcome", (row) => row.outcome],
      ["For", (row) => duration(row.duration_ms / 1000), "number"],
      ["Partitions", (row) => row.offsets.map((o) => `${o.topic}-${o.partition}`).join(", "), "name"],
    ], found.pending, "")] : null,
  ].flat(),
};

let before = new Map();

function rate(row) {
  const now = Date.now();
  const known = before.get(row.topic);
  if (!known || known.ends > row.end_offsets) before.set(row.topic, { ends: row.end_offsets, at: now });
  const seconds = known ? (now - known.at) / 1000 : 0;
  return seconds < 1 ? "-" : `${number(Math.round((row.end_offsets - known.ends) / seconds))}/s`;
}

export const topics = {
  api: "topics",
  enter: () => { before = new Map(); },
  render: (found, _, params) => [
    h("h1", {}, "Topics"), filter("topics", params, "Name contains"), ...unread(found),
    table("Topics", [
      ["Topic", (row) => link(row.topic, "topics", row.topic), "name"],
      ["Partitions", (row) => number(row.partitions), "number"],
      ["Offsets", (row) => number(row.offsets), "number"],
      ["Since opened", rate, "number"],
      ["Open transactions", (row) => number(row.open_transactions), "number"],
      ["Slowest group", (row) => (row.worst_group
        ? h("span", {}, link(row.worst_group.group, "groups", row.worst_group.group), ": ",
          lag(row.worst_group), ", ", age(row.worst_group.lag_seconds)) : ""), "name"],
      ["", (row) => link("records", "topics", row.topic, "records")],
    ], found.topics, "There are no topics here."),
    pages("topics", found, params, "topic"),
  ],
};

export const topic = {
  api: "topic",
  render: (found, [name]) => [
    h("h1", {}, `Topic ${found.topic}`),
    ...unread(found), found.is_being_deleted ? h("p", { class: "notice" }, "Its deletion has begun.") : null,
    h("p", {}, "Read by ", found.groups.length ? found.groups.flatMap((each, place) =>
      [place ? ", " : "", link(each, "groups", each)]) : "no group", "."),
    h("h2", {}, "Partitions"),
    table("Partitions", [
      ["Partition", (row) => h("a", { href: to(["topics", name, "records"],
        { partition: row.partition, from: "latest" }) }, `${row.partition}: records`)],
      ["Start", (row) => number(row.log_start_offset), "number"],
      ["Last stable", (row) => number(row.last_stable_offset), "number"],
      ["End", (row) => number(row.log_end_offset), "number"],
      ["Undecided", (row) => number(row.log_end_offset - row.last_stable_offset), "number"],
    ], found.partitions, ""),
    found.open_transactions.length ? h("p", {}, "Open transactions: ",
      found.open_transactions.map((id) => [link(id, "transactions", id), " "])
        .flat()) : null,
    h("h2", {}, "Columns"),
    table("Columns", [["Column", (row) => row.column, "name"], ["Type", (row) => row.type],
      ["Null", (row) => (row.nullable ? "yes" : "no")]], found.schema, ""),
    h("h2", {}, "Settings"), facts(Object.entries(found.config).map(([n, v]) => [n, String(v)])),
  ],
};

const text = (value) => (value === null || value === undefined ? h("span", { class: "quiet" }, "null")
  : h("pre", {}, typeof value === "string" ? value : JSON.stringify(value, null, 1)));

function recordRows(found) {
  const rows = [...found.records, ...found.gaps.map((gap) => ({ gap, offset: gap.start_offset }))];
  return rows.sort((a, b) => Number(a.offset) - Number(b.offset));
}

export const records = {
  api: "topic/records",
  once: true,
  render: (found, [name], params) => [
    h("h1", {}, "Records of ", link(name, "topics", name)),
    h("form", { "data-keep": `form:records:${name}:${location.hash}`, "data-view": `topics/${encodeURIComponent(name)}/records` },
      h("label", {}, "Partition", h("input", { name: "partition", size: 4, inputmode: "numeric",
        value: params.partition ?? "0" })),
      h("label", {}, "From (offset, @time, latest)", h("input", { name: "from", size: 22,
        value: params.from ?? "earliest" })),
      h("label", {}, "Key", h("input", { name: "key", size: 14, value: params.key ?? "" })),
      h("button", {}, "Show")),
    h("p", { class: "quiet" }, `Offsets ${number(found.log_start_offset)} to `
      + `${number(found.last_stable_offset)}`, found.log_end_offset > found.last_stable_offset
      ? `; ${number(found.log_end_offset - found.last_stable_offset)} more wait for open transactions.` : "."),
    table("Records", [
      ["Offset", (row) => (row.gap ? `${row.gap.start_offset} to ${row.gap.end_offset - 1}`
        : row.offset), "number"],
      ["Time", (row) => (row.gap ? row.gap.why : time(String(row.timestamp))), "number"],
      ["Key", (row) => (row.gap || !("key" in row) ? "" : text(row.key)), "name"],
      ["Value", (row) => (row.gap ? "not visible to consumers" : text(row.value)), "value"],
      ["Headers", (row) => (row.headers?.length ? text(row.headers.map((each) =>
        `${each.key}: ${typeof each.value === "string" ? each.value : JSON.stringify(each.value)}`).join("\n")) : "")],
    ], recordRows(found), "No record is visible from here on."),
    found.next === null ? h("p", { class: "quiet" }, "This is the end.") : h("p", {}, h("a", {
      href: to(["topics", name, "records"], { ...params, from: found.next }) }, `On from ${found.next}`)),
  ],
};

const outcome = (row) => h("span", { class: row.outcome === "COMMITTED" ? "ok"
  : row.outcome === "ABORTED" ? "look" : null }, row.outcome);

function blocks(row) {
  if (!row.blocks.length) return row.groups?.length ? `offsets of ${row.groups.join(", ")}` : "nothing";
  const where = row.blocks.map((b) => `${b.topic}-${b.partition} from offset ${b.start_offset}`);
  return `${where.join(", ")}; readers: ${row.blocked_groups.join(", ") || "no group"}`;
}

export const transactions = {
  api: "transactions",
  render: (found, _, params) => {
    const rows = found.transactions;
    const until = Date.now();
    const from = Math.min(...rows.map((row) => Date.parse(row.begun ?? row.decided ?? new Date())), until);
    return [
      h("h1", {}, "Transactions"), filter("transactions", params, "Id, tag, topic or query contains", [
        choice("state", "Outcome", [["", "all"], ["OPEN", "open"], ["COMMITTED", "committed"],
          ["ABORTED", "aborted"], ["DEAD_LETTERED", "dead-lettered"]], params.state),
        choice("since", "Since", [["", "1 hour"], ["15m", "15 minutes"], ["1d", "1 day"], ["7d", "7 days"]], params.since)]),
      ...unread(found), h("h2", {}, `Open now: ${found.open_total}`),
      table("Open transactions", [
        ["Transaction", (row) => link(row.transaction, "transactions", row.transaction), "name"],
        ["Owner", (row) => row.transactional_id, "name"],
        ["State", (row) => row.transaction_state ?? "Ongoing"],
        ["Open for", (row) => h("span", { class: row.is_late ? "look" : null },
          duration(row.duration_ms / 1000) + (row.is_late ? " (late)" : "")), "number"],
        ["Blocks", blocks, "value"],
        ["Ended by", (row) => h("code", {}, row.command), "value"],
      ], found.open, "No transaction is open."),
      h("h2", {}, "Course"),
      table("Transactions", [
        ["Transaction", (row) => link(row.transaction, "transactions", row.transaction), "name"],
        ["Outcome", outcome], ["Begun, decided, complete", (row) => h("span", { class: "span" }, course(row, from, until))],
        ["Decided", (row) => time(row.decided), "number"],
        ["Records", (row) => (row.records === null ? "-" : number(row.records)), "number"],
        ["Owner", (row) => row.transactional_id, "name"], ["Tag", (row) => row.tag],
        ["Topics", (row) => row.topics.join(", "), "name"],
        ["Batch", (row) => row.batch_id, "number"],
      ], rows, "None."),
      h("p", { class: "quiet" }, `The journals tell all since ${time(found.covered_since)} UTC.`),
      pages("transactions", found, params, "transaction"),
    ];
  },
};

export const transaction = {
  api: "transaction",
  render: (found) => [
    h("h1", {}, `Transaction ${found.transaction}`), ...unread(found),
    facts([["Outcome", outcome(found)], ["Owner", found.transactional_id],
      ["Coordinator", found.coordinator], ["Groups with pending offsets", found.pending_groups.join(", ")],
      ...(found.open ? [["State", found.open.transaction_state], ["Started", time(found.open.started_at)],
        ["Open for", duration(found.open.duration_ms / 1000)],
        ["Partitions", found.open.partitions.map((p) => `${p.topic}-${p.partition}`).join(", ")]] : [])]),
    h("h2", {}, "Steps"),
    table("Steps", [
      ["Time", (row) => time(row.at), "number"],
      ["Later by", (row) => (row.at_ms === found.timeline[0].at_ms ? ""
        : `${number(row.at_ms - found.timeline[0].at_ms)} ms`), "number"],
      ["Step", (row) => row.step], ["Where", (row) => row.where, "name"],
      ["", (row) => row.detail, "name"],
    ], found.timeline, "The journals tell nothing of it any more, or not yet."),
    found.open ? h("p", {}, "It is ended by ", h("code", {}, `txlog txn abort ${found.transaction} --execute`)) : null,
  ],
};

export const queries = {
  api: "queries",
  render: (found, _, params) => [
    h("h1", {}, "Spark queries"), ...unread(found),
    table("Spark queries", [
      ["Query", (row) => row.query_id + (row.label ? ` (${row.label})` : ""), "name"],
      ["Batch", (row) => row.batch_id, "number"],
      ["Commits in an hour", (row) => number(row.commits), "number"],
      ["Epochs", (row) => number(row.epochs), "number"],
      ["Between two", (row) => (row.median_seconds === null ? "-" : duration(row.median_seconds)), "number"],
      ["Records a batch", (row) => h("span", { class: "trend" }, sparkline(row.batches.map((b) => b.records),
        "records of each batch"))],
      ["Last commit", (row) => time(row.batches.at(-1)?.decided), "number"],
      ["Has read", (row) => row.ranges.map((r) => `${r.topic}-${r.partition} to ${r.end_offset}`).join(", "), "value"],
    ], found.queries, "No Spark query has committed a micro-batch here."),
    pages("queries", found, params, "query"),
  ],
};

const PRICES = { put: ["A million PUTs or LISTs, $", 5], get: ["A million GETs, $", 0.4],
  month: ["A GB a month, $", 0.023] };
const PRICED = { GET: "get", PUT: "put", LIST: "put" };

function price(name) {
  const given = Number(localStorage.getItem(`price:${name}`) ?? PRICES[name][1]);
  return Number.isFinite(given) ? given : 0;
}

const dollars = (value, digits = 2) => `$${value.toLocaleString("en-US",
  { maximumFractionDigits: digits })}`;

function cost(found) {
  const count = found.writes.reduce((sum, row) => sum + row.count, 0);
  const gigabytes = found.bytes / 1e9;
  return [
    h("p", {}, `${counted(count, "PUT", "PUTs")} in the last day: `, h("strong", {},
      dollars((count * 30 * price("put")) / 1e6)), " in 30 such days. What is stored: ",
    h("strong", {}, dollars(gigabytes * price("month"))), " a month."),
    h("form", { "data-keep": "form:prices", "data-prices": "true", "data-view": "storage" },
      Object.entries(PRICES).map(([name, [label]]) => h("label", {}, label, h("input", {
        name, size: 8, inputmode: "decimal", value: price(name) }))), h("button", {}, "Reckon")),
  ];
}

function own(found) {
  if (!found) return null;
  const hours = (Date.now() - Date.parse(found.since)) / 3600000;
  const sum = found.counts.reduce((total, row) => total + row.count * (PRICED[row.operation]
    ? price(PRICED[row.operation]) / 1e6 : 0), 0);
  const counts = found.counts.map((row) => counted(row.count, row.operation, `${row.operation}s`)).join(", ");
  return h("p", {}, `This page's own process has sent ${counts} in ${duration(hours * 3600)}: `,
    h("strong", {}, dollars(sum, 4)),
    hours < 1 ? "." : `, and ${dollars((sum * 720) / hours)} in 30 days like that.`);
}

export function keepPrices(given) {
  given.forEach(([name, value]) => localStorage.setItem(`price:${name}`, value));
}

export const storage = {
  api: "storage",
  once: true,
  render: (found) => [
    h("h1", {}, "Storage"),
    table("Kinds", [["Kind", (row) => row.kind], ["Objects", (row) => number(row.objects), "number"],
      ["Size", (row) => bytes(row.bytes), "number"]], found.kinds, ""),
    h("h2", {}, "Largest topics"),
    table("Topics", [["Topic", (row) => link(row.topic, "topics", row.topic), "name"],
      ["Size", (row) => bytes(row.bytes), "number"]], found.topics, "There are no topics here."),
    h("h2", {}, "Requests that wrote, and their price"),
    table("Requests", [["Operation", (row) => row.operation], ["Kind", (row) => row.kind],
      ["In the last day", (row) => number(row.count), "number"]], found.writes,
    "Nothing was written in the last day."),
    ...cost(found),
    own(found.own_requests),
    h("p", { class: "quiet" }, "Objects that were deleted since are not among the PUTs. What other "
      + "processes read is stored nowhere: the bucket's own request metrics, or its bill, tell."),
    h("h2", {}, "Vacuum"), h("p", {}, link("What would vacuum delete now?", "vacuum")),
  ],
};

export const vacuum = {
  api: "vacuum",
  once: true,
  render: (found) => [
    h("h1", {}, "Vacuum"),
    facts([["Objects", number(found.objects)], ["Size", bytes(found.bytes)],
      ["Deleted topics", found.deleted_topics.join(", ")]]),
    h("p", {}, "They are deleted by ", h("code", {}, found.command)),
  ],
};
