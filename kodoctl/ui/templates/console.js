"use strict";
document.addEventListener("keydown", (event) => {
  const search = document.getElementById("q");
  if (event.key !== "/" || event.target.closest("input, select, textarea")) return;
  event.preventDefault();
  search.focus();
});
(() => {
  const live = document.getElementById("live");
  if (!live) return;
  const stale = document.getElementById("stale");
  const say = (text) => { if (stale.textContent !== text) stale.textContent = text; };
  let isReading = false;
  const refresh = async () => {
    if (document.hidden || isReading) return;
    isReading = true;
    try {
      const answer = await fetch(live.dataset.from);
      if (!answer.ok) { say(`Not read again (${answer.status}): reload the page to see why. These are older figures.`); return; }
      const text = await answer.text();
      const link = live.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      const focused = live.contains(document.activeElement) ? document.activeElement.closest("details")?.dataset.key : null;
      const open = new Set([...live.querySelectorAll("details[open]")].map((one) => one.dataset.key));
      live.innerHTML = text;
      for (const one of live.querySelectorAll("details")) {
        one.open = open.has(one.dataset.key);
        if (!link && focused && one.dataset.key === focused) one.querySelector("summary").focus();
      }
      if (link) [...live.querySelectorAll("a")].find((one) => one.getAttribute("href") === link)?.focus();
      say("");
    } catch {
      say("kodoctl ui has ended, or cannot be reached: these are older figures.");
    } finally {
      isReading = false;
    }
  };
  setInterval(refresh, 10000);
  document.addEventListener("visibilitychange", refresh);
})();
