// The requests that every client of real/clients.rs sends, by Node's http2, and by its fetch.
import fs from "node:fs";
import http2 from "node:http2";

const UPLOAD_BYTES = 7 << 20;
const [, , kind, base, ca] = process.argv;

const say = (name, ...words) => console.log(`${name}:`, ...words);
const hash = (content) =>
  content.reduce((sum, byte) => (Math.imul(sum, 31) + byte) | 0, 0) >>> 0;

// One request on a connection of HTTP/2; `send` writes its body.
function request(session, fields, send) {
  return new Promise((resolve, reject) => {
    const stream = session.request(fields, { endStream: !send });
    const chunks = [];
    let head = {};
    stream.on("response", (fields) => (head = fields));
    stream.on("data", (chunk) => chunks.push(chunk));
    stream.on("error", reject);
    // A body that is refused is reset without an error.
    stream.on("close", () => {
      const body = Buffer.concat(chunks);
      resolve({ status: head[":status"], head, body, text: body.toString().trim() });
    });
    send?.(stream);
  });
}

async function overHttp2() {
  const session = http2.connect(base, { ca: fs.readFileSync(ca) });
  const get = (path, more = {}) => request(session, { ":path": path, ...more });
  const post = (path, content, more = {}) => {
    const fields = { ":method": "POST", ":path": path, ...more };
    return request(session, fields, (stream) => stream.end(content));
  };
  const hello = async () => (await get("/hello.txt")).text;

  const first = await get("/hello.txt");
  say("get", session.alpnProtocol === "h2" ? "HTTP/2" : "HTTP/1", first.status, first.text);
  say("validated", (await get("/hello.txt", { "if-none-match": first.head.etag })).status);
  const head = await get("/large", { ":method": "HEAD" });
  say("head", head.status, head.head["content-length"]);
  const large = await get("/large");
  say("large", large.status, large.body.length, hash(large.body));
  const many = await Promise.all(Array.from({ length: 100 }, hello));
  say("many", many.filter((text) => text === "hello").length);

  const content = Buffer.alloc(UPLOAD_BYTES);
  const upload = await post("/up.cgi", content, { "content-length": UPLOAD_BYTES });
  say("upload", upload.status, upload.text);
  const streamed = await post("/early.cgi", content);
  say("streamed", streamed.status, streamed.text);
  const fields = { ":method": "POST", ":path": "/up.cgi", expect: "100-continue" };
  const expected = await request(session, fields, (stream) =>
    stream.on("continue", () => stream.end("0123456789")),
  );
  say("expected", expected.status, expected.text);
  say("refused", (await post("/missing", content)).status);

  for (let n = 0; n < 20; n++) {
    await new Promise((resolve) => {
      const stream = session.request({ ":path": "/large" });
      stream.once("data", () => stream.close(http2.constants.NGHTTP2_CANCEL));
      stream.on("close", resolve);
    });
  }
  say("cancelled", await hello());
  for (let n = 0; n < 10; n++) {
    await new Promise((resolve) => {
      const stream = session.request({ ":method": "POST", ":path": "/up.cgi" });
      stream.on("response", () => say("a request that was cut got a response"));
      stream.write(Buffer.alloc(100_000), () => stream.close(http2.constants.NGHTTP2_CANCEL));
      stream.on("close", resolve);
    });
  }
  say("cut", await hello());
  session.close();
}

async function byFetch() {
  const get = async (path, more) => {
    const response = await fetch(base + path, more);
    const body = Buffer.from(await response.arrayBuffer());
    return { response, status: response.status, body, text: body.toString().trim() };
  };
  const hello = async () => (await get("/hello.txt")).text;

  const first = await get("/hello.txt");
  say("get", "HTTP/1", first.status, first.text);
  const tag = { "if-none-match": first.response.headers.get("etag") };
  say("validated", (await get("/hello.txt", { headers: tag })).status);
  const head = await get("/large", { method: "HEAD" });
  say("head", head.status, head.response.headers.get("content-length"));
  const large = await get("/large");
  say("large", large.status, large.body.length, hash(large.body));
  const many = await Promise.all(Array.from({ length: 100 }, hello));
  say("many", many.filter((text) => text === "hello").length);

  const content = Buffer.alloc(UPLOAD_BYTES);
  const upload = await get("/up.cgi", { method: "POST", body: content });
  say("upload", upload.status, upload.text);
  const stream = (bytes) => new Blob([Buffer.alloc(bytes)]).stream();
  const streaming = { method: "POST", body: stream(UPLOAD_BYTES), duplex: "half" };
  const streamed = await get("/early.cgi", streaming);
  say("streamed", streamed.status, streamed.text);
  const refused = await get("/missing", { method: "POST", body: Buffer.alloc(60_000) });
  say("refused", refused.status);

  for (let n = 0; n < 20; n++) {
    const cut = new AbortController();
    const response = await fetch(base + "/large", { signal: cut.signal });
    await response.body.getReader().read();
    cut.abort();
  }
  say("cancelled", await hello());
  for (let n = 0; n < 10; n++) {
    const cut = new AbortController();
    const endless = new ReadableStream({
      pull(queue) {
        queue.enqueue(Buffer.alloc(50_000));
        setTimeout(() => cut.abort(), 5);
        return new Promise(() => {});
      },
    });
    const request = { method: "POST", body: endless, duplex: "half", signal: cut.signal };
    const cutOff = fetch(base + "/up.cgi", request);
    await cutOff.then(() => say("a request that was cut got a response"), () => {});
  }
  say("cut", await hello());
}

await (kind === "fetch" ? byFetch() : overHttp2());
