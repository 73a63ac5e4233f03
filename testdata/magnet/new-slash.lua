-- stage: physical-path
-- ask: GET /blog
-- ask: GET /blog/?x
-- Fields that a script sets stay where the server redirects to a directory, or responds by itself.
lighty.r.resp_header["X-Script"] = "physical"
return 0.5
