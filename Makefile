# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Builds all of user space into $(B) and runs every test. Nothing is ever
# written into the source folders.
#
#   B=DIR        where to build (default: build)
#   V=1          show every command
#   SAN=address  AddressSanitizer and UBSan
#   SAN=thread   ThreadSanitizer
#   SAN=fuzz     the fuzz programs, by clang, with ASan and UBSan
#   DEBUG=1      -O1, and the assertions that cost time (sanitizers have them, too)
#   ABLATE=1     guards can be switched off
#   COV=1        lines and branches are counted
#   PREFIX=DIR   where to install (default: /usr/local)
#   LIBDIR=DIR   where libraries go (default: PREFIX/lib; /usr/lib64 and the like for packages)
#   DESTDIR=DIR  a root to install into, for packages
#   UDEVDIR=DIR  where the udev rule goes (default: /etc/udev/rules.d; /usr/lib with PREFIX=/usr)
#   UNITDIR=DIR  where the units of systemd go (default: systemd/system beside udev, or UDEVDIR)
#   SYSUSERSDIR=DIR  where the file of the group goes (default: sysusers.d beside, or UDEVDIR)
#
# SAN, DEBUG, ABLATE and COV make variants. Each has its own folder below $(B), so
# they never mix and a switch between two of them rebuilds nothing. Sources are
# found by wildcard: a new .c file needs no edit here. Only the portable core
# has an explicit list, kmod/core/Makefile.objs, which the kernel build reads
# too.

B       ?= build
# one spelling: what an object depends on is noted for the name it was made by
override B := $(patsubst $(CURDIR)/%,%,$(abspath $(B)))
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
CC      ?= cc
AR      ?= ar
OBJCOPY ?= objcopy
PKGCONF ?= pkg-config

VERSION := $(shell sed -n 's/^.define MP_VERSION "\(.*\)"/\1/p' kmod/version.h)
SOMAJOR := 1

ifeq ($(V),1)
Q :=
say = @:
else
Q := @
say = @printf '  %-7s %s\n'
endif

# ---- variants ---------------------------------------------------------

OPT      := -O2 -g
# 3 where the compiler knows sizes that are computed
hash     := \#
FORTIFY  := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=$(or $(shell printf \
	'$(hash)if __has_builtin(__builtin_dynamic_object_size)\n3\n$(hash)endif\n' | \
	$(CC) -E -P - 2>/dev/null),2)
VARIANT  :=
SANFLAGS :=

ifneq ($(SAN),)
CPPFLAGS += -DMP_DEBUG
endif
ifeq ($(SAN),address)
VARIANT  := address
SANFLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined
else ifeq ($(SAN),thread)
VARIANT  := thread
SANFLAGS := -fsanitize=thread
else ifeq ($(SAN),fuzz)
VARIANT  := fuzz
SANFLAGS := -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined
# clang has the fuzzer; ccache stays in front of it
CC       := $(filter %ccache,$(CC)) clang
CPPFLAGS += -DMP_FUZZ
else ifneq ($(SAN),)
$(error SAN=$(SAN): wanted address, thread or fuzz)
endif
ifeq ($(COV),1)
VARIANT  := cover
SANFLAGS := --coverage -fprofile-update=atomic
endif
# reports name functions and lines; with types and variables a build takes a fifth longer
ifneq ($(VARIANT),)
OPT      := $(if $(filter fuzz,$(SAN)),-O2,-O1) -g1 -fno-omit-frame-pointer
FORTIFY  :=
endif
ifeq ($(DEBUG),1)
VARIANT  := $(VARIANT)debug
OPT      := -O1 -g -DMP_DEBUG
FORTIFY  :=
endif
ifeq ($(ABLATE),1)
VARIANT  := $(VARIANT)ablate
OPT      := $(OPT) $(if $(DEBUG),,-g1) -DMP_ABLATE
endif

O := $(B)$(if $(VARIANT),/$(VARIANT))

# ---- flags ------------------------------------------------------------

