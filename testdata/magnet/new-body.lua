-- stage: raw-url
-- ask: GET /body
-- ask: HEAD /body
-- Sets and extends a response.
local r = lighty.r
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set({ "one ", "two ", { filename = "@SITE@/file.txt", offset = 0, length = 4 } })
r.resp_body.add("\n")
r.resp_body.add({ "length ", tostring(r.resp_body.len), "\n" })
return 200
