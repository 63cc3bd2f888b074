.PHONY: model
model: ; $(MAKE) -C model
