/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/options/presets.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "util/array.h"
#include "util/error.h"

/* A name that ends in ":" takes a key, which is appended to the path. docs/reports.md, "Presets" */
static const struct preset {
	const char *name;
	enum abi_label_source source;
	const char *path;
} presets[] = {
	{"otel-trace", ABI_LABEL_CONTEXT, "current_context.current-span-*._context.0:032x"},
	{"otel-span", ABI_LABEL_CONTEXT, "current_context.current-span-*._context.1:016x"},
	{"otel-name", ABI_LABEL_CONTEXT, "current_context.current-span-*._name"},
	{"django", ABI_LABEL_LOCAL, "get_response:request.path"},
	{"django-view", ABI_LABEL_LOCAL, "_get_response:request.resolver_match.view_name"},
	{"flask", ABI_LABEL_CONTEXT, "flask.request_ctx.request.path"},
	{"flask-endpoint", ABI_LABEL_CONTEXT, "flask.request_ctx.request.url_rule.endpoint"},
	{"starlette", ABI_LABEL_LOCAL, "__call__:scope.path"},
	{"fastapi", ABI_LABEL_LOCAL, "__call__:scope.path"},
	{"structlog:", ABI_LABEL_CONTEXT, "structlog_"},
	{"celery", ABI_LABEL_LOCAL, "fast_trace_task:uuid"},
	{"celery-task", ABI_LABEL_LOCAL, "fast_trace_task:task"},
	{"rq", ABI_LABEL_LOCAL, "perform_job:job._id"},
	{"rq-function", ABI_LABEL_LOCAL, "perform_job:job._func_name"},
};

int presets_parse(const char *word, struct label_spec *out)
{
	size_t name = strcspn(word, ":"), bytes = name + (word[name] == ':');

	for (size_t i = 0; i < ARRAY_SIZE(presets); i++) {
		const struct preset *preset = &presets[i];
		size_t length = strlen(preset->name);
		bool takes_key = preset->name[length - 1] == ':';
		char path[LABEL_TEXT];

		if (length - takes_key != name || strncmp(preset->name, word, name))
			continue;
		if (takes_key != (word[name] == ':') || (takes_key && !word[bytes]))
			return error_set(-EINVAL,
					 takes_key ? "\"%s\" is not %sKEY"
						   : "\"%s\" is %s, which takes no key",
					 word, preset->name);
		if ((size_t)snprintf(path, sizeof(path), "%s%s", preset->path, word + bytes) >=
		    sizeof(path))
			return error_set(-EINVAL, "it has more than %u bytes", LABEL_TEXT - 1);
		return label_spec_parse(preset->source, path, out);
	}
	return -ENOENT;
}
