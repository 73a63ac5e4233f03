-- stage: physical-path
-- ask: GET /about
-- ask: GET /docs
-- ask: GET /nowhere/at/all
-- ask: GET /file.txt
-- Tries a row of names for what was asked; the first that is there is served, else the last resort.
local root = lighty.env["physical.doc-root"]
local asked = lighty.env["physical.rel-path"]
local candidates = { asked, asked .. ".html", asked .. "/index.html" }

function is_file(path)
  local found = lighty.stat(path)
  return found and found["is_file"]
end

local chosen = "/index.cgi"
for _, candidate in ipairs(candidates) do
  if is_file(root .. candidate) then
    chosen = candidate
    break
  end
end
lighty.env["physical.rel-path"] = chosen
lighty.env["physical.path"] = root .. chosen
