-- stage: physical-path
-- ask: GET /env.cgi
-- ask: GET /file.txt
-- Fields that stay beside a program's own.
local r = lighty.r
r.resp_header["X-Script"] = "one"
r.resp_header["Set-Cookie"] = "a=b"
r.resp_header["Cache-Control"] = "no-store"
