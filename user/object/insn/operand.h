/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operands of USDT probes (abi/usdt.h), as the machine's assembler has them. Every part of an
 * operand is taken from the front of its text, which is hostile; what remains at the end makes it
 * invalid.
 */
#pragma once

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "abi/usdt.h"

struct usdt_symbols {
	/* The vaddr of a variable of the file. 0, -ENOENT. */
	int (*find)(void *context, const char *name, uint64_t *vaddr);
	void *context;
	uint64_t vaddr; /* of the probe */
};

/* text ends with a NUL, at end or behind it. */
struct operand {
	const char *text, *end;
	const struct usdt_symbols *symbols; /* or NULL */
};

static inline int operand_starts(const struct operand *operand, const char *prefix)
{
	size_t length = strlen(prefix);

	return (size_t)(operand->end - operand->text) >= length &&
	       !memcmp(operand->text, prefix, length);
}

static inline int text_take(struct operand *operand, const char *prefix)
{
	if (!operand_starts(operand, prefix))
		return 0;
	operand->text += strlen(prefix);
	return 1;
}

/* Takes letters and digits; 0: there are none, or not fewer than size. */
static inline int name_take(struct operand *operand, char *name, size_t size)
{
	size_t length = 0;

	while (operand->text < operand->end && isalnum((unsigned char)*operand->text)) {
		if (length == size - 1)
			return 0;
		name[length++] = *operand->text++;
	}
	name[length] = '\0';
	return length > 0;
}

/* Takes a number, decimal or hexadecimal; 0: there is none, or it exceeds 64 bits. */
static inline int number_take(struct operand *operand, long long *value)
{
	const char *digits =
		operand->text + (operand_starts(operand, "-") || operand_starts(operand, "+"));
	char *end;

	if (digits >= operand->end || !isdigit((unsigned char)*digits))
		return 0;
	errno = 0;
	/* An unsigned constant may have all 64 bits. */
	*value = *operand->text == '-' ? strtoll(operand->text, &end, 0)
				       : (long long)strtoull(operand->text, &end, 0);
	if (errno || end > operand->end)
		return 0;
	operand->text = end;
	return 1;
}

/* The operand is a register of so many bytes. 1. */
static inline bool operand_is_register(struct abi_usdt_argument *out, uint8_t bytes)
{
	out->kind = ABI_USDT_REGISTER;
	if (bytes < out->bytes)
		out->bytes = bytes;
	return 1;
}
