// @ts-check
// Times as the reader wants them, and what the browser remembers of that.

/** @param {string} name @param {string | null} [value] */
export function remembered(name, value) {
  try {
    if (value === undefined) return localStorage.getItem(name);
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    // A browser that keeps nothing.
  }
  return null;
}

/** @param {number} ms */
function local(ms) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return null;
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  return (
    `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
    `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`
  );
}

/** @param {ParentNode} within */
export function showTimes(within) {
  const isLocal = remembered("dray-time") === "local";
  for (const element of within.querySelectorAll("time[data-ms]")) {
    if (!(element instanceof HTMLElement)) continue;
    element.dataset.utc ??= element.textContent ?? "";
    const shown = isLocal ? local(Number(element.dataset.ms)) : null;
    element.textContent = shown ?? element.dataset.utc;
  }
  for (const button of document.querySelectorAll("[data-time-toggle]")) {
    button.textContent = isLocal ? "Local time" : "UTC";
    button.setAttribute("aria-pressed", String(isLocal));
  }
}