LIB_PKGS := liburing blkid libudev json-c liblz4 libzstd libxxhash
PKG_CFLAGS := $(shell $(PKGCONF) --cflags $(LIB_PKGS) 2>/dev/null)
PKG_LIBS   := $(shell $(PKGCONF) --libs $(LIB_PKGS) 2>/dev/null)
# --as-needed (below) drops what a library or program does not use

WARN     := -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes \
	    -Werror=implicit-function-declaration
# a newer compiler warns of more, and breaks no user's build by it; ours it does
WARN     += $(if $(filter ablate,$(VARIANT)),-Werror)
# CFLAGS, CPPFLAGS and LDFLAGS stay free for the caller
BASE_CFLAGS := -std=gnu11 $(OPT) $(WARN) -pthread -fstack-protector-strong -fno-strict-aliasing \
	$(SANFLAGS)
# defined as empty so that a source file may define it as well
BASE_CPPFLAGS := -D_GNU_SOURCE= -D_FILE_OFFSET_BITS=64 -DMP_VERSION='"$(VERSION)"' $(FORTIFY)
BASE_LDFLAGS := -pthread $(SANFLAGS) -Wl,-z,relro,-z,now -Wl,--as-needed

INC_CORE := -Ikmod/core -Ilibmpool
INC_MP   := -Ilibmpool/include -Ilibmpool -Ikmod/core -Ikmod
INC_KV   := -Ilibmpool/include -Ilibkvdb/include -Ilibkvdb
INC_UTIL := -Ilibmpool/include -Ilibkvdb/include -Iutils/common
INC_TEST := -Itests -Itests/unit -Itests/crash -Itests/golden $(INC_MP) -Ilibkvdb/include -Ilibkvdb -Iutils/common

# ---- sources ----------------------------------------------------------

