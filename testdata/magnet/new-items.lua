-- stage: physical-path
-- ask: GET /file.txt
-- ask: POST /file.txt | body four
-- Figures of the request.
local r = lighty.r
local lines = {}
local function say(name, value) lines[#lines + 1] = name .. " " .. tostring(value) .. "\n" end
for _, name in ipairs { "bytes_out", "req_count", "keep_alive", "http_status", "req_header_len", "resp_header_len", "stream_id" } do
  say(name, r.req_item[name])
end
say("bytes_in", r.req_item.bytes_in >= r.req_item.req_header_len)
say("unknown", pcall(function() return r.req_item["no.such"] end))
say("len", r.req_body.len)
say("bytes_out", r.req_body.bytes_out)
say("resp_body", r.resp_body.bytes_in + r.resp_body.bytes_out)
for _, name in ipairs { "request.stage", "request.path-info" } do
  say(name, r.req_attr[name])
end
say("server-name", r.req_attr["request.server-name"])
say("doc-root", r.req_attr["physical.doc-root"] .. r.req_attr["physical.rel-path"] == r.req_attr["physical.path"])
say("basedir", r.req_attr["physical.basedir"] == r.req_attr["physical.doc-root"])
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set(lines)
return 200
