# Everything in Go needs no make: go build ./..., go test ./...

GO ?= go
BUILD := $(CURDIR)/build

.PHONY: capi
# The uDAPL provider for C programs and a dat.conf that names it; needs a C compiler and the headers of
# libdat2 (Debian: libdapl-dev).
capi:
	mkdir -p $(BUILD)
	CGO_ENABLED=1 $(GO) build -buildmode=c-shared -tags kdapl_capi -o $(BUILD)/libkdapl.so ./capi
	$(GO) run ./cmd/kdapl dat-conf --library $(BUILD)/libkdapl.so >$(BUILD)/dat.conf

.PHONY: model
model: ; $(MAKE) -C model
