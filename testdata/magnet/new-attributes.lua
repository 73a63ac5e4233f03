-- stage: physical-path
-- ask: GET /docs/a%20b.txt?x=%20y | Host: Corpus.Example:80
-- ask: HEAD /file.txt
-- What a request is made of.
local r = lighty.r
local names = { "physical.rel-path", "uri.path", "uri.path-raw", "uri.scheme", "uri.authority",
  "uri.query", "request.method", "request.uri", "request.orig-uri", "request.protocol",
  "request.path-info" }
local lines = {}
for i, name in ipairs(names) do
  lines[i] = name .. ": " .. tostring(r.req_attr[name]) .. "\n"
end
lines[#lines + 1] = tostring(r.req_attr["no.such.name"]) .. "\n"
lines[#lines + 1] = tostring(#r.req_attr["physical.path"] > #r.req_attr["physical.rel-path"]) .. "\n"
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set(lines)
return 200
