// Completes names in the SQL box, and lets nothing be asked that was not priced as it stands.
"use strict";
const box = document.getElementById("sql"), list = document.getElementById("completions");
const spend = document.getElementById("spend"), priced = box.value;
const SHOWN = 8;
let words = [], chosen = 0;

fetch("/words.json", { credentials: "same-origin" }).then(found => found.json()).then(found => {
  words = [...found.functions.map(name => name + "("), ...found.tables, ...found.columns];
});

function start() {
  return box.value.slice(0, box.selectionStart).match(/[\p{L}\p{N}_]*$/u)[0];
}

function show() {
  const typed = start().toLowerCase();
  const fitting = typed.length < 2 ? [] : words.filter(word => word.toLowerCase().startsWith(typed) && word.toLowerCase() !== typed);
  chosen = 0;
  list.replaceChildren(...fitting.slice(0, SHOWN).map((word, i) => {
    const item = document.createElement("li");
    item.textContent = word;
    item.setAttribute("role", "option");
    item.setAttribute("aria-selected", String(i === 0));
    item.addEventListener("mousedown", event => { event.preventDefault(); take(word); });
    return item;
  }));
  list.hidden = list.children.length === 0;
}

function take(word) {
  const end = box.selectionStart;
  box.setRangeText(word, end - start().length, end, "end");
  list.hidden = true;
  box.focus();
  changed();
}

function move(step) {
  const items = [...list.children];
  chosen = (chosen + step + items.length) % items.length;
  items.forEach((item, i) => item.setAttribute("aria-selected", String(i === chosen)));
  items[chosen].scrollIntoView({ block: "nearest" });
}

function changed() {
  if (spend) spend.disabled = box.value !== priced;
}

box.addEventListener("input", () => { show(); changed(); });
box.addEventListener("blur", () => { list.hidden = true; });
box.addEventListener("keydown", event => {
  if (list.hidden) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) move(step);
  else if (event.key === "Tab" || event.key === "Enter") take(list.children[chosen].textContent);
  else if (event.key === "Escape") list.hidden = true;
  else return;
  event.preventDefault();
});
