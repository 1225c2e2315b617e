/* SPDX-License-Identifier: Apache-2.0 */
/* USDT notes, and the arguments that they have. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <asm/ptrace.h>

#include "object/elf/elf_usdt.h"
#include "probe/malloc/usdt_arguments.h"

static void check(int holds)
{
	if (!holds)
		abort();
}

static int variable_find(void *context, const char *name, uint64_t *vaddr)
{
	(void)context;
	*vaddr = strlen(name);
	return 0;
}

/* Of struct pt_regs of x86-64, and of struct user_pt_regs of arm64. */
#define X86_BYTES   168u
#define ARM64_BYTES 272u

/* A register that the kernel has saved, or none. */
static int is_register(uint8_t offset, size_t bytes)
{
	return offset == ABI_USDT_NONE || offset + sizeof(uint64_t) <= bytes;
}

static void argument_check(const struct abi_usdt_argument *argument, size_t bytes)
{
	check(argument->kind <= ABI_USDT_THREAD && argument->scale <= 3);
	check(argument->bytes == 1 || argument->bytes == 2 || argument->bytes == 4 ||
	      argument->bytes == 8);
	check(is_register(argument->base, bytes) && is_register(argument->index, bytes));
	check(argument->kind != ABI_USDT_REGISTER || argument->base != ABI_USDT_NONE);
}

static int probe_check(void *context, const struct elf_usdt *probe)
{
	const struct usdt_symbols symbols = {variable_find, context, probe->vaddr};
	struct abi_usdt usdt;

	check(strlen(probe->provider) + strlen(probe->name) <= 1 << 20);
	for (size_t i = 0; i < 2 * ABI_USDT_ARGUMENTS; i++) {
		const struct machine *machine = i & 1 ? &machine_arm64 : &machine_x86;
		size_t count = 1 + i / 2;

		if (usdt_arguments_parse(machine, probe->arguments, count, &symbols, &usdt))
			continue;
		for (size_t k = 0; k < count; k++)
			argument_check(&usdt.arguments[k], i & 1 ? ARM64_BYTES : X86_BYTES);
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const char header[] = "\x08\0\0\0\0\0\0\0\x03\0\0\0stapsdt\0aaaaaaaabbbbbbbbcccccccc"
				     "otel_memory\0alloc\0";
	struct elf_usdt alone = {.provider = "", .name = ""};
	uint8_t *copy = malloc(bytes + sizeof(header) + 1);
	uint32_t described = (uint32_t)(bytes + sizeof(header) - 1 - 20);

	check(copy != NULL);
	/* As a section; as the arguments of a note that is sound; as a text. */
	memcpy(copy, data, bytes);
	elf_usdt_parse(copy, bytes, probe_check, NULL);
	copy[bytes] = '\0';
	alone.arguments = (const char *)copy;
	probe_check(NULL, &alone);
	memcpy(copy, header, sizeof(header) - 1);
	memcpy(copy + 4, &described, sizeof(described));
	memcpy(copy + sizeof(header) - 1, data, bytes);
	elf_usdt_parse(copy, sizeof(header) - 1 + bytes, probe_check, NULL);
	free(copy);
	return 0;
}
