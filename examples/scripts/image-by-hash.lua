-- Pictures whose name is the SHA-256 of what is in them, spread over directories:
-- `/img/9f86d0...e0.png` is the file `img/9f/86/9f86d0...e0.png`.
--
--   $HTTP["url"] =^ "/img/" {
--     magnet.attract-physical-path-to = ( "/etc/lighty/scripts/image-by-hash.lua" )
--   }
--
-- What is in such a file never changes, so browsers may keep it for a year.
local r = lighty.r
local hash, extension = r.req_attr["physical.rel-path"]:match("^/img/(%x+)%.(%l+)$")
if not hash or #hash ~= 64 then
  return 404
end
hash = hash:lower()
local path = string.format("%s/img/%s/%s/%s.%s", r.req_attr["physical.doc-root"], hash:sub(1, 2),
  hash:sub(3, 4), hash, extension)
local found = lighty.stat(path)
if not found or not found.is_file then
  return 404
end
r.req_attr["physical.path"] = path
r.resp_header["Cache-Control"] = "public, max-age=31536000, immutable"
return 0
