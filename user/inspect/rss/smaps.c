/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/rss/smaps.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inspect/rss/account.h"
#include "proc/pagemap.h"
#include "proc/process.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/descriptor.h"
#include "util/error.h"

/* --- pages ------------------------------------------------------------------------------------ */

/* The resident pages of the maps of an account, from pagemap. */

/*
 * A page that was read and never written is the kernel's zero page: present, but not in Rss. If a
 * map has more present pages than resident ones, those that the process shares with others are
 * looked up in kpageflags.
 */

#define MAP_PAGES_MAX (1u << 24)   /* 64 GiB */
#define ALL_PAGES_MAX (1u << 28)   /* of all maps: 1 TiB, 2 GB of pagemap */
#define FLAG_ZERO     (1ull << 24) /* KPF_ZERO_PAGE */

static bool is_zero_page(int kpageflags, uint64_t entry)
{
	uint64_t flags;

	if (entry & (PAGEMAP_FILE | PAGEMAP_OWN) || kpageflags < 0 || !(entry & PAGEMAP_NUMBER))
		return 0;
	return pread(kpageflags, &flags, sizeof(flags), (off_t)((entry & PAGEMAP_NUMBER) * 8)) ==
		       sizeof(flags) &&
	       flags & FLAG_ZERO;
}

/* The pages of a map that are present; without zero pages if kpageflags is not -1. */
struct map_pages {
	struct memory_map *map;
	int kpageflags;
	uint64_t present;
};

static int pages_note(void *context, uint64_t address, const uint64_t *entries, size_t pages)
{
	struct map_pages *note = context;
	struct memory_map *map = note->map;
	uint64_t page = (address - map->start) / MEMORY_PAGE;

	for (size_t i = 0; i < pages; i++, page++) {
		uint64_t bit = 1ull << page % 64;

		map->pages[page / 64] &= ~bit;
		map->own[page / 64] &= ~bit;
		if ((entries[i] & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED)) != PAGEMAP_PRESENT ||
		    is_zero_page(note->kpageflags, entries[i]))
			continue;
		map->pages[page / 64] |= bit;
		map->own[page / 64] |= entries[i] & PAGEMAP_OWN ? bit : 0;
		note->present++;
	}
	return 0;
}

static int map_read(int pagemap, int kpageflags, struct memory_map *map, uint64_t *entries)
{
	uint64_t pages = (map->end - map->start) / MEMORY_PAGE;
	struct map_pages note = {.map = map, .kpageflags = -1};

	map->pages = calloc((pages + 63) / 64, sizeof(*map->pages));
	map->own = calloc((pages + 63) / 64, sizeof(*map->own));
	if (!map->pages || !map->own)
		return -ENOMEM;
	int err = pagemap_each(pagemap, map->start, map->end, entries, pages_note, &note);
	if (!err && note.present > map->rss / MEMORY_PAGE && kpageflags >= 0) {
		note.kpageflags = kpageflags;
		err = pagemap_each(pagemap, map->start, map->end, entries, pages_note, &note);
	}
	return err;
}

/*
 * Sets the pages of the anonymous maps. *unknown gets the resident bytes of those that are too
 * large. kpageflags: -1 if it is not to be had. 0; -ESRCH; -ENOMEM; -errno.
 */
static int memory_pages_read(int pagemap, int kpageflags, struct memory_account *account,
			     uint64_t *unknown)
{
	uint64_t *entries = malloc(PAGEMAP_PIECE * sizeof(*entries)), left = ALL_PAGES_MAX;
	int err = entries ? 0 : -ENOMEM;

	*unknown = 0;
	for (size_t i = 0; i < account->map_count && !err; i++) {
		struct memory_map *map = &account->maps[i];
		uint64_t bytes = map->end - map->start, pages = bytes / MEMORY_PAGE;

		if ((map->source != MEMORY_ANONYMOUS && map->source != MEMORY_BREAK) || !map->rss)
			continue;
		if (pages > MAP_PAGES_MAX || pages > left) {
			*unknown += map->rss;
			continue;
		}
		left -= pages;
		err = map_read(pagemap, kpageflags, map, entries);
	}
	free(entries);
	return err;
}

/* --- smaps ------------------------------------------------------------------------------------ */

#define MAPS_MAX 65536u
#define TRIES    4

static int file_open(pid_t pid, const char *name, FILE **out)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	*out = fopen(path, "re");
	if (*out)
		return 0;
	return errno == ENOENT ? -ESRCH : errno == EACCES ? -EPERM : error_errno();
}

int smaps_open(struct smaps_files *files, pid_t pid)
{
	*files = (struct smaps_files){.pagemap = -1, .kpageflags = -1};
	int err = file_open(pid, "smaps_rollup", &files->rollup)
		  ?: file_open(pid, "smaps", &files->smaps)
		  ?: file_open(pid, "status", &files->status);
	if (err)
		return err;
	files->pagemap = pagemap_open(pid);
	if (files->pagemap < 0)
		return files->pagemap;
	files->kpageflags = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);
	return 0;
}

void smaps_close(struct smaps_files *files)
{
	FILE *const streams[] = {files->rollup, files->smaps, files->status};

	for (size_t i = 0; i < ARRAY_SIZE(streams); i++)
		if (streams[i])
			fclose(streams[i]);
	descriptor_close(files->pagemap);
	descriptor_close(files->kpageflags);
	*files = (struct smaps_files){.pagemap = -1, .kpageflags = -1};
}

static bool is_prefix(const char *text, const char *prefix)
{
	return !strncmp(text, prefix, strlen(prefix));
}

