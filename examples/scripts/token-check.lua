-- Lets in who has a token: a JSON Web Token signed with HS256 (RFC 7519, RFC 7515).
--
--   $HTTP["url"] =^ "/api/" {
--     magnet.attract-raw-url-to = ( "/etc/lighty/scripts/token-check.lua" )
--   }
--
-- The secret is the first line of this file, which `head -c 32 /dev/urandom | base64` fills.
-- Backends get the name that the token says as the environment's REMOTE_USER.
local SECRET_FILE = "/etc/lighty/scripts/token-secret"

local r, c = lighty.r, lighty.c

local function refuse(why)
  r.resp_header["WWW-Authenticate"] = 'Bearer realm="api", error="invalid_token", '
    .. 'error_description=' .. c.quotedenc(why)
  return 401
end

local function decoded(part)
  local text = c.b64urldec(part)
  local ok, value = pcall(lighty.json.decode, text)
  if ok and type(value) == "table" then return value end
  return nil
end

local head, body, signature =
  (r.req_header["Authorization"] or ""):match("^Bearer +([%w_%-]+)%.([%w_%-]+)%.([%w_%-]+)$")
if not head then
  r.resp_header["WWW-Authenticate"] = 'Bearer realm="api"'
  return 401
end

-- Only the one algorithm that the secret is for: a token must not choose how it is judged.
local header = decoded(head)
if not header or header.alg ~= "HS256" then return refuse("the algorithm is not HS256") end

local file = io.open(SECRET_FILE)
local secret = file and file:read("*l")
if not secret or #secret < 16 then
  lighty.log("error", "token-check: no secret of 16 characters or more")
  return 500
end
local own = c.hmac("sha256", secret, head .. "." .. body)
local given = c.b64urldec(signature)
if not given or not c.digest_eq(own, c.hexenc(given)) then return refuse("the signature is wrong") end

local claims = decoded(body)
if not claims then return refuse("the claims cannot be read") end
local now, leeway = c.time(), 30
local expires, begins = tonumber(claims.exp), tonumber(claims.nbf)
if not expires or expires + leeway < now then return refuse("the token has expired") end
if begins and begins - leeway > now then return refuse("the token is not valid yet") end
if type(claims.sub) ~= "string" then return refuse("the token names nobody") end

r.req_env["REMOTE_USER"] = claims.sub
return 0
