-- stage: raw-url
-- ask: GET /env.cgi | X-Remove: gone | X-Keep: kept
-- ask: GET /env.cgi
-- Changes what programs see of a request.
local headers = lighty.r.req_header
headers["X-Remove"] = nil
headers["X-Added"] = "by script"
if headers["X-Keep"] then headers["X-Keep"] = headers["X-Keep"] .. " twice" end
