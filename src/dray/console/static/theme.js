// @ts-check
// Before the page is drawn, so that it is never drawn in the wrong colours.
"use strict";
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("dray-theme");
  } catch {
    // A browser that keeps nothing: the system's theme it is.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
