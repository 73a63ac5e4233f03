-- stage: raw-url
-- ask: GET /server?a
-- The server and its counters.
local r, s = lighty.r, lighty.server
local lines = {}
local function say(name, value) lines[#lines + 1] = name .. " " .. tostring(value) .. "\n" end
say("uptime", s.stats.uptime >= 0 and s.stats.uptime < 600)
say("clients_open", s.stats.clients_open)
say("version", s.stats.version:match("^light%a+/%d") ~= nil)
say("unknown", pcall(function() return s.stats["no.such"] end))
s.plugin_stats["corpus.a"] = 2
s.plugin_stats["corpus.a"] = s.plugin_stats["corpus.a"] + 1
say("plugin_stats", s.plugin_stats["corpus.a"])
say("none", s.plugin_stats["corpus.none"])
for one in s.irequests() do
  say("request", one.req_attr["request.method"])
  say("target", one.req_attr["request.uri"])
  say("stage", one.req_attr["request.stage"])
end
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set(lines)
return 200
