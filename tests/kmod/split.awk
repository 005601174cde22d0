# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Splits what each.sh printed: one file per program in the folder `out`, and the file
# results, "NAME RC SECONDS WHY" for each name of `list`, also for those that did not get
# their turn. Ends with 0 when all did.

function result(rc, secs, text)
{
	print name, rc, secs, text >(out "/results")
	close(out "/" name)
	had[name] = 1
	last = name
	name = ""
}

$1 == "@@mpk" && $2 == "begin" {
	name = $3
	why = ""
	n = 0
	printf "" >(out "/" name)
	next
}
$1 == "@@mpk" && $2 == "log" && name != "" {
	sub(/^@@mpk log /, "")
	print "# kernel log: " $0 >(out "/" name)
	n++
	next
}
$1 == "@@mpk" && $2 == "end" && name == $3 {
	result($4, $5, n ? n " findings in the kernel's log" : "")
	next
}
$1 == "@@mpk" && $2 == "done" { done = 1; next }
name != "" { print >(out "/" name) }
# after the end of the last program, or before the first: the kernel's own words
name == "" { tail = $0 }

END {
	if (name != "")
		result(124, 0, "the machine ended in it, or ran out of time")
	if (last)
		tail = "in " last
	k = split(list, names, " ")
	for (i = 1; i <= k; i++) {
		if (names[i] in had)
			continue
		name = names[i]
		printf "" >(out "/" name)
		result(124, 0, "did not run: the machine ended: " tail)
	}
	exit !done
}
