/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process has a Python runtime when one of its mapped files holds _PyRuntime. They are searched
 * in order of likelihood: the executable, files called libpython, then all other mapped code (an
 * application may link CPython into its own library). Separate debug symbols are searched only for
 * the file that was found.
 */
#include "runtime/cpython/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "object/elf/elf_file.h"
#include "runtime/cpython/layout.h"
#include "runtime/cpython/tstate.h"
#include "util/cleanup.h"
#include "util/error.h"

/* What is done with a runtime that was found: reading it, sharing, closing it. */

int runtime_read(const struct python_runtime *runtime, uint64_t address, void *out, size_t bytes)
{
	const struct runtime_copy *copy = runtime->copy;

	return copy ? copy->memory.read(copy->memory.context, address, out, bytes)
		    : space_read(runtime->space, address, out, bytes);
}

int runtime_read_u64(const struct python_runtime *runtime, uint64_t address, uint64_t *out)
{
	return runtime_read(runtime, address, out, sizeof(*out));
}

int runtime_type_type(const struct python_runtime *runtime, uint64_t *address)
{
	struct elf_symbol symbol;

	if (!runtime->file) {
		*address = runtime->found.type_type;
		return 0;
	}
	int err = elf_file_symbol(runtime->file, "PyType_Type", &symbol);
	if (err == -ENOENT)
		return error_set(
			-ENOTSUP,
			"%s has no symbol PyType_Type, which is needed to recognize objects",
			elf_file_path(runtime->file));
	if (!err)
		*address = symbol.vaddr + runtime->bias;
	return err;
}

void runtime_data(const struct python_runtime *runtime, uint64_t *address, uint64_t *bytes)
{
	uint64_t data, bss, data_bytes, bss_bytes;

	if (!runtime->file) {
		*address = runtime->found.data;
		*bytes = runtime->found.data_bytes;
		return;
	}
	if (elf_file_section(runtime->file, ".data", &data, &data_bytes))
		return;
	if (!elf_file_section(runtime->file, ".bss", &bss, &bss_bytes) && bss > data)
		data_bytes = bss + bss_bytes - data;
	*address = data + runtime->bias;
	*bytes = data_bytes;
}

/* Whether runtime->offsets is a copy rather than an entry of the table. */
static bool offsets_are_own(const struct python_runtime *runtime)
{
	return runtime->offsets &&
	       runtime->offsets != offsets_for(runtime->offsets->version, runtime->offsets->build);
}

int python_runtime_inherit(const struct python_runtime *parent, pid_t pid,
			   struct python_runtime *out)
{
	struct python_offsets *copy = NULL;

	if (offsets_are_own(parent)) {
		copy = malloc(sizeof(*copy));
		if (!copy)
			return -ENOMEM;
		*copy = *parent->offsets;
	}
	*out = *parent;
	out->pid = pid;
	if (space_open(&out->space, pid))
		out->space = NULL;
	if (out->target.renames == ABI_RENAMES_HERE)
		out->target.renames = ABI_RENAMES_UNREPORTED;
	if (copy)
		out->offsets = copy;
	if (out->file)
		elf_file_share(out->file);
	return 0;
}

void python_runtime_close(struct python_runtime *runtime)
{
	if (!runtime)
		return;
	if (offsets_are_own(runtime))
		free((void *)runtime->offsets);
	elf_file_close(runtime->file);
	space_close(runtime->space);
	memset(runtime, 0, sizeof(*runtime));
}

/* --- signs ------------------------------------------------------------------------------------ */

/* Recognises CPython and its version in a file: by symbols, sections, names, constants. */

#define NAME          "python"
#define MAX_CONSTANTS (64u << 20)
/* least plausible size of _PyRuntime, which has a hundred times as many bytes */
#define MIN_RUNTIME 1024u

/*
 * Finds _PyRuntime in the file. A file without exported symbols (an application that links CPython)
 * still has it in its own section from 3.11 on. 0; -ENOENT: none.
 */
