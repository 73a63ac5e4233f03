// Sends files and draws what the server says of them. No library.
"use strict";

const RECEIVER = "receive.sh";
const PROGRESS = "/progress";
const ASK_MS = 250;

const list = document.getElementById("uploads");
const row = document.getElementById("row").content.firstElementChild;

function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function inUnits(bytes) {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) {
    bytes /= 1000;
    unit += 1;
  }
  return `${unit ? bytes.toFixed(1) : bytes} ${units[unit]}`;
}

function drawn(name) {
  const item = row.cloneNode(true);
  item.querySelector(".name").textContent = name;
  list.prepend(item);
  return item;
}

// What the server says, on the page.
function show(item, told) {
  item.dataset.state = told.state;
  const bar = item.querySelector("progress");
  const say = item.querySelector(".say");
  const numbers = item.querySelector(".numbers");
  if (told.state === "uploading" && told.size) {
    bar.value = told.received / told.size;
    say.textContent = `${Math.floor((100 * told.received) / told.size)} %`;
    numbers.textContent = `${inUnits(told.received)} of ${inUnits(told.size)}`;
  } else if (told.state === "done") {
    bar.value = 1;
    say.textContent = "done";
    numbers.textContent = inUnits(told.size);
  } else if (told.state === "error") {
    say.textContent = `failed: ${told.status}`;
  } else {
    say.textContent = told.state;
  }
}

function ended(told) {
  return told.state === "done" || told.state === "error";
}

async function watch(item, id, isOver) {
  for (;;) {
    const before = isOver();
    const answer = await fetch(`${PROGRESS}?X-Progress-ID=${id}`, {
      headers: { Accept: "application/json" },
      cache: "no-store",
    });
    const told = await answer.json();
    item.asked = (item.asked || 0) + 1;
    if (told.state === "uploading" && told.received < told.size) {
      item.dataset.seen = Number(item.dataset.seen || 0) + 1;
    }
    show(item, told);
    // Once the request is over the server has the last word, if it ever heard of it.
    if (ended(told) || before) {
      return told;
    }
    await new Promise((wake) => setTimeout(wake, ASK_MS));
  }
}

async function upload(name, content) {
  const item = drawn(name);
  const id = randomId();
  const stop = new AbortController();
  item.querySelector(".stop").addEventListener("click", () => stop.abort());
  show(item, { state: "starting" });
  let over = false;
  const sending = fetch(`${RECEIVER}?X-Progress-ID=${id}`, {
    method: "POST",
    body: content,
    signal: stop.signal,
  });
  const noted = sending.then(
    () => { over = true; },
    () => { over = true; },
  );
  const told = await watch(item, id, () => over);
  await noted;
  if (!ended(told)) {
    show(item, { state: "error", status: "the connection broke" });
  }
  return item;
}

function uploadAll(files) {
  for (const file of files) {
    upload(file.name, file);
  }
}

document.getElementById("files").addEventListener("change", (event) => {
  uploadAll(event.target.files);
  event.target.value = "";
});

document.getElementById("sample").addEventListener("click", () => {
  upload("64 MB of nothing", new Blob([new Uint8Array(64 * 1024 * 1024)]));
});

const drop = document.getElementById("drop");
for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
  drop.addEventListener(kind, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", kind === "dragenter" || kind === "dragover");
    if (kind === "drop") {
      uploadAll(event.dataTransfer.files);
    }
  });
}
