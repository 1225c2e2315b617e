/* SPDX-License-Identifier: Apache-2.0 */
/* Places probes in the files that a process maps, once for each file. */
#include "session/perfmap/perfmap_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "probe/process/translator.h"
#include "proc/memory.h"
#include "proc/process.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"

/* The user's symbols in the file with this path; symbols has capacity for all of them. */
static size_t symbols_in(const struct perfmap_session *session, const char *path,
			 const struct perfmap_symbol **symbols)
{
	size_t count = 0;

	for (size_t i = 0; i < session->opts.symbol_count; i++)
		if (perfmap_symbol_is_in(&session->opts.symbols[i], path))
			symbols[count++] = &session->opts.symbols[i];
	return count;
}

/*
 * Plans one file and places its probes. A file that is no ELF file, or cannot be opened, has none.
 * 0, -errno.
 */
static int file_probe(struct perfmap_session *session, const struct perfmap_target *target,
		      const struct process_map *map, struct probed *probed)
{
	const struct perfmap_symbol **symbols =
		calloc(session->opts.symbol_count + 1, sizeof(*symbols));
	struct perfmap_plan plan = {0};
	int fd = process_map_open(target->pid, map), no_returns = 0, err;

	if (!symbols || fd < 0) {
		free(symbols);
		return symbols ? 0 : -ENOMEM;
	}
	if (elf_file_open(&probed->file, fd, map->path, NULL)) {
		close(fd);
		free(symbols);
		return 0;
	}
	err = perfmap_plan(probed->file, symbols, symbols_in(session, map->path, symbols), &plan);
	/* The file's probes are hit by every process that maps it. */
	if (!err && plan.has_python)
		no_returns = (session->features.returns_by_call &&
			      !perfmap_attach_chooses_returns(session->attach)) ||
			     seccomp_check(&session->seccomp, &session->features, target->pid,
					   &plan.sites) != 0;
	if (!err && plan.sites.count)
		err = perfmap_attach_sites(session->attach, &plan.sites, probed->file, no_returns);
	if (!err && no_returns)
		log_info("%s: results of PyUnstable_PerfMapState_Init are not seen: a return probe "
			 "may kill a process that restricts its system calls on this kernel",
			 map->path);
	probed->sites = plan.sites.count;
	probed->python = plan.has_python;
	probed->descriptor = plan.descriptor;
	if (err || !plan.sites.count) {
		elf_file_close(probed->file);
		probed->file = NULL;
	}
	perfmap_plan_free(&plan);
	free(symbols);
	return err;
}

static int file_find(struct perfmap_session *session, const struct perfmap_target *target,
		     const struct process_map *map, const struct probed **out)
{
	dev_t device = makedev(map->device_major, map->device_minor);
	struct probed *probed;
	int err;

	for (size_t i = 0; i < session->file_count; i++) {
		*out = &session->files[i];
		if ((*out)->device == device && (*out)->inode == map->inode)
			return 0;
	}
	err = array_reserve(&session->files, &session->file_capacity, session->file_count, 1,
			    sizeof(*probed));
	if (err)
		return err;
	probed = &session->files[session->file_count];
	*probed = (struct probed){.device = device, .inode = map->inode};
	err = file_probe(session, target, map, probed);
	if (!err)
		session->file_count++;
	*out = probed;
	return err;
}

/*
 * Adds the images that are registered already, from the list that GDB's interface defines. The
 * target may have corrupted it: its length is limited.
 */
static int images_find(struct perfmap_session *session, struct perfmap_target *target,
		       uint64_t descriptor)
{
	struct {
		uint32_t version, action;
		uint64_t relevant, first;
	} found;
	struct {
		uint64_t next, previous, image, bytes;
	} entry;
	uint64_t at, now = clock_ns(CLOCK_MONOTONIC);
	int err = 0;

	if (memory_read(target->pid, descriptor, &found, sizeof(found)))
		return 0;
	at = found.first;
	for (size_t i = 0; at && i < PERFMAP_IMAGES_MAX && !err; i++, at = entry.next) {
		if (memory_read(target->pid, at, &entry, sizeof(entry)))
			break;
		err = perfmap_image_add(session->maps, target->process, at, entry.image,
					entry.bytes, now);
	}
	return err;
}

/* Are all files that the user named mapped? 0, -ENOENT. */
static int symbols_check(const struct perfmap_session *session, const struct process_maps *maps)
{
	for (size_t s = 0; s < session->opts.symbol_count; s++) {
		size_t i = 0;

		while (i < maps->count &&
		       !perfmap_symbol_is_in(&session->opts.symbols[s], maps->entries[i].path))
			i++;
		if (i == maps->count)
			return error_set(-ENOENT, "it has no file %s mapped",
					 session->opts.symbols[s].file);
	}
	return 0;
}

/* How the program is made to write a map, by the name of its file. NULL: not known. */
static const char *file_advice(const char *path, int python)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	if (python)
		return "CPython names its functions only if it is started with -X perf "
		       "(PYTHONPERFSUPPORT=1)";
	if (!strncmp(name, "python3", 7) || !strncmp(name, "libpython3", 10))
		return "CPython can name its functions from 3.12 on (-X perf)";
	if (!strcmp(name, "node") || !strncmp(name, "libnode.so", 10))
		return "node names its functions only if it is started with --perf-basic-prof";
	return NULL;
}

int perfmap_probe(struct perfmap_session *session, struct perfmap_target *target)
{
	struct process_maps maps = {0};
	uint64_t bias;
	int err = translator_check(target->pid) ?: process_maps_read(target->pid, &maps);

	for (size_t i = 0; !err && i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];
		const struct probed *probed;

		if (!map->inode || !map->executable)
			continue;
		err = file_find(session, target, map, &probed);
		if (!err && (probed->python || !target->advice))
			target->advice = file_advice(map->path, probed->python) ?: target->advice;
		if (err || !probed->file)
			continue;
		target->probed += probed->sites;
		target->python |= probed->python;
		if (probed->descriptor &&
		    !elf_file_bias(probed->file, map->start, map->offset, &bias))
			err = images_find(session, target, bias + probed->descriptor);
	}
	if (!err)
		err = symbols_check(session, &maps);
	process_maps_free(&maps);
	return err;
}
