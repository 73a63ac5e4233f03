-- stage: raw-url
-- ask: GET /count
-- ask: GET /count
-- ask: GET /count
-- A counter of the statistics page.
lighty.status["corpus.visits"] = (lighty.status["corpus.visits"] or 0) + 1
lighty.header["Content-Type"] = "text/plain"
lighty.content = { "visit ", tostring(lighty.status["corpus.visits"]), "\n" }
return 200
