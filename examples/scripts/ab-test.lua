-- Shows one of two variants of a site, and the same one to the same browser again.
--
--   magnet.attract-physical-path-to = ( "/etc/lighty/scripts/ab-test.lua" )
--
-- Variant b is the directory `b` of the document root; what is not in it is that of variant a.
local SHARE_OF_B = 50 -- of a hundred

local r = lighty.r
local cookies = lighty.c.cookie_tokens(r.req_header["Cookie"])
local variant = cookies["variant"]
if variant ~= "a" and variant ~= "b" then
  variant = lighty.c.rand() % 100 < SHARE_OF_B and "b" or "a"
  r.resp_header["Set-Cookie"] = "variant=" .. variant .. "; Path=/; Max-Age=2592000; SameSite=Lax"
end
-- A cache on the way must not give one browser the page of another.
r.resp_header["Vary"] = "Cookie"

if variant == "b" then
  local path = r.req_attr["physical.doc-root"] .. "/b" .. r.req_attr["physical.rel-path"]
  -- A directory is shown by its index file.
  local file = path:sub(-1) == "/" and path .. "index.html" or path
  local found = lighty.stat(file)
  if found and found.is_file then
    r.req_attr["physical.path"] = path
  end
end
return 0