enum memory_source smaps_source(const char *name, uint64_t inode)
{
	if (!strcmp(name, "[heap]"))
		return MEMORY_BREAK;
	if (is_prefix(name, "[stack"))
		return MEMORY_STACK;
	if (is_prefix(name, "/memfd:") || is_prefix(name, "/dev/shm/") ||
	    is_prefix(name, "/SYSV") || is_prefix(name, "/dev/zero") ||
	    is_prefix(name, "[anon_shmem:"))
		return MEMORY_SHARED;
	if (inode)
		return MEMORY_FILE;
	return !name[0] || is_prefix(name, "[anon:") ? MEMORY_ANONYMOUS : MEMORY_KERNEL;
}

/*
 * 0; 1: the map is to be left out. The kernel shows the maps in pieces: one that has grown
 * downwards since the last piece comes again, and only its new end counts.
 */
static int map_begin(struct memory_account *account, char *line)
{
	struct memory_map map = {0};
	uint64_t inode, last;
	char permissions[5], *end = strchr(line, '\n');
	int at = 0, err;

	if (end)
		*end = '\0';
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*x %*x:%*x %" SCNu64 "%n", &map.start,
		   &map.end, permissions, &inode, &at) != 4 ||
	    !at || map.start >= map.end || map.start % MEMORY_PAGE || map.end % MEMORY_PAGE)
		return error_set(-EPROTO, "its smaps has a line that is not known");
	last = account->map_count ? account->maps[account->map_count - 1].end : 0;
	if (map.end <= last)
		return 1;
	if (map.start < last)
		map.start = last;
	if (account->map_count == MAPS_MAX)
		return error_set(-E2BIG, "more than %u memory maps", MAPS_MAX);
	at += (int)strspn(line + at, " ");
	err = ARRAY_GROW(account->maps, account->map_capacity, account->map_count);
	if (err)
		return err;
	map.writable = permissions[1] == 'w';
	map.shared = permissions[3] == 's';
	map.source = smaps_source(line + at, inode);
	map.name = strdup(line + at);
	if (!map.name)
		return -ENOMEM;
	account->maps[account->map_count++] = map;
	return 0;
}

static void map_line(struct memory_map *map, const char *line)
{
	(void)(process_line_bytes(line, "Rss", &map->rss) ||
	       process_line_bytes(line, "Private_Clean", &map->private_clean) ||
	       process_line_bytes(line, "Private_Dirty", &map->private_dirty) ||
	       process_line_bytes(line, "Shared_Clean", &map->shared_clean) ||
	       process_line_bytes(line, "Shared_Dirty", &map->shared_dirty) ||
	       process_line_bytes(line, "Anonymous", &map->anonymous) ||
	       process_line_bytes(line, "AnonHugePages", &map->huge) ||
	       process_line_bytes(line, "Swap", &map->swap));
}

static int maps_read(FILE *file, struct memory_account *account)
{
	size_t size = 0;
	char *line = NULL;
	int got = 1;

	memory_account_free(account);
	rewind(file);
	while (got >= 0 && getline(&line, &size, file) > 0) {
		/* The first line of a map begins with its address in lower-case hex. */
		if (line[0] < 'A' || line[0] > 'Z')
			got = map_begin(account, line);
		else if (!got)
			map_line(&account->maps[account->map_count - 1], line);
	}
	free(line);
	if (got >= 0 && !account->map_count)
		return -ESRCH;
	return got < 0 ? got : 0;
}

static int rollup_read(FILE *file, struct smaps_totals *totals)
{
	size_t size = 0;
	_cleanup_free_ char *line = NULL;
	int found = 0;

	rewind(file);
	while (getline(&line, &size, file) > 0) {
		uint64_t own = 0;

		found |= process_line_bytes(line, "Rss", &totals->rss);
		process_line_bytes(line, "Pss", &totals->pss);
		if (process_line_bytes(line, "Private_Clean", &own) ||
		    process_line_bytes(line, "Private_Dirty", &own))
			totals->own += own;
		process_line_bytes(line, "Swap", &totals->swap);
		process_line_bytes(line, "AnonHugePages", &totals->anonymous_huge);
	}
	return found ? 0 : -ESRCH;
}

static void status_read(FILE *file, struct smaps_totals *totals)
{
	size_t size = 0;
	_cleanup_free_ char *line = NULL;

	rewind(file);
	while (getline(&line, &size, file) > 0)
		(void)(process_line_bytes(line, "VmPTE", &totals->page_tables) ||
		       process_line_bytes(line, "HugetlbPages", &totals->hugetlb));
}

static bool is_settled(const struct memory_account *account, const struct smaps_totals *totals)
{
	uint64_t sum = 0, own = 0;

	for (size_t i = 0; i < account->map_count; i++) {
		sum += account->maps[i].rss;
		own += account->maps[i].private_clean + account->maps[i].private_dirty;
	}
	return sum == totals->rss && own == totals->own;
}

int smaps_totals_read(struct smaps_files *files, struct smaps_totals *totals)
{
	*totals = (struct smaps_totals){0};
	return rollup_read(files->rollup, totals);
}

int smaps_read(struct smaps_files *files, struct memory_account *account,
	       struct smaps_totals *totals)
{
	int err = 0;

	for (int i = 0; i < TRIES && !err; i++) {
		*totals = (struct smaps_totals){0};
		err = maps_read(files->smaps, account)
		      ?: memory_pages_read(files->pagemap, files->kpageflags, account,
					   &totals->pages_unknown)
		      ?: rollup_read(files->rollup, totals);
		if (!err && is_settled(account, totals))
			break;
	}
	if (!err)
		status_read(files->status, totals);
	return err;
}
