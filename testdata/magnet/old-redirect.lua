-- stage: raw-url
-- ask: GET /en/start
-- ask: GET /start | Accept-Language: de-DE,de;q=0.9,en;q=0.5
-- ask: GET /start | Accept-Language: fr
-- ask: GET /start
-- To the first language that the client names and the site has.
if not lighty.env["uri.path"]:find("^/%a%a/") then
  local have = { de = true, en = true }
  local choice = "en"
  for language in (lighty.request["Accept-Language"] or ""):gmatch("(%a%a)[%-%w]*") do
    if have[language] then
      choice = language
      break
    end
  end
  lighty.header["Location"] = "http://" .. lighty.env["uri.authority"] .. "/" .. choice
    .. lighty.env["uri.path"]
  lighty.header["Vary"] = "Accept-Language"
  return 302
end
