-- A small JSON API: counters that all workers share.
--
--   $HTTP["url"] =^ "/counters/" {
--     magnet.attract-raw-url-to = ( "/etc/lighty/scripts/api.lua" )
--   }
--   magnet.shared = ( "counters" => "1024" )
--
--   GET    /counters/NAME    what it stands at
--   POST   /counters/NAME    {"by": 2}, or nothing: up by one
--   DELETE /counters/NAME    no more of it
local r, json = lighty.r, lighty.json

local function respond(status, value)
  r.resp_header["Content-Type"] = "application/json"
  r.resp_header["Cache-Control"] = "no-store"
  r.resp_body.set(json.encode(value) .. "\n")
  return status
end

local name = r.req_attr["uri.path"]:match("^/counters/([%w_%-]+)$")
if not name or #name > 64 then
  return respond(404, { error = "there is no such counter" })
end

local counters = lighty.shared.counters
local method = r.req_attr["request.method"]
if method == "GET" or method == "HEAD" then
  local value = counters:get(name)
  if not value then return respond(404, { error = "there is no such counter" }) end
  return respond(200, { name = name, value = tonumber(value) })
elseif method == "DELETE" then
  counters:delete(name)
  return 204
elseif method ~= "POST" then
  r.resp_header["Allow"] = "GET, HEAD, POST, DELETE"
  return respond(405, { error = "this method does nothing here" })
end

if not r.req_body.collect then return 0 end
local by = 1
local text = r.req_body.get or ""
if text ~= "" then
  local ok, body = pcall(json.decode, text)
  by = ok and type(body) == "table" and body.by
  if type(by) ~= "number" or by % 1 ~= 0 then
    return respond(400, { error = "by has to be a whole number" })
  end
end
return respond(200, { name = name, value = counters:incr(name, by, 0) })
