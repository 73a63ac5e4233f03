-- stage: raw-url
-- ask: GET /error
-- ask: GET /file.txt
-- ask: GET /kept
-- ask: GET /unknown
-- A script that fails is an error of the server; one that catches its error is not.
local path = lighty.env["uri.path"]
if path == "/error" then
  local nothing = nil
  return nothing.field
elseif path == "/kept" then
  local ok = pcall(function() error("caught") end)
  lighty.header["Content-Type"] = "text/plain"
  lighty.content = { ok and "not caught\n" or "caught\n" }
  return 200
elseif path == "/unknown" then
  lighty.env["no.such.key"] = "x"
end