static int signs_runtime(struct elf_file *file, uint64_t *vaddr)
{
	struct elf_symbol symbol;
	uint64_t bytes;

	if (!elf_file_symbol(file, "_PyRuntime", &symbol) && symbol.vaddr) {
		*vaddr = symbol.vaddr;
		return 0;
	}
	return elf_file_section(file, ".PyRuntime", vaddr, &bytes) || !*vaddr || bytes < MIN_RUNTIME
		       ? -ENOENT
		       : 0;
}

/*
 * PY_VERSION_HEX from the start of _PyRuntime at vaddr, 3.13 and later, and whether it is a
 * free-threaded build. 0; -ENOENT.
 */
static int signs_own_version(struct elf_file *file, uint64_t vaddr, uint32_t *hex,
			     int *free_threaded)
{
	uint64_t words[3];

	if (elf_file_read(file, vaddr, words, sizeof(words)) != (int)sizeof(words) ||
	    memcmp(&words[0], "xdebugpy", sizeof(words[0])) || !words[1] || words[1] > UINT32_MAX)
		return -ENOENT;
	*hex = (uint32_t)words[1];
	*free_threaded = words[2] != 0;
	return 0;
}

/*
 * Whether it contains a CPython from before _PyRuntime (2.7 to 3.6), or PyPy, which exports the
 * same function.
 */
static bool signs_is_old(struct elf_file *file)
{
	struct elf_symbol symbol;

	return !elf_file_symbol(file, "Py_GetVersion", &symbol) && symbol.vaddr != 0;
}

/*
 * Reads the file's constants; the caller frees them. NULL: none, too many, or no memory. *bytes:
 * the size that was read.
 */
static char *constants_read(struct elf_file *file, size_t *bytes)
{
	uint64_t vaddr, size;

	if (elf_file_section(file, ".rodata", &vaddr, &size) || size > MAX_CONSTANTS)
		return NULL;
	char *data = malloc(size + 1);
	if (!data)
		return NULL;
	int got = elf_file_read(file, vaddr, data, size);
	*bytes = got > 0 ? (size_t)got : 0;
	return data;
}

/*
 * Whether there is a constant first + rest. It is split so that the tracer itself does not contain
 * it.
 */
static bool has_constant(const char *data, size_t bytes, char first, const char *rest)
{
	const char *at = data, *end = data + bytes;

	while ((at = memmem(at, (size_t)(end - at), rest, strlen(rest) + 1))) {
		if (at > data && at[-1] == first)
			return 1;
		at++;
	}
	return 0;
}

/*
 * Whether it contains a CPython but exports nothing of it, by its constants: names of environment
 * variables and modules that only the interpreter has together.
 */
static bool signs_is_hidden(struct elf_file *file)
{
	size_t bytes;
	_cleanup_free_ char *data = constants_read(file, &bytes);
	int found = data && has_constant(data, bytes, 'P', "YTHONHASHSEED") &&
		    has_constant(data, bytes, 'P', "YTHONMALLOC") &&
		    has_constant(data, bytes, '_', "frozen_importlib");

	return found;
}

static const char *number_parse(const char *at, const char *end, unsigned int *out)
{
	const char *start = at;

	for (*out = 0; at < end && *at >= '0' && *at <= '9' && *out < 256; at++)
		*out = *out * 10 + (unsigned int)(*at - '0');
	return at > start && *out < 256 ? at : NULL;
}

/* "python3.13" at `at`: what follows it; NULL: it is none. */
static const char *version_parse(const char *at, const char *end, unsigned int *major,
				 unsigned int *minor)
{
	at = number_parse(at + strlen(NAME), end, major);
	if (!at || at == end || *at != '.' || *major < 2 || *major > 3)
		return NULL;
	return number_parse(at + 1, end, minor);
}

/* "…python3.13t…": 3, 13 and the letter of the build (0: none). 0 or -ENOENT. */
static int name_parse(const char *name, unsigned int *major, unsigned int *minor, char *build)
{
	const char *slash = strrchr(name, '/'), *end = name + strlen(name), *rest;
	const char *at = strstr(slash ? slash + 1 : name, NAME);

	rest = at ? version_parse(at, end, major, minor) : NULL;
	if (!rest)
		return -ENOENT;
	*build = *rest == 't' || *rest == 'd' ? *rest : 0;
	return 0;
}

