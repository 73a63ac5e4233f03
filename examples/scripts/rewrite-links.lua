-- Rewrites links to an old host in pages that pass by, piece by piece: nothing is held back but
-- what may be the beginning of such a link.
--
--   $HTTP["url"] =^ "/legacy/" {
--     magnet.attract-response-content-to = ( "/etc/lighty/scripts/rewrite-links.lua" )
--   }
local FROM, TO = "http://old.example.org/", "https://www.example.org/"

if not (lighty.r.resp_header["Content-Type"] or ""):find("^text/html") then
  return function(piece) return piece end
end

-- Bytes at the end of a text that may be the beginning of FROM.
local function open_end(text)
  for length = math.min(#FROM - 1, #text), 1, -1 do
    if text:sub(-length) == FROM:sub(1, length) then return length end
  end
  return 0
end

local function rewritten(text)
  local out, at = {}, 1
  while true do
    local from, to = text:find(FROM, at, true)
    if not from then break end
    out[#out + 1] = text:sub(at, from - 1)
    out[#out + 1] = TO
    at = to + 1
  end
  out[#out + 1] = text:sub(at)
  return table.concat(out)
end

local held = ""
-- Gets each piece of the body, and nil after the last; what it returns goes on to the client.
return function(piece)
  if piece == nil then return held end
  local text = held .. piece
  -- A link that is whole is no open end: what is rewritten first is out of the way.
  text = rewritten(text)
  local length = open_end(text)
  held = text:sub(#text - length + 1)
  return text:sub(1, #text - length)
end
