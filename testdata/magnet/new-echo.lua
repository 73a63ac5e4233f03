-- stage: raw-url
-- ask: POST /echo | body hello=world
-- ask: POST /echo | Content-Type: text/plain | body 0123456789
-- ask: GET /file.txt
-- What was posted, once all of it is there.
local r = lighty.r
if r.req_attr["request.method"] == "POST" then
  if not r.req_body.collect then return 0 end
  r.resp_header["Content-Type"] = "text/plain"
  r.resp_body.set({ tostring(r.req_body.len), ":", r.req_body.get })
  return 200
end
