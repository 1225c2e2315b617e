/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/malloc/usdt_arguments.h"

#include <errno.h>
#include <string.h>

#include "util/error.h"

/* "SIZE@OPERAND". 1; 0: not understood. */
static int argument_parse(const struct machine *machine, struct operand *operand,
			  struct abi_usdt_argument *out)
{
	long long size;

	*out = (struct abi_usdt_argument){.base = ABI_USDT_NONE, .index = ABI_USDT_NONE};
	if (!number_take(operand, &size) || !text_take(operand, "@"))
		return 0;
	out->is_signed = size < 0;
	size = size < 0 ? -size : size;
	if (size != 1 && size != 2 && size != 4 && size != 8)
		return 0;
	out->bytes = (uint8_t)size;
	return machine->operand_take(operand, out) && operand->text == operand->end;
}

/* The end of the argument that begins there: a space outside brackets, or the text's end. */
static const char *argument_end(const char *text, const char *end)
{
	int depth = 0;

	for (; text < end && (depth || *text != ' '); text++)
		depth += (*text == '[') - (*text == ']');
	return text;
}

int usdt_arguments_parse(const struct machine *machine, const char *text, size_t count,
			 const struct usdt_symbols *symbols, struct abi_usdt *out)
{
	size_t length = strnlen(text, USDT_ARGUMENTS_MAX + 1), found = 0;
	const char *end = text + length;

	if (length > USDT_ARGUMENTS_MAX)
		return error_set(-EINVAL, "its arguments are too long");
	while (text < end) {
		struct operand operand = {text, argument_end(text, end), symbols};

		text = operand.end + 1;
		if (operand.text == operand.end)
			continue;
		if (found < count && found < ABI_USDT_ARGUMENTS &&
		    !argument_parse(machine, &operand, &out->arguments[found]))
			return error_set(-EINVAL, "its argument %zu is not understood", found + 1);
		found++;
	}
	return found == count
		       ? 0
		       : error_set(-EINVAL, "it has %zu arguments instead of %zu", found, count);
}
