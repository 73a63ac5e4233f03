-- stage: raw-url
-- ask: GET /walk | X-One: 1 | X-Two: 2
-- Walks through the request's fields and through globals of its own.
local names = {}
for name, value in pairs(lighty.request) do
  if name:find("^X%-") then names[#names + 1] = name .. "=" .. value end
end
table.sort(names)
leaked = (leaked or 0) + 1
lighty.header["Content-Type"] = "text/plain"
lighty.content = { table.concat(names, ","), " ", tostring(leaked), "\n" }
return 200
