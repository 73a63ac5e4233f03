-- What scripts see. Runs once per state; `prim` are the functions that the engine provides.
local prim = ...
local TOKEN = prim.token
local assert, error, getmetatable, ipairs, next, pcall, rawequal, rawget, rawset, select,
  setmetatable, tonumber, tostring, type, xpcall =
  assert, error, getmetatable, ipairs, next, pcall, rawequal, rawget, rawset, select,
  setmetatable, tonumber, tostring, type, xpcall
local unpack = unpack or table.unpack
local raw_pairs, load, loadstring, setfenv, getfenv = pairs, load, loadstring, setfenv, getfenv
local co_create, co_resume, co_status, co_yield, co_running, co_yieldable =
  coroutine.create, coroutine.resume, coroutine.status, coroutine.yield, coroutine.running,
  coroutine.isyieldable
local string, table, math, os, io, bit, utf8 = string, table, math, os, io, bit, utf8
local concat, insert, remove, find, sub, gsub, match, format, rep =
  table.concat, table.insert, table.remove, string.find, string.sub, string.gsub, string.match, string.format,
  string.rep
local package, raw_getmetatable, getinfo = package, debug.getmetatable, debug.getinfo
local jit_version = jit and jit.version
if jit then jit.off() end

-- Work outside Lua's machine, which its hook does not see, as a number of instructions. Small work
-- is summed up here: a call of the engine's takes longer.
local charge, booked = prim.charge, 0
local function book(work)
  -- Not a number that is none, nor one without end.
  if work > 0 then booked = booked + (work < 1e7 and work or 1e7) end
  if booked >= 1024 then
    local all = booked
    booked = 0
    charge(all)
  end
end

-- A call that waits: the program around the engine performs it.
local function answered(first, ...)
  -- It is not made; what follows says why. The functions between are gone, because they end in
  -- calls of one another: the line is the script's.
  if rawequal(first, TOKEN) then error((...), 2) end
  return first, ...
end
local function call(name, ...)
  return answered(co_yield(TOKEN, name, ...))
end

-- Errors of the engine's functions reach scripts as texts, as those of Lua's own do.
local raw_pcall, error_text, must_pause = pcall, prim.error_text, prim.must_pause

-- Whoever catches an error looks at the limits: near the end of its stack a script runs where the
-- hook has no room, and what comes instead of the hook is an error. Raises again what stops a
-- script.
local function look_at_limits()
  while must_pause() do co_yield(TOKEN, "preempted") end
end
local function caught(ok, what, ...)
  if not ok then
    look_at_limits()
    if type(what) == "userdata" then what = error_text(what) end
  end
  return ok, what, ...
end
local function pcall(f, ...)
  return caught(raw_pcall(f, ...))
end
-- The handler is called after the error, not from within it: no hook interrupts what runs there, and
-- it could not wait. From within comes only where the error was; by coroutines, whose handler runs.
local raw_xpcall, raw_traceback = xpcall, debug.traceback
local traces = setmetatable({}, { __mode = "k" })
local function restored(before, ...)
  traces[co_running()] = before
  return ...
end
local function handled(handler, at, ok, what, ...)
  if ok then return true, what, ... end
  local co = co_running()
  local before = traces[co]
  traces[co] = at.trace
  return restored(before, false, select(2, pcall(handler, what)))
end
local function xpcall(f, handler, ...)
  local at = {}
  local function seen(what)
    book(1000)
    at.trace = raw_traceback("", 2)
    return what
  end
  return handled(handler, at, caught(raw_xpcall(f, seen, ...)))
end
local function traceback(what, level, ...)
  -- The whole stack is gone through.
  book(10000)
  if type(what) == "thread" then return raw_traceback(what, level, ...) end
  local trace = traces[co_running()]
  if what ~= nil and type(what) ~= "string" and type(what) ~= "number" then return what end
  -- Called from here, this function is a level.
  trace = trace or raw_traceback("", (tonumber(level) or 1) + 1)
  return what and what .. trace or sub(trace, 2)
end

local function read_only()
  error("lua table is read-only", 2)
end

-- Walks through a table of the state's without giving it away: scripts could change it for others.
local function walk(t)
  local key, value
  return function()
    key, value = next(t, key)
    return key, value
  end
end

-- How the objects are walked through.
local pairs_of_object = setmetatable({}, { __mode = "k" })

-- An object that scripts can neither change nor see into: no table, so that raw functions cannot
-- change it either.
local function sealed(index, newindex, pairs_of)
  local proxy = newproxy(true)
  local meta = getmetatable(proxy)
  meta.__index = index
  meta.__newindex = newindex or read_only
  meta.__metatable = false
  pairs_of_object[proxy] = pairs_of or type(index) == "table" and function()
    return walk(index)
  end or nil
  return proxy
end

-- Objects whose values are the request's.
local function object(group)
  local get, set, list = prim.get[group], prim.set[group], prim.list[group]
  return sealed(get, set, list and function()
    local all, at = list(), -1
    return function()
      at = at + 2
      return all[at], all[at + 1]
    end
  end)
end

local r = {}
for _, group in ipairs { "req_header", "req_attr", "req_env", "resp_header" } do
  r[group] = object(group)
end
-- `start_time` is a function, of seconds and nanoseconds.
local get_item = prim.get.req_item
r.req_item = sealed(function(self, key)
  local value = get_item(self, key)
  if key ~= "start_time" or not value then return value end
  return function() return math.floor(value / 1e6), value % 1e6 * 1000 end
end, prim.set.req_item)

-- The last argument, so that both r.resp_body.add(x) and r.resp_body:add(x) work.
local function last(...)
  if select("#", ...) == 0 then return nil end
  return (select(-1, ...))
end

local function add_piece(piece, at, add_bytes)
  if type(piece) == "string" or type(piece) == "number" then
    add_bytes(tostring(piece))
    return true
  end
  if type(piece) ~= "table" then
    prim.log("error", format("body[%d] is neither a string nor a table", at))
    return false
  end
  local name, length, offset = piece.filename, piece.length, piece.offset
  if type(name) ~= "string" then
    prim.log("error", format("body[%d] table field \"filename\" must be a string", at))
    return false
  end
  prim.body_file(name, tonumber(offset) or 0, tonumber(length) or -1)
  return true
