/* SPDX-License-Identifier: Apache-2.0 */
/* The maps of unwind tables (bpf/unwind/table.h), in this process's memory. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>

#include "attach/attach.h"
#include "attach/attach_state.h"
#include "util/array.h"
#include "util/error.h"

/* 0, -errno. */
static int map_share(const struct bpf_map *map, void *out, size_t *bytes)
{
	*bytes = (size_t)bpf_map__max_entries(map) * bpf_map__value_size(map);
	void *area = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
	if (area == MAP_FAILED)
		return error_set(-errno, "the map %s cannot be shared: %s", bpf_map__name(map),
				 strerror(errno));
	memcpy(out, &area, sizeof(area));
	return 0;
}

static int wanted_take(void *context, void *record, size_t size)
{
	struct attach *attach = context;

	if (size >= sizeof(struct event_unwind_file))
		attach->unwind_each(attach->unwind_context, record);
	return 0;
}

int attach_unwind_fd(const struct attach *attach)
{
	return attach->unwind_wanted ? ring_buffer__epoll_fd(attach->unwind_wanted) : -1;
}

int attach_unwind_is_wanted(const struct attach *attach)
{
	struct pollfd wanted = {.fd = attach_unwind_fd(attach), .events = POLLIN};

	return poll(&wanted, 1, 0) > 0;
}

void attach_unwind_wanted(struct attach *attach,
			  void (*each)(void *context, const struct event_unwind_file *file),
			  void *context)
{
	attach->unwind_each = each;
	attach->unwind_context = context;
	if (attach->unwind_wanted)
		ring_buffer__consume(attach->unwind_wanted);
}

int attach_unwind_areas(struct attach *attach, struct unwind_areas *out)
{
	struct alloc_bpf *skeleton = attach->skeleton;
	struct unwind_areas *areas = &attach->unwind;
	size_t *bytes = attach->unwind_bytes;

	if (!skeleton->rodata->has_loop || !skeleton->rodata->has_native)
		return -EOPNOTSUPP;
	int err = map_share(skeleton->maps.unwind_rows, &areas->rows, &bytes[0])
		  ?: map_share(skeleton->maps.unwind_pages, &areas->pages, &bytes[1])
		  ?: map_share(skeleton->maps.unwind_rules, &areas->rules, &bytes[2])
		  ?: map_share(skeleton->maps.unwind_tables, &areas->tables, &bytes[3]);
	if (!err) {
		attach->unwind_wanted = ring_buffer__new(bpf_map__fd(skeleton->maps.unwind_wanted),
							 wanted_take, attach, NULL);
		err = attach->unwind_wanted ? 0 : -errno;
	}
	if (err)
		return err;
	areas->row_count = (uint32_t)(bytes[0] / sizeof(*areas->rows));
	areas->page_count = (uint32_t)(bytes[1] / sizeof(*areas->pages));
	areas->rule_count = (uint32_t)(bytes[2] / sizeof(*areas->rules));
	areas->table_count = (uint32_t)(bytes[3] / sizeof(*areas->tables));
	*out = *areas;
	return 0;
}

void attach_unwind_begin(struct attach *attach)
{
	attach->skeleton->bss->has_tables = 1;
}

void attach_unwind_unshare(struct attach *attach)
{
	void *areas[] = {attach->unwind.rows, attach->unwind.pages, attach->unwind.rules,
			 attach->unwind.tables};

	for (size_t i = 0; i < ARRAY_SIZE(areas); i++)
		if (areas[i])
			munmap(areas[i], attach->unwind_bytes[i]);
	attach->unwind = (struct unwind_areas){0};
	ring_buffer__free(attach->unwind_wanted);
	attach->unwind_wanted = NULL;
}

void attach_unwind_publish(struct attach *attach, const struct abi_unwind_key *key, uint32_t number)
{
	int map = bpf_map__fd(attach->skeleton->maps.unwind_files);

	if (number == ABI_UNWIND_WANTED)
		bpf_map_delete_elem(map, key);
	else
		bpf_map_update_elem(map, key, &number, BPF_ANY);
}
