/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native layer beside Python's: separate tables, native frames and their names, and a snapshot
 * of both.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>

#include "records.h"

#define STACK 77u

static int feed_target(struct trace *trace, uint32_t mode, uint32_t python_version)
{
	struct event_target event = {.header = header_of(EVENT_PROCESS, sizeof(event)),
				     .python_version = python_version,
				     .nframe = 4,
				     .mode = mode,
				     .name = "program"};

	return trace_feed(trace, &event, sizeof(event));
}

static int native_put(struct trace *trace, uint32_t type, uint32_t tid, uint64_t address,
		      uint64_t bytes)
{
	struct event_alloc event = {.header = header_of(type, sizeof(event)),
				    .address = address,
				    .bytes = bytes,
				    .stack_id = STACK,
				    .api = EVENT_API_NATIVE};

	event.header.tid = tid;
	return trace_feed(trace, &event, sizeof(event));
}

static int native_take(struct trace *trace, uint32_t type, uint32_t tid, uint64_t address)
{
	struct event_free event = {.header = header_of(type, sizeof(event)),
				   .address = address,
				   .api = EVENT_API_NATIVE};

	event.header.tid = tid;
	return trace_feed(trace, &event, sizeof(event));
}

static const struct trace_table *table_of(const struct trace *trace, enum event_layer layer)
{
	return &trace_process_at(trace, 0)->tables[layer];
}

static int setup_both(void **state)
{
	struct trace *trace;

	if (trace_new(&trace, NULL))
		return -1;
	*state = trace;
	return feed_target(trace, EVENT_MODE_EXACT | EVENT_MODE_PYTHON | EVENT_MODE_NATIVE,
			   0x030b02f0);
}

static int setup_native(void **state)
{
	struct trace *trace;

	if (trace_new(&trace, NULL))
		return -1;
	*state = trace;
	return feed_target(trace, EVENT_MODE_EXACT | EVENT_MODE_NATIVE, 0);
}

static int teardown(void **state)
{
	trace_free(*state);
	return 0;
}

/* A request that Python forwards to malloc is a block at the same address in each layer. */
static void test_tables_apart(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;

	assert_int_equal(native_put(trace, EVENT_ALLOC, 1, 0x1000, 600), 0);
	assert_int_equal(feed_alloc(trace, 0x1000, 600, STACK), 0);
	assert_int_equal(native_put(trace, EVENT_ALLOC, 1, 0x2000, 50), 0);
	assert_int_equal(table_of(trace, EVENT_LAYER_PYTHON)->live_bytes, 600);
	assert_int_equal(table_of(trace, EVENT_LAYER_NATIVE)->live_bytes, 650);
	assert_int_equal(table_of(trace, EVENT_LAYER_NATIVE)->replaced, 0);
	assert_int_equal(feed_free(trace, 0x1000), 0);
	assert_int_equal(table_of(trace, EVENT_LAYER_PYTHON)->live_blocks, 0);
	assert_int_equal(table_of(trace, EVENT_LAYER_NATIVE)->live_blocks, 2);
	assert_int_equal(native_take(trace, EVENT_FREE, 1, 0x1000), 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.layer, EVENT_LAYER_PYTHON);
	assert_int_equal(snapshot->meta.layers, 1u << EVENT_LAYER_NATIVE);
	assert_int_equal(snapshot->trace_count, 0);
	assert_int_equal(snapshot->layers[EVENT_LAYER_NATIVE].trace_count, 1);
	assert_int_equal(snapshot->meta.peak_bytes, 600);
	assert_int_equal(snapshot->meta.native.peak_bytes, 650);
	struct snapshot native = snapshot_of_layer(snapshot, EVENT_LAYER_NATIVE);
	assert_int_equal(native.trace_count, 1);
	assert_int_equal(native.traces[0].bytes, 50);
	assert_int_equal(native.meta.peak_bytes, 650);
	assert_int_equal(native.meta.layers, 0);
	snapshot_free(snapshot);
}

