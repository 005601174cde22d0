# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Part of the Makefile: what goes to other places of the machine, and is taken from there.

D := $(DESTDIR)$(PREFIX)
L := $(DESTDIR)$(LIBDIR)
# udev reads rules below /usr/lib and /etc only, whatever PREFIX is
UDEVDIR ?= $(if $(filter /usr,$(PREFIX)),/usr/lib/udev/rules.d,/etc/udev/rules.d)
# the same for systemd; beside the rules when those go to a folder of one's own
beside    = $(if $(filter %/udev/rules.d,$(UDEVDIR)),$(UDEVDIR:/udev/rules.d=/$(1)),$(UDEVDIR))
UNITDIR     ?= $(call beside,systemd/system)
SYSUSERSDIR ?= $(call beside,sysusers.d)

man_src  := $(sort $(wildcard utils/man/*.[1-8] libmpool/man/*.[1-8] libkvdb/man/*.[1-8]))
pc_out   := $(O)/libmpool.pc $(O)/libkvdb.pc

$(O)/libmpool.pc: libmpool/libmpool.pc.in
$(O)/libkvdb.pc: libkvdb/libkvdb.pc.in
# $(O)/prefix changes when a folder does, and then both are written again; rm,
# because the last install may have been root's
$(O)/prefix: force
	@mkdir -p $(@D)
	@printf '%s\n' '$(PREFIX) $(LIBDIR)' | cmp -s - $@ || \
		{ rm -f $@; printf '%s\n' '$(PREFIX) $(LIBDIR)' >$@; }
$(pc_out): kmod/version.h utils/install.mk $(O)/prefix
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@VERSION@|$(VERSION)|g' \
		-e 's|@LIBDIR@|$(LIBDIR:$(PREFIX)/%=$${prefix}/%)|g' $(filter %.in,$^) >$@

install: all $(embed_a) $(pc_out) ## install below DESTDIR and PREFIX (default /usr/local)
	install -d '$(D)/bin' '$(L)/pkgconfig' '$(D)/include/mpool' '$(D)/include/kvdb' \
		'$(DESTDIR)$(UDEVDIR)' '$(DESTDIR)$(UNITDIR)' '$(DESTDIR)$(SYSUSERSDIR)'
	install -m 755 $(tools) '$(D)/bin'
	install -m 644 $(embed_a) '$(L)'
	for l in libmpool libkvdb; do \
		install -m 755 $(O)/lib/$$l.so.$(VERSION) '$(L)' && \
		ln -sf $$l.so.$(VERSION) '$(L)'/$$l.so.$(SOMAJOR) && \
		ln -sf $$l.so.$(SOMAJOR) '$(L)'/$$l.so || exit 1; \
	done
	install -m 644 libmpool/include/mpool/*.h '$(D)/include/mpool'
	install -m 644 kmod/uapi/mpool.h '$(D)/include/mpool/uapi.h'
	install -m 644 libkvdb/include/kvdb/*.h '$(D)/include/kvdb'
	install -m 644 $(pc_out) '$(L)/pkgconfig'
	for m in $(man_src); do \
		install -D -m 644 $$m '$(D)'/share/man/man$${m##*.}/$${m##*/} || exit 1; \
	done
	install -d '$(D)/share/doc/mpool/schema'
	install -m 644 utils/schema/*.json '$(D)/share/doc/mpool/schema'
	for c in $(notdir $(tools)); do \
		install -D -m 644 utils/completions/$$c \
			'$(D)'/share/bash-completion/completions/$$c && \
		install -D -m 644 utils/completions/_$$c \
			'$(D)'/share/zsh/site-functions/_$$c || exit 1; \
	done
	set -e; for f in udev/*.rules udev/*.service udev/*.timer; do \
		d='$(DESTDIR)$(UNITDIR)'; case $$f in *.rules) d='$(DESTDIR)$(UDEVDIR)' ;; esac; \
		sed 's|@BINDIR@|$(PREFIX)/bin|g' $$f | install -m 644 /dev/stdin "$$d/$${f##*/}"; \
	done
	install -m 644 udev/mpool.sysusers '$(DESTDIR)$(SYSUSERSDIR)/mpool.conf'

uninstall: ## remove what install put there
	rm -f $(foreach t,$(notdir $(tools)),'$(D)/bin/$(t)') '$(DESTDIR)$(UDEVDIR)/69-mpool.rules'
	rm -f $(foreach u,$(notdir $(wildcard udev/*.service udev/*.timer)),'$(DESTDIR)$(UNITDIR)/$(u)') \
		'$(DESTDIR)$(SYSUSERSDIR)/mpool.conf'
	rm -f '$(L)'/libmpool.* '$(L)'/libkvdb.* '$(L)'/pkgconfig/libmpool.pc \
		'$(L)'/pkgconfig/libkvdb.pc
	rm -rf '$(D)/include/mpool' '$(D)/include/kvdb' '$(D)/share/doc/mpool'
	rm -f $(foreach m,$(notdir $(man_src)),'$(D)/share/man/man$(subst .,,$(suffix $(m)))/$(m)') \
		$(foreach c,$(notdir $(tools)),'$(D)/share/bash-completion/completions/$(c)' \
			'$(D)/share/zsh/site-functions/_$(c)')

# ---- the module -------------------------------------------------------

# What DKMS gets, by name. A file that the build needs and that is missing here
# is found by tests/kmod/host_dkms.sh.
dkms_files := dkms.conf COPYING kmod/core/Makefile.objs $(addprefix kmod/, \
	Kbuild Makefile version.h mpk.h object.h os_kern.h selftest.h trace.h main.c cmd.c ctl.c \
	pools.c pool_dev.c pool_mlog.c object_fd.c object_io.c dev_bio.c sysfs.c selftest.c \
	compat/compat.h uapi/mpool.h) $(addprefix kmod/core/,$(core-objs:.o=.c) \
	codec.h core.h dev.h durable.h err.h guard.h member.h obj.h omf.h omf_check.h open.h os.h \
	pool.h smap.h tree.h)
DKMS_SRC = /usr/src/mpool-$(VERSION)

dkms-install: ## give the module to DKMS, which builds it for every kernel now and later (root)
	for f in $(dkms_files); do \
		install -D -m 644 $$f '$(DESTDIR)$(DKMS_SRC)'/$$f || exit 1; \
	done
	$(if $(DESTDIR),@echo 'below DESTDIR nothing is built',{ \
		[ -z "$$(dkms status -m mpool -v $(VERSION))" ] || \
			dkms remove mpool/$(VERSION) --all; } && dkms add mpool/$(VERSION) && \
		for k in $$(tests/kmod/kernels.sh headers); do \
			dkms install mpool/$(VERSION) -k $$k || exit 1; \
		done)
dkms-remove: ## take it out of DKMS and of every kernel (root)
	dkms remove mpool/$(VERSION) --all
	rm -r '$(DKMS_SRC)'

selinux-install: ## label the module's nodes and objects for SELinux (root)
	semodule -i kmod/selinux/mpool.cil
	restorecon -R /dev/mpoolctl /dev/mpool 2>/dev/null || :
