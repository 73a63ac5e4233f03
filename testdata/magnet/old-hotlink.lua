-- stage: raw-url
-- ask: GET /images/a.png
-- ask: GET /images/a.png | Referer: http://www.example.org/page
-- ask: GET /images/a.png | Referer: http://thief.example/page
-- ask: GET /file.txt | Referer: http://thief.example/page
-- Pictures for pages of ours only.
local referer = lighty.request["Referer"]
if referer and lighty.env["uri.path"]:match("%.png$") then
  local host = string.match(referer, "^https?://([^/]*)")
  if host ~= "www.example.org" then
    return 403
  end
end
