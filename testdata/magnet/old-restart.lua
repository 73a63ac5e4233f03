-- stage: raw-url
-- ask: GET /old/file.txt
-- ask: GET /old/file.txt?a=b
-- ask: GET /file.txt
-- Another name for a tree: the request begins again under the new one.
local uri = lighty.env["request.uri"]
local rest = uri:match("^/old(/.*)$")
if rest then
  lighty.env["request.uri"] = rest
  return lighty.RESTART_REQUEST
end