end

local function body_add(...)
  local what = last(...)
  if type(what) == "table" then
    for at = 1, #what do
      if not add_piece(what[at], at, prim.body_bytes) then break end
    end
    return true
  elseif type(what) == "string" or type(what) == "number" then
    prim.body_bytes(tostring(what))
    return true
  end
  return false
end

local resp_body_get = prim.get.resp_body
r.resp_body = sealed(function(self, key)
  if key == "add" then return body_add end
  if key == "set" then
    prim.body_clear()
    return body_add
  end
  local value = resp_body_get(self, key)
  if value == nil and key == "get" and call("collect_response") then
    value = resp_body_get(self, key)
  end
  return value
end)

local req_body_get = prim.get.req_body
local function request_body_adder(replace)
  return function(...)
    local what = last(...)
    if type(what) == "table" then what = concat(what) end
    prim.request_body(what == nil and "" or tostring(what), replace)
    replace = false
    return true
  end
end
r.req_body = sealed(function(self, key)
  if key == "collect" then return call("collect") end
  if key == "add" or key == "set" then
    if req_body_get(self, "get") == nil then return nil end
    return request_body_adder(key == "set")
  end
  return req_body_get(self, key)
end)
r = sealed(r)

-- What a table of `stat` has beside the values that the engine puts into it.
local stat_paths = setmetatable({}, { __mode = "k" })
local function time_of(seconds, nanoseconds)
  return function(found)
    return function() return found[seconds], found[nanoseconds] or 0 end
  end
end
local get_header, set_header = prim.get.resp_header, prim.set.resp_header
local stat_getters = {
  st_atim = time_of("st_atime", "st_atim_nsec"),
  st_mtim = time_of("st_mtime", "st_mtim_nsec"),
  st_ctim = time_of("st_ctime", "st_ctim_nsec"),
  -- Makes the file the response and gives its status.
  ["http-response-send-file"] = function(found)
    if not found.is_file then return found.is_dir and 403 or 404 end
    prim.body_clear()
    prim.body_file(stat_paths[found], 0, -1)
    local modified = os.date("!%a, %d %b %Y %H:%M:%S GMT", found.st_mtime)
    local fields = {
      ["Content-Type"] = found["content-type"] or "application/octet-stream",
      ETag = found.etag, ["Last-Modified"] = modified,
    }
    for name, value in next, fields do
      if not get_header(nil, name) then set_header(nil, name, value) end
    end
    return 200
  end,
}
local stat_meta = { __metatable = false, __index = function(found, key)
  local getter = stat_getters[key]
  return getter and getter(found)
end }
local function described(path, found, ...)
  if not found then return found, ... end
  stat_paths[found] = path
  return setmetatable(found, stat_meta)
end
local function stat(path)
  -- As in lighttpd.
  if path == nil or path == "" then return nil end
  return described(path, call("stat", path))
end

-- `lighty.c`: the pure functions, and those that wait for the disk.
local c = prim.c
c.stat = stat
c.readlink = function(path) return call("readlink", path) end
c.readdir = function(path)
  return (call("readdir", path))
end
c = sealed(c)

prim.modules.lfs = prim.lfs(call)

local function request(to, ...)
  return call("request", to, ...)
end

local function log(level, ...)
  -- Joining one text would copy it.
  if select("#", ...) == 1 then return prim.log(level, tostring((...))) end
  local parts = { ... }
  for at = 1, select("#", ...) do parts[at] = tostring(parts[at]) end
  prim.log(level, concat(parts, " "))
end

local function print(...)
  if select("#", ...) == 1 then return prim.print(tostring((...))) end
  local parts = { ... }
  for at = 1, select("#", ...) do parts[at] = tostring(parts[at]) end
  prim.print(concat(parts, "\t"))
end

local plugin_stats, get_stats = object("plugin_stats"), prim.get.stats
local server = sealed {
  stats = sealed(function(self, key)
    if key == "clients_open" then return call("clients_open") end
    return get_stats(self, key)
  end, nil, function() return walk {} end),
  plugin_stats = plugin_stats,
  irequests = function()
    return call("open_requests") or function() end
  end,
}

