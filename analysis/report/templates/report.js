"use strict";
// The page is complete without this: it only adds sorting, filtering and unfolding for print.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => {
        const cell = row.cells[column];
        if (cell.dataset.v === undefined) return cell.textContent.toLowerCase();
        return cell.dataset.v === "" ? -Infinity : Number(cell.dataset.v);
      };
      const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
      const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
      rows.sort((a, b) => (down ? order(b[0], a[0]) : order(a[0], b[0])));
      table.tBodies[0].append(...rows.map((pair) => pair[1]));
    });
  });
}
for (const place of document.querySelectorAll(".filterable")) {
  const items = place.tBodies ? [...place.tBodies[0].rows] : [...place.children];
  if (items.length < 8) continue;
  const box = document.createElement("input");
  box.type = "search";
  box.className = "filter";
  box.placeholder = `Filter ${items.length} rows by name or kind`;
  box.setAttribute("aria-label", box.placeholder);
  const names = items.map((item) => (item.querySelector(".name") || item).textContent.toLowerCase());
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    items.forEach((item, k) => { item.hidden = !words.every((word) => names[k].includes(word)); });
  });
  const before = place.closest(".scroll") || place;
  before.parentNode.insertBefore(box, before);
}
addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details:not(.tensor)")) fold.open = true;
});
