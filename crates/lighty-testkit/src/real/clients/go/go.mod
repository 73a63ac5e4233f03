module lighty.invalid/http-peer

go 1.26.0

require github.com/moby/spdystream v0.5.1
