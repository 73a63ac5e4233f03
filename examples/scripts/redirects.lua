-- Redirects from a table that stands in a file of its own, `redirect_table.lua` beside this script.
--
--   magnet.attract-raw-url-to = ( "/etc/lighty/scripts/redirects.lua" )
local redirects = require "redirect_table"

local r = lighty.r
local path = r.req_attr["uri.path"]
local to = redirects.pages[path]
if not to then
  for _, row in ipairs(redirects.trees) do
    if path:sub(1, #row.from) == row.from then
      to = row.to .. lighty.c.urlenc(path:sub(#row.from + 1))
      break
    end
  end
end
if not to then
  return 0
end
if to == "gone" then
  return 410
end
local query = r.req_attr["uri.query"]
if query and query ~= "" then
  to = to .. (to:find("?", 1, true) and "&" or "?") .. query
end
r.resp_header["Location"] = to
return 301
