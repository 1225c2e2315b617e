/* SPDX-License-Identifier: Apache-2.0 */
/* --alloc: functions that the user names. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "object/elf/elf_file.h"
#include "probe/malloc/plan_native.h"
#include "probe/python/function_option.h"
#include "util/error.h"

static const char *const *argument_keys(enum abi_op op)
{
	static const char *const keys[][NATIVE_ARGUMENTS] = {
		[ABI_OP_MALLOC] = {"size"},
		[ABI_OP_CALLOC] = {"count", "size"},
		[ABI_OP_REALLOC] = {"addr", "size"},
		[ABI_OP_FREE] = {"addr"},
		[ABI_OP_POSIX_MEMALIGN] = {"result", "size"},
		[ABI_OP_REALLOCARRAY] = {"addr", "count", "size"},
	};

	return keys[op];
}

/* Removes a trailing "return-probe" from "size=2,return-probe". 1: it was there. */
static int return_probe_take(char **arguments)
{
	static const char word[] = "return-probe";
	size_t bytes = *arguments ? strlen(*arguments) : 0;

	if (bytes < sizeof(word) - 1)
		return 0;
	char *at = *arguments + bytes - (sizeof(word) - 1);
	if (strcmp(at, word) != 0)
		return 0;
	if (at == *arguments)
		*arguments = NULL;
	else if (at[-1] != ',')
		return 0;
	else
		at[-1] = '\0';
	return 1;
}

/* Parses "malloc:size=2": the kind, and the positions of its arguments. 0, -EINVAL. */
static int call_parse(char *text, struct native_call *call, int *return_probe)
{
	struct function_argument keys[NATIVE_ARGUMENTS];
	unsigned values[NATIVE_ARGUMENTS];
	char *arguments = strchr(text, ':');
	size_t count = 0;
	int err = 0;

	if (arguments)
		*arguments++ = '\0';
	const struct native_call *kind = native_kind(text);
	if (!kind)
		return -EINVAL;
	*call = *kind;
	*return_probe = return_probe_take(&arguments);
	for (; count < NATIVE_ARGUMENTS && call->arguments[count]; count++) {
		values[count] = call->arguments[count];
		keys[count] =
			(struct function_argument){argument_keys(call->op)[count], &values[count]};
	}
	if (arguments)
		err = *arguments ? function_option_arguments(arguments, keys, count) : -EINVAL;
	for (size_t i = 0; i < count; i++)
		call->arguments[i] = (uint8_t)values[i];
	return err;
}

int plan_alloc_parse(const char *text, struct plan_alloc *out)
{
	struct plan_alloc alloc = {0};
	char kinds[256], *call = NULL;
	const char *rest;
	int err = function_option_split(text, &alloc.file, &alloc.symbol, &rest);

	if (!err)
		call = rest ? strdup(rest) : NULL;
	if (!err && rest && !call)
		err = -ENOMEM;
	if (!err)
		err = call ? call_parse(call, &alloc.call, &alloc.return_probe) : -EINVAL;
	free(call);
	if (!err) {
		*out = alloc;
		return 0;
	}
	plan_alloc_free(&alloc);
	if (err != -EINVAL)
		return err;
	native_kinds_list(kinds, sizeof(kinds));
	return error_set(
		err,
		"\"%s\" is not FILE:SYMBOL:KIND[:addr=N,size=N,count=N,result=N,return-probe] "
		"(KIND: %s)",
		text, kinds);
}

void plan_alloc_free(struct plan_alloc *alloc)
{
	free(alloc->file);
	free(alloc->symbol);
	*alloc = (struct plan_alloc){0};
}

bool plan_alloc_is_in(const struct plan_alloc *alloc, struct elf_file *file)
{
	struct elf_symbol symbol;

	return function_option_is_in(alloc->file, elf_file_path(file)) &&
	       !elf_file_symbol(file, alloc->symbol, &symbol) && symbol.function && !symbol.ifunc;
}
