"use strict";
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
(() => {
  const search = document.getElementById("search");
  if (!search) return;
  const groups = [...document.querySelectorAll(".group")];
  const texts = groups.map((group) => group.textContent.toLowerCase());
  const all = groups.reduce((sum, group) => sum + group.querySelectorAll(".change").length * Number(group.dataset.topics), 0);
  const boxes = [...document.querySelectorAll("input[name=action]")];
  const stake = document.getElementById("stake");
  const shown = document.getElementById("shown");
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const actions = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    let count = 0;
    groups.forEach((group, index) => {
      const changes = [...group.querySelectorAll(".change")];
      changes.forEach((change) => { change.hidden = !actions.has(change.dataset.action); });
      const found = words.every((word) => texts[index].includes(word));
      group.hidden = !found || (stake.checked && !group.classList.contains("at-stake")) || changes.every((change) => change.hidden);
      count += group.hidden ? 0 : changes.filter((change) => !change.hidden).length * Number(group.dataset.topics);
    });
    shown.textContent = count === all ? `${all} objects` : `${count} of ${all} objects`;
  };
  const fold = (open) => groups.forEach((group) => { group.open = open; });
  search.addEventListener("input", show);
  boxes.concat(stake).forEach((box) => box.addEventListener("change", show));
  document.getElementById("unfold").addEventListener("click", () => fold(true));
  document.getElementById("fold").addEventListener("click", () => fold(false));
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== search) { event.preventDefault(); search.focus(); }
  });
  document.querySelector(".tools").hidden = false;
  show();
})();
