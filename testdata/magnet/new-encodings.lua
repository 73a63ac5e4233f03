-- stage: raw-url
-- ask: GET /encodings
-- Every encoding there and back.
local r, c = lighty.r, lighty.c
local lines = {}
local function say(name, value) lines[#lines + 1] = name .. " " .. tostring(value) .. "\n" end
for _, text in ipairs { "", "a", "ab", "abc", "a b&c=d/e?f+g%h<i>\"'", "\195\164\255\0", "//a/./b/../c//d/", "%41%2f%zz" } do
  for _, name in ipairs { "b64enc", "b64urlenc", "hexenc", "xmlenc", "urlenc", "urldec", "fspath_simplify" } do
    say(name, (c[name](text):gsub("[^ -~]", "?")))
  end
  say("b64dec", c.b64dec(c.b64enc(text)) == text)
  say("b64urldec", c.b64urldec(c.b64urlenc(text)) == text)
  say("hexdec", c.hexdec(c.hexenc(text)) == text)
end
for _, text in ipairs { "YQ==", "YQ", "YWI=", "!!!!" } do
  say("b64dec", c.b64dec(text))
  say("b64urldec", c.b64urldec(text))
end
say("hexdec", c.hexdec("4142"))
for _, url in ipairs { "/a%62c/../d?x=%31", "/a//b", "/%2e%2e/x" } do
  say("urlenc_normalize", c.urlenc_normalize(url))
end
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set(lines)
return 200
