// Which view is open, and its live stream. The address after # has the view and its parameters.
import { lagChart, sparkline } from "./charts.js";
import { h, patch } from "./dom.js";
import * as views from "./views.js";

const main = document.getElementById("main");
const state = document.getElementById("state");
const KEYS = { 0: "", 1: "groups", 2: "topics", 3: "transactions", 4: "queries", 5: "storage" };
let stream = null;
let shown = null; // The opened view, so that an answer that comes late is dropped.

if (new URLSearchParams(location.search).has("token")) {
  history.replaceState(null, "", `/${location.hash}`); // The cookie has it now.
}

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  const params = Object.fromEntries(new URLSearchParams(query ?? ""));
  const [kind, ...names] = parts;
  const one = { groups: views.group, topics: views.topic, transactions: views.transaction };
  const many = { undefined: views.overview, groups: views.groups, topics: views.topics,
    transactions: views.transactions, queries: views.queries, storage: views.storage, vacuum: views.vacuum };
  let view = names.length ? one[kind] : many[kind];
  if (kind === "topics" && names[1] === "records") view = views.records;
  return { view: view ?? views.overview, kind, names, params, hash: location.hash };
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function open() {
  stream?.close();
  const here = route();
  shown = here;
  here.view.enter?.();
  document.title = [...here.names, here.kind, "txlog"].filter(Boolean).join(" - ");
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${here.kind}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren(h("p", { class: "quiet" }, "Reading the log..."));
  listen(here);
}

function listen(here) {
  const query = new URLSearchParams(here.params);
  if (here.names.length) query.set("name", here.names[0]);
  const url = `/api/${here.view.api}?${query}`;
  stream?.close();
  stream = new EventSource(url);
  stream.addEventListener("view", (event) => {
    say(here.view.once ? "read once" : "live", false);
    show(here, JSON.parse(event.data));
    if (here.view.once) stream.close();
  });
  stream.addEventListener("failure", (event) => {
    const { error } = JSON.parse(event.data);
    say("cannot be read", true);
    main.replaceChildren(h("h1", {}, "The log could not be read"), h("p", { class: "notice" }, error.message));
    if (here.view.once) stream.close();
  });
  stream.onerror = () => say(stream.readyState === EventSource.CLOSED
    ? "closed: open the URL that 'txlog ui' has printed" : "no answer; trying again", true);
}

function say(text, bad) {
  if (state.textContent !== text) state.textContent = text;
  state.className = bad ? "bad" : "";
}

function show(here, found) {
  if (here !== shown) return;
  const fresh = h("div", {}, h("div", {}, here.view.render(found, here.names, here.params)));
  patch(main, fresh);
  main.dataset.shows = here.hash;
  main.querySelectorAll(".trend[data-keep]:empty").forEach((place) => nearby.observe(place));
  main.querySelectorAll(".chart:empty").forEach((place) => chart(place));
}

// The lag of a group is read only when its row is looked at.
const nearby = new IntersectionObserver((seen) => seen.filter((each) => each.isIntersecting).forEach(
  ({ target }) => { nearby.unobserve(target); trend(target); }));
const known = new Map();

async function trend(place) {
  const [, name] = place.dataset.keep.match(/^trend:(.*):\d+$/s);
  const { moments, unread } = await lagOf(name, "since=1h&step=2m", place.dataset.keep);
  place.replaceChildren(moments ? sparkline(moments.map((m) => m.lag), "lag of the last hour") : "?");
  place.title = unread.join("\n");
}

async function chart(place) {
  const [, name, since] = place.dataset.keep.match(/^chart:(.*):([^:]*):\d+$/s);
  place.append(h("p", { class: "quiet" }, "Reading the journals..."));
  const { moments, unread } = await lagOf(name, `since=${encodeURIComponent(since)}`, place.dataset.keep);
  if (!place.isConnected) return;
  if (moments) lagChart(place, moments);
  else place.replaceChildren();
  place.prepend(...unread.map((text) => h("p", { class: "notice" }, text)));
}

async function lagOf(name, query, key) {
  if (known.size > 500) known.clear();
  if (!known.has(key)) {
    known.set(key, fetch(`/api/group/lag?name=${encodeURIComponent(name)}&${query}`).then(
      async (answer) => (answer.ok ? answer.json() : { unread: [(await answer.json()).error.message] }),
    ).catch(() => ({ unread: ["The journals could not be read."] })));
  }
  return known.get(key);
}

document.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  const given = [...new FormData(form)].filter(([, value]) => value !== "");
  if (form.dataset.prices) {
    views.keepPrices(given);
    open();
    return;
  }
  location.hash = `#/${form.dataset.view}?${new URLSearchParams(given)}`;
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in KEYS) location.hash = `#/${KEYS[event.key]}`;
  if (event.key === "/" && main.querySelector("input")) {
    event.preventDefault();
    main.querySelector("input").focus();
  }
});

// A page in the background asks for nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) stream?.close();
  else if (shown && !shown.view.once) listen(shown);
});
window.addEventListener("hashchange", () => {
  if (!location.hash.startsWith("#main")) open();
});
open();
