-- stage: physical-path
-- ask: GET /env.cgi
-- ask: GET /file.txt
-- A type that a program gives as well.
lighty.r.resp_header["Content-Type"] = "text/x-script"
