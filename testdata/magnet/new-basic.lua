-- stage: raw-url
-- ask: GET /file.txt
-- ask: GET /file.txt | Authorization: Basic Y2Fyb2w6c2VjcmV0
-- ask: GET /file.txt | Authorization: Basic Y2Fyb2w6d3Jvbmc=
-- ask: GET /file.txt | Authorization: Basic !!!
-- ask: GET /file.txt | Authorization: Bearer x
-- A password without a module.
local r, c = lighty.r, lighty.c
local encoded = (r.req_header["Authorization"] or ""):match("^Basic +(.*)$")
local given = encoded and c.b64dec(encoded)
if not given or not c.secret_eq(given, "carol:secret") then
  r.resp_header["WWW-Authenticate"] = 'Basic realm="corpus"'
  return 401
end
