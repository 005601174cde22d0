#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# DKMS, in trees of its own: the files that `make dkms-install` hands over suffice to build
# the module (with TEST_LONG=1 for every kernel that is here); a kernel that is too old, or
# has interfaces that this version does not know, is refused in one sentence. Nothing of the
# machine is touched; as root it runs as another user, and DKMS makes no signing key.

set -u
cd "$(dirname "$0")/../.." || exit 1
top=$PWD
# its own, whatever TMPDIR is: it is given to the other user, who must be able to enter it
T=$(TMPDIR=/tmp mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
PATH=$PATH:/usr/sbin:/sbin
n=0 failed=0

verdict() {
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		sed 's/^/# /' "$T/log" | tail -n 60
		echo "not ok $n - $2"
		failed=1
	fi
}

skip() {
	echo "1..0 # SKIP $1"
	exit 77
}
command -v dkms >/dev/null || skip "no dkms"
mapfile -t kvers < <(tests/kmod/kernels.sh headers)
# `make modules` compiles for each; here the newest tells as much, in half the time
[ -n "${TEST_LONG-}" ] || [ ${#kvers[@]} -lt 2 ] || kvers=("${kvers[-1]}")
[ ${#kvers[@]} != 0 ] || skip "no kernel headers, 6.1 or newer"
version=$(sed -n 's/^.define MP_VERSION "\(.*\)"/\1/p' kmod/version.h)

env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -s dkms-install DESTDIR="$T" >"$T/log" 2>&1
verdict $? the_files_are_handed_over
mkdir -p "$T"/{tree,inst,tmp}
mv "$T/usr/src" "$T/src"
chmod -R a+rX "$T"
as=()
if [ "$(id -u)" = 0 ]; then
	chown -R 65534:65534 "$T"
	as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
fi
as+=(env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS HOME="$T" TMPDIR="$T/tmp")
trees=(--dkmstree "$T/tree" --sourcetree "$T/src" --installtree /lib/modules)
: >"$T/log" && chmod 666 "$T/log"

"${as[@]}" dkms add "${trees[@]}" -m mpool -v "$version" >"$T/log" 2>&1
verdict $? dkms_takes_them
for k in "${kvers[@]}"; do
	"${as[@]}" dkms build "${trees[@]}" -m mpool -v "$version" -k "$k" -j 2 \
		--kernelsourcedir "$(tests/kmod/kernels.sh dir "$k")" >"$T/log" 2>&1
	rc=$?
	cat "$T"/tree/mpool/"$version"/build/make.log >>"$T/log" 2>/dev/null
	ko=$(find "$T/tree/mpool/$version/$k" -name 'mpool.ko*' 2>/dev/null)
	[ -n "$ko" ] && [ "$(modinfo -F version "$ko")" = "$version" ] &&
		[ "$(modinfo -F vermagic "$ko" | cut -d' ' -f1)" = "$k" ] || rc=1
	verdict $rc "dkms_builds_for_$k"
done

# kernels that are not here: their headers only give their names
refused() {
	local name=$1 what=$2
	shift 2
	"${as[@]}" make -s -C "$T/src/mpool-$version/kmod" "$@" >"$T/log" 2>&1
	[ $? != 0 ] && grep -q "^mpool: .*$what" "$T/log"
	verdict $? "$name"
}
mkdir -p "$T/old/include/config"
echo 5.10.0-30-amd64 >"$T/old/include/config/kernel.release"
refused an_older_kernel_is_refused_in_a_sentence "5.10.0-30-amd64.* is too old" KDIR="$T/old"
refused missing_headers_are_named "no kernel headers in /lib/modules/0.0/build" KVER=0.0
"${as[@]}" dkms build "${trees[@]}" -m mpool -v "$version" -k 5.10.0-30-amd64 \
	--kernelsourcedir "$T/old" >"$T/log" 2>&1
[ $? != 0 ] && grep -qiE 'BUILD_EXCLUSIVE|not.*supported' "$T/log"
verdict $? dkms_leaves_an_older_kernel_alone
# fake NAME CONFIG...: a kernel of today that is not here either, with this configuration; its
# Makefile says what it was asked for
fake() {
	local dir=$T/$1
	shift
	mkdir -p "$dir/include/config"
	echo 6.12.1-fake >"$dir/include/config/kernel.release"
	printf '%s\n' "$@" | tee "$dir/.config" >"$dir/include/config/auto.conf"
	# shellcheck disable=SC2016
	printf 'modules:\n\t@echo "asked: CC=$(CC) LLVM=$(LLVM)"\n' >"$dir/Makefile"
}
# skipped NAME ARCH: 77 is what autoinstall takes for that
skipped() {
	"${as[@]}" dkms build "${trees[@]}" -m mpool -v "$version" -k 6.12.1-fake -a "$2" \
		--kernelsourcedir "$T/$1" >"$T/log" 2>&1
	[ $? = 77 ] && grep -q BUILD_EXCLUSIVE "$T/log"
}
all='CONFIG_64BIT=y CONFIG_BLOCK=y CONFIG_FS_IOMAP=y'
# shellcheck disable=SC2086
fake whole $all
fake no_iomap CONFIG_64BIT=y CONFIG_BLOCK=y
fake small CONFIG_BLOCK=y CONFIG_FS_IOMAP=y
! skipped whole x86_64 && ! skipped whole aarch64 && skipped whole i686 && skipped whole armv7l &&
	skipped small x86_64
verdict $? dkms_leaves_kernels_of_32_bits_alone
skipped no_iomap x86_64
verdict $? dkms_leaves_a_kernel_without_iomap_alone
! grep -E '^(CLEAN|REMAKE_INITRD|MODULES_CONF|OBSOLETE_BY)' dkms.conf >"$T/log"
verdict $? dkms_is_told_nothing_deprecated

# asked FAKE WHAT [VAR=...]: the kernel's build is called so
asked() {
	local fake=$1 what=$2
	shift 2
	env -u CC -u LLVM -u MAKEFLAGS -u MAKELEVEL -u MFLAGS PATH="$T/cc:$PATH" \
		make -s -C "$T/src/mpool-$version/kmod" KDIR="$T/$fake" "$@" >"$T/log" 2>&1
	grep -qx "asked: $what" "$T/log"
}
mkdir -p "$T/cc"
for c in gcc-77 clang-77; do
	printf '#!/bin/sh\n' >"$T/cc/$c" && chmod 755 "$T/cc/$c"
done
clang=(CONFIG_CC_IS_CLANG=y 'CONFIG_CC_VERSION_TEXT="clang version 7"')
fake gcc 'CONFIG_CC_VERSION_TEXT="gcc-77 (of a distribution) 77.1"'
fake gone 'CONFIG_CC_VERSION_TEXT="gcc-78 (of a distribution) 78.1"'
fake llvm "${clang[@]}" CONFIG_LD_IS_LLD=y CONFIG_CLANG_VERSION=770106
fake later "${clang[@]}" CONFIG_LD_IS_LLD=y CONFIG_CLANG_VERSION=780106
fake clang "${clang[@]}" CONFIG_CLANG_VERSION=770106
asked gcc 'CC=gcc-77 LLVM=' && asked gone 'CC=cc LLVM=' && asked llvm 'CC=cc LLVM=-77' &&
	asked later 'CC=cc LLVM=1' && asked clang 'CC=clang-77 LLVM='
verdict $? the_compiler_is_the_kernels_own
asked gcc 'CC=other LLVM=' CC=other && asked gcc 'CC=cc LLVM=1' LLVM=1 &&
	asked llvm 'CC=cc LLVM=-9' LLVM=-9 && asked llvm 'CC=clang LLVM=-77' CC=clang
verdict $? or_the_one_that_was_given

echo 'int no_such_interface(void); int mpk_probe = sizeof(no_such_interface().field);' \
	>>"$T/src/mpool-$version/kmod/version.h"
refused unknown_interfaces_are_told_in_a_sentence "could not be built for kernel" \
	KVER="${kvers[-1]}" KDIR="$(tests/kmod/kernels.sh dir "${kvers[-1]}")"

# A second time, with sources that have changed since: DKMS has the version already. It gets
# a tree of its own here, and nothing is installed.
cd "$top" || exit 1
mkdir -p "$T/bin" "$T/again"
cat >"$T/bin/dkms" <<EOF
#!/bin/sh
echo "\$*" >>"$T/calls"
[ "\$1" != install ] || exit 0
exec $(command -v dkms) "\$@" --dkmstree "$T/again" --sourcetree "$T/src"
EOF
chmod +x "$T/bin/dkms"
again() {
	: >"$T/calls"
	PATH=$T/bin:$PATH env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -s dkms-install \
		DKMS_SRC="$T/src/mpool-$version" B="${B:-build}"
}
again >"$T/log" 2>&1 && again >>"$T/log" 2>&1 &&
	grep -q "^add mpool/$version" "$T/calls" && grep -q "^install mpool/$version" "$T/calls"
verdict $? it_can_be_installed_again
echo "1..$n"
exit $failed
