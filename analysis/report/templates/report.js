"use strict";
// The page is complete without this: it only adds sorting, filtering, folding, and print.
const rowsOf = (body) => [...body.rows].filter((row) => !row.classList.contains("fold"));

function keyOf(row, column) {
  const cell = row.cells[column];
  if (cell.dataset.v === undefined) return cell.textContent.toLowerCase();
  return cell.dataset.v === "" ? -Infinity : Number(cell.dataset.v.replace("inf", "Infinity"));
}

function sortTable(table, column, down) {
  const order = (a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0) * (down ? -1 : 1);
  const bodies = [...table.tBodies].map((body) => {
    const rows = rowsOf(body).map((row) => [keyOf(row, column), row]).sort(order);
    body.append(...rows.map((pair) => pair[1]));
    return [rows[0][0], body]; // a layer goes where its first row does
  });
  table.append(...bodies.sort(order).map((pair) => pair[1]));
}

function button(head, act) {
  const made = document.createElement("button");
  made.append(...head.childNodes);
  head.append(made);
  made.addEventListener("click", act);
  return made;
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => button(head, () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    sortTable(table, column, down);
  }));
}

function fold(body, folded) {
  body.classList.toggle("folded", folded);
  body.querySelector("button").setAttribute("aria-expanded", String(!folded));
}

for (const body of document.querySelectorAll("tbody.layer")) {
  button(body.querySelector(".fold span"), () => fold(body, !body.classList.contains("folded")));
  fold(body, "fold" in body.dataset);
}

function tools(place) {
  const before = place.closest(".scroll") || place;
  const made = document.createElement("p");
  made.className = "tools";
  before.parentNode.insertBefore(made, before);
  return made;
}

for (const place of document.querySelectorAll(".filterable")) {
  const items = place.tBodies ? [...place.tBodies].flatMap(rowsOf) : [...place.children];
  if (items.length < 8) continue;
  const bar = tools(place);
  const box = document.createElement("input");
  box.type = "search";
  box.className = "filter";
  box.placeholder = `Filter ${items.length} rows by name or kind`;
  box.setAttribute("aria-label", box.placeholder);
  let names = null; // read when they are first asked for: a page may hold thousands
  box.addEventListener("input", () => {
    names ??= items.map((item) => (item.querySelector(".name") || item).textContent.toLowerCase());
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    items.forEach((item, k) => { item.hidden = !words.every((word) => names[k].includes(word)); });
    place.classList.toggle("filtering", words.length > 0);
    for (const body of place.querySelectorAll("tbody.layer")) {
      body.hidden = rowsOf(body).every((row) => row.hidden);
    }
  });
  bar.append(box);
  const layers = [...place.querySelectorAll("tbody.layer")];
  if (layers.length) {
    const all = document.createElement("button");
    all.textContent = "Fold or unfold all layers";
    all.addEventListener("click", () => {
      const open = layers.some((body) => !body.classList.contains("folded"));
      layers.forEach((body) => fold(body, open));
    });
    bar.append(all);
  }
}

addEventListener("beforeprint", () => {
  for (const place of document.querySelectorAll("details:not(.tensor, .each:not([open]))")) place.open = true;
  for (const body of document.querySelectorAll("tbody.folded")) fold(body, false);
});
