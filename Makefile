# Everything a newcomer types. `make` alone lists it.
.DEFAULT_GOAL := help
.PHONY: help demo test test-all audit bench fuzz lab transcript man messages site dist deb rpm test-packages install uninstall clean

ALIGNTOOL := .venv/bin/aligntool
PREFIX ?= /usr/local
prefix ?= $(PREFIX)
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

help: ## list these words
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r word text; do printf '%-16s %s\n' "$$word" "$$text"; done

demo: .venv/.ready-demo ## audit, plan, realign, audit: on a disk image of 2005 that it makes itself (no root, touches no disk)
	@$(ALIGNTOOL) demo

test: .venv/.ready-test ## run the linters, the type check and every test but the long ones; as root also those of devices
	@.venv/bin/python -m pytest -p tests.workers -n auto --no-loadscope-reorder $(ARGS)

test-all: .venv/.ready-test ## run all of them, with power cuts, real boots and whole matrices: about four hours, as root
	@echo 'make test-all: takes about four hours on two cores (docs/contributing.md); make test has what takes minutes' >&2
	@ALIGNTOOL_THOROUGH=1 .venv/bin/python -m pytest -p tests.workers -n auto --no-loadscope-reorder \
		--durations=20 --durations-min=60 $(ARGS)

audit: .venv/.ready-demo ## audit every disk of this machine (asks for root; reads only)
	@$(SUDO) $(ALIGNTOOL) audit $(ARGS)

bench: .venv/.ready-test ## time aligntool beside parted, lsblk, sfdisk --move-data, e2image and dd (10 GiB, half an hour)
	@.venv/bin/python tests/bench/run.py $(ARGS)

fuzz: .venv/.ready-test ## feed damaged disks to every parser, guided by coverage
	@.venv/bin/python tests/fuzz/run.py $(ARGS)

lab: .venv/.ready-test ## enter an emulated PC with NVMe drives behind PCIe ports and a switch (docs/contributing.md)
	@.venv/bin/python -m tests.lab.shell $(ARGS)

transcript: .venv/.ready-demo ## record the demo again: docs/pictures/demo.cast for asciinema, and demo.svg
	@.venv/bin/python .ci/transcript.py

messages: .venv/.ready-test ## update the catalogues of translations in po/, and list what is not translated
	@.venv/bin/python .ci/messages.py

man: .venv/.ready-test ## rewrite the manual pages, the completion files, and the page of findings
	@.venv/bin/aligntool explain --markdown > docs/findings.md
	@.venv/bin/python .ci/man.py
	@.venv/bin/python .ci/completion.py

site: .venv/.ready-test ## make the pages of docs/ a site in build/site, with a search; it needs no server
	@.venv/bin/python -m sphinx -qW --keep-going -c .ci -d build/doctrees . build/site
	@.venv/bin/python -m sphinx -qW --keep-going -c .ci -d build/doctrees-ja -t ja . build/site/ja

dist: man ## make aligntool.pyz (one file, runs by any Python 3.11 or newer), wheel and sdist in dist/
	@.ci/dist dist

deb: man ## make the package for Debian 12, 13 and Ubuntu 24.04 in dist/
	@.ci/package deb dist

rpm: man ## make the package for Fedora and its kin in dist/
	@.ci/package rpm dist

test-packages: ## install, try and remove the packages on bare Debian and Ubuntu systems; as root (docs/contributing.md)
	@.ci/test-packages $(ARGS)

install: ## install for all users of this machine, below PREFIX=/usr/local; DESTDIR=... stages it for a package
	@.ci/setup build
	@.ci/install '$(prefix)' '$(DESTDIR)'

uninstall: ## remove what `make install` installed, with the same PREFIX and DESTDIR
	@.ci/install --remove '$(prefix)' '$(DESTDIR)'

clean: ## throw away .venv and what the tools left behind
	rm -rf .venv .lab demo dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.PHONY: stale
# Ready once, and again when what is asked for has changed, the checkout was moved or copied, or its Python was replaced.
READY = { [ -L .venv ] || grep -qF "$$(pwd -P)/.venv/bin/" .venv/bin/aligntool; } && .venv/bin/aligntool --version
.venv/.ready-%: pyproject.toml .ci/setup $(shell { $(READY); } >/dev/null 2>&1 || echo stale)
	@.ci/setup $*
	@touch $@
