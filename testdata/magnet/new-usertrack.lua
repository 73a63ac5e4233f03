-- stage: raw-url
-- ask: GET /track
-- ask: GET /track | Cookie: a=b; TRACKID="5d41402abc"; c
-- ask: GET /track | Cookie: TRACKID=
-- A cookie for who has none.
local r, c = lighty.r, lighty.c
local cookies = c.cookie_tokens(r.req_header["Cookie"])
local id = cookies["TRACKID"]
r.resp_header["Content-Type"] = "text/plain"
if id and id ~= "" then
  r.resp_body.set("known " .. c.quoteddec(id) .. "\n")
else
  local fresh = c.md("md5", "corpus" .. (r.req_header["User-Agent"] or "")):lower()
  r.resp_header["Set-Cookie"] = "TRACKID=" .. fresh .. "; Path=/; Max-Age=3600"
  r.resp_body.set("new\n")
end
return 200
