/* SPDX-License-Identifier: Apache-2.0 */
/* Matches a user's text against containers, and formats container names. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proc/container/container_list.h"
#include "util/array.h"
#include "util/error.h"

#define LISTED_BYTES 150 /* names of candidates in a message; a message holds 255 bytes */
#define SHORT_ID     12

enum rank { RANK_NONE, RANK_PREFIX, RANK_CLAIMED, RANK_NAME, RANK_ID };

/* The parsed text: [NAMESPACE/][POD/]NAME, or pod/[NAMESPACE/]POD. */
struct container_wanted {
	char copy[CONTAINER_LABEL_SIZE];
	const char *namespace, *pod, *name; /* NULL: not given; a NULL name selects a whole pod */
	int whole_names;
};

const char *container_runtime_name(enum container_runtime runtime)
{
	static const char *const names[] = {
		[CONTAINER_RUNTIME_UNKNOWN] = "",
		[CONTAINER_RUNTIME_DOCKER] = "docker",
		[CONTAINER_RUNTIME_PODMAN] = "podman",
		[CONTAINER_RUNTIME_CONTAINERD] = "containerd",
		[CONTAINER_RUNTIME_CRIO] = "cri-o",
	};

	return (size_t)runtime < ARRAY_SIZE(names) ? names[runtime] : "";
}

const char *container_label(const struct container *container, char out[CONTAINER_LABEL_SIZE])
{
	if (container->pod[0])
		snprintf(out, CONTAINER_LABEL_SIZE, "%.127s/%.200s/%.180s",
			 container->pod_namespace, container->pod,
			 container->sandbox ? "(sandbox)" : container->name);
	else if (container->name[0])
		snprintf(out, CONTAINER_LABEL_SIZE, "%s", container->name);
	else
		snprintf(out, CONTAINER_LABEL_SIZE, "%.*s", SHORT_ID, container->id);
	return out;
}

static int wanted_parse(struct container_wanted *wanted, const char *text)
{
	char *parts[4], *state = wanted->copy;
	size_t count = 0;

	if (strlen(text) >= sizeof(wanted->copy))
		return -EINVAL;
	strcpy(wanted->copy, text);
	while (count < 4 && (parts[count] = strsep(&state, "/"))) {
		if (!parts[count][0])
			return -EINVAL;
		count++;
	}
	if (!count || count == 4)
		return -EINVAL;
	wanted->name = wanted->pod = wanted->namespace = NULL;
	if (count > 1 && !strcmp(parts[0], "pod")) {
		wanted->pod = parts[count - 1];
		wanted->namespace = count == 3 ? parts[1] : NULL;
		return 0;
	}
	wanted->name = parts[count - 1];
	wanted->pod = count > 1 ? parts[count - 2] : NULL;
	wanted->namespace = count > 2 ? parts[0] : NULL;
	return 0;
}

static enum rank text_rank(const char *text, const char *wanted, enum rank whole)
{
	if (strncmp(text, wanted, strlen(wanted)))
		return RANK_NONE;
	return strlen(text) == strlen(wanted) ? whole : RANK_PREFIX;
}

static enum rank name_rank(const char *text, const char *name,
			   const struct container_wanted *wanted)
{
	enum rank rank = text[0] ? text_rank(text, name, RANK_NAME) : RANK_NONE;

	return rank == RANK_PREFIX && wanted->whole_names ? RANK_NONE : rank;
}

/* An id that the container's owner may have chosen freely: it ranks below names. */
static bool id_is_claimed(const struct container *container)
{
	return container->owner.uid &&
	       (!container->cgroup.path || strlen(container->id) != CGROUP_ID_SIZE - 1);
}

static enum rank container_rank(const struct container *container,
				const struct container_wanted *wanted)
{
	if (wanted->namespace && strcmp(wanted->namespace, container->pod_namespace) != 0)
		return RANK_NONE;
	if (!wanted->name)
		return container->sandbox ? RANK_NONE
					  : name_rank(container->pod, wanted->pod, wanted);
	/* containerd's "NAMESPACE/ID" looks like "POD/NAME". */
	if (wanted->pod && strcmp(wanted->pod, container->pod) != 0 &&
	    (wanted->namespace || strcmp(wanted->pod, container->namespace) != 0))
		return RANK_NONE;
	enum rank id = text_rank(container->id, wanted->name,
				 id_is_claimed(container) ? RANK_CLAIMED : RANK_ID);
	enum rank name =
		container->sandbox ? RANK_NONE : name_rank(container->name, wanted->name, wanted);
	return id > name ? id : name;
}

static bool is_same_pod(const struct container *a, const struct container *b)
{
	return !strcmp(a->pod, b->pod) && !strcmp(a->pod_namespace, b->pod_namespace) &&
	       container_owner_is(&a->owner, &b->owner);
}

/* The names of containers for a message: as many as fit, and the number of the others. */
struct listed {
	char text[LISTED_BYTES];
	size_t length, left_out;
};

static void listed_add(struct listed *listed, const struct container *container)
{
	char label[CONTAINER_LABEL_SIZE];
	char entry[CONTAINER_LABEL_SIZE + 64];
	const char *runtime = container_runtime_name(container->runtime);
	char user[32] = "";

	if (container->owner.uid)
		snprintf(user, sizeof(user), " of user %u", container->owner.uid);
	int length = snprintf(entry, sizeof(entry), "%s%s (%s%s%.*s%s%s)",
			      listed->length ? ", " : "", container_label(container, label),
			      runtime, runtime[0] ? " " : "", SHORT_ID, container->id, user,
			      container->init_pid ? "" : ", does not run");

	if (listed->left_out || listed->length + (size_t)length >= sizeof(listed->text) - 16) {
		listed->left_out++;
		return;
	}
	memcpy(listed->text + listed->length, entry, (size_t)length + 1);
	listed->length += (size_t)length;
}

