"use strict";
// The page is complete without this script, which only adds sorting by column and search by name.
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
      for (const row of original) {
        const value = key(row, column);
        (value === null ? unknown : known).push([value, row]);
      }
      const way = next === "ascending" ? 1 : -1;
      known.sort((one, other) => way * compare(one[0], other[0]));
      body.append(...[...known, ...unknown].map((pair) => pair[1]));
    });
  });
  const search = document.createElement("input");
  search.type = "search";
  search.placeholder = "name, operator or status";
  search.ariaLabel = "show rows that contain all of these words";
  const found = document.createElement("output");
  found.className = "faint";
  let texts = null;
  search.addEventListener("input", () => {
    texts ??= original.map((row) => [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase());
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let many = 0;
    original.forEach((row, at) => {
      row.hidden = !words.every((word) => texts[at].includes(word));
      many += row.hidden ? 0 : 1;
    });
    found.value = words.length ? `${many} of ${original.length}` : "";
  });
  table.parentElement.before(search, found);
}
const show = () => {
  const target = document.getElementById(location.hash.slice(1));
  const around = target?.closest("details");
  if (around) around.open = true;
  if (target?.hidden) target.hidden = false;
};
addEventListener("hashchange", show);
show();
