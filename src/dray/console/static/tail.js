// @ts-check
// Records as they come. The browser shows the newest thousand; the server sends every one of them.
import { showTimes } from "./times.js";

const SHOWN = 1000;

const button = document.querySelector("[data-tail]");
const body = document.querySelector("#records tbody");
const status = document.querySelector("[data-tail-status]");

/** @type {EventSource | null} */
let source = null;
/** Where the last event left off, for a view that was paused. */
let place = "";
let received = 0;

/** @param {string} name @param {string} [className] @param {string} [text] */
function made(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** @param {{ kind: string, text: string, size: number, cut: boolean }} shown */
function data(shown) {
  if (shown.kind === "null" || shown.kind === "empty") return made("span", "nothing", shown.kind);
  const element = made("span", `data ${shown.kind}`, shown.text + (shown.cut ? "…" : ""));
  return element;
}

/** @param {any} row */
function rowOf(row) {
  const line = made("tr", "fresh");
  const topic = /** @type {HTMLElement} */ (button).dataset.topic ?? "";
  const link = made("a", "", row.offset);
  link.setAttribute("href", `/topics/${encodeURIComponent(topic)}/${row.partition}/${row.offset}`);
  const time = made("time", "", row.time);
  time.dataset.ms = String(row.timestamp);
  const cells = [
    made("td", "n", String(row.partition)),
    made("td", "n"),
    made("td", "time"),
    made("td", "key"),
    made("td", "value"),
    made("td", "n wide", String(row.size)),
  ];
  cells[1].append(link);
  cells[2].append(time);
  cells[3].append(data(row.key));
  cells[4].append(row.trouble ? made("span", "trouble", row.trouble) : data(row.value));
  line.append(...cells);
  return line;
}

/** @param {string} text */
function say(text) {
  if (status) status.textContent = text;
}

function stop() {
  source?.close();
  source = null;
  button?.setAttribute("aria-pressed", "false");
}

function start() {
  const given = /** @type {HTMLElement} */ (button);
  const address = new URL(given.dataset.tail ?? "", location.href);
  if (place) address.searchParams.set("after", place);
  source = new EventSource(address);
  given.setAttribute("aria-pressed", "true");
  say("Connecting…");
  let waiting = true;
  // Only from here on no record is missed: the server has fixed where each partition is read from.
  source.addEventListener("begun", (event) => {
    place = event.lastEventId || place;
    if (waiting) say("Waiting for records…");
  });
  source.addEventListener("records", (event) => {
    place = event.lastEventId || place;
    waiting = false;
    const rows = JSON.parse(event.data).rows;
    received += rows.length;
    for (const row of rows) body?.prepend(rowOf(row));
    while (body && body.children.length > SHOWN) body.lastElementChild?.remove();
    if (body) showTimes(body);
    document.querySelector("[data-none]")?.remove();
    document.querySelector("#records")?.removeAttribute("hidden");
    say(`${received.toLocaleString("en").replaceAll(",", "\u202f")} received${received > SHOWN ? ", the newest 1\u202f000 shown" : ""}`);
  });
  source.addEventListener("gone", (event) => say(JSON.parse(event.data).reason));
  source.addEventListener("failed", (event) => {
    say(JSON.parse(event.data).reason);
    stop();
  });
  source.addEventListener("error", () => {
    if (source?.readyState === EventSource.CLOSED) {
      say("The live view ended: the console refused it, or is gone.");
      stop();
    }
  });
}

button?.addEventListener("click", () => {
  if (source) {
    stop();
    say(`Paused${received ? ` after ${received}` : ""}`);
  } else start();
});

// A hidden page holds no connection; when it is seen again, it goes on where it was.
document.addEventListener("visibilitychange", () => {
  const wanted = button?.getAttribute("aria-pressed") === "true";
  if (document.visibilityState === "hidden") {
    source?.close();
    source = null;
  } else if (wanted && !source) start();
});
