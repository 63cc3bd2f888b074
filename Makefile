# Everything in Go needs no make: go build ./..., go test ./...

GO ?= go
BUILD := $(CURDIR)/build

.PHONY: capi
# The uDAPL provider for C programs and a dat.conf that names it; needs a C compiler and the headers of
# libdat2 (Debian: libdapl-dev).
capi:
	mkdir -p $(BUILD)
	CGO_ENABLED=1 $(GO) build -buildmode=c-shared -tags kdapl_capi -o $(BUILD)/libkdapl.so ./capi
	printf '%s u2.0 nonthreadsafe default %s kdapl.1.0 "%s" ""\n' \
		kdapl-loop $(BUILD)/libkdapl.so "loop" \
		kdapl-iwarp $(BUILD)/libkdapl.so "iwarp addr=127.0.0.1" \
		kdapl-iwarp-plain $(BUILD)/libkdapl.so "iwarp addr=127.0.0.1 peer2peer=off" >$(BUILD)/dat.conf

.PHONY: model
model: ; $(MAKE) -C model
