-- stage: physical-path
-- ask: GET /docs/index.html
-- ask: GET /none
-- What the disk says of a path.
local r, c = lighty.r, lighty.c
local lines = {}
local function say(name, value) lines[#lines + 1] = name .. " " .. tostring(value) .. "\n" end
for _, path in ipairs { r.req_attr["physical.path"], "@SITE@/docs", "@SITE@/none", "/dev/null" } do
  local st = c.stat(path)
  say("stat", st ~= nil)
  if st then
    for _, name in ipairs { "is_file", "is_dir", "is_char", "is_block", "is_socket", "is_link", "is_fifo", "st_uid", "st_gid" } do
      say(name, st[name])
    end
    say("st_size", st.is_file and st.st_size)
    say("content-type", st.is_file and st["content-type"])
    say("numbers", type(st.st_mtime) .. type(st.st_ctime) .. type(st.st_atime) .. type(st.st_ino))
  end
end
local names = {}
for name in c.readdir("@SITE@/docs") do names[#names + 1] = name end
table.sort(names)
say("readdir", table.concat(names, ","))
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set(lines)
return 200
