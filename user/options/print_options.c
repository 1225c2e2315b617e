/* SPDX-License-Identifier: Apache-2.0 */
#include "options/print_options.h"

#include <ctype.h>

void options_print(const struct argp *argp, FILE *out)
{
	const struct argp_option *option = argp->options;
	const struct argp_child *child = argp->children;

	for (; option && (option->name || option->key || option->doc); option++) {
		if (!option->name || option->flags & OPTION_HIDDEN)
			continue;
		fprintf(out, "--%s\t", option->name);
		if (option->key > 0 && option->key < 128 && isgraph(option->key))
			fprintf(out, "-%c", option->key);
		fprintf(out, "\t%s\t%s\n", option->arg ? option->arg : "",
			option->doc ? option->doc : "");
	}
	for (; child && child->argp; child++)
		options_print(child->argp, out);
}
