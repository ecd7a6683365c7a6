"use strict";
(() => {
  const theme = document.getElementById("theme");
  const themes = ["system", "light", "dark"];
  let chosen = 0;
  theme.hidden = false;
  theme.addEventListener("click", () => {
    chosen = (chosen + 1) % themes.length;
    if (chosen === 0) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = themes[chosen];
    theme.textContent = `Theme: ${themes[chosen]}`;
  });
})();
