-- stage: response-start
-- ask: GET /file.txt
-- ask: GET /missing
-- ask: GET /index.cgi
-- Fields for every response.
local headers = lighty.r.resp_header
headers["X-Content-Type-Options"] = "nosniff"
headers["X-Frame-Options"] = "DENY"
if (headers["Content-Type"] or ""):find("^text/") then
  headers["X-Text"] = "yes"
end
headers["X-Powered-By"] = nil
