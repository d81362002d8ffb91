# The commands of this project. Each works as the first one typed on a fresh Debian 12 machine: what is missing is installed
# first (scripts/deps says what and why; NO_DEPS=1 skips that).

BUILD  ?= build
PREFIX ?= /usr/local
export BUILD

.DEFAULT_GOAL := help
.PHONY: help deps deps-build deps-run deps-bank deps-shop build run run-bank run-shop quick test check bench soak install
.PHONY: uninstall clean deb deps-deb image deps-image deps-soak module release docs

help: ## this list
	@echo 'usage: make TARGET [NO_DEPS=1] [BUILD=build] [PREFIX=/usr/local] [DESTDIR=]'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

deps: ## install the Debian packages that are missing: for everything
deps-build: # and only what a command needs
deps-run:   FOR = run
deps-bank:  FOR = run bank
deps-shop:  FOR = run shop $(filter kafka,$(BROKER))
deps-deb:   FOR = deb
deps-image: FOR = deb image
deps-soak:  FOR = soak
deps:       FOR = test
deps deps-build deps-run deps-bank deps-shop deps-deb deps-image deps-soak:
ifndef NO_DEPS
	@scripts/deps build $(FOR)
endif

build: deps-build ## build/once, build/libonce.a, build/libonce.so, build/ngx_http_once_module.so
	@scripts/build $(BUILD) --product
	@cd $(BUILD) && for file in once libonce.a libonce.so ngx_http_once_module.so; do \
	    [ ! -e $$file ] || printf 'built: %-40s %s\n' "$(BUILD)/$$file" "$$(du -h -L --apparent-size $$file | cut -f 1)"; \
	done

run: deps-run ## a backend behind the gate, and what to type to see it work (PORT=8080)
	@scripts/build $(BUILD) --product example_payments
	@scripts/run

run-bank: deps-bank ## a bank on a PostgreSQL of its own behind the gate, and what to type to see it work (PORT=8080)
	@scripts/build $(BUILD) --product example_bank
	@scripts/run-bank

run-shop: deps-shop ## bank, relay, broker, consumers and notify: a purchase from end to end (BROKER=kafka, MAIL=hold)
	@scripts/build $(BUILD) --product example_bank example_notify
	@scripts/run-shop

quick: deps ## the tests that are worth running on every save: under a minute
	@scripts/test quick

test: deps ## all tests; the last line counts them
	@scripts/test

check: deps ## format, layers, static analysis, scripts, man pages
	@scripts/check

bench: deps ## how fast, and how many instructions a decision takes
	@scripts/bench

soak: deps-soak ## simulation, model check, crashes, campaigns and fuzzing for SOAK_SECONDS (default 600); packages; other nginx
	@scripts/soak

install: build ## install below DESTDIR and PREFIX
	@cmake --install $(BUILD) --prefix $(PREFIX)
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi # so that programs find libonce.so at once

uninstall: ## remove what install installed, below the same DESTDIR and PREFIX
	@scripts/uninstall $(BUILD) $(PREFIX)

module: deps-build ## the nginx module for another nginx: NGINX=PROGRAM, and SOURCE=DIR if it is not Debian's
	@scripts/build $(BUILD) once_static
	@scripts/build-module $(BUILD) --for $(or $(NGINX),nginx) $(if $(SOURCE),--source $(SOURCE))

deb: deps-deb ## build/deb: Debian packages of the program, the library, the nginx module and the documentation
	@scripts/deb $(BUILD)/deb

docs: ## build/docs/site: a static site of the documents, with search (python3-venv)
	@scripts/docs $(BUILD)/docs

release: ## tag, tarball and checksums of a new version: VERSION=0.3.0
	@scripts/release $(VERSION)

image: deps-image deb ## build/image: an OCI image of the program, nginx and the module, and nothing else
	@scripts/image $(BUILD)/image $(BUILD)/deb

clean: ## remove the build directory
	@rm -rf $(BUILD)