/*
 * An application that links CPython may have any name, but one of its constants is the name of the
 * module folder: "python3.8" or "lib/python3.8". 0; -ENOENT: none, or contradictory ones.
 */
static int constants_search(struct elf_file *file, unsigned int *major, unsigned int *minor)
{
	const char *at, *end, *rest;
	unsigned int first = 0, second;
	size_t bytes;
	_cleanup_free_ char *data = constants_read(file, &bytes);
	int err = -ENOENT;

	if (!data)
		return -ENOENT;
	end = data + bytes;
	for (at = data; (at = memmem(at, (size_t)(end - at), NAME, strlen(NAME))); at++) {
		rest = version_parse(at, end, &first, &second);
		if (!rest || rest == end || *rest || (at > data && at[-1] && at[-1] != '/'))
			continue;
		if (!err && (*major != first || *minor != second)) {
			err = -ENOENT;
			break;
		}
		*major = first;
		*minor = second;
		err = 0;
	}
	return err;
}

/*
 * The version from the file's name, or from the name of its module folder, a constant. *build: 't',
 * 'd' or 0, from the name. 0; -ENOENT: neither has it.
 */
static int signs_version(struct elf_file *file, unsigned int *major, unsigned int *minor,
			 char *build)
{
	*build = 0;
	if (!name_parse(elf_file_soname(file), major, minor, build) ||
	    !name_parse(elf_file_path(file), major, minor, build))
		return 0;
	return constants_search(file, major, minor);
}

/* --- runtime ---------------------------------------------------------------------------------- */

#define FIRST_WITH_OWN 0x030d      /* first version with _Py_DebugOffsets */
#define MAX_FILES      256         /* distinct files that are searched */
#define NO_DEBUG       "/dev/null" /* as debug_root: no debug files */

enum pass { PASS_EXECUTABLE, PASS_LIBPYTHON, PASS_OTHER, PASS_COUNT };

struct runtime_search {
	pid_t pid;
	int swap_in;
	const struct runtime_copy *copy; /* NULL: the process itself is searched */
	struct runtime_files *files;     /* NULL: none */
	char executable[PATH_MAX];       /* as the kernel shows it */
	struct process_maps maps;        /* of a copy: borrowed */
	const struct process_map *seen[MAX_FILES];
	size_t seen_count;
	int pypy, musl;
	int old;    /* a CPython from before _PyRuntime is mapped */
	int hidden; /* the executable contains a CPython but exports nothing of it */
	unsigned int old_major, old_minor; /* of the old or hidden one; 0: not known */
	char old_path[RUNTIME_OTHER_BYTES];
	int denied;             /* a file could not be opened: the errno */
	struct elf_file *other; /* file of a second runtime */
	const struct process_map *other_map;
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static enum pass map_pass(const struct runtime_search *search, const struct process_map *map)
{
	if (!strcmp(map->path, search->executable))
		return PASS_EXECUTABLE;
	return strstr(base_name(map->path), "libpython") ? PASS_LIBPYTHON : PASS_OTHER;
}

/* Whether this is the first map of a file's code. */
static bool file_is_new(struct runtime_search *search, const struct process_map *map)
{
	for (size_t i = 0; i < search->seen_count; i++)
		if (search->seen[i]->inode == map->inode &&
		    search->seen[i]->device_major == map->device_major &&
		    search->seen[i]->device_minor == map->device_minor)
			return 0;
	if (search->seen_count == MAX_FILES)
		return 0;
	search->seen[search->seen_count++] = map;
	return 1;
}

static int map_open(const struct runtime_search *search, const struct process_map *map,
		    const char *debug_root, struct elf_file **out)
{
	const struct runtime_copy *copy = search->copy;
	int fd = copy ? copy->open(copy->memory.context, map) : process_map_open(search->pid, map),
	    err;

	if (fd < 0)
		return fd;
	err = elf_file_open(out, fd, map->path, debug_root);
	if (err)
		close(fd);
	return err;
}

/* Records an old or hidden runtime. Such a file is not cached: it is read each time. */
static void unknown_note(struct runtime_search *search, struct elf_file *file)
{
	char build;

	snprintf(search->old_path, sizeof(search->old_path), "%s", elf_file_path(file));
	if (signs_version(file, &search->old_major, &search->old_minor, &build))
		search->old_major = 0;
}

/* 1: the file behind map defines _PyRuntime, and *file has its debug symbols; 0; -errno. */
static int map_check(struct runtime_search *search, const struct process_map *map,
		     struct elf_file **file)
{
	int found = runtime_files_find(search->files, map, file), is_old, is_hidden, err;
	uint64_t vaddr;

