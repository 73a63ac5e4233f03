// Asks the search of the built documentation site, in the worker that browsers run:
//   node scripts/docs/search.js SITE             checks every phrase of keywords.txt
//   node scripts/docs/search.js SITE PHRASE...   prints the pages found, best first
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [site, ...asked] = process.argv.slice(2);
const workers = path.join(site, "assets/javascripts/workers");
const worker = fs.readdirSync(workers).find((name) => /^search\..*\.js$/.test(name));

// The worker speaks by messages: 0 sets up and 1 is the reply, 2 asks and 3 is the reply.
const waiting = [];
let receive;
globalThis.self = globalThis;
globalThis.addEventListener = (_, listener) => { receive = listener; };
globalThis.postMessage = (message) => waiting.shift()(message);
vm.runInThisContext(fs.readFileSync(path.join(workers, worker), "utf-8"));
const send = (message) => new Promise((resolve) => {
  waiting.push(resolve);
  receive({ data: message });
});

const find = async (phrase) => {
  const { data } = await send({ type: 2, data: phrase });
  return data.items.map(([page]) => page.location.replace(/#.*/, "").replace(/\.html$/, ".md"));
};

const expected = () => {
  const lines = fs.readFileSync(path.join(__dirname, "keywords.txt"), "utf-8").split("\n");
  return lines.filter((line) => line && !line.startsWith("#")).flatMap((line) => {
    const [page, phrases] = line.split(/:(.*)/s);
    return phrases.split(",").map((phrase) => [phrase.trim(), page.trim()]);
  });
};

(async () => {
  const index = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"), "utf-8"));
  await send({ type: 0, data: { ...index, options: { suggest: false } } });
  if (asked.length > 0) {
    for (const phrase of asked) {
      console.log(`${phrase}: ${(await find(phrase)).slice(0, 5).join(" ")}`);
    }
    return;
  }
  const phrases = expected();
  let right = 0;
  for (const [phrase, page] of phrases) {
    const pages = await find(phrase);
    if (pages[0] === page) right += 1;
    else console.log(`${phrase}: ${pages.slice(0, 4).join(" ") || "nothing"}, not ${page}`);
  }
  console.log(`${right} of ${phrases.length} phrases find their page first`);
  process.exitCode = right === phrases.length && right > 0 ? 0 : 1;
})();
