-- stage: raw-url
-- ask: GET /scratch
-- Scripts kept things in the table lighty; 1.4 lets them.
lighty.greeting = "kept in lighty"
local function greet()
  return lighty.greeting
end
lighty.header = { ["Content-Type"] = "text/plain", ["X-Scratch"] = "yes" }
lighty.content = { greet(), "\n" }
return 200