/* Each layer has its own realloc under way on a thread. */
static void test_reallocs_apart(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(native_put(trace, EVENT_ALLOC, 1, 0x1000, 600), 0);
	assert_int_equal(feed_put(trace, EVENT_ALLOC, 1, 0x1000, 600, STACK), 0);
	assert_int_equal(feed_take(trace, EVENT_REALLOC, 1, 0x1000), 0);
	assert_int_equal(native_take(trace, EVENT_REALLOC, 1, 0x1000), 0);
	assert_int_equal(native_put(trace, EVENT_REALLOC_DONE, 1, 0x3000, 900), 0);
	assert_int_equal(feed_put(trace, EVENT_REALLOC_DONE, 1, 0x3000, 900, STACK), 0);
	for (int layer = 0; layer < EVENT_LAYER_TABLES; layer++) {
		assert_int_equal(table_of(trace, layer)->live_bytes, 900);
		assert_int_equal(table_of(trace, layer)->live_blocks, 1);
		assert_int_equal(table_of(trace, layer)->frees_unknown, 0);
	}
	assert_int_equal(native_take(trace, EVENT_REALLOC, 1, 0x3000), 0);
	assert_int_equal(native_take(trace, EVENT_REALLOC_FAIL, 1, 0x3000), 0);
	assert_int_equal(table_of(trace, EVENT_LAYER_NATIVE)->live_bytes, 900);
	/* realloc(block, 0): no event follows. */
	assert_int_equal(native_take(trace, EVENT_REALLOC, 1, 0x3000), 0);
	assert_int_equal(native_put(trace, EVENT_ALLOC, 1, 0x3000, 10), 0);
	assert_int_equal(table_of(trace, EVENT_LAYER_NATIVE)->live_bytes, 10);
	assert_int_equal(table_of(trace, EVENT_LAYER_NATIVE)->replaced, 0);
}

/* operator delete, and the free that it calls. */
static void test_freed_twice(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(native_put(trace, EVENT_ALLOC, 1, 0x1000, 8), 0);
	assert_int_equal(native_take(trace, EVENT_FREE, 1, 0x1000), 0);
	assert_int_equal(native_take(trace, EVENT_FREE, 1, 0x1000), 0);
	assert_int_equal(table_of(trace, EVENT_LAYER_NATIVE)->frees, 1);
	assert_int_equal(table_of(trace, EVENT_LAYER_NATIVE)->frees_unknown, 0);
	/*
	 * A free by another thread is no such duplicate, nor is one after the address was reused.
	 */
	assert_int_equal(native_take(trace, EVENT_FREE, 2, 0x1000), 0);
	assert_int_equal(table_of(trace, EVENT_LAYER_NATIVE)->frees_unknown, 1);
	assert_int_equal(native_put(trace, EVENT_ALLOC, 2, 0x1000, 8), 0);
	assert_int_equal(native_take(trace, EVENT_FREE, 1, 0x1000), 0);
	assert_int_equal(table_of(trace, EVENT_LAYER_NATIVE)->live_blocks, 0);
}

static struct trace_traceback traceback_of(struct trace *trace)
{
	size_t cursor = 0;
	const struct block *block =
		blocks_next(trace_blocks(trace, 0, EVENT_LAYER_NATIVE), &cursor);

	return trace_traceback_at(trace, 0, block->stack);
}

static const char *function_at(struct trace *trace, uint32_t frame)
{
	return strings_get(trace_strings(trace, 0), traceback_of(trace).frames[frame].function);
}

