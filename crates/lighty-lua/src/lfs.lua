-- `require "lfs"`: what scripts know of LuaFileSystem, its calls made by the engine, which suspends
-- the script while the disk is asked. What changes files is off.
local call = ...
local error, format, pairs, setmetatable, tostring, type =
  error, string.format, pairs, setmetatable, tostring, type
local floor, sub = math.floor, string.sub

local lfs = { _VERSION = "LuaFileSystem 1.8.0 (lighty)" }

local kinds = {
  [1] = "named pipe", [2] = "char device", [4] = "directory", [6] = "block device",
  [8] = "file", [10] = "link", [12] = "socket",
}

local function permissions(mode)
  local letters, text = "rwxrwxrwx", ""
  for at = 1, 9 do
    local bit = 2 ^ (9 - at)
    text = text .. (floor(mode / bit) % 2 == 1 and sub(letters, at, at) or "-")
  end
  return text
end

local function described(found)
  return {
    mode = kinds[floor(found.st_mode / 4096) % 16] or "other",
    permissions = permissions(found.st_mode),
    ino = found.st_ino,
    uid = found.st_uid,
    gid = found.st_gid,
    size = found.st_size,
    access = found.st_atime,
    modification = found.st_mtime,
    change = found.st_ctime,
  }
end

local function attributes(what, path, wanted)
  local found, why = call(what, path)
  if not found then
    why = tostring(why or "No such file or directory")
    return nil, format("cannot obtain information from file '%s': %s", tostring(path), why), 2
  end
  local all = described(found)
  if type(wanted) == "string" then
    if all[wanted] == nil then error(format("invalid attribute name '%s'", wanted), 3) end
    return all[wanted]
  elseif type(wanted) == "table" then
    for name, value in pairs(all) do wanted[name] = value end
    return wanted
  end
  return all
end

function lfs.attributes(path, wanted)
  return attributes("stat", path, wanted)
end

-- The engine's answer is about what a link leads to, unless it is asked where that is.
function lfs.symlinkattributes(path, wanted)
  local target = call("readlink", path)
  if not target then return attributes("stat", path, wanted) end
  local all = { mode = "link", target = target }
  if type(wanted) == "string" then return all[wanted] end
  return all
end

local directory = {}
directory.__index = directory
function directory:next()
  if not self.names then error("closed directory", 2) end
  self.at = self.at + 1
  if self.at <= 2 then return self.at == 1 and "." or ".." end
  local name = self.names()
  if name == nil then self.names = nil end
  return name
end
function directory:close()
  self.names = nil
end

function lfs.dir(path)
  local names, why = call("readdir", path)
  if not names then
    error(format("cannot open %s: %s", tostring(path), tostring(why or "No such file or directory")), 2)
  end
  return directory.next, setmetatable({ names = names, at = 0 }, directory)
end

-- Scripts have no directory of their own that others would not share.
function lfs.currentdir()
  return "/"
end

for _, name in ipairs { "chdir", "lock", "lock_dir", "unlock", "link", "mkdir", "rmdir", "setmode", "touch" } do
  lfs[name] = function()
    return nil, "lfs." .. name .. " is off: scripts do not change files", 1
  end
end

return lfs
