/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kubernetes names. containerd has them in the annotations of a bundle's config.json
 * (io.kubernetes.cri.*). CRI-O and Docker have them in names that begin with "k8s_" and in labels
 * or annotations (io.kubernetes.*). For any runtime the kubelet keeps links in /var/log/containers;
 * only the link names are used.
 */
#include <errno.h>
#include <fnmatch.h>
#include <string.h>
#include <unistd.h>

#include "proc/container/container_list.h"
#include "proc/container/state_file.h"
#include "util/array.h"

#define LOGS      "/var/log/containers"
#define TAG_BYTES 1024u /* with the kind and the NUL */
#define TAGS_MAX  16384u

/* The value of the first of these keys that is present. */
static const char *text_first(const json_t *object, const char *const keys[], size_t count)
{
	const char *text = "";

	for (size_t i = 0; i < count && !text[0]; i++)
		text = state_text(object, keys[i]);
	return text;
}

void container_kubernetes_annotations(const json_t *annotations, struct container *out)
{
	static const char *const pods[] = {"io.kubernetes.cri.sandbox-name",
					   "io.kubernetes.pod.name"};
	static const char *const spaces[] = {"io.kubernetes.cri.sandbox-namespace",
					     "io.kubernetes.pod.namespace"};
	static const char *const names[] = {"io.kubernetes.cri.container-name",
					    "io.kubernetes.container.name"};
	static const char *const kinds[] = {"io.kubernetes.cri.container-type",
					    "io.kubernetes.cri-o.ContainerType",
					    "io.kubernetes.docker.type"};
	const char *kind = text_first(annotations, kinds, 3);
	const char *pod = text_first(annotations, pods, 2);

	if (!pod[0])
		return;
	container_text_set(out->pod, sizeof(out->pod), pod);
	container_text_set(out->pod_namespace, sizeof(out->pod_namespace),
			   text_first(annotations, spaces, 2));
	container_text_set(out->name, sizeof(out->name), text_first(annotations, names, 2));
	out->sandbox = !strcmp(kind, "sandbox") || !strcmp(kind, "podsandbox");
}

/* --- labels and annotations ------------------------------------------------------------------- */

/* A tag is a byte for its kind, "KEY=VALUE" and NUL. */
static const char tag_kinds[] = {[CONTAINER_LABEL] = 'l', [CONTAINER_ANNOTATION] = 'a'};

static int tag_append(struct buffer *out, enum container_tag kind, const char *key,
		      const char *value)
{
	size_t bytes = strlen(key) + strlen(value) + 3;

	if (bytes > TAG_BYTES || out->size + bytes > TAGS_MAX)
		return 0;
	return buffer_append(out, &tag_kinds[kind], 1)
		       ?: buffer_append(out, key, strlen(key))
		       ?: buffer_append(out, "=", 1)
		       ?: buffer_append(out, value, strlen(value) + 1);
}

static int tags_append(struct buffer *out, enum container_tag kind, const json_t *object)
{
	static const char prefix[] = "annotation."; /* of annotations that are labels of Docker's */
	const char *key;
	json_t *value;
	int err = 0;

	json_object_foreach((json_t *)object, key, value)
	{
		const char *text = json_string_value(value);
		bool noted = kind == CONTAINER_LABEL && !strncmp(key, prefix, sizeof(prefix) - 1);

		if (text && !err)
			err = noted ? tag_append(out, CONTAINER_ANNOTATION,
						 key + sizeof(prefix) - 1, text)
				    : tag_append(out, kind, key, text);
	}
	return err;
}

/* An object as a JSON text, of which CRI-O's annotations have two. */
static int text_tags_append(struct buffer *out, enum container_tag kind, const char *text)
{
	json_t *object = text[0] ? json_loads(text, 0, NULL) : NULL;
	int err = tags_append(out, kind, object);

	json_decref(object);
	return err;
}

int container_kubernetes_tags(const json_t *labels, const json_t *annotations, struct buffer *out)
{
	static const struct {
		enum container_tag kind;
		const char *key;
	} texts[] = {{CONTAINER_LABEL, "io.kubernetes.cri-o.Labels"},
		     {CONTAINER_LABEL, "io.kubernetes.pod.labels"},
		     {CONTAINER_ANNOTATION, "io.kubernetes.cri-o.Annotations"}};
	int err = tags_append(out, CONTAINER_LABEL, labels);

	for (size_t i = 0; i < ARRAY_SIZE(texts) && !err; i++)
		err = text_tags_append(out, texts[i].kind, state_text(annotations, texts[i].key));
	return err ?: tags_append(out, CONTAINER_ANNOTATION, annotations);
}

