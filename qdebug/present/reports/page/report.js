"use strict";
// Without this script the page says the same; with it, columns sort and names can be searched.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const headings = [...table.tHead.rows[0].cells];
  const key = (row, column) => {
    const text = row.cells[column].dataset.sort ?? row.cells[column].textContent;
    if (text === "" || text === "NaN") return null;
    const number = Number(text);
    return Number.isNaN(number) ? text : number;
  };
  const compare = (one, other) => {
    if (typeof one === typeof other) return one < other ? -1 : one > other ? 1 : 0;
    return typeof one === "number" ? -1 : 1;
  };
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[heading.ariaSort ?? "none"];
      for (const each of headings) each.ariaSort = "none";
      heading.ariaSort = next;
      if (next === "none") return body.append(...original);
      const known = [], unknown = [];
      for (const row of original) (key(row, column) === null ? unknown : known).push(row);
      const way = next === "ascending" ? 1 : -1;
      known.sort((one, other) => way * compare(key(one, column), key(other, column)));
      body.append(...known, ...unknown);
    });
  });
  const search = document.createElement("input");
  search.type = "search";
  search.placeholder = "name, operator or status";
  search.ariaLabel = "show rows that contain";
  search.addEventListener("input", () => {
    const wanted = search.value.toLowerCase();
    for (const row of original) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  table.parentElement.before(search);
}
for (const link of document.querySelectorAll('a[href^="#"]')) {
  link.addEventListener("click", () => {
    const target = document.getElementById(link.hash.slice(1));
    if (target instanceof HTMLDetailsElement) target.open = true;
  });
}
