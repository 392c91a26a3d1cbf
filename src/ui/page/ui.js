// Live pages: asks for a small text, and loads the page again when that has changed. Everything works
// without this, by reloading.
"use strict";

const PAUSE = 400;
const live = document.querySelector("nav .live");

// Makes `now` like `wanted` and keeps what is the same: focus, selection and scrolling stay.
function morph(now, wanted) {
  if (now.nodeType !== wanted.nodeType || now.nodeName !== wanted.nodeName) {
    now.replaceWith(document.importNode(wanted, true));
    return;
  }
  if (now.nodeType !== Node.ELEMENT_NODE) {
    if (now.nodeValue !== wanted.nodeValue) now.nodeValue = wanted.nodeValue;
    return;
  }
  if (now.isEqualNode(wanted)) return;
  for (const { name } of [...now.attributes])
    if (!wanted.hasAttribute(name) && name !== "open") now.removeAttribute(name);
  for (const { name, value } of wanted.attributes)
    if (now.getAttribute(name) !== value) now.setAttribute(name, value);
  const old = [...now.childNodes];
  const made = [...wanted.childNodes];
  made.forEach((child, i) => {
    if (i < old.length) morph(old[i], child);
    else now.append(document.importNode(child, true));
  });
  old.slice(made.length).forEach((child) => child.remove());
}

async function ask(address) {
  const answer = await fetch(address, { credentials: "same-origin", cache: "no-store" });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.text();
}

async function reload() {
  const text = await ask(location.href);
  const page = new DOMParser().parseFromString(text, "text/html");
  morph(document.querySelector("main"), page.querySelector("main"));
  document.title = page.title;
  if (page.body.dataset.change) document.body.dataset.change = page.body.dataset.change;
  else delete document.body.dataset.change;
}

// What happened, the first number, is shown at once. That time goes on, the second one, is shown the less
// often the longer the page takes, so that watching it costs little.
async function watch(seen, quietUntil, pause) {
  await new Promise((done) => setTimeout(done, pause));
  const address = document.body.dataset.change;
  if (!address) return;
  if (document.hidden) {
    await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
  }
  let next = PAUSE;
  try {
    const change = await ask(address);
    const happened = seen !== null && change.split(" ")[0] !== seen.split(" ")[0];
    if (seen === null) seen = change;
    else if (happened || (change !== seen && performance.now() >= quietUntil)) {
      const begin = performance.now();
      await reload();
      quietUntil = performance.now() + 8 * (performance.now() - begin);
      seen = change;
    }
    live.textContent = "live";
  } catch (error) {
    live.textContent = "no answer";
    next = 3000;
  }
  watch(seen, quietUntil, next);
}

// A log grows at its end, and the page stays there if it was there.
async function follow(log) {
  let address = `text?${log.dataset.text}`;
  for (let pause = PAUSE; ; ) {
    await new Promise((done) => setTimeout(done, pause));
    if (document.hidden) continue;
    try {
      const text = await ask(`${address}&at=${log.dataset.at}`);
      const head = text.indexOf("\n");
      const [at, more] = text.slice(0, head).split(" ");
      const isNew = at !== log.dataset.at;
      const isAtEnd = innerHeight + scrollY >= document.body.scrollHeight - 40;
      if (isNew) log.append(text.slice(head + 1));
      log.dataset.at = at;
      if (isNew && isAtEnd) scrollTo(0, document.body.scrollHeight);
      live.textContent = more === "1" ? "live" : "";
      if (more !== "1" && !isNew) return;
      pause = PAUSE;
    } catch (error) {
      live.textContent = "no answer";
      pause = 3000;
    }
  }
}

if (document.body.dataset.change) watch(null, 0, 0);
const log = document.querySelector("pre[data-text]");
if (log) {
  scrollTo(0, document.body.scrollHeight);
  follow(log);
}
for (const button of document.querySelectorAll("button.act-delete"))
  button.form.addEventListener("submit", (event) => {
    if (!confirm("Delete this run, and what only it refers to?")) event.preventDefault();
  });