include kmod/core/Makefile.objs
core_src := $(wildcard $(addprefix kmod/core/,$(core-objs:.o=.c)))
mp_src   := $(sort $(wildcard libmpool/*.c))
kv_src   := $(sort $(wildcard libkvdb/*/*.c))
ut_src   := $(sort $(wildcard utils/common/*.c))
test_all := $(sort $(wildcard $(patsubst %,tests/%/*.c,unit unit/* conform crash stress soak model bench \
	golden $(if $(VARIANT),,kmod))))
# adapters of other engines are built for `make bench` alone, where those are installed
peers    := rocksdb wiredtiger lmdb
peer_src := $(peers:%=tests/bench/bench_%.c)
test_all := $(filter-out $(peer_src),$(test_all))
fuzz_src := $(sort $(wildcard tests/fuzz/fuzz_*.c))
fuzz_help := $(sort $(filter-out $(fuzz_src),$(wildcard tests/fuzz/*.c)))
is_prog   = $(filter test_% crash_% stress_% model_% bench_% cut_% fuzz_ioctl% fail_nth%,$(notdir $(1)))
test_src := $(foreach f,$(test_all),$(if $(call is_prog,$(f)),$(f)))
help_src := $(filter-out $(test_src),$(test_all))

obj = $(patsubst %.c,$(O)/obj/%.o,$(1))
bin_of   = $(foreach f,$(1),$(O)/tests/$(basename $(notdir $(f))))
test_bin := $(call bin_of,$(test_src))
# what runs again under sanitizers in `make check`
unit_bin := $(call bin_of,$(filter tests/unit/% tests/golden/% tests/conform/%,$(test_src)))
fuzz_bin := $(call bin_of,$(fuzz_src))
tool_src = $(sort $(wildcard utils/$(1)/*.c utils/$(1)/*/*.c))
tools    := $(foreach t,mpool kvdb,$(if $(wildcard utils/$(t)/*.c),$(O)/bin/$(t)))

libs_a  := $(O)/lib/libmpool.a $(O)/lib/libkvdb.a
libs_so := $(O)/lib/libmpool.so $(O)/lib/libkvdb.so
test_a  := $(if $(help_src),$(O)/obj/tests/helpers.a)
util_a  := $(if $(ut_src),$(O)/obj/utils/common.a)
# the fuzz programs also reach functions of the commands
fuzz_cli := $(O)/obj/utils/kvdb.a

# ---- what to make -----------------------------------------------------

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: all lib bin tests unit-tests thread-tests peers fuzzers bench-quick \
	quick compile_commands.json check check-unit check-conform check-cli \
	check-crash check-model check-ablate check-asan check-threads check-fuzz check-vm check-uml kernel-uml \
	lint demo bench ablate nightly fresh deps \
	coverage man install uninstall kernels modules dkms-install dkms-remove selinux-install clean help

all: lib bin ## the libraries and the two commands (the default)
lib: $(libs_a) $(libs_so) ## libmpool and libkvdb, shared and static
bin: $(tools) ## build/bin/mpool and build/bin/kvdb
tests: $(test_bin) ## all test programs, without running them
unit-tests: $(unit_bin) ## those of unit, golden and conform
thread-tests: $(filter %threads %space %txn,$(call bin_of,$(filter tests/stress/%,$(test_src)))) ## those of threads that work at once
ifeq ($(SAN),fuzz)
# a clang without its run time links nothing
fuzz_can := $(shell echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }' | \
	clang -fsanitize=fuzzer -x c - -o /dev/null 2>/dev/null && echo yes)
fuzzers: $(if $(fuzz_can),$(fuzz_bin))
	$(if $(fuzz_can),,@echo 'no clang with libFuzzer: nothing is fuzzed')
endif

# Another variant is another make, which computes its own folder; it also sees
# the packages that `deps` has just installed.
submake = +$(Q)$(MAKE) --no-print-directory B='$(B)'
run     = $(Q)B='$(B)' O='$(O)' tests/run.sh

# The compiler uses what downloads, unpacking and installing leave. The longest suites come
# first: what takes seconds keeps both processors busy to the end.
check: ## everything that must hold before a commit; about 35 minutes on two cores
	$(Q)tests/deps.sh --needed
	$(submake) -j3 deps kernels kernel-uml all tests
	$(submake) -j2 ABLATE=1 tests
	$(submake) -j2 SAN=address unit-tests
	$(submake) -j2 SAN=thread thread-tests
	$(submake) -j2 SAN=fuzz fuzzers
	$(submake) modules
	$(run) vm uml crash model fuzz soak ablate asan threads conform cli unit lint

# What is left out takes long or more rights: `make check' has all of it.
quick: all tests ## the tests that most changes would break, in two minutes: unit tests, some of each command, rules
	$(Q)B='$(B)' O='$(O)' TEST_SHORT=1 tests/run.sh quick
compile_commands.json: ## how each file is compiled, for clangd and its like: $(B)/compile_commands.json
	$(Q)mkdir -p '$(B)'
	$(Q)$(MAKE) -Bn --no-print-directory B='$(B)' Q= all tests | tests/compile_commands.py >'$(B)/$@'

check-unit: tests ## unit tests only
	$(run) unit
check-conform: tests ## API conformance only
	$(run) conform
check-cli: bin tests ## tests of the two commands only
	$(run) cli
check-crash: tests ## crash enumeration only (SEED= repeats a run)
	$(run) crash
check-model: tests ## model tests of the database only (SEED= WORLD= repeat a world)
	$(run) model
check-ablate: ## the short ablation only
	$(submake) -j2 ABLATE=1 tests
	$(run) ablate
check-asan: ## the short run under ASan and UBSan only
	$(submake) -j2 SAN=address unit-tests
	$(run) asan
check-threads: ## threads that work at once, under ThreadSanitizer, only
	$(submake) -j2 SAN=thread thread-tests
	$(run) threads
check-fuzz: ## the fuzz programs only (SEED= repeats a run; GROW=1 adds to the corpus)
	$(submake) -j2 SAN=fuzz fuzzers
	$(run) fuzz
check-vm: ## the kernel module in virtual machines only (no root needed)
	$(submake) -j2 bin tests
	$(submake) kernels modules
	$(run) vm
check-uml: ## the kernel module under sanitizers only: User Mode Linux (COUNT= calls of the fuzzer)
	$(submake) -j2 bin tests
	$(submake) kernel-uml
	$(run) uml
kernel-uml: $(filter kernels,$(MAKECMDGOALS)) ## build that kernel, once: about three minutes
	$(Q)B='$(B)' tests/kmod/uml/build.sh kernel || [ $$? = 77 ]
lint: all ## rules of the source tree: layers, guards, exports, headers, documents
	$(submake) -j2 ABLATE=1 lib
	$(run) lint

demo: deps ## a pool and a database with real data, crashes and figures, in five minutes
	$(submake) -j2 all
	$(Q)B='$(B)' tests/demo.sh
bench: all tests ## this engine beside others, and the figures of README.md: about an hour
	$(Q)tests/deps.sh --bench
	$(submake) -j2 peers
	$(Q)B='$(B)' tests/bench.sh
bench-quick: all tests ## the engines side by side, small: three minutes
	$(Q)tests/deps.sh --bench
	$(submake) -j2 peers
	$(Q)B='$(B)' tests/bench/compare.py quick
	$(Q)B='$(B)' RECORDS=100000 tests/bench/batch.py
ablate: ## switch off every guard and refusal, one by one; tests must notice each (long)
	$(submake) -j2 ABLATE=1 tests
	$(Q)B='$(B)' O='$(B)/ablate' tests/ablate.py full
	$(Q)B='$(B)' O='$(B)/ablate' tests/ablate.py planted
	$(Q)B='$(B)' O='$(B)/ablate' tests/ablate.py refusals
nightly: deps ## the long runs, from where the last one stopped: tests/nightly.sh
	$(submake) -j2 all tests
	$(submake) -j2 ABLATE=1 tests
	$(submake) -j2 SAN=address all tests
	$(submake) -j2 SAN=thread tests
	$(submake) -j2 COV=1 tests
	$(submake) -j2 SAN=fuzz fuzzers
	$(submake) kernels modules
	$(submake) kernel-uml
	$(Q)B='$(B)' O='$(O)' tests/nightly.sh
coverage: ## lines and branches of core and recovery that the suites reach
	$(submake) -j2 COV=1 tests
	$(Q)B='$(B)' tests/coverage.py
fresh: ## prove README's two commands in a minimal Debian root (needs root, debootstrap, network)
	$(Q)tests/fresh.sh
deps: ## list the packages needed and install what is missing
	$(Q)tests/deps.sh

man: bin ## rewrite the commands' manual pages and completions from their option tables
	$(Q)mkdir -p utils/completions
	$(Q)for t in mpool kvdb; do \
		$(O)/bin/$$t help --man >utils/man/$$t.8 && \
		$(O)/bin/$$t completion bash >utils/completions/$$t && \
		$(O)/bin/$$t completion zsh >utils/completions/_$$t || exit 1; \
	done

# Of each series from 6.1 on that Debian's archives have, its newest kernel is tested. What is
# not installed is downloaded into $(B)/kernels and stays there; nothing of the machine changes.
VM_SERIES ?=
kernels: $(filter deps,$(MAKECMDGOALS)) ## fetch the kernels that check-vm boots, unless they are here (VM_SERIES=)
	$(Q)B='$(B)' tests/kmod/kernels.sh get $(VM_SERIES)
KVERS ?=
modules: $(filter kernels,$(MAKECMDGOALS)) ## the kernel module for each kernel found (KVERS=)
	$(Q)B='$(B)' tests/kmod/modules.sh $(KVERS)

# ---- rules ------------------------------------------------------------

# every object: its folder decides flags and include path
$(O)/obj/kmod/core/%.o: private INC = $(INC_CORE)
$(O)/obj/kmod/core/%.o: private EXTRA = -fPIC -fvisibility=hidden -Wframe-larger-than=1024
$(O)/obj/libmpool/%.o: private INC = $(INC_MP)
$(O)/obj/libmpool/%.o: private EXTRA = -fPIC -fvisibility=hidden
$(O)/obj/libkvdb/%.o: private INC = $(INC_KV)
$(O)/obj/libkvdb/%.o: private EXTRA = -fPIC -fvisibility=hidden
$(O)/obj/utils/%.o: private INC = $(INC_UTIL)
$(O)/obj/utils/%.o: private EXTRA = -fPIE
$(O)/obj/tests/%.o: private INC = $(INC_TEST)
$(O)/obj/tests/%.o: private EXTRA = -fPIE -UNDEBUG
# a call after the other, and many: optimized they take three times as long to compile
$(patsubst %,$(O)/obj/tests/%,unit/%.o conform/%.o golden/%.o kmod/%.o): \
	private EXTRA = -fPIE -UNDEBUG $(if $(SANFLAGS),-O0,-Og)

# our own headers come before those of packages, which also have a json.h;
# $(O)/flags changes when a flag does, and then everything is compiled again. With ccache the
# compiler is the same: nothing is, and no test that runs loses its program
DEPFLAGS = -MMD -MP -MT $@
flags := $(BASE_CPPFLAGS) $(PKG_CFLAGS) $(CPPFLAGS) $(BASE_CFLAGS) $(CFLAGS) \
	$(filter-out %ccache,$(CC)) $(value DEPFLAGS)
$(O)/flags: force
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(flags))' | cmp -s - $@ || \
		printf '%s\n' '$(subst ','\'',$(flags))' >$@
.PHONY: force
# $(O)/sources changes when a source comes or goes: what is linked has no object of one that went,
# and the one of a file that was renamed is made, however old the file is
sources := $(sort $(core_src) $(mp_src) $(kv_src) $(wildcard utils/*/*.c utils/*/*/*.c) $(help_src))
$(O)/sources: force
	@mkdir -p $(@D)
	@printf '%s\n' $(sources) | cmp -s - $@ || printf '%s\n' $(sources) >$@
$(libs_a) $(libs_so) $(test_a) $(util_a) $(fuzz_cli) $(tools): $(O)/sources

define compile
	$(say) CC $<
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE_CPPFLAGS) $(INC) $(PKG_CFLAGS) $(CPPFLAGS) $(BASE_CFLAGS) $(EXTRA) $(CFLAGS) \
		$(DEPFLAGS) -c -o $@ $<