static const char *listed_text(struct listed *listed)
{
	if (listed->left_out)
		snprintf(listed->text + listed->length, sizeof(listed->text) - listed->length,
			 "%s%zu %s", listed->length ? " and " : "", listed->left_out,
			 listed->length ? "more" : "not listed");
	return listed->text;
}

static bool is_listed(const struct container *container)
{
	return container->init_pid && !container->sandbox;
}

/*
 * The length of the common prefix with the wanted name: the longer, the more likely a match was
 * intended.
 */
static size_t likeness(const struct container *container, const struct container_wanted *wanted)
{
	const char *name = wanted->name ? container->name : container->pod;
	const char *text = wanted->name ? wanted->name : wanted->pod;
	size_t bytes = 0;

	while (text[bytes] && name[bytes] == text[bytes])
		bytes++;
	return bytes;
}

/* Lists running containers, the most similar name first. */
static void candidates_list(const struct container_list *list,
			    const struct container_wanted *wanted, struct listed *listed)
{
	size_t most = 0;

	for (size_t i = 0; i < list->count; i++)
		if (is_listed(&list->entries[i]) && likeness(&list->entries[i], wanted) > most)
			most = likeness(&list->entries[i], wanted);
	for (int first = 1; first >= 0; first--)
		for (size_t i = 0; i < list->count; i++)
			if (is_listed(&list->entries[i]) &&
			    (likeness(&list->entries[i], wanted) == most) == first)
				listed_add(listed, &list->entries[i]);
}

static int none_explain(const struct container_list *list, const struct container_wanted *wanted)
{
	struct listed listed = {0};
	const char *caveat = list->caveat;
	char label[CONTAINER_LABEL_SIZE];

	for (size_t i = 0; i < list->count; i++) {
		const struct container *stopped = &list->entries[i];

		if (!stopped->init_pid && container_rank(stopped, wanted) > RANK_PREFIX)
			return error_set(-ENOENT, "%.150s (%s) does not run",
					 container_label(stopped, label),
					 container_runtime_name(stopped->runtime));
	}
	candidates_list(list, wanted, &listed);
	if (caveat[0])
		return error_set(-ENOENT, "no container with this name or ID is visible: %.200s",
				 caveat);
	if (!listed.length && !listed.left_out)
		return error_set(-ENOENT, "no container is running");
	return error_set(-ENOENT, "no running container has this name or ID; running: %s",
			 listed_text(&listed));
}

static int several_explain(const struct container_choice *choice)
{
	struct listed listed = {0};

	for (size_t i = 0; i < choice->count; i++)
		listed_add(&listed, choice->entries[i]);
	return error_set(-EEXIST, "it matches %zu containers: %s", choice->count,
			 listed_text(&listed));
}

/* Can a single text mean all of them: one container, or the containers of one pod? */
static bool is_unambiguous(const struct container_choice *choice, int whole_pod)
{
	for (size_t i = 1; i < choice->count; i++)
		if (!whole_pod || !is_same_pod(choice->entries[0], choice->entries[i]))
			return 0;
	return 1;
}

/*
 * Adds containers of other owners that match the text by exact name or id, so that the choice is
 * reported as ambiguous. Containers of root count even when they do not run: another user who takes
 * the name meanwhile must not be chosen.
 */
static void others_add(const struct container_list *list, const struct container_wanted *wanted,
		       struct container_choice *choice)
{
	const struct container_owner *owner = &choice->entries[0]->owner;

	for (size_t i = 0, chosen = choice->count; i < list->count; i++) {
		const struct container *other = &list->entries[i];
		size_t k = 0;

		if ((!other->init_pid && other->owner.uid) ||
		    container_owner_is(&other->owner, owner) ||
		    container_rank(other, wanted) < RANK_NAME)
			continue;
		while (k < chosen && choice->entries[k] != other)
			k++;
		if (k == chosen)
			choice->entries[choice->count++] = other;
	}
}

int container_choose(const struct container_list *list, const char *text, int whole_names,
		     struct container_choice *out)
{
	struct container_choice choice = {0};
	struct container_wanted wanted = {.whole_names = whole_names};
	enum rank best = RANK_PREFIX;
	int err = 0;

	error_clear();
	if (wanted_parse(&wanted, text))
		return error_set(-ENOENT, "not the name of a container: use NAME, ID, POD/NAME, "
					  "NAMESPACE/POD/NAME or pod/POD");
	choice.entries = calloc(list->count + 1, sizeof(*choice.entries));
	if (!choice.entries)
		return -ENOMEM;
	for (size_t i = 0; i < list->count; i++) {
		enum rank rank = container_rank(&list->entries[i], &wanted);

		if (rank < best || !list->entries[i].init_pid)
			continue;
		if (rank > best)
			choice.count = 0;
		best = rank;
		choice.entries[choice.count++] = &list->entries[i];
	}
	choice.exact = best > RANK_PREFIX;
	if (choice.count && choice.exact)
		others_add(list, &wanted, &choice);
	if (!choice.count)
		err = none_explain(list, &wanted);
	else if (!is_unambiguous(&choice, !wanted.name))
		err = several_explain(&choice);
	if (err)
		free(choice.entries);
	else
		*out = choice;
	return err;
}
