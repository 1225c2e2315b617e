/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operand is OFFSET(BASE,INDEX,SCALE), a register or a constant. Every part of it is taken from
 * the front of the text, and what remains at the end makes it invalid.
 */
#include "native/usdt_arguments.h"

#include <asm/ptrace.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define NAME_MAX_BYTES 128 /* of a variable's name, with its NUL */
#define SHORT          8   /* bytes of a register's name, with its NUL */

#ifdef __x86_64__

#define AT(field) ((uint8_t)offsetof(struct pt_regs, field))

struct parser {
	const char *text, *end;
	const struct usdt_symbols *symbols;
};

/* The first eight registers have names of their own for each of their widths. */
static const struct old_register {
	const char names[4][5]; /* 8, 4, 2, 1 bytes */
	uint8_t offset;
} old_registers[] = {
	{{"rax", "eax", "ax", "al"}, AT(rax)},  {{"rbx", "ebx", "bx", "bl"}, AT(rbx)},
	{{"rcx", "ecx", "cx", "cl"}, AT(rcx)},  {{"rdx", "edx", "dx", "dl"}, AT(rdx)},
	{{"rsi", "esi", "si", "sil"}, AT(rsi)}, {{"rdi", "edi", "di", "dil"}, AT(rdi)},
	{{"rbp", "ebp", "bp", "bpl"}, AT(rbp)}, {{"rsp", "esp", "sp", "spl"}, AT(rsp)},
	{{"", "", "", "ah"}, AT(rax) + 1},      {{"", "", "", "bh"}, AT(rbx) + 1},
	{{"", "", "", "ch"}, AT(rcx) + 1},      {{"", "", "", "dh"}, AT(rdx) + 1},
};

/* %r8 to %r15, with d, w or b behind them for fewer bytes. */
static int new_register(const char *name, uint8_t *offset, uint8_t *bytes)
{
	static const uint8_t offsets[] = {AT(r8),  AT(r9),  AT(r10), AT(r11),
					  AT(r12), AT(r13), AT(r14), AT(r15)};
	char *end;
	unsigned long number;

	if (name[0] != 'r' || !isdigit((unsigned char)name[1]))
		return 0;
	number = strtoul(name + 1, &end, 10);
	if (number < 8 || number > 15)
		return 0;
	*offset = offsets[number - 8];
	*bytes = !strcmp(end, "")    ? 8
		 : !strcmp(end, "d") ? 4
		 : !strcmp(end, "w") ? 2
		 : !strcmp(end, "b") ? 1
				     : 0;
	return *bytes != 0;
}

static int known_register(const char *name, uint8_t *offset, uint8_t *bytes)
{
	for (size_t i = 0; i < sizeof(old_registers) / sizeof(old_registers[0]); i++)
		for (int width = 0; width < 4; width++)
			if (!strcmp(name, old_registers[i].names[width])) {
				*offset = old_registers[i].offset;
				*bytes = (uint8_t)(8 >> width);
				return 1;
			}
	return new_register(name, offset, bytes);
}

static int text_starts(const struct parser *parser, const char *prefix)
{
	size_t length = strlen(prefix);

	return (size_t)(parser->end - parser->text) >= length &&
	       !memcmp(parser->text, prefix, length);
}

static int text_take(struct parser *parser, const char *prefix)
{
	if (!text_starts(parser, prefix))
		return 0;
	parser->text += strlen(prefix);
	return 1;
}

/* Takes "%NAME"; 0: there is no known register. */
static int register_take(struct parser *parser, uint8_t *offset, uint8_t *bytes)
{
	char name[SHORT] = "";
	size_t length = 0;

	if (!text_take(parser, "%"))
		return 0;
	while (parser->text < parser->end && isalnum((unsigned char)*parser->text)) {
		if (length == sizeof(name) - 1)
			return 0;
		name[length++] = *parser->text++;
	}
	return name[0] && known_register(name, offset, bytes);
}

/* Takes a number, decimal or hexadecimal; 0: there is none, or it exceeds 64 bits. */
static int number_take(struct parser *parser, long long *value)
{
	const char *digits = parser->text + (text_starts(parser, "-") || text_starts(parser, "+"));
	char *end;

	if (digits >= parser->end || !isdigit((unsigned char)*digits))
		return 0;
	errno = 0;
	/* An unsigned constant may have all 64 bits. */
	*value = *parser->text == '-' ? strtoll(parser->text, &end, 0)
				      : (long long)strtoull(parser->text, &end, 0);
	if (errno || end > parser->end)
		return 0;
	parser->text = end;
	return 1;
}

/* Takes a variable's name and the number that may follow it; the result is relative to the probe.
 */
