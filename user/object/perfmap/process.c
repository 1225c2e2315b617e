/* SPDX-License-Identifier: Apache-2.0 */
#include "object/perfmap/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/events.h"
#include "abi/target.h"
#include "object/perfmap/jit_elf.h"
#include "util/array.h"

#define PROCESS_SHARE   4u /* a map has at most this many times what the others leave */
#define GENERATIONS_MAX 64

struct perfmaps {
	struct perfmaps_hooks hooks;
	struct account account;
	struct perfmap_process **processes;
	size_t count, capacity;
};

int perfmaps_new(struct perfmaps **out, const struct perfmaps_hooks *hooks)
{
	struct perfmaps *maps = calloc(1, sizeof(*maps));

	if (!maps)
		return -ENOMEM;
	if (hooks)
		maps->hooks = *hooks;
	*out = maps;
	return 0;
}

void perfmaps_budget(struct perfmaps *maps, uint64_t bytes)
{
	maps->account.limit = bytes;
}

void perfmaps_free(struct perfmaps *maps)
{
	if (!maps)
		return;
	for (size_t i = 0; i < maps->count; i++) {
		perfmap_table_free(maps->processes[i]->table);
		free(maps->processes[i]->images);
		free(maps->processes[i]);
	}
	free(maps->processes);
	free(maps);
}

struct perfmap_process *perfmaps_find(const struct perfmaps *maps, uint32_t tgid)
{
	for (size_t i = maps->count; i-- > 0;)
		if (maps->processes[i]->tgid == tgid)
			return maps->processes[i];
	return NULL;
}

/*
 * Frees the oldest map of a process that has ended and was not requested explicitly. 1; 0: there is
 * none.
 */
static int map_evict(struct perfmaps *maps)
{
	for (size_t i = 0; i < maps->count; i++) {
		struct perfmap_process *process = maps->processes[i];

		if (!process->exited || !process->parent || process->evicted)
			continue;
		process->evicted = 1;
		perfmap_table_clear(process->table);
		array_release(&process->account, &process->images, &process->image_capacity,
			      sizeof(*process->images));
		process->image_count = 0;
		return 1;
	}
	return 0;
}

int perfmaps_add(struct perfmaps *maps, uint32_t tgid, struct perfmap_process **out)
{
	struct perfmap_process *process = perfmaps_find(maps, tgid);

	if (process && !process->exited) {
		*out = process;
		return 0;
	}
	if (maps->count >= PERFMAP_PROCESSES_MAX)
		return -ENOSPC;
	int err = ARRAY_GROW(maps->processes, maps->capacity, maps->count);
	if (err)
		return err;
	process = calloc(1, sizeof(*process));
	if (!process)
		return -ENOMEM;
	process->maps = maps;
	process->account = (struct account){.parent = &maps->account, .share = PROCESS_SHARE};
	do
		err = perfmap_table_new_in(&process->table, &process->account);
	while (account_is_full(err) && map_evict(maps));
	if (err) {
		free(process);
		return account_is_full(err) ? -ENOSPC : err;
	}
	process->tgid = tgid;
	process->persist = -1;
	process->next_origin = 1;
	maps->processes[maps->count++] = process;
	*out = process;
	return 0;
}

static void code_tell(struct perfmap_process *process, const struct jitdump_code *code)
{
	const struct perfmaps_hooks *hooks = &process->maps->hooks;

	if (hooks->code_added)
		hooks->code_added(hooks->context, process, code);
}

int perfmap_process_add(struct perfmap_process *process, uint64_t start, uint64_t bytes,
			const char *name, size_t name_bytes, const struct perfmap_entry *entry)
{
	uint64_t version = perfmap_table_version(process->table);
	int err = -EINVAL;

	do
		if (name_bytes)
			err = perfmap_table_add(process->table, start, bytes, name, name_bytes,
						entry);
	while (account_is_full(err) && map_evict(process->maps));
	if (account_is_full(err)) {
		process->dropped++;
		return 0;
	}
	if (err == -EINVAL || err == -ENOSPC) {
		process->refused++;
		err = 0;
	} else if (!err && perfmap_table_version(process->table) != version) {
		code_tell(process, &(struct jitdump_code){.address = start,
							  .bytes = bytes,
							  .time_ns = entry->time_ns,
							  .name = name,
							  .name_bytes = name_bytes});
	}
	return err;
}

static int code_add(struct perfmap_process *process, const struct jitdump_code *code)
{
	const struct perfmap_entry *known = perfmap_table_find(process->table, code->address);
	struct perfmap_entry entry = {.time_ns = code->time_ns};

	if (known && known->time_ns > code->time_ns)
		return 0;
	return perfmap_process_add(process, code->address, code->bytes, code->name,
				   code->name_bytes, &entry);
}

static bool code_is_known(const struct perfmap_process *process, const struct jitdump_code *code)
{
	const struct perfmap_entry *known = perfmap_table_find(process->table, code->address);
	const char *name = known ? perfmap_table_name(process->table, known) : NULL;

	return known && known->start == code->address && known->end - known->start == code->bytes &&
	       known->time_ns == code->time_ns && strlen(name) == code->name_bytes &&
	       !memcmp(name, code->name, code->name_bytes);
}

