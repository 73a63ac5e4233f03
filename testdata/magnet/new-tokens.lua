-- stage: raw-url
-- ask: GET /tokens | Accept: text/html;q=0.5, application/json; x="a,b"
-- ask: GET /tokens
-- Fields as words.
local r, c = lighty.r, lighty.c
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set(table.concat(c.header_tokens(r.req_header["Accept"]), "|") .. "\n")
return 200
