-- stage: raw-url
-- ask: GET /file.txt | X-Empty: | X-Full: 1
-- What is empty is not there.
local r = lighty.r
r.req_env["GONE"] = "1"
r.req_env["GONE"] = nil
r.resp_header["X-Gone"] = "1"
r.resp_header["X-Gone"] = ""
local lines = {}
for _, value in ipairs { "X-Empty", "X-Full", "X-None" } do lines[#lines + 1] = value .. " " .. tostring(r.req_header[value]) end
lines[#lines + 1] = tostring(r.req_env["GONE"]) .. " " .. tostring(r.resp_header["X-Gone"])
lines[#lines + 1] = tostring(r.req_attr["response.body-length"])
local stats = 0
for _ in pairs(lighty.server.stats) do stats = stats + 1 end
lines[#lines + 1] = stats
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set(table.concat(lines, "\n"))
return 200
