-- A page for the time of repairs: there as long as the file `maintenance.html` is in the document
-- root, for all but those who repair.
--
--   magnet.attract-physical-path-to = ( "/etc/lighty/scripts/maintenance.lua" )
local LET_IN = { ["192.0.2.7"] = true }

local r = lighty.r
local page = r.req_attr["physical.doc-root"] .. "/maintenance.html"
if LET_IN[r.req_attr["request.remote-addr"]] or not lighty.stat(page) then
  return 0
end
r.resp_header["Retry-After"] = "600"
r.resp_header["Cache-Control"] = "no-store"
r.resp_header["Content-Type"] = "text/html; charset=utf-8"
r.resp_body.set({ { filename = page } })
return 503
