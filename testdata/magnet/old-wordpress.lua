-- stage: physical-path
-- ask: GET /blog/2007/01/hello-world/
-- ask: GET /blog/style.css
-- ask: GET /blog/missing.css
-- ask: GET /file.txt
-- Permalinks below a prefix; styles and pictures that are missing stay missing.
local prefix = "/blog"
local path = lighty.env["uri.path"]

local function starts_with(text, start)
  return text:sub(1, #start) == start
end

if starts_with(path, prefix .. "/") then
  local attributes = lighty.stat(lighty.env["physical.path"])
  local is_asset = path:find("%.css$") or path:find("%.png$")
  if not attributes and not is_asset then
    lighty.env["uri.path"] = prefix .. "/index.cgi"
    lighty.env["physical.rel-path"] = lighty.env["uri.path"]
    lighty.env["physical.path"] = lighty.env["physical.doc-root"] .. lighty.env["uri.path"]
    lighty.header["X-Front"] = "blog"
  end
end
