-- stage: physical-path
-- ask: GET /file.txt
-- ask: GET /
-- ask: GET /images/a.png
-- Everything but pictures is under repair as long as a file says so.
if lighty.env["uri.path"]:find("^/images/") then return end
if lighty.stat(lighty.env["physical.doc-root"] .. "/repair.html") then
  lighty.header["Retry-After"] = "600"
  lighty.header["Content-Type"] = "text/html"
  lighty.content = { { filename = lighty.env["physical.doc-root"] .. "/repair.html" } }
  return 503
end
