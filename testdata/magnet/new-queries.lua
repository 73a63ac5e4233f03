-- stage: raw-url
-- ask: GET /queries?a=b&c=d+e&f=%26&g&=h
-- ask: GET /queries
-- Queries as tables.
local r, c = lighty.r, lighty.c
local names, lines = {}, {}
for name, value in pairs(c.urldec_query(r.req_attr["uri.query"])) do
  names[#names + 1] = name .. "=" .. value
end
table.sort(names)
lines[1] = table.concat(names, "\n") .. "\n"
lines[2] = c.urlenc_query({ ["a b"] = "c&d" }) .. "\n"
for name, value in pairs(c.cookie_tokens("a=b; c=\"d\"; e")) do
  names[#names + 1] = name .. "=" .. value
end
table.sort(names)
lines[3] = table.concat(names, "|") .. "\n"
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set(lines)
return 200
