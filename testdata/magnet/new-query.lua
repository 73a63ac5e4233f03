-- stage: raw-url
-- ask: GET /query?b=2&a=1+x&c=%26%3d&d
-- ask: GET /query
-- A query taken apart and put together.
local r, c = lighty.r, lighty.c
local query = c.urldec_query(r.req_attr["uri.query"])
local names = {}
for name in pairs(query) do names[#names + 1] = name end
table.sort(names)
local lines = {}
for i, name in ipairs(names) do
  lines[i] = c.bsenc(name) .. "=" .. c.xmlenc(query[name]) .. " " .. c.urlenc_query({ [name] = query[name] })
end
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set(table.concat(lines, "\n") .. "\n")
return 200
