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

/** Between the records of the page and those that come, others may have been written: say so.
 * @param {Record<string, number | string>} positions where the view begins */
function markGap(positions) {
  let missed = 0n;
  for (const end of ((/** @type {HTMLElement} */ (button)).dataset.ends ?? "").split(",").filter(Boolean)) {
    const [partition, offset] = end.split(":");
    missed += BigInt(positions[partition] ?? offset) - BigInt(offset);
  }
  if (missed <= 0n || !body?.children.length) return;
  const line = made("tr", "gap");
  const cell = made("td", "", `${grouped(missed)} written before the live view began, and not shown`);
  cell.setAttribute("colspan", "6");
  line.append(cell);
  body.prepend(line);
}

/** @param {number | bigint} count */
function grouped(count) {
  return count.toLocaleString("en").replaceAll(",", "\u202f");
}

function sayReceived() {
  const shown = received > SHOWN ? `, the newest ${grouped(SHOWN)} shown` : "";
  say(received ? `${grouped(received)} received${shown}` : "Waiting for records…");
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
  // Only now is it fixed where the view begins: what is written from here on is shown.
  source.addEventListener("begun", (event) => {
    if (!place) markGap(JSON.parse(event.data).positions);
    place = event.lastEventId || place;
    sayReceived();
  });
  source.addEventListener("records", (event) => {
    place = event.lastEventId || place;
    const rows = JSON.parse(event.data).rows;
    received += rows.length;
    for (const row of rows) body?.prepend(rowOf(row));
    while (body && body.children.length > SHOWN) body.lastElementChild?.remove();
    if (body) showTimes(body);
    document.querySelector("[data-none]")?.remove();
    document.querySelector("#records")?.removeAttribute("hidden");
    sayReceived();
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

if (button instanceof HTMLButtonElement) button.disabled = false;

// A hidden page holds no connection; when it is seen again, it goes on where it was.
document.addEventListener("visibilitychange", () => {
  const wanted = button?.getAttribute("aria-pressed") === "true";
  if (document.visibilityState === "hidden") {
    source?.close();
    source = null;
  } else if (wanted && !source) start();
});
