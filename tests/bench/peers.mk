# SPDX-License-Identifier: GPL-2.0-only OR MIT
# Part of the Makefile: adapters of other engines.

peer_bin := $(peers:%=$(O)/tests/bench_%)
$(O)/obj/tests/bench/bench_rocksdb.o: private EXTRA += \
	-DROCKSDB_VERSION='"$(shell $(PKGCONF) --modversion rocksdb)"'
# those whose headers are here; the others are named
peers:
	+$(Q)for p in rocksdb:rocksdb/c.h wiredtiger:wiredtiger.h lmdb:lmdb.h; do \
		if echo "#include <$${p#*:}>" | $(CC) -E - >/dev/null 2>&1; then \
			$(MAKE) --no-print-directory B='$(B)' $(O)/tests/bench_$${p%:*} || exit 1; \
		else \
			echo "  no <$${p#*:}>: nothing is measured of $${p%:*}"; \
		fi; \
	done
$(O)/tests/bench_rocksdb: private EXTRA_LIBS = -lrocksdb
$(O)/tests/bench_wiredtiger: private EXTRA_LIBS = -lwiredtiger
$(O)/tests/bench_lmdb: private EXTRA_LIBS = -llmdb
