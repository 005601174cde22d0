/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The question before data is destroyed.
 *
 * -y answers the question and nothing else; -f overrides a safety check and
 * nothing else; -n ends after the plan was printed. A verb that asks prints its
 * plan first.
 */
#ifndef UTILS_CONFIRM_H
#define UTILS_CONFIRM_H

#include "ui.h"

#define CONFIRM_OPTS \
	{ "yes", 'y', OPT_FLAG, OPTF_COMMON, NULL, \
	  "do not ask; needed when standard input is not a terminal", NULL, NULL }

#define PLAN_OPT \
	{ "dry-run", 'n', OPT_FLAG, OPTF_COMMON, NULL, \
	  "print exactly what would be done and stop", NULL, NULL }

/*
 * Returns EXIT_DONE when the user agreed (typed @word at the terminal, or -y),
 * else EXIT_REFUSED after a message. @what completes "this destroys ...".
 */
int confirm(struct ui *ui, const char *object, const char *what, const char *word);

#endif