/* Does the process have the memory that another one had at that time? */
static bool has_memory_of(const struct perfmap_process *process,
			  const struct perfmap_process *ancestor, uint64_t time_ns)
{
	for (int i = 0; process && i < GENERATIONS_MAX; i++) {
		if (process == ancestor)
			return 1;
		if (process->execs || process->forked_ns <= time_ns)
			return 0;
		process = process->parent;
	}
	return 0;
}

static int code_spread(struct perfmap_process *process, const struct jitdump_code *code)
{
	const struct perfmaps *maps = process->maps;
	int err = 0;

	for (size_t i = 0; i < maps->count && !err; i++)
		if (has_memory_of(maps->processes[i], process, code->time_ns))
			err = code_add(maps->processes[i], code);
	return err;
}

int perfmap_process_jitdump(struct perfmap_process *process, const struct jitdump_code *code)
{
	struct perfmap_entry entry = {.time_ns = code->time_ns};
	char name[PERFMAP_NAME_MAX + 1];

	if (!code->moved_from)
		return code_is_known(process, code) ? 0 : code_spread(process, code);
	const struct perfmap_entry *old = perfmap_table_find(process->table, code->moved_from);
	if (!old) {
		process->refused++;
		return 0;
	}
	/* A copy, since adding may collect names. */
	strncpy(name, perfmap_table_name(process->table, old), sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	if (perfmap_table_cut(process->table, code->moved_from, code->moved_from + code->bytes))
		return -ENOMEM;
	return perfmap_process_add(process, code->address, code->bytes, name, strlen(name), &entry);
}

struct image_context {
	struct perfmap_process *process;
	struct perfmap_entry entry;
};

static int image_entry(void *context, uint64_t start, uint64_t bytes, const char *name,
		       size_t name_bytes)
{
	struct image_context *image = context;

	return perfmap_process_add(image->process, start, bytes, name, name_bytes, &image->entry);
}

static void image_remove(struct perfmap_process *process, uint64_t entry)
{
	for (size_t i = 0; i < process->image_count; i++)
		if (process->images[i].entry == entry) {
			perfmap_table_remove(process->table, process->images[i].origin);
			process->images[i] = process->images[--process->image_count];
			return;
		}
}

int perfmap_image_add(struct perfmaps *maps, struct perfmap_process *process, uint64_t entry,
		      uint64_t image, uint64_t bytes, uint64_t time_ns)
{
	struct image_context context = {
		.process = process, .entry = {.time_ns = time_ns, .origin = process->next_origin}};
	struct buffer data = {0};
	int err = bytes <= JIT_ELF_MAX ? 0 : -E2BIG;

	image_remove(process, entry);
	process->images_registered++;
	if (process->image_count >= PERFMAP_IMAGES_MAX ||
	    process->next_origin >= PERFMAP_ORIGIN_MAX)
		err = -ENOSPC;
	err = err
		      ?: array_reserve_in(&process->account, &process->images,
					  &process->image_capacity, process->image_count, 1,
					  sizeof(*process->images));
	if (!err)
		err = maps->hooks.image_read ? maps->hooks.image_read(maps->hooks.context, process,
								      image, bytes, &data)
					     : -ENOTSUP;
	if (!err) {
		/*
		 * Also for an image that turns out to be corrupt half-way: its entries are removed
		 * with it.
		 */
		process->images[process->image_count++] =
			(struct perfmap_image){.entry = entry, .origin = process->next_origin++};
		err = jit_elf_read(data.data, data.size, image_entry, &context);
	}
	buffer_free(&data);
	if (err && err != -ENOMEM) {
		process->images_unreadable++;
		err = 0;
	}
	return err;
}

static int jit_take(struct perfmaps *maps, struct perfmap_process *process,
		    const struct event_map_jit *jit)
{
	if (jit->action == 1)
		return perfmap_image_add(maps, process, jit->entry, jit->image, jit->image_bytes,
					 jit->header.time_ns);
	if (jit->action == 2)
		image_remove(process, jit->entry);
	return 0;
}

static int write_take(struct perfmaps *maps, struct perfmap_process *process,
		      const struct event_map_text *text)
{
	struct perfmap_entry entry = {.time_ns = text->header.time_ns,
				      .called = 1,
				      .mapped = (text->flags & EVENT_MAP_MAPPED) != 0};
	struct buffer name = {0};

	process->writes++;
	process->cut += (text->flags & EVENT_MAP_CUT) != 0;
	if (!(text->flags & EVENT_MAP_MISSED))
		return perfmap_process_add(process, text->address, text->bytes,
					   (const char *)text->name, text->name_bytes, &entry);
	int err = maps->hooks.name_read ? maps->hooks.name_read(maps->hooks.context, process,
								text->name_address, &name)
					: -ENOTSUP;
	if (!err)
		err = perfmap_process_add(process, text->address, text->bytes,
					  (const char *)name.data, name.size, &entry);
	else if (err != -ENOMEM) {
		process->missed++;
		err = 0;
	}
	buffer_free(&name);
	return err;
}

static void copy_take(struct perfmaps *maps, struct perfmap_process *process,
		      const struct event_map_text *text)
{
	process->copies++;
	if (text->flags & (EVENT_MAP_MISSED | EVENT_MAP_CUT) || !maps->hooks.file_copy ||
	    maps->hooks.file_copy(maps->hooks.context, process, (const char *)text->name,
				  text->name_bytes))
		process->files_failed++;
}

static void call_take(struct perfmap_process *process, const struct event_map_call *call)
{
	switch (call->function) {
	case ABI_OP_MAP_INIT:
		process->inits++;
		process->init_failures += call->value != 0;
		process->init_result = call->value;
		process->file = call->value ? PERFMAP_FILE_CLOSED : PERFMAP_FILE_OPEN;
		break;
	case ABI_OP_MAP_FINI:
		process->finis++;
		process->file = PERFMAP_FILE_CLOSED;
		break;
	case ABI_OP_MAP_COMPILE:
		process->compiles++;
		break;
	case ABI_OP_MAP_PERSIST:
		process->persists++;
		process->persist = call->value != 0;
		break;
	}
}

int perfmap_process_copy(struct perfmap_process *process, const struct perfmap_process *from)
{
	const struct perfmap_table *table = from->table;
	size_t before = perfmap_table_count(process->table), there;
	int err;

	/*
	 * Copying again, after memory was freed, does not change entries that are already copied.
	 */
	do
		err = perfmap_table_copy(process->table, table);
	while (account_is_full(err) && map_evict(process->maps));
	if (!account_is_full(err))
		return err;
	there = perfmap_table_count(process->table) - before;
	process->dropped +=
		perfmap_table_count(table) > there ? perfmap_table_count(table) - there : 0;
	return 0;
}

static int fork_take(struct perfmaps *maps, struct perfmap_process *parent, uint32_t tgid,
		     uint64_t time_ns)
{
	struct perfmap_process *child;
	int err = perfmaps_add(maps, tgid, &child);

	if (err)
		return err == -ENOSPC ? 0 : err;
	child->parent = parent;
	child->forked_ns = time_ns;
	err = perfmap_process_copy(child, parent);
	if (err)
		return err == -ENOSPC ? 0 : err;
	err = array_reserve_in(&child->account, &child->images, &child->image_capacity, 0,
			       parent->image_count, sizeof(*child->images));
	if (err)
		return account_is_full(err) ? 0 : err;
	if (parent->image_count)
		memcpy(child->images, parent->images, parent->image_count * sizeof(*child->images));
	child->image_count = parent->image_count;
	child->next_origin = parent->next_origin;
	child->persist = parent->persist;
	child->file = parent->file;
	return 0;
}

static void exec_take(struct perfmap_process *process)
{
	perfmap_table_clear(process->table);
	process->image_count = 0;
	process->file = PERFMAP_FILE_CLOSED;
	process->persist = 0;
	process->execs++;
}

static int event_take(struct perfmaps *maps, struct perfmap_process *process, const void *record,
		      size_t size)
{
	const struct event_header *header = record;
	const struct event_map_text *text = record;
	const struct event_process *event = record;
	int is_text = header->type == EVENT_MAP_WRITE || header->type == EVENT_MAP_COPY;
	size_t least = is_text                          ? sizeof(*text)
		       : header->type == EVENT_MAP_CALL ? sizeof(struct event_map_call)
		       : header->type == EVENT_MAP_JIT  ? sizeof(struct event_map_jit)
							: sizeof(*event);
	int err = 0;

	if (size < least ||
	    (is_text && (text->name_bytes > size - least || text->name_bytes > EVENT_MAX_MAP_NAME)))
		return -EPROTO;
	if ((header->type == EVENT_FORK || header->type == EVENT_EXEC) &&
	    maps->hooks.process_changes)
		maps->hooks.process_changes(maps->hooks.context, process);
	switch (header->type) {
	case EVENT_MAP_WRITE:
		return write_take(maps, process, text);
	case EVENT_MAP_COPY:
		copy_take(maps, process, text);
		return 0;
	case EVENT_MAP_CALL:
		call_take(process, record);
		return 0;
	case EVENT_MAP_JIT:
		return jit_take(maps, process, record);
	case EVENT_FORK:
		err = fork_take(maps, process, event->other, header->time_ns);
		process = perfmaps_find(maps, event->other);
		break;
	case EVENT_EXEC:
		exec_take(process);
		break;
	case EVENT_EXIT:
		process->exited = 1;
		break;
	default:
		return -EPROTO;
	}
	if (process && maps->hooks.process_changed)
		maps->hooks.process_changed(maps->hooks.context, process, header->type);
	return err;
}

int perfmaps_feed(struct perfmaps *maps, const void *record, size_t size)
{
	const struct event_header *header = record;

	if (size < sizeof(*header) || header->size < sizeof(*header) || header->size > size)
		return -EPROTO;
	struct perfmap_process *process = perfmaps_find(maps, header->tgid);
	if (!process || process->exited)
		return 0;
	return event_take(maps, process, record, header->size);
}
