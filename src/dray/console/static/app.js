// @ts-check
// What every page does: theme, times, keys, confirmations, and numbers that stay fresh.
import { remembered, showTimes } from "./times.js";

const POLL_MS = 2000;
const FAILED_MS = 10000;

/** What only a script can do comes disabled from the server: a click before the script has run would be lost.
 * @param {Element} button @param {() => void} act */
function acts(button, act) {
  button.addEventListener("click", act);
  if (button instanceof HTMLButtonElement) button.disabled = false;
}

// On a narrow screen the tabs are wider than it: the one that is open is in view.
const tab = document.querySelector(".tabs [aria-current]");
if (tab?.parentElement) tab.parentElement.scrollLeft = /** @type {HTMLElement} */ (tab).offsetLeft - tab.parentElement.offsetLeft - 48;

// --- theme

for (const button of document.querySelectorAll("[data-theme-toggle]")) {
  acts(button, () => {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    remembered("dray-theme", root.dataset.theme);
  });
}

// --- times: UTC, or the reader's own

function switchTime() {
  remembered("dray-time", remembered("dray-time") === "local" ? null : "local");
  showTimes(document);
}

for (const button of document.querySelectorAll("[data-time-toggle]")) acts(button, switchTime);
showTimes(document);

// --- numbers that stay fresh: the same page again, and the parts of it that are marked

/** @type {{ createPolicy?: Function } | undefined} */
const trusted = /** @type {any} */ (window).trustedTypes;
const policy = trusted?.createPolicy?.("dray-page", { createHTML: (/** @type {string} */ text) => text });

/** @param {string} markup */
function parsed(markup) {
  return new DOMParser().parseFromString(policy ? policy.createHTML(markup) : markup, "text/html");
}

let tag = "";

async function refresh() {
  const marked = document.querySelectorAll("[data-live][id]");
  if (!marked.length) return;
  let pause = POLL_MS;
  if (document.visibilityState === "visible" && !document.querySelector("dialog[open]")) {
    try {
      const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag") ?? "";
        const fresh = parsed(await answer.text());
        for (const old of marked) {
          const found = fresh.getElementById(old.id);
          if (found && !old.contains(document.activeElement)) {
            old.replaceChildren(...found.childNodes);
            showTimes(old);
          }
        }
      }
      document.body.classList.toggle("stale", !answer.ok && answer.status !== 304);
    } catch {
      document.body.classList.add("stale");
      pause = FAILED_MS;
    }
  }
  setTimeout(refresh, pause);
}
setTimeout(refresh, POLL_MS);

// --- dialogs, and names that are typed to confirm

for (const opener of document.querySelectorAll("[data-opens]")) {
  acts(opener, () => {
    const dialog = document.getElementById(/** @type {HTMLElement} */ (opener).dataset.opens ?? "");
    if (dialog instanceof HTMLDialogElement) dialog.showModal();
  });
}
for (const closer of document.querySelectorAll("dialog [data-closes]")) {
  closer.addEventListener("click", () => closer.closest("dialog")?.close());
}
for (const input of document.querySelectorAll("input[data-confirms]")) {
  if (!(input instanceof HTMLInputElement)) continue;
  const button = input.form?.querySelector("button[type=submit]");
  const judge = () => {
    if (button instanceof HTMLButtonElement) button.disabled = input.value !== input.dataset.confirms;
  };
  input.addEventListener("input", judge);
  judge();
}

for (const input of document.querySelectorAll("input[data-repeats]")) {
  if (!(input instanceof HTMLInputElement)) continue;
  const other = input.form?.elements.namedItem(input.dataset.repeats ?? "");
  const button = input.form?.querySelector("button[type=submit]");
  if (!(other instanceof HTMLInputElement) || !(button instanceof HTMLButtonElement)) continue;
  const judge = () => (button.disabled = !input.value || input.value !== other.value);
  input.addEventListener("input", judge);
  other.addEventListener("input", judge);
  judge();
}

// --- fields that belong to one choice of a list

for (const choice of document.querySelectorAll("select[data-shows]")) {
  if (!(choice instanceof HTMLSelectElement)) continue;
  const own = [...choice.options].map((option) => option.value);
  const judge = () => {
    for (const field of choice.form?.querySelectorAll("[data-for]") ?? []) {
      if (!(field instanceof HTMLElement) || !own.includes(field.dataset.for ?? "")) continue;
      field.hidden = field.dataset.for !== choice.value;
      for (const input of field.querySelectorAll("input")) input.disabled = field.hidden;
    }
  };
  choice.addEventListener("change", judge);
  judge();
}

// --- a query: Control and Enter run it

for (const field of document.querySelectorAll("textarea[data-submits]")) {
  field.addEventListener("keydown", (event) => {
    const pressed = /** @type {KeyboardEvent} */ (event);
    if (pressed.key === "Enter" && (pressed.ctrlKey || pressed.metaKey)) {
      pressed.preventDefault();
      /** @type {HTMLTextAreaElement} */ (field).form?.requestSubmit();
    }
  });
}

// --- copy

for (const button of document.querySelectorAll("[data-copies]")) {
  acts(button, async () => {
    await navigator.clipboard.writeText(/** @type {HTMLElement} */ (button).dataset.copies ?? "");
    const said = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = said), 1200);
  });
}

// --- keys

let leading = "";

/** @param {number} step */
function move(step) {
  const rows = [...document.querySelectorAll("main tbody tr a:first-of-type")].filter(
    (link) => link.closest("tr")?.querySelector("a") === link,
  );
  if (!rows.length) return;
  const now = rows.findIndex((link) => link.closest("tr")?.contains(document.activeElement));
  const next = rows[Math.min(rows.length - 1, Math.max(0, now + step))];
  if (next instanceof HTMLElement) next.focus();
}

document.addEventListener("keydown", (event) => {
  const target = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) {
    if (event.key === "Escape") target.blur();
    return;
  }
  const goes = { c: "/", t: "/topics", g: "/groups", s: "/stores", r: "/runs" };
  if (leading === "g" && event.key in goes) {
    location.href = goes[/** @type {keyof typeof goes} */ (event.key)];
  } else if (event.key === "/") {
    const field = document.querySelector("[data-search]");
    if (field instanceof HTMLInputElement) {
      event.preventDefault();
      field.focus();
      field.select();
    }
  } else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "u") switchTime();
  else if (event.key === "?") {
    const help = document.getElementById("keys");
    if (help instanceof HTMLDialogElement) help.showModal();
  }
  leading = event.key === "g" ? "g" : "";
});
