-- stage: raw-url
-- ask: GET /clock
-- Clock and chance, as far as two servers can agree on them.
local r, c = lighty.r, lighty.c
local seconds, nanoseconds = c.hrtime()
local began, part = r.req_item.start_time()
local lines = {
  tostring(math.abs(c.time() - seconds) <= 1), tostring(nanoseconds < 1e9),
  tostring(math.abs(c.time() - began) <= 1), tostring(part < 1e9),
  type(c.rand()), "\n",
}
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set(lines)
return 200
