/* SPDX-License-Identifier: Apache-2.0 */
#include "session/interpreter.h"

#include <sys/stat.h>

#include "base/regular.h"
#include "elf/elf_file.h"
#include "native/loop_code.h"
#include "process/process.h"

void interpreter_codes_place(const struct member *member, struct abi_code *out,
			     const struct abi_code *vaddrs, size_t count)
{
	for (size_t i = 0; i < count && vaddrs[i].bytes; i++)
		out[i] = (struct abi_code){vaddrs[i].start + member->runtime.bias, vaddrs[i].bytes};
}

void interpreter_find(struct member *member)
{
	struct abi_target *target = &member->runtime.target;
	uint64_t start = target->interpreter_start, end = target->interpreter_end;
	struct abi_code loop[ABI_LOOP_CODES];
	struct stat file;

	if (!member->runtime.version_hex || regular_stat(elf_file_fd(member->runtime.file), &file))
		return;
	process_code_range(member->pid, &file, &start, &end);
	target->interpreter_start = start;
	target->interpreter_end = end;
	if (member->runtime.version_hex >> 16 >= LOOP_CODE_BEFORE ||
	    !(member->layers & 1u << EVENT_LAYER_NATIVE))
		return;
	loop_code_find(member->runtime.file, loop);
	interpreter_codes_place(member, target->loop_code, loop, ABI_LOOP_CODES);
}
