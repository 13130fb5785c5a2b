(() => {
  const part = document.getElementById("act-outcome");
  if (!part) return;
  let left = 40; // readings: some three minutes
  const read = async () => {
    if (document.hidden) return setTimeout(read, 4000);
    try {
      const answer = await fetch(part.dataset.from);
      if (answer.ok) part.innerHTML = await answer.text();
      if (!answer.ok || part.querySelector("[data-done]") || --left <= 0) return;
    } catch {
      part.textContent = "kodoctl ui has ended, or cannot be reached.";
      return;
    }
    setTimeout(read, 4000);
  };
  part.nextElementSibling.querySelector("a").addEventListener("click", (event) => { event.preventDefault(); left = Math.max(left, 1); read(); });
  read();
})();
(() => {
  const live = document.getElementById("act-live");
  if (!live) return;
  const timer = setInterval(async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(live.dataset.from);
      if (answer.ok) live.innerHTML = await answer.text();
      if (!answer.ok || live.querySelector("[data-done]")) { clearInterval(timer); location.reload(); }
    } catch {
      clearInterval(timer);
      live.textContent = "kodoctl ui has ended, or cannot be reached. This page says below how to go on.";
    }
  }, 1000);
})();
