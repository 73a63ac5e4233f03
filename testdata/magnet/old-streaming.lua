-- stage: physical-path
-- ask: GET /film.flv?start=4
-- ask: GET /film.flv
-- ask: GET /film.flv?start=x
-- From a position on, behind a head that players want.
local path = lighty.env["physical.path"]
if path:sub(-4) == ".flv" then
  local start = tonumber((lighty.env["uri.query"] or ""):match("start=(%d+)"))
  local film = lighty.stat(path)
  if start and film and start < film.st_size then
    lighty.header["Content-Type"] = "video/x-flv"
    lighty.content = { "FLV\1\1", { filename = path, offset = start } }
    return 200
  end
end
