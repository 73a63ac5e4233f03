-- stage: physical-path
-- ask: GET /env.cgi
-- ask: GET /env.cgi?a | X-User: carol
-- Variables for a program.
lighty.req_env["SITE_NAME"] = "corpus"
local user = lighty.request["X-User"]
if user then
  lighty.req_env["SITE_USER"] = user:upper()
end
