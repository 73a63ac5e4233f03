//! Scripts of `mod_magnet` that wait: their texts, their configuration, and the steps that requests
//! choose.
//!
//! Steps are words of the query, so that the requests of all protocols have them: `&wait=300`.

use std::path::Path;

use super::rng::Rng;
use super::sabotage::Bug;
use super::sim::Sim;
use super::site::HTTP;

/// Seconds that the scripts of a request wait for at most, together.
pub(crate) const SCRIPTS_S: u64 = 30;

/// Beginning of all scripts.
const COMMON: &str = r#"
local r = lighty.r
local query = r.req_attr["uri.query"]
local function step(name) return query:match("&" .. name .. "=(%w+)") end
local function wait(name) lighty.sleep(tonumber(step(name) or 0) / 1000) end
local function failed(why)
  r.resp_header["X-Why"] = why
  return 599
end
"#;

/// Leaves the request to the file, the backend or the module that its URL without the first segment
/// leads to. With `collect` it receives the body, and with `again` it starts the request over.
const WAY: &str = r#"
if step("collect") == "first" then local _ = r.req_body.collect end
wait("wait")
if step("collect") == "last" then local _ = r.req_body.collect end
r.req_attr["uri.path"] = r.req_attr["uri.path"]:match("^/w(/.*)$")
if step("again") then return lighty.RESTART_REQUEST end
if step("hint") then return 103 end
"#;

/// Responds with the body of the request.
const ECHO: &str = r#"
local is_whole = r.req_body.collect
wait("wait")
if not is_whole then return failed("not collected") end
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set(r.req_body.get)
return 200
"#;

/// Responds with the body of a backend's response.
const FETCH: &str = r#"
local method, body = "GET", nil
if r.req_attr["request.method"] == "POST" then
  method = "POST"
  if not r.req_body.collect then return failed("not collected") end
  body = r.req_body.get
end
wait("wait")
local url = r.req_attr["uri.path"]:match("^/q(/.*)$") .. "?" .. query
local by, found, why = step("by"), nil, nil
if by == "backend" then
  found, why = lighty.backend("own", { url = url, method = method, body = body })
elseif by == "http" then
  found, why = lighty.http.request(method, "http://HOST" .. url, { body = body })
else
  found, why = lighty.subrequest(url, { method = method, body = body })
end
wait("linger")
if not found then return failed(why) end
if found.status ~= 200 then return failed("status " .. found.status) end
r.resp_header["X-Id"] = found.headers["x-id"]
r.resp_header["Content-Type"] = "text/plain"
r.resp_body.set(found.body)
return 200
"#;

/// Looks at the file, and may make it the response.
const FILE: &str = r#"
wait("file")
local found = lighty.stat(r.req_attr["physical.path"])
if found and step("send") then return found["http-response-send-file"] end
"#;

/// Reads the whole response before its first byte is sent.
const START: &str = r#"
wait("start")
if step("whole") then local _ = r.resp_body.get end
wait("start")
"#;

/// Waits before the first pieces of a body, and passes each on when the next one is there.
const FILTER: &str = r#"
local count, kept = 0, nil
return function(piece)
  count = count + 1
  if count <= 3 then wait("filter") end
  local before = kept
  kept = piece
  return before
end
"#;

/// Scripts by name.
const SCRIPTS: [(&str, &str); 6] = [
    ("way", WAY),
    ("echo", ECHO),
    ("fetch", FETCH),
    ("file", FILE),
    ("start", START),
    ("filter", FILTER),
];

/// Writes the scripts.
pub(crate) fn write(root: &Path) {
    let dir = root.join("scripts");
    std::fs::create_dir_all(&dir).expect("a directory");
    let write = |name: &str, text: &str| {
        let text = format!("{COMMON}{text}").replace("HOST", &HTTP[1].to_string());
        std::fs::write(dir.join(format!("{name}.lua")), text).expect("a file");
    };
    SCRIPTS.iter().for_each(|(name, text)| write(name, text));
    let forgetful = "r.req_body.collect == true then r.req_body.set(\"\")";
    write(
        "forgetful",
        &WAY.replace("local _ = r.req_body.collect", &format!("if {forgetful} end")),
    );
}

/// Returns the configuration of the scripts. Variants differ in their limits, unless nothing goes
/// wrong in the run.
pub(crate) fn config(sim: &Sim, variant: u64) -> String {
    let scripts = sim.root.join("scripts");
    let (scripts, [own, other]) = (scripts.display(), HTTP);
    let (most_ms, most_kbytes) = match variant {
        _ if sim.is_calm => (60_000, 8_192),
        1 => (60_000, 160),
        2 => (1_500, 8_192),
        _ => (10_000, 8_192),
    };
    let way = if sim.bug == Some(Bug::ForgottenUpload) { "forgetful" } else { "way" };
    format!(
        r#"
magnet.max-time = {most_ms}
magnet.max-memory = {most_kbytes}
magnet.backends = ( "own" => "{own}" )
magnet.http-hosts = ( "{other}" )
$HTTP["url"] =~ "^/w/" {{ magnet.attract-raw-url-to = ( "{scripts}/{way}.lua" ) }}
$HTTP["url"] =~ "^/e/" {{ magnet.attract-raw-url-to = ( "{scripts}/echo.lua" ) }}
$HTTP["url"] =~ "^/q/" {{ magnet.attract-raw-url-to = ( "{scripts}/fetch.lua" ) }}
$HTTP["querystring"] =~ "&file=" {{
    magnet.attract-physical-path-to = ( "{scripts}/file.lua" )
}}
$HTTP["querystring"] =~ "&start=" {{
    magnet.attract-response-start-to = ( "{scripts}/start.lua" )
}}
$HTTP["querystring"] =~ "&filter=" {{
    magnet.attract-response-content-to = ( "{scripts}/filter.lua" )
}}
"#
    )
}

/// Returns the milliseconds of a wait.
pub(crate) fn wait_ms(rng: &Rng) -> u64 {
    rng.pick(&[0, 1, 40, 300, 900, 2_500])
}