static int symbol_take(struct parser *parser, long long *value)
{
	const struct usdt_symbols *symbols = parser->symbols;
	char name[NAME_MAX_BYTES];
	uint64_t vaddr;
	size_t length = 0;

	while (parser->text < parser->end && length < sizeof(name) - 1 &&
	       (isalnum((unsigned char)*parser->text) || strchr("_.$", *parser->text)))
		name[length++] = *parser->text++;
	name[length] = '\0';
	if (!length || !symbols || symbols->find(symbols->context, name, &vaddr))
		return 0;
	*value = 0;
	if ((text_starts(parser, "+") || text_starts(parser, "-")) && !number_take(parser, value))
		return 0;
	*value = (long long)((uint64_t)*value + vaddr - symbols->vaddr);
	return 1;
}

/* Takes "(BASE,INDEX,SCALE)", of which parts may be missing. */
static int address_take(struct parser *parser, struct abi_usdt_argument *out)
{
	uint8_t bytes;
	long long scale;

	if (!text_take(parser, "("))
		return 0;
	if (!text_starts(parser, ",") && (!register_take(parser, &out->base, &bytes) || bytes != 8))
		return 0;
	if (text_take(parser, ",")) {
		if (!register_take(parser, &out->index, &bytes) || bytes != 8)
			return 0;
		if (text_take(parser, ",")) {
			if (!number_take(parser, &scale) || scale < 1 || scale > 8 ||
			    scale & (scale - 1))
				return 0;
			out->scale = (uint8_t)__builtin_ctzll((unsigned long long)scale);
		}
	}
	return text_take(parser, ")");
}

static int memory_take(struct parser *parser, struct abi_usdt_argument *out)
{
	int has_number;

	out->kind = text_take(parser, "%fs:") ? ABI_USDT_THREAD : ABI_USDT_MEMORY;
	has_number = number_take(parser, &out->value);
	if (has_number && parser->text == parser->end)
		return out->kind == ABI_USDT_THREAD;
	if (has_number || text_starts(parser, "("))
		return address_take(parser, out);
	out->base = AT(rip);
	return out->kind == ABI_USDT_MEMORY && symbol_take(parser, &out->value) &&
	       text_take(parser, "(%rip)");
}

/* "SIZE@OPERAND". 1; 0: not understood. */
static int argument_parse(struct parser *parser, struct abi_usdt_argument *out)
{
	uint8_t width = 8;
	long long size;

	*out = (struct abi_usdt_argument){.base = ABI_USDT_NONE, .index = ABI_USDT_NONE};
	if (!number_take(parser, &size) || !text_take(parser, "@"))
		return 0;
	out->is_signed = size < 0;
	size = size < 0 ? -size : size;
	if (size != 1 && size != 2 && size != 4 && size != 8)
		return 0;
	out->bytes = (uint8_t)size;
	if (text_take(parser, "$")) {
		out->kind = ABI_USDT_CONSTANT;
		if (!number_take(parser, &out->value))
			return 0;
	} else if (text_starts(parser, "%") && !text_starts(parser, "%fs:")) {
		out->kind = ABI_USDT_REGISTER;
		if (!register_take(parser, &out->base, &width))
			return 0;
		if (width < out->bytes)
			out->bytes = width;
	} else if (!memory_take(parser, out)) {
		return 0;
	}
	return parser->text == parser->end;
}

int usdt_arguments_parse(const char *text, size_t count, const struct usdt_symbols *symbols,
			 struct abi_usdt *out)
{
	size_t length = strnlen(text, USDT_ARGUMENTS_MAX + 1), found = 0;
	const char *end = text + length;

	if (length > USDT_ARGUMENTS_MAX)
		return error_set(-EINVAL, "its arguments are too long");
	while (text < end) {
		struct parser parser = {.text = text, .end = text, .symbols = symbols};

		while (parser.end < end && *parser.end != ' ')
			parser.end++;
		text = parser.end + 1;
		if (parser.text == parser.end)
			continue;
		if (found < count && found < ABI_USDT_ARGUMENTS &&
		    !argument_parse(&parser, &out->arguments[found]))
			return error_set(-EINVAL, "its argument %zu is not understood", found + 1);
		found++;
	}
	return found == count
		       ? 0
		       : error_set(-EINVAL, "it has %zu arguments instead of %zu", found, count);
}

#else

int usdt_arguments_parse(const char *text, size_t count, const struct usdt_symbols *symbols,
			 struct abi_usdt *out)
{
	(void)text, (void)count, (void)symbols, (void)out;
	return error_set(-ENOTSUP, "its arguments are understood on x86-64 only");
}

#endif
