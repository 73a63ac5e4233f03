-- stage: physical-path
-- ask: GET /photos/
-- ask: GET /missing/
-- ask: GET /file.txt
-- A listing of its own.
local r, c = lighty.r, lighty.c
if r.req_attr["physical.path"]:sub(-1) ~= "/" then return 0 end
local entries = c.readdir(r.req_attr["physical.path"])
if not entries then return 404 end
local names = {}
for name in entries do names[#names + 1] = c.xmlenc(name) end
table.sort(names)
r.resp_header["Content-Type"] = "text/html"
r.resp_body.set("<ul><li>" .. table.concat(names, "<li>") .. "</ul>\n")
return 200
