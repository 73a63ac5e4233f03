-- stage: response-start
-- ask: GET /file.txt | X-Want: 404
-- ask: GET /file.txt | X-Want: 201
-- ask: GET /file.txt | X-Want: 0
-- ask: GET /file.txt | X-Want: 150
-- ask: GET /file.txt | X-Want: 200.5
-- ask: GET /file.txt | X-Want: 200 | Range: bytes=0-3
-- ask: GET /env.cgi | X-Want: 202
-- ask: GET /file.txt
-- A response that is there gets another status.
lighty.r.resp_header["X-Seen"] = lighty.r.req_header["X-Want"]
return tonumber(lighty.r.req_header["X-Want"])