	if (found != -ENOENT)
		return found;
	err = map_open(search, map, NO_DEBUG, file);
	if (err == -EPERM || err == -EACCES)
		search->denied = err;
	if (err)
		return err;
	found = !signs_runtime(*file, &vaddr);
	is_old = !found && signs_is_old(*file);
	/*
	 * Only the executable is scanned: scanning all files takes too long, and a library exports
	 * its interface.
	 */
	is_hidden = !found && !is_old && map_pass(search, map) == PASS_EXECUTABLE &&
		    signs_is_hidden(*file);
	search->old |= is_old;
	search->hidden |= is_hidden;
	if (is_old || is_hidden)
		unknown_note(search, *file);
	else if (!found)
		runtime_files_keep(search->files, map, *file, 0);
	elf_file_close(*file);
	*file = NULL;
	if (!found)
		return 0;
	err = map_open(search, map, NULL, file);
	if (!err)
		runtime_files_keep(search->files, map, *file, 1);
	return err ?: 1;
}

/* Checks a file unless everything is found already. */
static int runtime_look(struct runtime_search *search, enum pass pass,
			const struct process_map *here, struct elf_file **file,
			const struct process_map **map)
{
	int is_second = *file != NULL, got;

	/* A second runtime is only searched in libpythons. */
	if (is_second && (search->other || pass == PASS_OTHER))
		return 0;
	got = map_check(search, here, is_second ? &search->other : file);
	if (got > 0)
		*(is_second ? &search->other_map : map) = here;
	return got;
}

static int hidden_refuse(const struct runtime_search *search)
{
	char version[32] = "a Python";

	if (search->old_major)
		snprintf(version, sizeof(version), "Python %u.%u", search->old_major,
			 search->old_minor);
	return error_set(
		-ENOTSUP,
		"%s has %s linked into it and exports nothing of it, not even where its runtime "
		"is: link it with -Wl,--export-dynamic, or leave its symbols in",
		search->old_path, version);
}

static int runtime_search(struct runtime_search *search, struct elf_file **file,
			  const struct process_map **map)
{
	for (enum pass pass = 0; pass < PASS_COUNT; pass++) {
		for (size_t i = 0; i < search->maps.count; i++) {
			const struct process_map *here = &search->maps.entries[i];

			if (!here->executable || here->path[0] != '/' ||
			    map_pass(search, here) != pass || !file_is_new(search, here))
				continue;
			search->pypy |= !strncmp(base_name(here->path), "pypy", 4) ||
					!strncmp(base_name(here->path), "libpypy", 7);
			search->musl |= !strncmp(base_name(here->path), "ld-musl-", 8) ||
					!strncmp(base_name(here->path), "libc.musl-", 10);
			int got = runtime_look(search, pass, here, file, map);
			if (got >= 0)
				continue;
			if (got == -ESRCH || got == -ENOMEM || (got < 0 && pass == PASS_EXECUTABLE))
				return got;
		}
	}
	if (*file)
		return 0;
	if (search->pypy)
		return error_set(-ENOTSUP, "it runs PyPy; only CPython %s is supported",
				 offsets_known(BUILD_RELEASE));
	if (search->hidden)
		return hidden_refuse(search);
	if (search->old && search->old_major)
		return error_set(-ENOTSUP, "it runs Python %u.%u; known versions: %s",
				 search->old_major, search->old_minor,
				 offsets_known(BUILD_RELEASE));
	if (search->old)
		return error_set(-ENOTSUP, "it runs a Python before 3.8; known versions: %s",
				 offsets_known(BUILD_RELEASE));
	if (search->denied)
		return error_set(search->denied, "its files may not be opened");
	return error_set(-ENOENT, "no Python runtime in this process");
}

/* Sets runtime->offsets. It stays NULL for a release build of an unknown version. 0; -ENOTSUP. */
static int build_find(struct python_runtime *runtime, int free_threaded, int py_debug)
{
	enum python_build build = free_threaded ? BUILD_FREE_THREADED
				  : py_debug    ? BUILD_DEBUG
						: BUILD_RELEASE;
	const char *const kinds[BUILD_COUNT] = {
		[BUILD_DEBUG] = "debug", [BUILD_FREE_THREADED] = "free-threaded"};

	if (!free_threaded || !py_debug)
		runtime->offsets = offsets_for(runtime->version_hex >> 16, build);
	if (runtime->offsets || build == BUILD_RELEASE)
		return 0;
	return error_set(-ENOTSUP, "it runs a %s%s build of Python %u.%u; known %s builds: %s",
			 kinds[build], free_threaded && py_debug ? " debug" : "",
			 runtime->version_hex >> 24, runtime->version_hex >> 16 & 255, kinds[build],
			 offsets_known(build));
}

/*
 * The version is in the constant Py_Version from 3.11 on, and in _PyRuntime from 3.13 on. Before,
 * it is only in the file's name or in other constants. runtime->offsets stays NULL for an unknown
 * version.
 */
static int version_find(struct python_runtime *runtime, uint64_t vaddr)
{
	struct elf_symbol symbol;
	unsigned int major = 0, minor = 0;
	char letter = 0;
	uint32_t hex, constant;
	int err = signs_version(runtime->file, &major, &minor, &letter);
	int free_threaded = letter == 't', own = 0;

	if (!signs_own_version(runtime->file, vaddr, &hex, &own))
		free_threaded = own;
	else
		hex = 0;
	if (elf_file_symbol(runtime->file, "Py_Version", &symbol) == 0 &&
	    elf_file_read(runtime->file, symbol.vaddr, &constant, sizeof(constant)) ==
		    sizeof(constant))
		runtime->version_hex = constant;
	else if (hex)
		runtime->version_hex = hex;
	else if (!err)
		runtime->version_hex = major << 24 | minor << 16;
	else
		return error_set(
			-ENOTSUP,
			"neither the symbols and constants nor the name of %s tell its Python "
			"version",
			elf_file_path(runtime->file));
	/* _Py_NegativeRefcount exists only with Py_REF_DEBUG. */
	return build_find(runtime, free_threaded,
			  letter == 'd' ||
				  !elf_file_symbol(runtime->file, "_Py_NegativeRefcount", &symbol));
}

/* Applies the differences between the table and this release and build. */
static int offsets_settle(struct python_runtime *runtime, uint64_t vaddr, int musl)
{
	uint8_t bytes[OFFSETS_DEBUG_BYTES];
	struct python_offsets offsets = *runtime->offsets, *copy;
	int changed = offsets_apply_release(runtime->version_hex, &offsets), own = 0;

	if (changed >= 0 && !musl)
		changed |= offsets_apply_machine(machine_own(), &offsets);
	if (changed >= 0 && offsets.version >= FIRST_WITH_OWN) {
		own = layout_offsets_read(runtime, vaddr, bytes);
		if (!own)
			own = offsets_apply_debug(bytes, runtime->version_hex, &offsets);
	}
	if (changed < 0 || own < 0)
		return changed < 0 ? changed : own;
	if (own)
		log_debug("%d: its debug offsets differ from the table of %s", (int)runtime->pid,
			  elf_file_path(runtime->file));
	if (!changed && !own)
		return 0;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	*copy = offsets;
	runtime->offsets = copy;
	return 0;
}

static int runtime_fill(struct python_runtime *runtime, const struct process_map *map, int musl)
{
	struct elf_symbol symbol;
	uint64_t runtime_vaddr;
	int err = signs_runtime(runtime->file, &runtime_vaddr);

	err = err ?: elf_file_bias(runtime->file, map->start, map->offset, &runtime->bias);
	if (err)
		return err;
	runtime->target.runtime = runtime_vaddr + runtime->bias;
	err = version_find(runtime, runtime_vaddr);
	if (!err && !runtime->offsets)
		err = layout_refuse(runtime, runtime_vaddr);
	if (err)
		return err;
	runtime->static_exe = elf_file_is_executable(runtime->file) != 0;
	if (elf_file_symbol(runtime->file, "PyCode_Type", &symbol) == 0)
		runtime->target.code_type = symbol.vaddr + runtime->bias;
	err = offsets_settle(runtime, runtime_vaddr, musl);
	if (err)
		return err;
	runtime->target.offsets = runtime->offsets->abi;
	tstate_find(runtime, musl);
	return 0;
}

static bool is_started(const struct python_runtime *runtime)
{
	uint64_t interp;

	return !runtime_read_u64(runtime,
				 runtime->target.runtime +
					 runtime->offsets->abi.runtime_interpreters_head,
				 &interp) &&
	       interp;
}

/*
 * Chooses between two runtimes; err is the result of filling the first. The second is chosen if it
 * runs and the first does not run or is not supported; if both run, that is recorded. If an
 * executable exports Python, a libpython beside it is unused.
 */
static int runtime_choose(struct runtime_search *search, struct python_runtime *runtime, int err)
{
	struct python_runtime second = {.pid = runtime->pid, .copy = runtime->copy}, other;
	char why[256];

	if (!search->other || (err && err != -ENOTSUP))
		return err;
	second.space = space_share(runtime->space);
	second.file = search->other;
	search->other = NULL;
	snprintf(why, sizeof(why), "%s", err ? error_reason(err) : "");
	int second_err = runtime_fill(&second, search->other_map, search->musl);
	if (second_err || !is_started(&second)) {
		python_runtime_close(&second);
		return err ? error_set(err, "%s", why) : 0;
	}
	other = second;
	if (err || !is_started(runtime)) {
		other = *runtime;
		*runtime = second;
	}
	if (err || is_started(&other))
		snprintf(runtime->other, sizeof(runtime->other), "%s", elf_file_path(other.file));
	python_runtime_close(&other);
	return 0;
}

/* Finds the runtime among the maps of the search. */
static int search_run(struct runtime_search *search, struct python_runtime *out)
{
	struct python_runtime runtime = {.pid = search->pid, .copy = search->copy};
	const struct process_map *map = NULL;
	int err = runtime_search(search, &runtime.file, &map);

	if (!err && !search->copy)
		err = space_open(&runtime.space, search->pid);
	if (!err && search->swap_in)
		space_swap_in(runtime.space, 1);
	err = err ?: runtime_choose(search, &runtime, runtime_fill(&runtime, map, search->musl));
	elf_file_close(search->other);
	if (search->old && !runtime.other[0])
		snprintf(runtime.other, sizeof(runtime.other), "%s", search->old_path);
	if (err)
		python_runtime_close(&runtime);
	else
		*out = runtime;
	return err;
}

static int process_search(pid_t pid, struct runtime_files *files, int swap_in,
			  struct python_runtime *out)
{
	_cleanup_free_ struct runtime_search *search = calloc(1, sizeof(*search));

