-- stage: physical-path
-- ask: GET /index.html | Host: one.example
-- ask: GET /index.html | Host: two.example
-- ask: GET /index.html | Host: ../three
-- ask: GET /index.html | Host: four.example
-- A directory for each host that has one.
local r = lighty.r
local host = r.req_attr["uri.authority"]
local root = r.req_attr["physical.doc-root"]
local own = root .. "/hosts/" .. host
if not host:find("/", 1, true) and not host:find("..", 1, true) then
  local st = lighty.c.stat(own)
  if st and st.is_dir then
    r.req_attr["physical.doc-root"] = own
    r.req_attr["physical.path"] = own .. r.req_attr["physical.rel-path"]
  end
end