endef
$(O)/obj/%.o: %.c $(O)/flags
	$(compile)

# the ablation build has switches and planted bugs in copies of its own
ifeq ($(ABLATE),1)
copies := $(shell tests/ablate.py copies)
# the compiler sees what goes wrong without a check
$(call obj,$(copies)): private EXTRA += -Wno-array-bounds -Wno-stringop-overflow
$(call obj,$(copies)): $(O)/obj/%.o: $(O)/copies/%.c $(O)/flags
	$(compile)
$(copies:%=$(O)/copies/%): $(O)/copies/%: % tests/planted.txt $(addprefix tests/,ablate.py planted.py refusals.py switches.py)
	@mkdir -p $(@D)
	$(Q)tests/ablate.py copy $< >$@.new && { cmp -s $@ $@.new || mv $@.new $@; }
endif

$(O)/lib/libmpool.a: $(call obj,$(core_src) $(mp_src))
$(O)/lib/libkvdb.a: $(call obj,$(kv_src))
$(test_a): $(call obj,$(help_src))
$(util_a): $(call obj,$(ut_src))
$(libs_a) $(test_a) $(util_a) $(fuzz_cli):
	$(say) AR $@
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(AR) rcs $@ $(filter %.o,$^)

$(O)/lib/libmpool.so: $(call obj,$(core_src) $(mp_src)) libmpool/libmpool.map
$(O)/lib/libkvdb.so: $(call obj,$(kv_src)) libkvdb/libkvdb.map $(O)/lib/libmpool.so
# it finds the other one beside it, wherever both are and whatever program loads it
$(O)/lib/libkvdb.so: private beside_it = -Wl,--enable-new-dtags,-rpath,'$$ORIGIN'
# they stay when they are unloaded: a thread that used one ends there
$(libs_so):
	$(say) LD $@
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(BASE_LDFLAGS) $(LDFLAGS) -Wl,-soname,$(@F).$(SOMAJOR) -Wl,-z,nodelete \
		-Wl,--version-script=$(filter %.map,$^) $(if $(SANFLAGS)$(ABLATE),,-Wl,-z,defs) \
		$(beside_it) -o $@.$(VERSION) $(filter %.o %.so,$^) $(PKG_LIBS) -lm
	@ln -sf $(@F).$(VERSION) $@.$(SOMAJOR)
	@ln -sf $(@F).$(SOMAJOR) $@

