(() => {
  const field = document.getElementById("find");
  const typing = () => /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || typing() || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (field) field.focus(); else location.href = document.getElementById("to-search").href;
  });
  const openTarget = () => {
    const target = location.hash && [location.hash.slice(1)].map((name) => { try { return document.getElementById(decodeURIComponent(name)); } catch { return null; } })[0];
    for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
  };
  addEventListener("hashchange", openTarget);
  openTarget();
  if (!field) return;

  const MOST = 60;
  const entries = JSON.parse(document.getElementById("entries").textContent).map((entry) => ({
    entry, name: entry[1].toLowerCase(), text: entry.slice(1).join(" ").toLowerCase(),
  }));
  const hits = document.getElementById("hits"), count = document.getElementById("count"), list = document.getElementById("list");
  const rank = (one, words) => {
    if (!words.every((word) => one.text.includes(word))) return 0;
    const best = Math.max(...words.map((word) => (one.name === word ? 4 : one.name.startsWith(word) ? 3 : one.name.includes(word) ? 2 : 1)));
    return best * 10 + (one.entry[0] === "topology" ? 1 : 0);
  };
  const part = (tag, kind, text) => {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    made.textContent = text;
    return made;
  };
  const shown = ({ entry: [kind, name, topology, address, about, more] }, words) => {
    const line = document.createElement("li"), link = document.createElement("a"), named = document.createElement("span");
    link.href = address;
    named.append(part("b", "", name), topology ? ` in ${topology}` : "");
    link.append(part("span", "kind", kind), named);
    const plain = `${name} ${topology} ${about}`.toLowerCase();
    const other = more.split(" ").filter((text) => words.some((word) => text.toLowerCase().includes(word) && !plain.includes(word)));
    const told = [about, other.slice(0, 4).join(", ")].filter(Boolean).join(" · ");
    if (told) link.append(part("span", "about", told));
    line.append(link);
    return line;
  };
  const search = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    list.hidden = words.length > 0;
    if (!words.length) { hits.replaceChildren(); count.textContent = ""; return; }
    const found = entries.map((one) => [rank(one, words), one]).filter(([value]) => value).sort((a, b) => b[0] - a[0]);
    hits.replaceChildren(...found.slice(0, MOST).map(([, one]) => shown(one, words)));
    const rest = found.length > MOST ? `, the first ${MOST} are shown` : "";
    count.textContent = found.length ? `${found.length} found${rest}` : "Nothing found.";
  };
  field.addEventListener("input", search);
  const links = () => [...hits.querySelectorAll("a")];
  document.addEventListener("keydown", (event) => {
    const here = links().indexOf(document.activeElement);
    if (event.key === "Escape" && (here >= 0 || document.activeElement === field)) { field.value = ""; search(); field.focus(); }
    if (here < 0 && document.activeElement !== field) return;
    if (event.key === "ArrowDown") { event.preventDefault(); links()[Math.min(here + 1, links().length - 1)]?.focus(); }
    if (event.key === "ArrowUp") { event.preventDefault(); if (here > 0) links()[here - 1].focus(); else field.focus(); }
    if (event.key === "Enter" && document.activeElement === field) links()[0]?.click();
  });
  document.querySelector(".find").hidden = false;
  if (location.hash === "#find") field.focus();
  search();
})();
