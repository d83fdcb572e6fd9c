"use strict";
// Each [data-tells] has items, [data-tell], whose text its output shows: pointed at, tapped, or by arrow keys.
for (const place of document.querySelectorAll("[data-tells]")) {
  const items = [...place.querySelectorAll("[data-tell]")];
  const output = place.querySelector("output");
  let at = -1;
  const tell = (next) => {
    if (next === at || !items[next]) return;
    if (items[at]) items[at].classList.remove("on");
    at = next;
    items[at].classList.add("on");
    output.textContent = items[at].dataset.tell;
  };
  const pointed = (event) => {
    const item = event.target.closest("[data-tell]");
    if (item) tell(items.indexOf(item));
  };
  place.addEventListener("pointerover", pointed);
  place.addEventListener("click", pointed);
  place.addEventListener("keydown", (event) => {
    if (event.target.closest("button")) return;
    const across = event.target.classList.contains("cells")
      ? getComputedStyle(event.target).gridTemplateColumns.split(" ").length
      : 1;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key];
    if (!step) return;
    event.preventDefault();
    tell(at < 0 ? 0 : Math.min(Math.max(at + step, 0), items.length - 1));
  });
}
for (const map of document.querySelectorAll(".map")) {
  for (const button of map.querySelectorAll("[data-by]")) {
    button.addEventListener("click", () => {
      const by = button.dataset.by;
      for (const each of map.querySelectorAll("[data-by]")) {
        each.setAttribute("aria-pressed", String(each === button));
      }
      for (const cell of map.querySelectorAll("li")) cell.dataset.level = cell.dataset[by];
      for (const scale of map.querySelectorAll("[data-for]")) scale.hidden = scale.dataset.for !== by;
    });
  }
}
// In a frame made from text, "#part" is a part of the page around it, which the frame would load.
if (location.href.startsWith("about:srcdoc")) {
  const padding = parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop);
  for (const link of document.querySelectorAll('a[href^="#"]')) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const part = document.getElementById(link.getAttribute("href").slice(1));
      scrollBy(0, part.getBoundingClientRect().top - padding); // scrollIntoView would scroll the notebook, too
    });
  }
}
