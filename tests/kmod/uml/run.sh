#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Runs test programs under the User Mode Linux kernel of build.sh: KASAN, lockdep, kmemleak
# and UBSAN watch the module. Needs no privilege.
#
#   run.sh OUT NAME...
#
# OUT receives what tests/kmod/boot.sh leaves in its folder: the files console and results,
# and one file of TAP per program. Programs come from $O/tests. One more is always there:
# "checkers", which looks for leaks and shows that each checker is awake.
#
#   UML_MEM=1024 UML_TIMEOUT=600   memory in MiB, limit in seconds
#   UML_APPEND                     further kernel arguments

set -u
cd "$(dirname "$0")/../../.." || exit 1
out=$1
shift
B=$(realpath -m "${B:-build}")
O=$(realpath -m "${O:-$B}")
export B
PATH=$PATH:/usr/sbin:/sbin
here=tests/kmod
mkdir -p "$out" || exit 1
out=$(realpath "$out")
work=$(mktemp -d "$B/uml/run.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
mem=${UML_MEM:-1024}

$here/uml/build.sh kernel || exit
$here/uml/build.sh module "$work/ko" || exit

# initrd: busybox, bash, the programs and their libraries
r=$work/root
mkdir -p "$r"/{bin,sbin,usr/bin,usr/sbin,dev,proc,sys,tmp,root,etc,t/build/{bin,tests},t/tests}
chmod 755 "$r" "$r/t"
cp -L "$(type -P busybox)" "$r/bin/busybox" || exit 1
cp -L "$(type -P bash)" "$r/bin/bash"
for a in $(busybox --list); do
	[ -e "$r/bin/$a" ] || ln -s /bin/busybox "$r/bin/$a"
done
cp $here/uml/init "$r/init"
cp -r $here "$r/t/tests"
cp "$work"/ko/*.ko "$r/t/build"
printf '%s\n' "$@" >"$r/t/list"
for v in ONLY COUNT SEED TEST_SEED TEST_LONG TEST_SHORT TEST_LIMIT; do
	[ -n "${!v-}" ] && echo "export $v=${!v}"
done >"$r/t/environment"
printf '%s\n' root:x:0:0:root:/root:/bin/bash alice:x:1001:1001::/tmp:/bin/bash \
	bob:x:1002:1002::/tmp:/bin/bash nobody:x:65534:65534::/tmp:/bin/bash >"$r/etc/passwd"
printf '%s\n' root:x:0: nogroup:x:65534: alice:x:1001: bob:x:1002: pool:x:1100:alice \
	>"$r/etc/group"
for name; do
	[ -x "$O/tests/$name" ] && cp "$O/tests/$name" "$r/t/build/tests"
done
for name in mpool kvdb; do
	[ -x "$O/bin/$name" ] && cp "$O/bin/$name" "$r/t/build/bin"
done
strip -g "$r"/t/build/bin/* "$r"/t/build/tests/* 2>/dev/null
ldd "$r"/bin/bash "$r"/bin/busybox "$r"/t/build/bin/* "$r"/t/build/tests/* 2>/dev/null |
	grep -oE '/[^ :]+\.so[^ :]*' | sort -u | while read -r f; do
	mkdir -p "$r${f%/*}"
	cp -Ln --preserve=mode "$f" "$r$f"
done
(cd "$r" && find . | cpio --quiet -o -H newc -R 0:0) >"$work/initrd" || exit 1
rm -rf "$r"

# The guest's memory is a file. In /dev/shm where that is large enough and programs may be
# run from it, which containers often do not grant; else beside the rest.
export TMPDIR=$work
if [ "$(df --output=avail -m /dev/shm 2>/dev/null | tail -n 1)" -gt $((mem + 64)) ] 2>/dev/null &&
	! findmnt -no OPTIONS -T /dev/shm 2>/dev/null | grep -q noexec; then
	TMPDIR=/dev/shm
fi
# shellcheck disable=SC2086
timeout -k 10 "${UML_TIMEOUT:-600}" "$B/uml/linux" mem="${mem}M" initrd="$work/initrd" \
	con=null con0=null,fd:1 ssl=null loglevel=4 log_buf_len=4M panic=-1 null_blk.nr_devices=0 \
	uml_dir="$work" ${UML_APPEND-} </dev/null 2>"$out/uml" | sed -u 's/\r//g' >"$out/console"
awk -v out="$out" -v list="$* checkers" -f $here/split.awk "$out/console"