static bool has_tag(const struct buffer *tags, enum container_tag kind, const char *text)
{
	const char *value = strchr(text, '=');
	size_t bytes = value ? (size_t)(value - text) + 1 : strlen(text);
	const char *at = (const char *)tags->data, *end = tags->size ? at + tags->size : at;

	for (; at < end; at += strlen(at) + 1) {
		if (at[0] != tag_kinds[kind] || strncmp(at + 1, text, bytes) != 0)
			continue;
		if (value ? !fnmatch(value + 1, at + 1 + bytes, 0) : at[1 + bytes] == '=')
			return true;
	}
	return false;
}

/* CRI-O's sandboxes have no process unless the pod shares its PID namespace. */
static bool sandbox_counts(const struct container *container)
{
	return container->sandbox &&
	       (container->init_pid || container->runtime == CONTAINER_RUNTIME_CRIO);
}

bool container_is_tagged(const struct container_list *list, const struct container *container,
			 enum container_tag kind, const char *text)
{
	if (has_tag(&container->tags, kind, text))
		return true;
	for (size_t i = 0; i < list->count && container->pod[0]; i++) {
		const struct container *sandbox = &list->entries[i];

		if (sandbox_counts(sandbox) &&
		    container_owner_is(&sandbox->owner, &container->owner) &&
		    !strcmp(sandbox->pod, container->pod) &&
		    !strcmp(sandbox->pod_namespace, container->pod_namespace) &&
		    has_tag(&sandbox->tags, kind, text))
			return true;
	}
	return false;
}

/* --- names ------------------------------------------------------------------------------------ */

int container_kubernetes_name(const char *name, struct container *out)
{
	char copy[CONTAINER_NAME_SIZE], *state = copy, *fields[6];

	if (strlen(name) >= sizeof(copy))
		return 0;
	strcpy(copy, name);
	for (int i = 0; i < 6; i++)
		fields[i] = strsep(&state, "_"); /* '_' does not occur within these names */
	if (state || !fields[5] || strcmp(fields[0], "k8s") || !fields[1][0] || !fields[2][0])
		return 0;
	container_text_set(out->name, sizeof(out->name), fields[1]);
	container_text_set(out->pod, sizeof(out->pod), fields[2]);
	container_text_set(out->pod_namespace, sizeof(out->pod_namespace), fields[3]);
	out->sandbox = !strcmp(fields[1], "POD");
	return 1;
}

int container_kubernetes_log(const char *file, struct container *out)
{
	static const char ending[] = ".log";
	const size_t digits = CGROUP_ID_SIZE - 1, tail = digits + sizeof(ending) - 1;
	char copy[CONTAINER_NAME_SIZE], *state = copy, *pod, *namespace;
	size_t bytes = strlen(file);

	if (bytes >= sizeof(copy) || bytes <= tail ||
	    strcmp(file + bytes - (sizeof(ending) - 1), ending) || file[bytes - tail - 1] != '-')
		return 0;
	memcpy(copy, file, bytes - tail - 1);
	copy[bytes - tail - 1] = '\0';
	pod = strsep(&state, "_");
	namespace = strsep(&state, "_");
	if (!state || strchr(state, '_') || !pod[0] || !state[0])
		return 0;
	memcpy(out->id, file + bytes - tail, digits);
	out->id[digits] = '\0';
	if (!container_id_is_valid(out->id))
		return 0;
	container_text_set(out->pod, sizeof(out->pod), pod);
	container_text_set(out->pod_namespace, sizeof(out->pod_namespace), namespace);
	container_text_set(out->name, sizeof(out->name), state);
	return 1;
}

/* Logs outlive their containers: they only name containers that are already in the list. */
static int log_take(void *context, int directory, const char *name)
{
	struct container_list *list = context;
	struct container found = {0};

	(void)directory;
	if (!container_kubernetes_log(name, &found) || !container_list_find(list, found.id, ""))
		return 0;
	return container_list_add(list, &found);
}

int container_kubernetes_logs(struct container_list *list, int directory)
{
	return state_dir_each(directory, log_take, list);
}

int container_kubernetes_read(struct container_list *list)
{
	int directory = state_dir_open(0, LOGS);

	if (directory < 0)
		return 0;
	int err = container_directory_is_owned(list, directory)
			  ? container_kubernetes_logs(list, directory)
			  : 0;
	close(directory);
	return err == -ENOMEM ? err : 0;
}
