/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/stack_ends.h"

#include <stdio.h>
#include <string.h>

_Static_assert(ABI_UNWIND_CUT_COUNT <= STACK_ENDS_REASONS, "every reason has a counter");

/* If all places are taken by other files, the file with the fewest stacks gives way. */
static void file_add(struct stack_ends *ends, const char *path, uint64_t stacks)
{
	struct stack_ends_file *files = ends->files, *to = &files[0];
	size_t bytes = strlen(path);

	if (bytes >= STACK_ENDS_PATH)
		path += bytes - (STACK_ENDS_PATH - 1);
	for (size_t i = 0; i < STACK_ENDS_FILES; i++) {
		if (!strcmp(files[i].path, path)) {
			files[i].stacks += stacks;
			return;
		}
		if (files[i].stacks < to->stacks)
			to = &files[i];
	}
	if (to->stacks > stacks)
		return;
	memset(to, 0, sizeof(*to));
	snprintf(to->path, sizeof(to->path), "%s", path);
	to->stacks = stacks;
}

void stack_ends_cut(struct stack_ends *ends, uint32_t reason, const char *file)
{
	ends->reasons[reason % STACK_ENDS_REASONS]++;
	if (file[0])
		file_add(ends, file, 1);
}

void stack_ends_add(struct stack_ends *sum, const struct stack_ends *one)
{
	sum->whole += one->whole;
	sum->whole_bytes += one->whole_bytes;
	sum->cut_bytes += one->cut_bytes;
	for (size_t i = 0; i < STACK_ENDS_REASONS; i++)
		sum->reasons[i] += one->reasons[i];
	for (size_t i = 0; i < STACK_ENDS_FILES; i++)
		if (one->files[i].path[0])
			file_add(sum, one->files[i].path, one->files[i].stacks);
}

uint64_t stack_ends_cut_count(const struct stack_ends *ends)
{
	uint64_t count = 0;

	for (size_t i = 0; i < STACK_ENDS_REASONS; i++)
		count += ends->reasons[i];
	return count;
}

const char *stack_ends_reason(uint32_t reason)
{
	static const char *const reasons[ABI_UNWIND_CUT_COUNT] = {
		[ABI_UNWIND_CUT_FRAME] = "no frame pointer",
		[ABI_UNWIND_CUT_TABLE] = "no table",
		[ABI_UNWIND_CUT_ROW] = "not in the table",
		[ABI_UNWIND_CUT_RULE] = "no simple rule",
		[ABI_UNWIND_CUT_CODE] = "not code",
		[ABI_UNWIND_CUT_READ] = "stack not resident",
		[ABI_UNWIND_CUT_BOUNDS] = "outside of the stack",
		[ABI_UNWIND_CUT_SIGNAL] = "interrupted by a signal",
		[ABI_UNWIND_CUT_RETURN] = "return probe",
		[ABI_UNWIND_CUT_BUSY] = "mappings locked",
	};

	return reason < ABI_UNWIND_CUT_COUNT ? reasons[reason] : NULL;
}