static void test_names(void **state)
{
	static const char *const inlined[] = {"inner", "outer"}, *const last[] = {"main"};
	static const uint64_t addresses[] = {0x400100, 0x400200, 0x400300};
	struct trace *trace = *state;
	struct snapshot *snapshot;
	size_t cursor = 0;
	uint64_t address;

	assert_int_equal(feed_native_stack(trace, STACK, addresses, 3, EVENT_STACK_CUT), 0);
	assert_int_equal(native_put(trace, EVENT_ALLOC, 1, 0x1000, 8), 0);
	assert_string_equal(function_at(trace, 0), "0x400100");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(trace_unnamed_next(trace, 0, &cursor, &address), 1);
		assert_int_equal(address, addresses[i]);
	}
	assert_int_equal(trace_unnamed_next(trace, 0, &cursor, &address), 0);
	assert_int_equal(feed_symbol(trace, 0x400100, inlined, 2, "a.c"), 0);
	assert_int_equal(feed_symbol_of(trace, 0x400300, last, 1, "b.c", "/b.so", 0), 0);
	cursor = 0;
	assert_int_equal(trace_unnamed_next(trace, 0, &cursor, &address), 1);
	assert_int_equal(address, 0x400200);
	struct trace_traceback traceback = traceback_of(trace);
	/* Inlined frames count, within the limit of 4. */
	assert_int_equal(traceback.nframe, 4);
	assert_int_equal(traceback.total, 4);
	assert_string_equal(function_at(trace, 0), "inner");
	assert_string_equal(function_at(trace, 1), "outer");
	assert_int_equal(traceback_of(trace).frames[1].line, 2);
	assert_string_equal(function_at(trace, 2), "0x400200");
	assert_string_equal(function_at(trace, 3), "main");
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.layer, EVENT_LAYER_NATIVE);
	assert_int_equal(snapshot->meta.frames_unnamed, 1);
	assert_int_equal(stack_ends_cut_count(&snapshot->meta.stack_ends), 1);
	/* The file that was mapped, not the source that the frame is of. */
	assert_string_equal(snapshot->meta.stack_ends.files[0].path, "/b.so");
	assert_int_equal(snapshot->meta.stack_ends.cut_bytes, snapshot->traces[0].bytes);
	assert_int_equal(snapshot->meta.stack_ends.whole_bytes, 0);
	snapshot_free(snapshot);
	/* A name that only states the place in the file counts as unnamed. */
	assert_int_equal(
		feed_symbol(trace, 0x400200, (const char *const[]){"[a.so+0x200]"}, 1, "a.so"), 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.frames_unnamed, 1);
	assert_int_equal(snapshot->meta.frames_slow, 0);
	snapshot_free(snapshot);
}

/* Frames have the binary that their address is in; what is no binary is refused. */
static void test_binaries(void **state)
{
	static const uint64_t addresses[] = {0x400100, 0x400200, 0x400300};
	struct event_symbol_binary binary = {
		.start = 0x1000, .limit = 0x3000, .offset = 0x800, .build_id_bytes = 4};
	const struct snapshot_binary *found;
	struct trace *trace = *state;
	struct snapshot *snapshot;

	assert_int_equal(feed_native_stack(trace, STACK, addresses, 3, EVENT_STACK_CUT), 0);
	assert_int_equal(native_put(trace, EVENT_ALLOC, 1, 0x1000, 8), 0);
	assert_int_equal(feed_symbol_binary(trace, 0x400100, "f", "/a.so", &binary, "12ab"), 0);
	assert_int_equal(feed_symbol_binary(trace, 0x400200, "g", "/a.so", &binary, "12ab"), 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->binary_count, 1);
	found = snapshot_binary(snapshot, &snapshot->frames[1]);
	assert_ptr_equal(found, snapshot_binary(snapshot, &snapshot->frames[0]));
	assert_string_equal(strings_get(snapshot->strings, found->path), "/a.so");
	assert_string_equal(strings_get(snapshot->strings, found->build_id), "12ab");
	assert_int_equal(found->start, 0x1000);
	assert_int_equal(found->limit, 0x3000);
	assert_int_equal(found->offset, 0x800);
	assert_null(snapshot_binary(snapshot, &snapshot->frames[2]));
	assert_int_equal(snapshot->frames[2].native, SNAPSHOT_NATIVE);
	snapshot_free(snapshot);
	assert_int_equal(feed_symbol_binary(trace, 0x400300, "h", "/a.so", &binary, "12g4"),
			 -EBADMSG);
	binary.build_id_bytes = 64; /* exceeds the record */
	assert_int_equal(feed_symbol_binary(trace, 0x400300, "h", "/a.so", &binary, "12ab"),
			 -EBADMSG);
	binary.build_id_bytes = 0;
	binary.limit = binary.start;
	assert_int_equal(feed_symbol_binary(trace, 0x400300, "h", "/a.so", &binary, ""), -EBADMSG);
}