# An archive for others is one object whose internal names are its own: none of them meets a
# name of the program, or of another copy in the process.
embed_a := $(libs_a:$(O)/lib/%=$(O)/embed/%)
$(embed_a): $(O)/embed/%.a: $(O)/lib/%.a
	$(say) AR $@
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(CC) -r -nostdlib -o $(@:.a=.o) -Wl,--whole-archive $<
	$(Q)$(OBJCOPY) --localize-hidden $(@:.a=.o)
	$(Q)$(AR) rcs $@ $(@:.a=.o)

# The commands and the tests take the static libraries: they run from the build
# folder, and tests reach internal functions.
define tool_rule
$(O)/bin/$(1): $(call obj,$(call tool_src,$(1))) $(util_a) $(O)/lib/libkvdb.a \
	$(O)/lib/libmpool.a
endef
$(foreach t,mpool kvdb,$(eval $(call tool_rule,$(t))))

# these have copies of both whose memory ends when they say, see tests/crash/nomem.c
nomem := malloc calloc realloc aligned_alloc posix_memalign strdup free mmap64 munmap \
	 getline __getdelim asprintf __asprintf_chk
$(O)/obj/nomem/%.a: $(O)/lib/%.a Makefile
	$(say) OBJCOPY $@
	@mkdir -p $(@D)
	$(Q)$(OBJCOPY) $(foreach f,$(nomem),--redefine-sym $(f)=nomem_$(f)) $< $@

