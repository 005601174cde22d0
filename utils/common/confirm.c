/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The question before data is destroyed. The answer is read from standard
 * input, which must be a terminal: a pipe can never agree by accident.
 */
#include <stdio.h>
#include <string.h>

#include "confirm.h"

int confirm(struct ui *ui, const char *object, const char *what, const char *word)
{
	char line[512];

	if (args_has(ui->args, "yes"))
		return EXIT_DONE;
	if (!ui->tty_in)
		return ui_error(ui, EXIT_REFUSED, object, "use -y to answer yes",
				"this destroys %s and standard input is not a terminal", what);
	fprintf(stderr, "This destroys %s.\nType \"%s\" to go on: ", what, word);
	fflush(stderr);
	if (!fgets(line, sizeof(line), stdin))
		line[0] = '\0';
	line[strcspn(line, "\n")] = '\0';
	if (strcmp(line, word))
		return ui_error(ui, EXIT_REFUSED, object, NULL, "not confirmed, nothing was done");
	return EXIT_DONE;
}
