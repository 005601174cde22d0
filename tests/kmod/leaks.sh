#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# What kmemleak says after other programs ran: nothing may be left behind. The last program
# of the debug suite, and a part of what uml/init shows. Leaves kmemleak's words in /tmp/leaks.

leaks=/sys/kernel/debug/kmemleak
[ -e $leaks ] || {
	echo "1..0 # SKIP a kernel without kmemleak"
	exit 77
}

# Ours are all but the planted one, and the names that kmem_cache_create() and class_register()
# of Linux 6.1 forget when they fail, as fail_nth wants it.
ours() {
	awk '/^unreferenced/ { if (block) print block; block = ""; ours = !/size 33333/ }
		ours { block = block "\n" $0 }
		/sysfs_slab_add|__class_register/ { ours = 0; block = "" }
		END { if (block) print block }' /tmp/leaks | grep -v '^ *[0-9a-f][0-9a-f] '
}

# younger than five seconds is too young to be called a leak
if echo scan >$leaks && sleep 6 && echo scan >$leaks && cat $leaks >/tmp/leaks &&
	! ours >/tmp/leaks.ours; then
	echo "ok 1 - nothing was left behind"
else
	[ ! -e /tmp/leaks.ours ] || sed 's/^/# /' /tmp/leaks.ours | head -n 100
	echo "not ok 1 - nothing was left behind"
fi
echo 1..1
