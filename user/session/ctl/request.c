/* SPDX-License-Identifier: Apache-2.0 */
#include "session/ctl/request.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "snapshot/snapshot.h"
#include "util/array.h"
#include "util/error.h"

static const char *const by_names[] = {
	[REQUEST_BY_THREAD] = "threads", [REQUEST_BY_TASK] = "tasks", [REQUEST_BY_AGE] = "ages"};

static const char *const names[] = {
	[REQUEST_STATUS] = "status", [REQUEST_SNAPSHOT] = "snapshot",
	[REQUEST_CLEAR] = "clear",   [REQUEST_RESET_PEAK] = "reset-peak",
	[REQUEST_LOOKUP] = "lookup", [REQUEST_STOP] = "stop",
	[REQUEST_BLOCKS] = "blocks", [REQUEST_SUMS] = "sums",
	[REQUEST_STACKS] = "stacks",
};

int request_kind_of(const char *name, enum request_kind *kind)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(name, names[i])) {
			*kind = i;
			return 0;
		}
	}
	return -EINVAL;
}

static int number_take(const json_t *object, const char *key, uint64_t high, uint64_t *out)
{
	const json_t *target = json_object_get(object, key);
	json_int_t value = json_integer_value(target);

	if (!json_is_integer(target) || value <= 0 || (uint64_t)value > high)
		return error_set(-EINVAL, "\"%s\" is not a number from 1 to %" PRIu64, key, high);
	*out = (uint64_t)value;
	return 0;
}

/* The targets of REQUEST_SUMS and REQUEST_STACKS, all optional. */
static int sums_take(const json_t *object, struct request *out)
{
	const char *name = json_string_value(json_object_get(object, "layer"));
	int layer = name ? event_layer_find(name) : -1;
	const struct {
		const char *key;
		uint32_t *to;
	} numbers[] = {{"first", &out->first},
		       {"strings", &out->strings},
		       {"since", &out->since},
		       {"older_ms", &out->older_ms},
		       {"younger_ms", &out->younger_ms}};
	int err = 0;

	if (name && layer < 0)
		return error_set(-EINVAL, "\"layer\" is none of python, native, mmap and pages");
	out->layer = (uint32_t)(layer + 1);
	for (size_t i = 0; !err && i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		uint64_t number = 0;

		if (json_object_get(object, numbers[i].key))
			err = number_take(object, numbers[i].key, UINT32_MAX, &number);
		*numbers[i].to = (uint32_t)number;
	}
	for (size_t i = REQUEST_BY_THREAD; i < ARRAY_SIZE(by_names); i++)
		if (out->kind == REQUEST_SUMS && json_is_true(json_object_get(object, by_names[i])))
			out->by = (enum request_by)i;
	return err;
}

static int object_take(const json_t *object, struct request *out)
{
	const char *name = json_string_value(json_object_get(object, "request"));
	uint64_t pid;
	int err;

	if (!name || request_kind_of(name, &out->kind))
		return error_set(-EINVAL, "\"request\" is none of status, snapshot, blocks, clear, "
					  "reset-peak, lookup, stop, sums and stacks");
	if (json_object_get(object, "pid")) {
		err = number_take(object, "pid", INT32_MAX, &pid);
		if (err)
			return err;
		out->pid = (uint32_t)pid;
	}
	out->all = out->kind == REQUEST_SNAPSHOT && json_is_true(json_object_get(object, "all"));
	out->ages = out->kind == REQUEST_SNAPSHOT && json_is_true(json_object_get(object, "ages"));
	out->running = out->all && json_is_true(json_object_get(object, "running"));
	if (out->kind == REQUEST_SUMS || out->kind == REQUEST_STACKS)
		return sums_take(object, out);
	return out->kind == REQUEST_LOOKUP
		       ? number_take(object, "address", INT64_MAX, &out->address)
		       : 0;
}

int request_parse(const char *line, size_t bytes, struct request *out)
{
	struct request request = {0};
	json_error_t why;
	json_t *object = bytes < REQUEST_BYTES
				 ? json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &why)
				 : NULL;
	int err = -EBADMSG;

	/* Do not report jansson's message: it quotes the input. */
	if (!json_is_object(object))
		error_set(err, "not a JSON object");
	else
		err = object_take(object, &request);
	json_decref(object);
	if (!err)
		*out = request;
	return err;
}

size_t request_print(char *text, const struct request *request)
{
	int size = snprintf(text, REQUEST_BYTES, "{\"request\": \"%s\"", names[request->kind]);

	if (request->pid)
		size += snprintf(text + size, REQUEST_BYTES - size, ", \"pid\": %" PRIu32,
				 request->pid);
	if (request->kind == REQUEST_LOOKUP)
		size += snprintf(text + size, REQUEST_BYTES - size, ", \"address\": %" PRIu64,
				 request->address);
	if (request->layer)
		size += snprintf(text + size, REQUEST_BYTES - size, ", \"layer\": \"%s\"",
				 event_layer_name(request->layer - 1));
	if (request->first)
		size += snprintf(text + size, REQUEST_BYTES - size, ", \"first\": %" PRIu32,
				 request->first);
	if (request->strings)
		size += snprintf(text + size, REQUEST_BYTES - size, ", \"strings\": %" PRIu32,
				 request->strings);
	if (request->since)
		size += snprintf(text + size, REQUEST_BYTES - size, ", \"since\": %" PRIu32,
				 request->since);
	if (request->by != REQUEST_BY_STACK)
		size += snprintf(text + size, REQUEST_BYTES - size, ", \"%s\": true",
				 by_names[request->by]);
	if (request->all)
		size += snprintf(text + size, REQUEST_BYTES - size, ", \"all\": true");
	if (request->running)
		size += snprintf(text + size, REQUEST_BYTES - size, ", \"running\": true");
	if (request->older_ms)
		size += snprintf(text + size, REQUEST_BYTES - size, ", \"older_ms\": %" PRIu32,
				 request->older_ms);
	if (request->younger_ms)
		size += snprintf(text + size, REQUEST_BYTES - size, ", \"younger_ms\": %" PRIu32,
				 request->younger_ms);
	if (request->ages)
		size += snprintf(text + size, REQUEST_BYTES - size, ", \"ages\": true");
	return (size_t)(size + snprintf(text + size, REQUEST_BYTES - size, "}\n"));
}
