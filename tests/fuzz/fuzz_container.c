/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of container runtimes: the first byte selects the runtime, the rest is the file, the
 * response or the monitor's arguments.
 */
#include <stdlib.h>
#include <string.h>

#include "proc/container/container_list.h"

#define PATH 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void container_check(const struct container *found)
{
	if (strnlen(found->id, CONTAINER_ID_SIZE) == CONTAINER_ID_SIZE ||
	    strnlen(found->name, CONTAINER_NAME_SIZE) == CONTAINER_NAME_SIZE ||
	    strnlen(found->pod, CONTAINER_NAME_SIZE) == CONTAINER_NAME_SIZE ||
	    strnlen(found->pod_namespace, CONTAINER_NAMESPACE_SIZE) == CONTAINER_NAMESPACE_SIZE)
		abort();
}

static void list_check(struct container_list *list, const char *text)
{
	struct container_choice choice;

	for (size_t i = 0; i < list->count; i++) {
		container_check(&list->entries[i]);
		if (!container_id_is_valid(list->entries[i].id))
			abort();
		list->entries[i].init_pid = 1;
	}
	if (!container_choose(list, text, 0, &choice))
		free(choice.entries);
	container_list_free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct container found = {0};
	struct container_list list = {0};
	char pid_file[PATH], storage[PATH];
	char *text;
	json_t *json;

	if (!size)
		return 0;
	text = malloc(size);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	json = json_loadb(text, size - 1, 0, NULL);
	switch (data[0] % 7) {
	case 0:
		if (json && !container_docker_parse(json, &found) &&
		    !container_id_is_valid(found.id))
			abort();
		break;
	case 1:
		container_docker_answer(&list, text, size - 1);
		break;
	case 2:
		if (json)
			container_podman_index(&list, json);
		break;
	case 3:
		if (json) {
			container_containerd_parse(json, &found);
			container_kubernetes_tags(json, json, &found.tags);
			container_is_tagged(&list, &found, CONTAINER_LABEL, text);
			buffer_free(&found.tags);
		}
		break;
	case 4:
		container_conmon_parse(text, size, &found, pid_file, storage, PATH);
		break;
	case 5:
		container_kubernetes_name(text, &found);
		break;
	default:
		container_kubernetes_log(text, &found);
		break;
	}
	container_check(&found);
	list_check(&list, text);
	json_decref(json);
	free(text);
	return 0;
}
