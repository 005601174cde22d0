#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Proves that README's two commands need nothing but what they install
# themselves: in a minimal Debian root (debootstrap plus make) a clone of HEAD
# runs them as root, which installs the packages, and then again as an ordinary
# user without sudo and, where namespaces allow it, without a network.
#
#   tests/fresh.sh [SUITE]     default: the suite of this machine, else bookworm
#
# FRESH_DIR=  where the root is built (default: a new folder in TMPDIR)
# FRESH_KEEP=1  leave it there
# Exit 77 when it cannot run here.

set -u
cd "$(dirname "$0")/.." || exit 1

cannot() {
	echo "fresh: skipped: $1"
	exit 77
}
[ "$(id -u)" = 0 ] || cannot "needs root (debootstrap, chroot)"
command -v debootstrap >/dev/null || cannot "needs debootstrap (apt-get install debootstrap)"
git rev-parse -q --verify HEAD >/dev/null || cannot "needs a commit"

# everything mounted below lives in this namespace and goes with it
if [ -z "${FRESH_INNER-}" ]; then
	FRESH_INNER=1 exec unshare --mount --propagation private "$0" "$@"
fi

# mirror and suite of this machine: no other server is named here
sources=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list \
	/etc/apt/sources.list.d/*.sources 2>/dev/null)
suite=${1:-$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)}
mirror=$(awk -v suite="$suite" '
	/^deb / {
		sub(/\[[^]]*\] */, "")
		if ($3 == suite) { print $2; exit }
	}
	/^URIs:/ { uri = $2 }
	/^Suites:/ { for (i = 2; i <= NF; i++) if ($i == suite) { print uri; exit } }
' <<<"$sources")
[ -n "$mirror" ] || cannot "no apt source for suite $suite"

root=${FRESH_DIR:-$(mktemp -d)}
root=$(realpath -m "$root")
mkdir -p "$root"
chmod 755 "$root"	# it becomes the / of an ordinary user
clean_up() {
	# the namespace's mounts first, then only what lies on this file system
	for m in sys dev proc; do
		mountpoint -q "$root/$m" && umount -R -l "$root/$m"
	done
	mountpoint -q "$root" && umount -l "$root"
	if [ -n "${FRESH_KEEP-}" ]; then
		echo "fresh: kept $root"
	else
		rm -rf --one-file-system "$root"
	fi
}
trap clean_up EXIT
trap 'exit 130' INT TERM

say() { printf '\n== fresh: %s\n' "$1"; }
fail() {
	say "FAILED: $1"
	exit 1
}

say "debootstrap $suite from $mirror into $root"
debootstrap --variant=minbase --include=make,ca-certificates "$suite" "$root" "$mirror" \
	>"$root.log" 2>&1 || { tail -20 "$root.log"; rm -f "$root.log"; fail debootstrap; }
rm -f "$root.log"
# a mount point, as the root of a machine is: tests mount inside name spaces of their own
mount --bind "$root" "$root" || fail "bind mount"
cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null
# a proxy of this machine is one of the root too
[ -d /etc/apt/apt.conf.d ] && grep -rhi 'proxy' /etc/apt/apt.conf /etc/apt/apt.conf.d 2>/dev/null \
	>"$root/etc/apt/apt.conf.d/90proxy"
mount --rbind /dev "$root/dev" || fail "mount /dev"
mount --make-rslave "$root/dev"
# which loop devices stand on a file is seen in /sys
mount --rbind /sys "$root/sys" || fail "mount /sys"
mount --make-rslave "$root/sys"
mount -t proc proc "$root/proc" || mount --rbind /proc "$root/proc" || fail "mount /proc"

# the commands as README prints them
mapfile -t commands < <(grep -E '^make (demo|check)( |$)' README.md | sed 's/ *#.*//' |
	awk '!seen[$0]++')
[ ${#commands[@]} = 2 ] || fail "README.md does not show the two commands"

in_root() {
	chroot "$root" /usr/bin/env -i HOME="$1" USER="$2" PATH=/usr/sbin:/usr/bin:/sbin:/bin \
		CI=true LC_ALL=C.UTF-8 "${@:3}" </dev/null
}

git clone -q --no-hardlinks . "$root/root/clone" || fail "git clone"
for c in "${commands[@]}"; do
	say "root: $c"
	begin=$SECONDS
	in_root /root root sh -c "cd /root/clone && $c" || fail "$c as root"
	say "root: $c took $((SECONDS - begin)) s"
done

in_root /root root useradd -m tester || fail useradd
git clone -q --no-hardlinks . "$root/home/tester/clone" || fail "git clone"
in_root /root root chown -R tester: /home/tester
offline=
in_root /root root unshare -n true 2>/dev/null && offline="unshare -n"
for c in "${commands[@]}"; do
	say "ordinary user${offline:+, no network}: $c"
	begin=$SECONDS
	# shellcheck disable=SC2086
	in_root /home/tester tester $offline setpriv --reuid=tester --regid=tester --init-groups \
		sh -c "cd /home/tester/clone && $c" || fail "$c as an ordinary user"
	say "ordinary user: $c took $((SECONDS - begin)) s"
done
say "passed: ${commands[*]}"
