-- stage: raw-url
-- ask: GET /dl/1e6e1b3b1b6dd6d0a3a25b3b8b1c7a33/file.txt
-- ask: GET /dl/E2F8C1D0/file.txt
-- ask: GET /dl/98bb6ae85b4cd5dcc7ae7a39b5ec5ad2da68b3c8/file.txt
-- ask: GET /dl/844c4b8063785cccd6c24a6fb86049c373ac6aed/file.txt
-- ask: GET /file.txt
-- Signed URLs.
local r, c = lighty.r, lighty.c
local mac, rel = r.req_attr["uri.path"]:match("^/dl/(%x+)(/.*)$")
if mac then
  local own = c.hmac("sha1", "secret", rel)
  if not c.digest_eq(mac, own) then return 403 end
  r.req_attr["request.uri"] = rel
  return lighty.RESTART_REQUEST
end
