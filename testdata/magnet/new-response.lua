-- stage: response-start
-- ask: GET /file.txt
-- ask: GET /none
-- ask: GET /index.cgi
-- What a script sees of a response.
local r = lighty.r
r.resp_header["X-Item"] = tostring(r.req_item.http_status)
r.resp_header["X-Stage"] = r.req_attr["request.stage"]
r.resp_header["X-Type"] = r.resp_header["Content-Type"]:match("^[^;]*")
r.resp_header["Content-Type"] = nil
r.resp_header["X-Empty"] = ""