test_libs = $(if $(filter crash_fault.c crash_fault_pool.c test_kv_nomem%.c,$(notdir $(1))),$(O)/obj/nomem,$(O)/lib)
define test_rule
$(O)/tests/$(basename $(notdir $(1))): $(call obj,$(1)) $(test_a) $(util_a) \
	$(call test_libs,$(1))/libkvdb.a $(call test_libs,$(1))/libmpool.a
endef
$(foreach f,$(test_src) $(peer_src),$(eval $(call test_rule,$(f))))
include tests/bench/peers.mk

$(fuzz_cli): $(call obj,$(filter-out %/main.c %/load.c,$(call tool_src,kvdb)))
define fuzz_rule
$(O)/tests/$(basename $(notdir $(1))): $(call obj,$(1) $(fuzz_help)) $(test_a) $(fuzz_cli) $(util_a) \
	$(O)/lib/libkvdb.a $(O)/lib/libmpool.a
endef
$(foreach f,$(fuzz_src),$(eval $(call fuzz_rule,$(f))))
$(fuzz_bin): private EXTRA_LIBS = -fsanitize=fuzzer

$(tools) $(test_bin) $(peer_bin) $(fuzz_bin):
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(CC) -pie $(BASE_LDFLAGS) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(EXTRA_LIBS) \
		$(PKG_LIBS) -lm

-include $(patsubst %.o,%.d,$(call obj,$(core_src) $(mp_src) $(kv_src) $(ut_src) $(test_all) \
	$(peer_src) $(fuzz_src) $(fuzz_help) $(call tool_src,mpool) $(call tool_src,kvdb)))

include utils/install.mk

clean: ## remove the build folder
	rm -rf '$(B)'

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1	\2/p' Makefile utils/install.mk | \
		while IFS='	' read -r t d; do printf '  %-14s %s\n' "$$t" "$$d"; done
	@printf '\nVariables, as in "make B=../build SAN=address all":\n'
	@sed -n 's/^#   \([A-Z]*=.*\)/  \1/p' Makefile
