-- stage: physical-path
-- ask: GET /photos/1.jpg
-- ask: GET /photos/2.jpg
-- ask: GET /photos/10.jpg
-- A placeholder for pictures that are not there yet; newer than an hour is not asked.
local picture = lighty.env["physical.path"]
local found = lighty.stat(picture)
if not found and picture:find("/photos/%d+%.jpg$") then
  lighty.env["physical.path"] = lighty.env["physical.doc-root"] .. "/photos/none.jpg"
  lighty.header["Cache-Control"] = "no-store"
elseif found and found.st_size > 0 and not found.is_dir then
  lighty.header["X-Size"] = tostring(found.st_size)
end