-- Orders to the cache of responses. Lists of tags become one text.
do
  local set_cache, get_cache = prim.set.cache, prim.get.cache
  local purges = { url = true, prefix = true, tag = true, host = true }
  local function purge(orders)
    if type(orders) ~= "table" then error("lighty.cache.purge takes a table", 2) end
    local query = {}
    for name, value in next, orders do
      if purges[name] then
        query[#query + 1] = name .. "=" .. c.urlenc(tostring(value))
      elseif value then
        query[#query + 1] = tostring(name)
      end
    end
    set_cache(nil, "purge", concat(query, "&"))
    return true
  end
  prim.cache = sealed(function(self, key)
    if key == "purge" then return purge end
    return get_cache(self, key)
  end, function(self, key, value)
    if key == "tags" and type(value) == "table" then value = concat(value, " ") end
    if key == "bypass" then value = value and "1" or nil end
    set_cache(self, key, value)
  end)
end

local shared_lighty = {
  r = r,
  c = c,
  server = server,
  request = r.req_header,
  env = r.req_attr,
  req_env = r.req_env,
  status = plugin_stats,
  cache = prim.cache,
  stat = stat,
  RESTART_REQUEST = 99,
  log = log,
  json = prim.json and sealed(prim.json),
  shared = sealed(prim.shared),
  sleep = function(seconds) return call("sleep", seconds) end,
  http = sealed {
    get = function(url, options) return request("url", "GET", url, options) end,
    post = function(url, body, options) return request("url", "POST", url, options, body) end,
    request = function(method, url, options) return request("url", method, url, options) end,
  },
  backend = function(name, options)
    if type(options) == "string" then options = { url = options } end
    options = options or {}
    return request(name, options.method or "GET", options.url or options.path or "/", options,
      options.body, true)
  end,
  subrequest = function(url, options)
    return request("local", options and options.method or "GET", url, options)
  end,
}

-- The environment and the `lighty` of the run.
local current = { false, false }

-- `lighty` of one run: the shared part, and what the script sets for its response. Tables stand
-- behind one another here: functions would be called for each name.
local lighty_meta = { __metatable = false, __index = shared_lighty }
setmetatable(shared_lighty, { __index = function(_, key)
  local self = current[2]
  if key == "header" or key == "content" then
    local value = {}
    rawset(self, key, value)
    return value
  end
  if key == "result" then return self end
  return nil
end })
function lighty_meta.__pairs()
  return walk(shared_lighty)
end
-- Scripts keep values of their own in `lighty`. Its own names stay what they are: writing to them
-- has no effect, as in lighttpd.
function lighty_meta.__newindex(self, key, value)
  if key == "content" or key == "header" then
    rawset(self, key, value)
  elseif rawget(shared_lighty, key) == nil then
    rawset(self, key, value)
    -- The next run of the script gets other tables.
    rawset(current[1], "rawset", rawset)
  end
end

-- Coroutines of scripts pass on what waits, and what the hook suspends. The hook alone yields no
-- value at all: a script that does yields this.
local NOTHING = {}
local function passed(co, ok, ...)
  if ok then
    local first = ...
    if rawequal(first, TOKEN) then
      return passed(co, co_resume(co, co_yield(...)))
    end
    if rawequal(first, NOTHING) then return true end
    if select("#", ...) == 0 and co_status(co) == "suspended" then
      if co_yieldable() then co_yield(TOKEN, "preempted") end
      return passed(co, co_resume(co))
    end
  else
    look_at_limits()
  end
  return ok, ...
end
local function resume(co, ...)
  return passed(co, co_resume(co, ...))
end
-- Coroutines that resume one another nest on the thread's own stack.
local NESTED_MAX = 100
local depths = setmetatable({}, { __mode = "k" })
local function create(f)
  local running = co_running()
  local depth = (running and depths[running] or 0) + 1
  if depth > NESTED_MAX then error("too many nested coroutines", 2) end
  local co = co_create(f)
  depths[co] = depth
  return co
end
local function unwrapped(ok, ...)
  if not ok then error((...), 0) end
  return ...
end
local script_coroutine = {
  create = create,
  resume = resume,
  running = co_running,
  status = co_status,
  isyieldable = co_yieldable,
  yield = function(...)
    if select("#", ...) == 0 then return co_yield(NOTHING) end
    if rawequal((...), TOKEN) then error("not a value to yield", 2) end
    return co_yield(...)
  end,
  wrap = function(f)
    local co = create(f)
    return function(...)
      return unwrapped(resume(co, ...))
    end
  end,
}

-- `pairs` and `ipairs` see the request's objects.
local function pairs(t)
  local walk = pairs_of_object[t]
  if walk then return walk() end
  local meta = raw_getmetatable(t)
  walk = meta and rawget(meta, "__pairs")
  if walk then return walk(t) end
  return raw_pairs(t)
end

-- In Lua, where it can be interrupted and where comparisons do not nest on the thread's own stack.
local function ascending(a, b)
  return a < b
end
local function sort(list, less)
  local n = #list
  less = less or ascending
  local from, to = list, {}
  local width = 1
  while width < n do
    local at = 1
    while at <= n do
      local left, middle = at, at + width
      local right, stop = middle, at + 2 * width
      if middle > n + 1 then middle = n + 1 end
      if stop > n + 1 then stop = n + 1 end
      for out = at, stop - 1 do
        if left < middle and (right >= stop or not less(from[right], from[left])) then
          to[out] = from[left]
          left = left + 1
        else
          to[out] = from[right]
          right = right + 1
        end
      end
      at = stop
    end
    from, to = to, from
    width = width * 2
  end
  if from ~= list then
    for at = 1, n do list[at] = from[at] end
  end
end

-- Files are read whole, off the loop.
local file_methods = {}
local file_meta = { __index = file_methods, __metatable = false, __tostring = function() return "file" end }
local function read_one(self, how)
  local data, at = self.data, self.at
  if type(how) == "number" then
    if at > #data then return how == 0 and at <= #data and "" or nil end
    self.at = at + how
    return sub(data, at, at + how - 1)
  end
  how = gsub(how, "^%*", "")
  local kind = sub(how, 1, 1)
  if kind == "a" then
    self.at = #data + 1
    return sub(data, at)
  elseif kind == "l" or kind == "L" then
    if at > #data then return nil end
    local stop = find(data, "\n", at, true)
    self.at = (stop or #data) + 1
    return sub(data, at, kind == "L" and (stop or -1) or (stop or #data + 1) - 1)
  elseif kind == "n" then
    local from, stop = find(data, "^%s*[%+%-]?[%w%.]+", at)
    if not from then return nil end
    self.at = stop + 1
    return tonumber(sub(data, from, stop))
  end
  error("bad argument to 'read' (invalid format)", 3)
end
function file_methods:read(...)
  if not self.data then error("attempt to use a closed file", 2) end
  if select("#", ...) == 0 then return read_one(self, "l") end
  local results, n = {}, select("#", ...)
  for i = 1, n do
    results[i] = read_one(self, (select(i, ...)))
    if results[i] == nil then break end
  end
  return unpack(results, 1, n)
end
function file_methods:lines(how)
  return function() return read_one(self, how or "l") end
end
function file_methods:seek(whence, offset)
  local base = whence == "end" and #self.data or whence == "set" and 0 or self.at - 1
  self.at = base + (offset or 0) + 1
  return self.at - 1
end
function file_methods:close()
  self.data = false
  return true
end
function file_methods:write() return nil, "the file is open for reading" end
function file_methods:flush() return true end
function file_methods:setvbuf() return true end

local function off(name)
  return function()
    error(name .. " is off here; magnet.unsafe = \"enable\" allows it", 2)
  end
end

local script_io = {}
function script_io.open(path, mode)
  mode = mode or "r"
  if not find(mode, "^rb?$") then
    if prim.unsafe() then return io.open(path, mode) end
    return nil, path .. ": io.open in mode '" .. mode
      .. "' is off here; magnet.unsafe = \"enable\" allows it", 1
  end
  local data, why = call("read_file", path)
  if not data then return nil, path .. ": " .. tostring(why), 2 end
  return setmetatable({ data = data, at = 1 }, file_meta)
end
function script_io.lines(path, how)
  local file, why = script_io.open(path)
  if not file then error(why, 2) end
  return file:lines(how)
end
-- The standard streams are the error log.
local stream_methods = {}
for _, name in ipairs { "close", "flush", "setvbuf" } do
  stream_methods[name] = function() return true end
end
for _, name in ipairs { "read", "seek" } do
  stream_methods[name] = function() return nil, "the stream is open for writing" end
end
function stream_methods.write(self, ...)
  prim.log("write", concat { ... })
  return self
end
script_io.stderr, script_io.stdout = sealed(stream_methods), sealed(stream_methods)
function script_io.type(x)
  if rawequal(x, script_io.stderr) or rawequal(x, script_io.stdout) then return "file" end
  if raw_getmetatable(x) == file_meta then return x.data and "file" or "closed file" end
  return nil
end
function script_io.write(...) prim.log("write", concat { ... }) end
for _, name in ipairs { "popen", "tmpfile", "output", "input", "read", "close" } do
  local real, refuse = io[name], off("io." .. name)
  script_io[name] = function(...) return (prim.unsafe() and real or refuse)(...) end
end

local script_os = { time = os.time, date = os.date, clock = os.clock, difftime = os.difftime,
  getenv = os.getenv }
for _, name in ipairs { "execute", "remove", "rename", "tmpname", "setlocale" } do
  local real, refuse = os[name], off("os." .. name)
  script_os[name] = function(...) return (prim.unsafe() and real or refuse)(...) end
end
script_os.exit = function() error("os.exit would end the server", 2) end

-- Operations of Lua's own that nothing interrupts have limits: what is longer raises this error.
local function check_length(what, bytes, max)
  if bytes > max then error(format("%s: %d bytes of text, limit %d", what, bytes, max), 3) end
end

local FORMAT_OF_DATE_MAX, date = 1024, os.date
script_os.date = function(form, ...)
  if type(form) == "string" then
    check_length("os.date", #form, FORMAT_OF_DATE_MAX)
    book(#form * 64)
  end
  return date(form, ...)
end

-- No number needs more: what is longer is none.
local NUMBER_BYTES_MAX = 4096
local function script_tonumber(...)
  local value = ...
  if type(value) == "string" then
    if #value > NUMBER_BYTES_MAX then return nil end
    if #value > 32 then book(#value * 2) end
  end
  return tonumber(...)
end

local function book_bytes(n)
  if n > 64 then book(n / 16) end
end

local string_meta = getmetatable("")
local c_rep = rep
local script_string = {}
for name, f in raw_pairs(string) do script_string[name] = f end
-- Libraries name it at their start. No script can load what it would return.
script_string.dump = function() error("string.dump: byte code is not loaded here", 2) end
for name, f in raw_pairs(prim.packing) do script_string[name] = f end
script_string.rep = function(s, n, ...)
  if type(s) == "string" and type(n) == "number" and n > 0 then
    local separator = ...
    local bytes = (#s + (type(separator) == "string" and #separator or 0)) * n
    if bytes > prim.memory_max() then error("magnet.max-memory: not enough memory", 2) end
    -- Byte by byte, or text by text.
    if bytes > 64 then book(bytes / 8 + n / 32) end
  end
  return c_rep(s, n, ...)
end
local function as_text(n, first, ...)
  if n == 0 then return end
  if type(first) == "table" or type(first) == "userdata" then first = tostring(first) end
  return first, as_text(n - 1, ...)
end
local function bytes_of(n, first, ...)
  if n == 0 then return 0 end
  return (type(first) == "string" and #first or 0) + bytes_of(n - 1, ...)
end
local QUOTED_BYTES_MAX = 512 * 1024
local function has_quoted(form)
  return find(form, "%q", 1, true) and find((gsub(form, "%%%%", "")), "%q", 1, true)
end
script_string.format = function(form, ...)
  if type(form) == "string" then
    local bytes = bytes_of(select("#", ...), ...)
    if has_quoted(form) then
      check_length("string.format with %q", bytes, QUOTED_BYTES_MAX)
      book(bytes / 2)
    end
    book(#form * 8 + bytes / 8)
  end
  return format(form, as_text(select("#", ...), ...))
end

local c_gsub = gsub

-- Patterns that may go back often are left to a matcher with a bound.
local bounded_find, plain_find = prim.strings.find, prim.strings.plain
local exponents, known_exponents = {}, 0
local function exponent(pattern)
  local known = exponents[pattern]
  if known then return known end
  local n = sub(pattern, 1, 1) == "^" and 0 or 1
  for at = 1, #pattern do
    if find("*+-?", sub(pattern, at, at), 1, true) then n = n + 1 end
  end
  -- These go through the text or their set by themselves.
  n = n + select(2, c_gsub(pattern, "%%[bf]", ""))
  if known_exponents >= 256 then exponents, known_exponents = {}, 0 end
  exponents[pattern] = n
  known_exponents = known_exponents + 1
  return n
end
local function is_cheap(s, pattern)
  if type(s) ~= "string" or type(pattern) ~= "string" then return true end
  -- Each place is compared with the pattern, and each byte with all of a set.
  local steps = (#s) ^ exponent(pattern)
  if #pattern > 16 then steps = steps * (#pattern / 16) end
  if steps > 2.5e5 then return false end
  book(steps / 32)
  return true
end
local bounded_from
local function found_or_later(s, pattern, from, later, ...)
  if from == false then return bounded_from(s, pattern, later) end
  if not from then return nil end
  return from, later, ...
end
function bounded_from(s, pattern, init)
  return found_or_later(s, pattern, bounded_find(s, pattern, init))
end
-- Where a search begins; nil behind the end.
local function begin_of(s, init)
  init = tonumber(init) or 1
  if init < 0 then init = #s + init + 1 end
  if init < 1 then init = 1 end
  return init <= #s + 1 and init or nil
end
local function bounded(s, pattern, init)
  init = begin_of(s, init)
  if not init then return nil end
  return bounded_from(s, pattern, init)
end
-- Lua's own search for a text begins anew at each place.
local function plain_bounded(s, text, init)
  init = begin_of(s, init)
  if not init then return nil end
  return plain_find(s, text, init)
end
local function script_find(s, pattern, init, plain)
  if type(s) == "string" and type(pattern) == "string" and #s * #pattern > 2e4
    and (plain or not find(pattern, "[%^%$%*%+%?%.%(%)%[%%%-]")) then
    return plain_bounded(s, pattern, init)
  end
  if plain or is_cheap(s, pattern) then return find(s, pattern, init, plain) end
  return bounded(s, pattern, init)
end
local function captured(s, from, stop, ...)
  if not from then return nil end
  if select("#", ...) == 0 then return sub(s, from, stop) end
  return ...
end
script_string.find = script_find
script_string.match = function(s, pattern, init)
  if is_cheap(s, pattern) then return match(s, pattern, init) end
  return captured(s, bounded(s, pattern, init))
end
local c_gmatch = string.gmatch
script_string.gmatch = function(s, pattern)
  if is_cheap(s, pattern) then return c_gmatch(s, pattern) end
  local at = 1
  local function step(from, stop, ...)
    if not from then
      at = #s + 2
      return nil
    end
    at = stop >= from and stop + 1 or from + 1
    return captured(s, from, stop, ...)
  end
  return function()
    if at > #s + 1 then return nil end
    return step(bounded(s, pattern, at))
  end
end
script_string.gfind = nil
script_string.sub = function(s, from, to)
  local part = sub(s, from, to)
  book_bytes(#part)
  return part
end
for _, name in ipairs { "upper", "lower", "reverse" } do
  local f = string[name]
  script_string[name] = function(s)
    if type(s) == "string" then book_bytes(#s) end
    return f(s)
  end
end

-- `%0` to `%9` of a replacement.
local function expanded(replacement, whole, ...)
  local captures, n = { ... }, select("#", ...)
  return (gsub(replacement, "%%(.)", function(digit)
    if digit == "0" then return whole end
    local at = tonumber(digit)
    if not at then return digit end
    if at == 1 and n == 0 then return whole end
    if captures[at] == nil then error("invalid capture index", 0) end
    return tostring(captures[at])
  end))
end

-- With a function or a table as the replacement, in Lua: what it calls may wait.
local function replaced(replacement, whole, first)
  local key = first == nil and whole or first
  return type(replacement) == "table" and replacement[key]
end
local function next_match(out, s, at, replacement, from, stop, ...)
  if not from then return nil end
  local whole = sub(s, from, stop)
  local value
  if type(replacement) == "function" then
    if select("#", ...) == 0 then value = replacement(whole) else value = replacement(...) end
  elseif type(replacement) == "string" then
    value = expanded(replacement, whole, ...)
  else
    value = replaced(replacement, whole, ...)
  end
  if not value then
    value = whole
  elseif type(value) ~= "string" and type(value) ~= "number" then
    error("invalid replacement value (a " .. type(value) .. ")", 3)
  end
  out[#out + 1] = sub(s, at, from - 1)
  out[#out + 1] = value
  return from, stop
end
local function replaced_all(text, count)
  book_bytes(#text)
  return text, count
end
script_string.gsub = function(s, pattern, replacement, max)
  local kind = type(replacement)
  if kind ~= "function" and kind ~= "table" then
    if is_cheap(s, pattern) then return replaced_all(c_gsub(s, pattern, replacement, max)) end
    replacement = tostring(replacement)
  end
  s = tostring(s)
  local out, at, init, count = {}, 1, 1, 0
  local anchored = sub(pattern, 1, 1) == "^"
  while (not max or count < max) and init <= #s + 1 do
    local from, stop = next_match(out, s, at, replacement, script_find(s, pattern, init))
    if not from then break end
    count = count + 1
    at = stop + 1
    init = stop >= from and stop + 1 or from + 1
    if anchored then break end
  end
  out[#out + 1] = sub(s, at)
  return concat(out), count
end
string_meta.__metatable = false

-- What moves or copies much at once, in one operation.
local function book_elements(list, from, to)
  book(((tonumber(to) or #list) - (tonumber(from) or 1)) * 4)
end
local script_table = {}
for name, f in raw_pairs(table) do script_table[name] = f end
script_table.concat = function(list, separator, from, to)
  if type(list) ~= "table" then return concat(list, separator, from, to) end
  book_elements(list, from, to)
  local text = concat(list, separator, from, to)
  book_bytes(#text)
  return text
end
script_table.insert = function(list, ...)
  if type(list) == "table" and select("#", ...) > 1 then book_elements(list, (...)) end
  return insert(list, ...)
end
script_table.remove = function(list, at)
  if type(list) ~= "table" then return remove(list, at) end
  if at ~= nil then book_elements(list, at) end
  return remove(list, at)
end
script_table.sort = sort
local function script_unpack(list, from, to)
  if type(list) == "table" then book_elements(list, from, to) end
  return unpack(list, from or 1, to or type(list) == "table" and #list or nil)
end
script_table.unpack = script_unpack
script_table.pack = function(...) return { n = select("#", ...), ... } end

-- What later versions of Lua have, as far as 5.1's numbers and texts carry it.
local script_math = {}
for name, f in raw_pairs(math) do script_math[name] = f end
local rawlen = rawlen or function(value)
  if type(value) ~= "table" and type(value) ~= "string" then error("table or string expected", 2) end
  return #value
end
local function is_whole(x)
  return type(x) == "number" and x % 1 == 0 and x >= -2 ^ 53 and x <= 2 ^ 53
end
script_math.type = math.type or function(x)
  if type(x) ~= "number" then return nil end
  return is_whole(x) and "integer" or "float"
end
script_math.tointeger = math.tointeger or function(x)
  x = tonumber(x)
  return is_whole(x) and x or nil
end
local function utf8_char(code)
  if code < 0x80 then return string.char(code) end
  local tail, first_max, prefix = "", 0x20, 0xC0
  repeat
    tail = string.char(0x80 + code % 0x40) .. tail
    code = (code - code % 0x40) / 0x40
    if code < first_max then return string.char(prefix + code) .. tail end
    first_max, prefix = first_max / 2, prefix + first_max
  until first_max < 8
  error("value out of range", 3)
end
local utf8_pattern = "[%z\1-\127\194-\244][\128-\191]*"
-- The code at a place and where the next one begins; nothing where there is none.
local function utf8_decode(s, at)
  local from, to = find(s, "^" .. utf8_pattern, at)
  if not from then return nil end
  local first, length = string.byte(s, from), to - from + 1
  local wanted = first < 0x80 and 1 or first < 0xE0 and 2 or first < 0xF0 and 3 or 4
  if length ~= wanted then return nil end
  if wanted == 1 then return first, to + 1 end
  local code = first % 2 ^ (7 - wanted)
  for place = from + 1, to do code = code * 64 + string.byte(s, place) % 64 end
  local least = wanted == 2 and 0x80 or wanted == 3 and 0x800 or 0x10000
  if code < least or code > 0x10FFFF or code >= 0xD800 and code < 0xE000 then return nil end
  return code, to + 1
end
local function place_in(s, at, otherwise)
  at = at or otherwise
  return at < 0 and #s + at + 1 or at
end
local utf8_codes = {
  charpattern = utf8_pattern,
  char = function(...)
    local parts = { ... }
    for at = 1, #parts do parts[at] = utf8_char(parts[at]) end
    return concat(parts)
  end,
  len = function(s, from, to)
    local at, count = place_in(s, from, 1), 0
    to = place_in(s, to, -1)
    while at <= to do
      local code, next_at = utf8_decode(s, at)
      if not code then return nil, at end
      at, count = next_at, count + 1
    end
    return count
  end,
  codepoint = function(s, from, to)
    local at, codes = place_in(s, from, 1), {}
    to = place_in(s, to, at)
    while at <= to do
      local code, next_at = utf8_decode(s, at)
      if not code then error("invalid UTF-8 code", 2) end
      codes[#codes + 1], at = code, next_at
    end
    return script_unpack(codes)
  end,
  offset = function(s, n, at)
    local function continues(place)
      local byte = string.byte(s, place)
      return byte and byte >= 0x80 and byte < 0xC0
    end
    at = place_in(s, at, n > 0 and 1 or #s + 1)
    while n == 0 and at > 1 and continues(at) do at = at - 1 end
    while n < 0 and at > 1 do
      repeat at = at - 1 until at <= 1 or not continues(at)
      n = n + 1
    end
    while n > 1 and at <= #s do
      repeat at = at + 1 until not continues(at)
      n = n - 1
    end
    return (n == 0 or n == 1) and at or nil
  end,
  codes = function(s)
    return function(_, at)
      local _, next_at = 0, 1
      if at > 0 then _, next_at = utf8_decode(s, at) end
      if next_at > #s then return nil end
      local code = utf8_decode(s, next_at)
      if not code then error("invalid UTF-8 code", 2) end
      return next_at, code
    end, s, 0
  end,
}
utf8 = utf8 or utf8_codes
if jit_version then
  script_table.foreach = function(t, f)
    for key, value in next, t do
      local result = f(key, value)
      if result ~= nil then return result end
    end
  end
  script_table.foreachi = function(list, f)
    for at = 1, #list do
      local result = f(at, list[at])
      if result ~= nil then return result end
    end
  end
end

-- LuaJIT would begin with the same numbers in each state and at each start.
math.randomseed(prim.seed)

-- What a run puts into its environment when it first names it. The next run of the same script
-- has the environment again only if nothing is in it: what could change a table past its metatable
-- is therefore among these.
local into_environment = { rawset = rawset }
local libraries = {
  string = script_string, table = script_table, math = script_math, os = script_os, io = script_io,
  coroutine = script_coroutine, bit = bit, utf8 = utf8, debug = { traceback = traceback },
}

-- Each run has copies of its own, made when it first names the library: what it changes there is
-- gone when it ends.
local function copied(library)
  local copy = {}
  for name, f in raw_pairs(library) do copy[name] = f end
  return copy
end

-- A module of the state's as a run has it.
local function own_copy(module)
  local is_plain = type(module) == "table" and not raw_getmetatable(module)
  return is_plain and copied(module) or module
end

-- No hook interrupts what Lua 5.4 calls when it collects a table.
local function script_setmetatable(t, meta)
  if type(meta) == "table" and rawget(meta, "__gc") ~= nil then error("__gc is off here", 2) end
  return setmetatable(t, meta)
end

local base = {
  assert = assert, error = error, getmetatable = getmetatable, ipairs = ipairs, next = next,
  pairs = pairs, pcall = pcall, xpcall = xpcall, print = print, rawequal = rawequal,
  rawget = rawget, rawlen = rawlen, select = select,
  setmetatable = jit_version and setmetatable or script_setmetatable,
  tonumber = script_tonumber, tostring = tostring, type = type, unpack = script_unpack, _VERSION = _VERSION,
  collectgarbage = function(what)
    if what == "count" then return collectgarbage("count") end
    return 0
  end,
}

local env_meta = { __metatable = false, __index = base }

local state_globals = _G

-- Environments of 5.1. Those of the engine's functions belong to all runs: a script gets its own
-- instead, and cannot change them.
if setfenv then
  local function checked_level(f, name)
    local level = tonumber(f)
    if level and level >= 0 then return level end
    error(format("bad argument #1 to '%s' (non-negative level expected)", name), 3)
  end
  into_environment.getfenv = function(f)
    if f == nil then f = 1 end
    local env = nil
    if type(f) == "function" then
      env = getfenv(f)
    elseif checked_level(f, "getfenv") > 0 then
      env = getfenv(f + 1)
    end
    return env ~= nil and env ~= state_globals and env or current[1]
  end
  into_environment.setfenv = function(f, env)
    if type(env) ~= "table" then error("bad argument #2 to 'setfenv' (table expected)", 2) end
    if type(f) ~= "function" then
      local level = checked_level(f, "setfenv")
      local info = level > 0 and getinfo(level + 1, "f")
      if not info then error("bad argument #1 to 'setfenv' (invalid level)", 2) end
      f = info.func
    end
    if getfenv(f) == state_globals then
      error("'setfenv' cannot change environment of given object", 2)
    end
    return setfenv(f, env)
  end
end
-- `module` of 5.1, for a chunk that calls it.
local function script_module(env)
  return function(name, ...)
    local info, loaded = getinfo(2, "f"), env.package.loaded
    if not info or getfenv(info.func) == state_globals then
      error("'module' not called from a Lua function", 2)
    end
    local made = rawget(loaded, name)
    if type(made) ~= "table" then
      made = env
      for part in c_gmatch(name, "[^%.]+") do
        local inner = rawget(made, part)
        if inner == nil then
          inner = {}
          rawset(made, part, inner)
        elseif type(inner) ~= "table" then
          error("name conflict for module '" .. name .. "'", 2)
        end
        made = inner
      end
      loaded[name] = made
    end
    if made._NAME == nil then
      made._M, made._NAME, made._PACKAGE = made, name, match(name, "^(.*%.)[^%.]*$") or ""
    end
    setfenv(info.func, made)
    for at = 1, select("#", ...) do select(at, ...)(made) end
  end
end

-- Scripts of lighttpd keep values in `_G`, where they last for all requests. Here they do not, and
-- the log says so once. The environments of a script's last two runs that named `_G` are known for
-- this as long as no collection frees them.
local newest_env, older_env = setmetatable({}, { __mode = "v" }), setmetatable({}, { __mode = "v" })
local warned_of_globals, any_globals = {}, false
local function keep_for_warning(env)
  local path = prim.path()
  if warned_of_globals[path] then return end
  older_env[path], newest_env[path], any_globals = newest_env[path], env, true
end
local function warn_of_lost_global(env, key)
  local path = prim.path()
  local older = older_env[path]
  if not older or older == env or warned_of_globals[path] or rawget(older, key) == nil then return end
  warned_of_globals[path] = true
  prim.log("warning", format("_G[%q] of an earlier run is gone: each run has variables of its own; "
    .. "lighty.shared keeps values for all requests", tostring(key)))
end

-- A compiler cannot be interrupted: long texts are compiled by another thread. It goes through all
-- jumps of a chunk for each that it adds, so that their number is limited.
local CHUNK_BYTES_MAX, CHUNK_JUMPS_MAX, instantiate = 128 * 1024, 2048, prim.instantiate
local function why_not_compiled(chunk)
  -- It could corrupt the state.
  if sub(chunk, 1, 1) == "\27" then return "byte code is not loaded" end
  if #chunk > CHUNK_BYTES_MAX then
    return format("load: %d bytes of text, limit %d", #chunk, CHUNK_BYTES_MAX)
  end
  local jumps = prim.jumps(chunk)
  if jumps > CHUNK_JUMPS_MAX then
    return format("load: %d words like 'and' and 'break', limit %d", jumps, CHUNK_JUMPS_MAX)
  end
end

local function compile(text, name, env)
  local why = why_not_compiled(text)
  if why then return nil, why end
  if #text > prim.compile_here_max then
    local factory, refused = call("compile", name, text)
    if not factory then return nil, refused end
    return instantiate(factory, env)
  end
  local f
  if setfenv then
    f, why = loadstring(text, name)
    if f then setfenv(f, env) end
  else
    f, why = load(text, name, "t", env)
  end
  -- Afterwards: then the time that it took is seen.
  book(200 + #text * 24)
  return f, why
end

local function script_load(env)
  return function(chunk, name, _, own)
    if type(chunk) == "function" then
      local parts, n = {}, 0
      repeat
        local part = chunk()
        n = n + 1
        parts[n] = part
      until part == nil or part == ""
      chunk = concat(parts)
    end
    if type(chunk) ~= "string" then error("bad argument #1 to 'load' (function or string expected)", 2) end
    return compile(chunk, name or chunk, own or env)
  end
end

-- A file of Lua, compiled once for all runs until it changes.
local function load_file(env, path)
  local factory, why = call("module", path)
  if factory then return instantiate(factory, env) end
  why = tostring(why)
  if find(why, tostring(path), 1, true) == 1 then return nil, why end
  return nil, tostring(path) .. ": " .. why
end

-- Where Debian, and others that name their libraries by the machine, put modules.
local version = match(_VERSION, "%d+%.%d+")
local c_path = package.cpath
for _, place in ipairs { "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib" } do
  c_path = c_path .. ";" .. place .. "/lua/" .. version .. "/?.so"
end
local lua_path = package.path .. ";/usr/share/lua/" .. version .. "/?.lua;/usr/share/lua/"
  .. version .. "/?/init.lua"

-- Modules written in C are loaded once in each state. Only `magnet.unsafe` lets a script say where
-- they are.
local c_modules, loadlib = {}, package.loadlib
-- Modules of 5.1 that set a global of their name besides what they return.
local sets_global = { lfs = true }
local function opened(name, file, cpath, tried)
  local entry = "luaopen_" .. gsub(gsub(name, "^[^%-]*%-", ""), "%.", "_")
  file = gsub(gsub(file, "%.", "/"), "%%", "%%%%")
  for template in string.gmatch(cpath, "[^;]+") do
    local place = gsub(template, "%?", file)
    local open, why = loadlib(place, entry)
    if open then
      local value = open(name)
      if value == nil then value = true end
      c_modules[name] = value
      if rawget(state_globals, name) ~= nil and rawget(base, name) == nil and not libraries[name] then sets_global[name] = true end
      return value
    end
    insert(tried, "\n\t" .. (find(why, "No such file", 1, true) and "no file '" .. place .. "'" or why))
  end
end
local function c_module(name, cpath)
  if c_modules[name] ~= nil then return c_modules[name] end
  local tried = {}
  cpath = prim.unsafe() and cpath or c_path
  local value = opened(name, name, cpath, tried)
  -- Libraries that hold several modules are named by the first part of their names.
  local root = match(name, "^([^%.]+)%.")
  if value == nil and root then value = opened(name, root, cpath, tried) end
  return value, concat(tried)
end

-- `require`: modules of Lua beside the script and on `package.path`, run afresh in each run; C
-- modules and those of the engine are the state's.
local function script_require(env, path)
  local dir = match(path, "^(.*)/[^/]*$") or "."
  local own = {
    loaded = setmetatable({}, { __metatable = false, __index = function(_, name)
      if libraries[name] or name == "_G" or name == "package" then return env[name] end
      return nil
    end }),
    preload = {},
    path = dir .. "/?.lua;" .. dir .. "/?/init.lua;" .. lua_path,
    cpath = c_path,
    config = package.config,
    seeall = setfenv and function(made)
      local meta = raw_getmetatable(made)
      if meta then meta.__index = env else setmetatable(made, { __index = env }) end
    end or nil,
    loadlib = prim.unsafe() and loadlib or nil,
  }
  local function found(name)
    local preloaded = own.preload[name]
    if preloaded then return preloaded end
    local engine = prim.modules[name]
    if engine ~= nil then return function() return own_copy(engine) end end
    local tried = {}
    local file = gsub(name, "%.", "/")
    for template in string.gmatch(own.path, "[^;]+") do
      local place = gsub(template, "%?", (gsub(file, "%%", "%%%%")))
      local f, why = load_file(env, place)
      if f then return f, place end
      if not find(why, ": No such file", 1, true) and not find(why, ": not found", 1, true) then
        error(format("error loading module '%s': %s", name, why), 3)
      end
      insert(tried, "\n\tno file '" .. place .. "'")
    end
    local value, why = c_module(name, own.cpath)
    if value ~= nil then
      return function() return own_copy(value) end
    end
    insert(tried, why or "")
    error(format("module '%s' not found:%s", name, concat(tried)), 3)
  end
  return own, function(name)
    local done = own.loaded[name]
    if done ~= nil then return done end
    local f, place = found(name)
    local value = f(name, place)
    if value == nil then value = own.loaded[name] end
    if value == nil then value = true end
    own.loaded[name] = value
    if sets_global[name] and rawget(env, name) == nil then rawset(env, name, value) end
    return value
  end
end

setmetatable(base, { __index = function(_, key)
  local env, value = current[1], nil
  local library = libraries[key]
  if library then
    value = copied(library)
  elseif into_environment[key] then
    value = into_environment[key]
  elseif key == "load" or key == "loadstring" then
    value = script_load(env)
  elseif key == "require" or key == "package" then
    local package, require = script_require(env, prim.path())
    rawset(env, "package", package)
    rawset(env, "require", require)
    return rawget(env, key)
  elseif key == "loadfile" then
    value = function(path) return load_file(env, path) end
  elseif key == "dofile" then
    value = function(path)
      local f, why = load_file(env, path)
      if not f then error(why, 2) end
      return f()
    end
  elseif key == "_G" then
    value = env
    keep_for_warning(env)
  elseif key == "module" and setfenv then
    value = script_module(env)
  elseif key == "jit" and jit_version then
    value = { version = jit_version, off = function() end, on = function() end,
      status = function() return false end }
  else
    if any_globals then warn_of_lost_global(env, key) end
    return nil
  end
  rawset(env, key, value)
  return value
end })

-- Methods that a script gave its strings: `function string.trim(s) ...`.
local real_string = script_string
string_meta.__index = function(_, key)
  local f = real_string[key]
  if f ~= nil then return f end
  local env = current[1]
  local own = env and rawget(env, "string")
  return own and own[key]
end

local function copy_header(header)
  local set = prim.set.resp_header
  for name, value in next, header do
    local kind = type(value)
    if type(name) == "string" and (kind == "string" or kind == "number") then
      set(nil, name, tostring(value))
    end
  end
end

-- `lighty.content`: unlike in r.resp_body, `length` is where the range ends.
local function attach(content)
  prim.body_clear()
  for at = 1, #content do
    local piece = content[at]
    if type(piece) == "table" then
      local offset, length = tonumber(piece.offset) or 0, tonumber(piece.length)
      if length and length < 0 then length = nil end
      if offset < 0 or (length and length < offset) then
        prim.log("error", format("content[%d]: the range is not one", at))
        return
      end
      piece = { filename = piece.filename, offset = offset, length = length and length - offset }
    end
    if not add_piece(piece, at, prim.body_bytes) then return end
  end
end

local function finish(lighty, status)
  local header = rawget(lighty, "header")
  if type(header) == "table" then copy_header(header) end
  if status == nil then return 0 end
  local number = tonumber(status)
  if not number then
    prim.log("error", "unexpected non-integer return type: " .. type(status))
    return 0
  end
  if number >= 200 then
    local content = rawget(lighty, "content")
    if type(content) == "table" then attach(content) end
  end
  return number
end

local enter, finish_plain = prim.run(current, env_meta, lighty_meta)
local function finished(number, is_odd)
  if is_odd then return finish(current[2], number) end
  return number
end
local function finish_returned(status)
  return finished(finish_plain(status))
end
local function run(script, flags)
  return finished(finish_plain(enter(script, flags)()))
end

-- A filter's function, called for each piece of a streamed body.
local function filter(script, flags)
  local each = enter(script, flags)()
  if type(each) ~= "function" then each = rawget(current[1], "filter") end
  if type(each) ~= "function" then
    error("the script returns no function, and defines none called filter", 0)
  end
  local out = nil
  while true do
    local piece = co_yield(TOKEN, "piece", out)
    out = each(piece)
    if piece == nil then return out end
  end
end

return run, filter, finish_returned, current, env_meta, lighty_meta
