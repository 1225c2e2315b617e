/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/rss/smaps.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inspect/rss/account.h"
#include "proc/pagemap.h"
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

#define PIECE         16384u       /* pages read at once */
#define MAP_PAGES_MAX (1u << 24)   /* 64 GiB */
#define ALL_PAGES_MAX (1u << 28)   /* of all maps: 1 TiB, 2 GB of pagemap */
#define FLAG_ZERO     (1ull << 24) /* KPF_ZERO_PAGE */

static int is_zero_page(int kpageflags, uint64_t entry)
{
	uint64_t flags;

	if (entry & (PAGEMAP_FILE | PAGEMAP_OWN) || kpageflags < 0 || !(entry & PAGEMAP_NUMBER))
		return 0;
	return pread(kpageflags, &flags, sizeof(flags), (off_t)((entry & PAGEMAP_NUMBER) * 8)) ==
		       sizeof(flags) &&
	       flags & FLAG_ZERO;
}

/* Pages of a map that are present; without zero pages if kpageflags is not -1. */
static int map_look(int pagemap, int kpageflags, struct memory_map *map, uint64_t *entries,
		    uint64_t *present)
{
	uint64_t pages = (map->end - map->start) / MEMORY_PAGE;

	*present = 0;
	for (uint64_t first = 0; first < pages; first += PIECE) {
		size_t count = pages - first < PIECE ? pages - first : PIECE;
		ssize_t got =
			pagemap_read(pagemap, map->start + first * MEMORY_PAGE, entries, count);

		if (got != (ssize_t)count)
			return got < 0 ? (int)got : -ESRCH;
		for (size_t i = 0; i < count; i++) {
			uint64_t page = first + i, bit = 1ull << page % 64;

			map->pages[page / 64] &= ~bit;
			if ((entries[i] & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED)) != PAGEMAP_PRESENT ||
			    is_zero_page(kpageflags, entries[i]))
				continue;
			map->pages[page / 64] |= bit;
			++*present;
		}
	}
	return 0;
}

static int map_read(int pagemap, int kpageflags, struct memory_map *map, uint64_t *entries)
{
	uint64_t pages = (map->end - map->start) / MEMORY_PAGE, present;

	map->pages = calloc((pages + 63) / 64, sizeof(*map->pages));
	if (!map->pages)
		return -ENOMEM;
	int err = map_look(pagemap, -1, map, entries, &present);
	if (!err && present > map->rss / MEMORY_PAGE && kpageflags >= 0)
		err = map_look(pagemap, kpageflags, map, entries, &present);
	return err;
}

/*
 * Sets the pages of the anonymous maps. *unknown gets the resident bytes of those that are too
 * large. kpageflags: -1 if it is not to be had. 0; -ESRCH; -ENOMEM; -errno.
 */
static int memory_pages_read(int pagemap, int kpageflags, struct memory_account *account,
			     uint64_t *unknown)
{
	uint64_t *entries = malloc(PIECE * sizeof(*entries)), left = ALL_PAGES_MAX;
	int err = entries ? 0 : -ENOMEM;

	*unknown = 0;
	for (size_t i = 0; i < account->map_count && !err; i++) {
		struct memory_map *map = &account->maps[i];
		uint64_t bytes = map->end - map->start, pages = bytes / MEMORY_PAGE;

		if ((map->source != MEMORY_ANONYMOUS && map->source != MEMORY_BREAK) || !map->rss ||
		    map->rss == bytes)
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
	return errno == ENOENT ? -ESRCH : errno == EACCES ? -EPERM : -errno;
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

static int is_prefix(const char *text, const char *prefix)
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

/* "Key:     123 kB". 1 if the line has this key. */
static int line_bytes(const char *line, const char *key, uint64_t *bytes)
{
	size_t length = strlen(key);

	if (strncmp(line, key, length) || line[length] != ':')
		return 0;
	*bytes = strtoull(line + length + 1, NULL, 10) * 1024;
	return 1;
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
	(void)(line_bytes(line, "Rss", &map->rss) ||
	       line_bytes(line, "Private_Clean", &map->private_clean) ||
	       line_bytes(line, "Private_Dirty", &map->private_dirty) ||
	       line_bytes(line, "Shared_Clean", &map->shared_clean) ||
	       line_bytes(line, "Shared_Dirty", &map->shared_dirty) ||
	       line_bytes(line, "Anonymous", &map->anonymous) ||
	       line_bytes(line, "AnonHugePages", &map->huge) ||
	       line_bytes(line, "Swap", &map->swap));
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
		found |= line_bytes(line, "Rss", &totals->rss);
		line_bytes(line, "Swap", &totals->swap);
		line_bytes(line, "AnonHugePages", &totals->anonymous_huge);
	}
	return found ? 0 : -ESRCH;
}

static void status_read(FILE *file, struct smaps_totals *totals)
{
	size_t size = 0;
	_cleanup_free_ char *line = NULL;

	rewind(file);
	while (getline(&line, &size, file) > 0)
		(void)(line_bytes(line, "VmPTE", &totals->page_tables) ||
		       line_bytes(line, "HugetlbPages", &totals->hugetlb));
}

static int is_settled(const struct memory_account *account, const struct smaps_totals *totals)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < account->map_count; i++)
		sum += account->maps[i].rss;
	return sum == totals->rss;
}

int smaps_read(struct smaps_files *files, struct memory_account *account,
	       struct smaps_totals *totals)
{
	int err = 0;

	*totals = (struct smaps_totals){0};
	for (int i = 0; i < TRIES && !err; i++) {
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
