-- stage: raw-url
-- ask: GET /quoting
-- Quoted strings and backslashes.
local r, c = lighty.r, lighty.c
local lines = {}
local function say(name, value) lines[#lines + 1] = name .. " " .. tostring(value) .. "\n" end
for _, text in ipairs { "", "plain", "a\"b", "a\\b", "a b" } do
  say("quotedenc", c.quotedenc(text))
  say("quoteddec", c.quoteddec('"' .. text:gsub('["\\]', "\\%0") .. '"'))
end
say("bsdec", c.bsdec("a\\n\\\\b"))
say("bsdec", c.bsdec("\\x41\\u0042"))
say("bsenc", c.bsenc("plain"))
say("bsenc_json", c.bsenc_json("plain"))
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set(lines)
return 200