/* A walk that went on behind Python's frames was cut there, in the second library. */
static void test_file_that_cuts(void **state)
{
	static const char *const names[] = {"f"};
	static const uint64_t addresses[] = {0x400100, 7, 0x400200, 8};
	struct trace *trace = *state;
	struct snapshot *snapshot;

	assert_int_equal(feed_native_stack(trace, STACK, addresses, 4, EVENT_STACK_CUT), 0);
	assert_int_equal(native_put(trace, EVENT_ALLOC, 1, 0x1000, 8), 0);
	assert_int_equal(feed_symbol(trace, 0x400100, names, 1, "/first.so"), 0);
	assert_int_equal(feed_symbol(trace, 0x400200, names, 1, "/second.so"), 0);
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_string_equal(snapshot->meta.stack_ends.files[0].path, "/second.so");
	assert_int_equal(snapshot->meta.stack_ends.files[0].stacks, 1);
	snapshot_free(snapshot);
}

/* A preliminary name is kept until a better one arrives. */
static void test_slow_names(void **state)
{
	struct trace *trace = *state;
	struct snapshot *snapshot;
	size_t cursor = 0;
	uint64_t address;

	assert_int_equal(feed_native_stack(trace, STACK, (const uint64_t[]){0x400100}, 1, 0), 0);
	assert_int_equal(native_put(trace, EVENT_ALLOC, 1, 0x1000, 8), 0);
	assert_int_equal(feed_symbol_flags(trace, 0x400100, (const char *const[]){"main"}, 1,
					   "a.out", EVENT_SYMBOL_SLOW),
			 0);
	assert_string_equal(function_at(trace, 0), "main");
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.frames_unnamed, 0);
	assert_int_equal(snapshot->meta.frames_slow, 1);
	snapshot_free(snapshot);
	assert_int_equal(trace_unnamed_next(trace, 0, &cursor, &address), 1);
	assert_int_equal(
		feed_symbol(trace, 0x400100, (const char *const[]){"inner", "main"}, 2, "a.c"), 0);
	assert_string_equal(function_at(trace, 0), "inner");
	assert_int_equal(trace_snapshot(trace, 0, 0, &snapshot), 0);
	assert_int_equal(snapshot->meta.frames_slow, 0);
	snapshot_free(snapshot);
	cursor = 0;
	assert_int_equal(trace_unnamed_next(trace, 0, &cursor, &address), 0);
}

/* Inlined functions push the outer frames beyond the limit: the total still counts them. */
static void test_limit(void **state)
{
	static const char *const inlined[] = {"a", "b", "c"};
	static const uint64_t addresses[] = {0x400100, 0x400200};
	struct trace *trace = *state;

	assert_int_equal(feed_native_stack(trace, STACK, addresses, 2, 0), 0);
	assert_int_equal(native_put(trace, EVENT_ALLOC, 1, 0x1000, 8), 0);
	assert_int_equal(feed_symbol(trace, 0x400100, inlined, 3, "a.c"), 0);
	assert_int_equal(feed_symbol(trace, 0x400200, inlined, 3, "a.c"), 0);
	assert_int_equal(traceback_of(trace).nframe, 4);
	assert_int_equal(traceback_of(trace).total, 6);
}

