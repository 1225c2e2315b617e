/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/agent/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/array.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/folder.h"
#include "util/outfile.h"

#define ENTRIES_MAX 65536u /* of the folder that are looked at */
#define NAME_FORMAT "%016" PRIx64 ".%u"
#define NAME_BYTES  32u

/* --- the folder ------------------------------------------------------------------------------- */

static void name_of(const struct spool_item *item, char out[NAME_BYTES])
{
	snprintf(out, NAME_BYTES, NAME_FORMAT, item->number, item->kind);
}

static bool name_parse(const char *name, struct spool_item *out)
{
	char again[NAME_BYTES];

	if (sscanf(name, "%16" SCNx64 ".%1u", &out->number, &out->kind) != 2 ||
	    out->kind >= SPOOL_KINDS || out->number == UINT64_MAX)
		return false;
	name_of(out, again);
	return !strcmp(name, again);
}

static int item_compare(const void *a, const void *b)
{
	const struct spool_item *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

static int items_read(struct spool *spool)
{
	int fd = openat(spool->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = 0;
	_cleanup_(closedirp) DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct spool_item item;
	struct dirent *entry;
	struct stat st;

	if (!dir)
		return error_errno();
	for (size_t i = 0; !err && i < ENTRIES_MAX && (entry = readdir(dir)); i++) {
		if (!name_parse(entry->d_name, &item) ||
		    fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			continue;
		item.bytes = (uint64_t)st.st_size;
		err = ARRAY_GROW(spool->items, spool->capacity, spool->count);
		if (!err)
			spool->items[spool->count++] = item;
	}
	if (!err && spool->count)
		qsort(spool->items, spool->count, sizeof(*spool->items), item_compare);
	return err;
}

/* --- items ------------------------------------------------------------------------------------ */

static void item_count(struct spool *spool, const struct spool_item *item)
{
	spool->bytes += item->bytes;
	spool->sums[item->kind].files++;
	spool->sums[item->kind].bytes += item->bytes;
}

void spool_remove(struct spool *spool, const struct spool_item *item)
{
	size_t i = (size_t)(item - spool->items);
	char name[NAME_BYTES];

	name_of(item, name);
	unlinkat(spool->folder, name, 0);
	spool->bytes -= item->bytes;
	spool->sums[item->kind].files--;
	spool->sums[item->kind].bytes -= item->bytes;
	memmove(&spool->items[i], &spool->items[i + 1], (--spool->count - i) * sizeof(*item));
}

/* Drops the oldest until so many files and bytes more have room. */
static void room_make(struct spool *spool, size_t files, uint64_t bytes)
{
	while (spool->count &&
	       (spool->count + files > SPOOL_FILES || spool->bytes + bytes > spool->space)) {
		spool->sums[spool->items[0].kind].dropped++;
		spool_remove(spool, &spool->items[0]);
	}
}

int spool_open(struct spool *spool, const char *path, uint64_t space)
{
	*spool = (struct spool){.path = path, .space = space};
	spool->folder = folder_take(path);
	if (spool->folder < 0)
		return spool->folder;
	outfile_clean(spool->folder);
	int err = items_read(spool);
	if (err) {
		spool_close(spool);
		return err;
	}
	for (size_t i = 0; i < spool->count; i++)
		item_count(spool, &spool->items[i]);
	spool->next = spool->count ? spool->items[spool->count - 1].number + 1 : 1;
	room_make(spool, 0, 0);
	return 0;
}

void spool_close(struct spool *spool)
{
	descriptor_close(spool->folder);
	free(spool->items);
	*spool = (struct spool){.folder = -1};
}

int spool_put(struct spool *spool, unsigned int kind, const struct buffer *body)
{
	struct spool_item item = {.number = spool->next, .bytes = body->size, .kind = kind};
	struct outfile *file;
	char name[NAME_BYTES];

	if (body->size > spool->space) {
		spool->sums[kind].dropped++;
		return -EFBIG;
	}
	int err = ARRAY_GROW(spool->items, spool->capacity, spool->count);
	if (err)
		return err;
	room_make(spool, 1, body->size);
	name_of(&item, name);
	err = outfile_open_at(&file, spool->folder, name, spool->path);
	if (err)
		return err;
	err = outfile_end(file, outfile_write(file, body->data, body->size));
	if (err)
		return err;
	spool->next++;
	spool->items[spool->count++] = item;
	item_count(spool, &item);
	return 0;
}

const struct spool_item *spool_oldest(const struct spool *spool, unsigned int kind)
{
	for (size_t i = 0; i < spool->count; i++)
		if (spool->items[i].kind == kind)
			return &spool->items[i];
	return NULL;
}

int spool_read(const struct spool *spool, const struct spool_item *item, struct buffer *out)
{
	char name[NAME_BYTES];

	name_of(item, name);
	_cleanup_close_ int fd =
		openat(spool->folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	if (fd < 0 || fstat(fd, &st))
		return error_errno();
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != item->bytes)
		return error_set(-EBADMSG, "a file of the spool has changed");
	out->size = 0;
	int err = buffer_reserve(out, item->bytes);
	while (!err && out->size < item->bytes) {
		ssize_t got = read(fd, out->data + out->size, item->bytes - out->size);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? error_errno() : error_set(-EBADMSG, "it has become shorter");
		out->size += (size_t)got;
	}
	return err;
}
