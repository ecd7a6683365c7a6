"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const rows = [...document.querySelectorAll("table.index tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const [words, unexpected] = [$("words"), $("unexpected")];
  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, nth) => {
      const fits = wanted.every((word) => texts[nth].includes(word));
      const hide = !fits || (unexpected.checked && (row.className === "failure" || row.className === "holds"));
      row.hidden = hide;
      shown += hide ? 0 : 1;
    });
    $("shown").textContent = shown === rows.length ? `${shown}` : `${shown} of ${rows.length}`;
    history.replaceState(null, "", words.value ? `#${encodeURIComponent(words.value)}` : location.pathname);
  };
  const linked = () => {
    try {
      words.value = decodeURIComponent(location.hash.slice(1));
    } catch {
      words.value = "";
    }
    filter();
  };
  $("filter").hidden = false;
  words.addEventListener("input", filter);
  unexpected.addEventListener("change", filter);
  addEventListener("hashchange", linked);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target === words) return;
    event.preventDefault();
    words.focus();
  });
  linked();
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
})();