static void test_malformed(void **state)
{
	struct trace *trace = *state;
	unsigned char data[sizeof(struct event_symbol) + 64] = {0};
	struct event_symbol *event = (void *)data;
	struct event_symbol_frame *frame = (void *)event->data;

	event->header = header_of(EVENT_SYMBOL, sizeof(data));
	event->address = 1;
	event->count = EVENT_MAX_FRAMES + 1;
	assert_int_equal(trace_feed(trace, event, sizeof(data)), -EBADMSG);
	event->count = 1;
	frame->function_bytes = 57; /* exceeds the record */
	assert_int_equal(trace_feed(trace, event, sizeof(data)), -EBADMSG);
	frame->function_bytes = 8; /* NULs */
	assert_int_equal(trace_feed(trace, event, sizeof(data)), -EBADMSG);
	event->count = 12; /* more than the record holds */
	frame->function_bytes = 0;
	assert_int_equal(trace_feed(trace, event, sizeof(data)), -EBADMSG);
	event->count = 8;
	assert_int_equal(trace_feed(trace, event, sizeof(data)), 0);
}

/* Mapped memory alone, and captures from before layers were recorded. */
static void test_layers_of_modes(void **state)
{
	static const struct {
		uint32_t mode, version, layers;
	} cases[] = {
		{EVENT_MODE_CENSUS, 0x030b02f0, 1u << EVENT_LAYER_PYTHON},
		{EVENT_MODE_GROWTH | EVENT_MODE_MAPPED, 0x030b02f0,
		 1u << EVENT_LAYER_PYTHON | 1u << EVENT_LAYER_MMAP},
		{EVENT_MODE_EXACT | EVENT_MODE_MAPPED, 0, 1u << EVENT_LAYER_MMAP},
		{EVENT_MODE_EXACT | EVENT_MODE_NATIVE | EVENT_MODE_MAPPED, 0x030b02f0,
		 1u << EVENT_LAYER_NATIVE | 1u << EVENT_LAYER_MMAP},
		{EVENT_MODE_CENSUS | EVENT_MODE_PYTHON | EVENT_MODE_NATIVE, 0x030b02f0,
		 1u << EVENT_LAYER_PYTHON | 1u << EVENT_LAYER_NATIVE},
	};
	struct trace *trace = *state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct snapshot *snapshot;

		assert_int_equal(feed_target(trace, cases[i].mode, cases[i].version), 0);
		assert_int_equal(trace_process_at(trace, i + 1)->layers, cases[i].layers);
		assert_int_equal(trace_snapshot(trace, i + 1, 0, &snapshot), 0);
		for (int layer = 0; layer < EVENT_LAYERS; layer++)
			assert_int_equal(snapshot_has_layer(snapshot, layer),
					 cases[i].layers >> layer & 1);
		snapshot_free(snapshot);
	}
}

static void test_clear(void **state)
{
	struct trace *trace = *state;

	assert_int_equal(native_put(trace, EVENT_ALLOC, 1, 0x1000, 8), 0);
	assert_int_equal(native_put(trace, EVENT_ALLOC, 1, 0x2000, 8), 0);
	assert_int_equal(native_take(trace, EVENT_REALLOC, 1, 0x2000), 0);
	assert_int_equal(feed_mark(trace, EVENT_CLEAR), 0);
	assert_int_equal(table_of(trace, EVENT_LAYER_NATIVE)->live_blocks, 0);
	assert_int_equal(native_take(trace, EVENT_REALLOC_FAIL, 1, 0x2000), 0);
	assert_int_equal(table_of(trace, EVENT_LAYER_NATIVE)->live_blocks, 0);
}

int main(void)
{
#define BOTH(name)   cmocka_unit_test_setup_teardown(name, setup_both, teardown)
#define NATIVE(name) cmocka_unit_test_setup_teardown(name, setup_native, teardown)
	const struct CMUnitTest tests[] = {
		BOTH(test_tables_apart), BOTH(test_reallocs_apart),   BOTH(test_freed_twice),
		NATIVE(test_names),      NATIVE(test_file_that_cuts), NATIVE(test_limit),
		NATIVE(test_malformed),  BOTH(test_layers_of_modes),  NATIVE(test_clear),
		NATIVE(test_slow_names), NATIVE(test_binaries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
