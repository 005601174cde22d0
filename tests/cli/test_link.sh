#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# How programs link what `make install` gives: the shared libraries find each other, the archives
# fit into a shared object and meet no name of another, and pkg-config says what either takes.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

P=$T/prefix
PC=${PKGCONF:-pkg-config}
CC=${CC:-cc}
command -v "$PC" >/dev/null || { echo "1..0 # SKIP no pkg-config"; exit 77; }
(cd "$TOP" && env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make --no-print-directory B="${B:-build}" \
	CC="$CC" PREFIX="$P" UDEVDIR="$P/udev" install) >"$T/make" 2>&1 || {
	sed 's/^/# /' "$T/make"
	echo "Bail out! make install"
	exit 1
}
export PKG_CONFIG_PATH=$P/lib/pkgconfig
unset LD_LIBRARY_PATH
# what an object that holds the archives is linked with
archives() { $PC --static --libs libkvdb | sed 's/-lkvdb/-l:libkvdb.a/; s/-lmpool/-l:libmpool.a/'; }

# unit NAME: C of a shared object with a function NAME(path), which puts and gets, and names that
# libmpool has inside
unit() {
	cat >"$1.c" <<-EOF2
	#include <kvdb/kvdb.h>
	int os_free(void);
	int os_free(void) { return 7; }
	int os_alloc;
	int $1(const char *path);
	int $1(const char *path)
	{
		struct kvdb *db;
		struct kvdb_kvs *s;
		size_t vlen = 0;
		char v[8];
		int rc = kvdb_open(path, NULL, &db);

		if (rc)
			return rc;
		rc = kvdb_kvs_create(db, "s", NULL);
		rc = rc ? rc : kvdb_kvs_open(db, "s", &s);
		rc = rc ? rc : kvdb_put(s, "k", 1, "$1", 3);
		rc = rc ? rc : kvdb_get(s, "k", 1, v, sizeof(v), &vlen);
		rc = rc ? rc : vlen != 3 || os_free() != 7;
		return kvdb_close(db) ? -1 : rc;
	}
	EOF2
}

one_main() {
	echo 'int one(const char *);' >main.c
	echo 'int main(int c, char **v) { return c < 2 || one(v[1]); }' >>main.c
}

# shellcheck disable=SC2046,SC2086
a_program_that_finds_libkvdb_finds_libmpool() {
	unit one
	one_main
	# only libkvdb is named, as by a binding, with a RUNPATH, which is not inherited
	$CC $($PC --cflags libkvdb) main.c one.c -o prog -L"$P/lib" -lkvdb \
		-Wl,--enable-new-dtags,-rpath,"$P/lib" -Wl,--allow-shlib-undefined
	want 0 kvdb -q create ./d --size 64M
	want 0 ./prog ./d
}

# shellcheck disable=SC2046,SC2086
two_objects_hold_the_archives_each_and_do_not_meet() {
	unit one
	unit two
	for u in one two; do
		$CC -shared -fPIC -Wl,--no-undefined $($PC --cflags libkvdb) $u.c -o lib$u.so \
			$(archives)
		nm -D --defined-only lib$u.so | grep -E ' (kvdb|mpool|kv|mp)_' &&
			fail "lib$u.so exports ours"
	done
	cat >main.c <<-'EOF2'
	#include <dlfcn.h>
	int main(int c, char **v)
	{
		int (*one)(const char *), (*two)(const char *);
		void *a = dlopen("./libone.so", RTLD_NOW | RTLD_GLOBAL);
		void *b = dlopen("./libtwo.so", RTLD_NOW | RTLD_GLOBAL);

		if (c < 3 || !a || !b)
			return 9;
		*(void **)&one = dlsym(a, "one");
		*(void **)&two = dlsym(b, "two");
		if (one(v[1]) || two(v[2]))
			return 8;
		return dlclose(a) || dlclose(b); /* their code stays */
	}
	EOF2
	$CC main.c -o prog
	want 0 kvdb -q create ./d --size 64M
	want 0 kvdb -q create ./e --size 64M
	want 0 ./prog ./d ./e
	want 0 kvdb get ./d s k
	same d one "$(cat "$S/out")"
	want 0 kvdb get ./e s k
	same e two "$(cat "$S/out")"
}

# shellcheck disable=SC2046,SC2086
a_program_takes_the_archives() {
	unit one
	one_main
	$CC $($PC --cflags libkvdb) main.c one.c -o prog $(archives)
	readelf -d prog | grep -E 'NEEDED.*lib(kvdb|mpool)' && fail "it needs the shared libraries"
	want 0 kvdb -q create ./d --size 64M
	want 0 ./prog ./d
}

run a_program_that_finds_libkvdb_finds_libmpool
run two_objects_hold_the_archives_each_and_do_not_meet
run a_program_takes_the_archives
rm -rf "$P"
finish
