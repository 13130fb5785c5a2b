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
