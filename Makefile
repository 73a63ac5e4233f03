# Each target is one script: read it to see what happens.
.PHONY: run test check soak lint bench fuzz dist dist-static packages small docs

run:            ## build quickly and serve the example site on http://127.0.0.1:8080/
	scripts/run.sh

test:           ## everything that must pass
	scripts/test.sh

check:          ## the inner loop: lints, unit tests, layers; AREA=proxy adds an area's black-box tests
	scripts/check.sh $(AREA)

soak:           ## the simulation with new seeds, until it is stopped (see docs/simulation.md)
	scripts/soak.sh

lint:           ## formatting and lints only
	scripts/lint.sh

bench:          ## the experiments, peers side by side; E=F5 makes one, E=--list tells which there are
	scripts/bench.sh $(E)

docs:           ## the documentation site in target/docs/site; view it with: lighty serve target/docs/site
	scripts/docs.sh

fuzz:           ## every fuzz target for a while (needs a nightly toolchain and cargo-fuzz)
	scripts/fuzz.sh

dist:           ## an archive of the release binary, man page, completions and manual
	scripts/dist.sh

dist-static:    ## target/dist-static/lighty: a binary that needs no library and no other file
	scripts/dist-static.sh

packages:       ## deb, rpm, static archive, container image, bill of materials: target/packages
	scripts/packages.sh

small:          ## a binary with few features and little size; F=brotli,dns adds some (see docs/decisions/0034)
	scripts/small.sh $(F)
