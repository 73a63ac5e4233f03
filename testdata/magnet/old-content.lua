-- stage: raw-url
-- ask: GET /any
-- ask: HEAD /any
-- ask: POST /any | body x=1
-- A page put together from texts and parts of a file.
lighty.header["Content-Type"] = "text/html"
lighty.header["X-Made-By"] = "magnet"
lighty.content = {
  "<pre>",
  { filename = "@SITE@/file.txt" },
  "|",
  { filename = "@SITE@/file.txt", offset = 2 },
  "|",
  { filename = "@SITE@/file.txt", offset = 1, length = 4 },
  "</pre>",
  12,
}
return 200
