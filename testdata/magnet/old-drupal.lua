-- stage: physical-path
-- ask: GET /node/5
-- ask: GET /node/5?page=2
-- ask: GET /file.txt
-- ask: GET /
-- Clean URLs: what is no file is the front controller's, as its parameter q.
if not lighty.stat(lighty.env["physical.path"]) then
  local query = lighty.env["uri.query"]
  local page = string.sub(lighty.env["uri.path"], 2)
  if query and query ~= "" then
    lighty.env["uri.query"] = "q=" .. page .. "&" .. query
  else
    lighty.env["uri.query"] = "q=" .. page
  end
  lighty.env["uri.path"] = "/index.cgi"
  lighty.env["physical.rel-path"] = lighty.env["uri.path"]
  lighty.env["physical.path"] = lighty.env["physical.doc-root"] .. lighty.env["physical.rel-path"]
end
