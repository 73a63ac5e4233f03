-- stage: raw-url
-- ask: GET /digests?secret
-- ask: GET /digests
-- Digests of the query.
local r, c = lighty.r, lighty.c
local text = r.req_attr["uri.query"] or ""
local lines = {}
for _, name in ipairs { "md5", "sha1", "sha256", "sha512", "none" } do
  local digest = c.md(name, text)
  lines[#lines + 1] = name .. " " .. tostring(digest) .. "\n"
  lines[#lines + 1] = tostring(digest and c.digest_eq(digest, digest:lower())) .. "\n"
end
for _, name in ipairs { "sha1", "sha256", "sha512", "none" } do
  lines[#lines + 1] = "hmac " .. name .. " " .. tostring(c.hmac(name, "key", text)) .. "\n"
end
lines[#lines + 1] = tostring(c.digest_eq("00ff", "00fe")) .. tostring(c.digest_eq("0", "00")) .. "\n"
lines[#lines + 1] = tostring(c.secret_eq(text, "secret")) .. tostring(c.secret_eq("", "")) .. "\n"
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set(lines)
return 200
