-- stage: raw-url
-- ask: GET /read-only
-- What scripts may not change.
local results = {}
local function try(f)
  results[#results + 1] = pcall(f) and "changed" or "refused"
end
try(function() lighty.r.anything = 1 end)
try(function() lighty.c.anything = 1 end)
try(function() lighty.server.anything = 1 end)
try(function() lighty.r.resp_body.anything = 1 end)
try(function() return lighty.r.resp_body.unheard end)
try(function() return lighty.r.req_item.unheard end)
try(function() setmetatable(lighty.r, {}) end)
lighty.r.resp_header["Content-Type"] = "text/plain"
lighty.r.resp_body.set(table.concat(results, " ") .. "\n")
return 200
