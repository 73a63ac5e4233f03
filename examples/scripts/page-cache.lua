-- Keeps the pages of a slow backend for a minute, in front of it.
--
--   $HTTP["url"] =^ "/slow/" {
--     magnet.attract-raw-url-to = ( "/etc/lighty/scripts/page-cache.lua" )
--   }
--   magnet.backends = ( "slow" => "127.0.0.1:8000" )
--   magnet.shared = ( "pages" => "16384" )
--
-- What depends on who asks is not kept: requests with a cookie or a password go on as they are. A
-- page may depend on all that the backend is told of the request: the key has the scheme and the
-- host, and the backend gets no other field of the client's.
local KEEP_SECONDS = 60
local PAGE_BYTES_MAX = 256 * 1024

local r = lighty.r
local method = r.req_attr["request.method"]
if method ~= "GET" or r.req_header["Cookie"] or r.req_header["Authorization"] then
  return 0
end

local function send(kept, from)
  local content_type, body = kept:match("^([^\n]*)\n(.*)$")
  r.resp_header["Content-Type"] = content_type
  r.resp_header["X-Cache"] = from
  r.resp_body.set(body)
  return 200
end

local pages = lighty.shared.pages
local url = r.req_attr["request.uri"]
local host = r.req_attr["uri.authority"]
local key = r.req_attr["uri.scheme"] .. "://" .. host .. url
local kept = pages:get(key)
if kept then
  return send(kept, "hit")
end

local answer, why = lighty.backend("slow", { url = url })
if not answer then
  lighty.log("error", "page-cache: " .. tostring(why))
  return 502
end
local content_type = answer.headers["content-type"] or "text/html"
if answer.status ~= 200 then
  r.resp_header["Content-Type"] = content_type
  r.resp_body.set(answer.body)
  return answer.status
end
kept = content_type .. "\n" .. answer.body
local is_private = (answer.headers["cache-control"] or ""):find("private", 1, true)
  or (answer.headers["cache-control"] or ""):find("no-store", 1, true)
  or answer.headers["set-cookie"]
if not is_private and #kept <= PAGE_BYTES_MAX then
  pages:set(key, kept, KEEP_SECONDS)
end
return send(kept, "miss")