	if (!search)
		return -ENOMEM;
	search->pid = pid;
	search->files = files;
	search->swap_in = swap_in;
	int err = process_maps_read(pid, &search->maps)
		  ?: process_program_path(pid, search->executable)
		  ?: search_run(search, out);
	process_maps_free(&search->maps);
	return err;
}

int python_runtime_find(pid_t pid, struct runtime_files *files, struct python_runtime *out)
{
	return process_search(pid, files, 0, out);
}

int python_copy_find(const struct runtime_copy *copy, struct python_runtime *out)
{
	struct runtime_search *search = calloc(1, sizeof(*search));

	if (!search)
		return -ENOMEM;
	search->copy = copy;
	search->maps = *copy->maps;
	snprintf(search->executable, sizeof(search->executable), "%s", copy->executable);
	int err = search_run(search, out);
	free(search);
	if (!err && (err = layout_prove(out)))
		python_runtime_close(out);
	return err;
}

int python_process_find(pid_t pid, struct runtime_files *files, int swap_in,
			struct process_info *info, struct python_runtime *out)
{
	error_clear();
	int err = process_info_read(pid, info) ?: process_info_check(info);
	if (err)
		return err;
	err = process_search(pid, files, swap_in, out);
	if (!err && (err = layout_prove(out))) {
		err = space_error(out->space, err);
		python_runtime_close(out);
	}
	return err;
}
