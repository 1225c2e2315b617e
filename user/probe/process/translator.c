/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/process/translator.h"

#include <errno.h>
#include <fnmatch.h>
#include <stddef.h>

#include "proc/process.h"
#include "util/array.h"
#include "util/error.h"

static const struct {
	const char *pattern, *name;
} files[] = {
	{"*/valgrind/*-linux", "valgrind"},  {"*/vgpreload_core-*", "valgrind"},
	{"*/libdynamorio.so*", "DynamoRIO"}, {"*/pinbin", "Pin"},
	{"*/frida-agent*", "Frida"},         {"*/librrpreload.so*", "rr"},
	{"*/librrpage.so*", "rr"},           {"*/qemu-x86_64*", "qemu"},
	{"*/qemu-aarch64*", "qemu"},
};

const char *translator_of(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (!fnmatch(files[i].pattern, path, 0))
			return files[i].name;
	return NULL;
}

int translator_check(pid_t pid)
{
	struct process_maps maps = {0};
	const char *name = NULL;

	if (process_maps_read(pid, &maps))
		return 0;
	for (size_t i = 0; i < maps.count && !name; i++)
		if (maps.entries[i].executable)
			name = translator_of(maps.entries[i].path);
	process_maps_free(&maps);
	return name ? error_set(-ENOTSUP,
				"it runs under %s, which runs copies of its code: with a probe's "
				"breakpoint in a copy it would be killed",
				name)
		    : 0;
}
