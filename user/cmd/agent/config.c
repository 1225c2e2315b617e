/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/agent/config.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/options/options.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/http_client.h"
#include "util/infile.h"
#include "util/text.h"

/* How a value is read, and what is allowed. Each: 0; -EINVAL; -ENOMEM. */
typedef int parse_fn(struct config *config, char *value, size_t offset);

struct config_key {
	const char *section, *name;
	parse_fn *parse;
	size_t offset; /* of the member */
	const char *allowed;
	const char *initial; /* its default; NULL: none */
};

static int parse_flag(struct config *config, char *value, size_t offset)
{
	bool *out = (bool *)((char *)config + offset);

	*out = !strcmp(value, "yes");
	return *out || !strcmp(value, "no") ? 0 : -EINVAL;
}

static int text_set(struct config *config, const char *value, size_t offset)
{
	char **out = (char **)((char *)config + offset);

	free(*out);
	*out = strdup(value);
	return *out ? 0 : -ENOMEM;
}

/* An absolute path, or nothing. */
static int parse_path(struct config *config, char *value, size_t offset)
{
	return value[0] && value[0] != '/' ? -EINVAL : text_set(config, value, offset);
}

static int parse_number(struct config *config, char *value, size_t offset)
{
	return cli_parse_number(value, 1, 100000, (uint64_t *)((char *)config + offset));
}

static int parse_interval(struct config *config, char *value, size_t offset)
{
	return cli_parse_number(value, 1, 86400, (uint64_t *)((char *)config + offset));
}

static int parse_timeout(struct config *config, char *value, size_t offset)
{
	return cli_parse_number(value, 1, 60, (uint64_t *)((char *)config + offset));
}

static int parse_url(struct config *config, char *value, size_t offset)
{
	return value[0] && !http_url_is_valid(value) ? -EINVAL : text_set(config, value, offset);
}

static int parse_pyroscope_api(struct config *config, char *value, size_t offset)
{
	bool *out = (bool *)((char *)config + offset);

	*out = !strcmp(value, "ingest");
	return *out || !strcmp(value, "push") ? 0 : -EINVAL;
}

static int parse_bytes(struct config *config, char *value, size_t offset)
{
	uint64_t *out = (uint64_t *)((char *)config + offset);

	return cli_parse_bytes(value, out) || !*out ? -EINVAL : 0;
}

/* What the tracer parses again, as an option. */
static int word_set(struct config *config, const char *value, size_t offset)
{
	char *out = (char *)config + offset;

	if (strlen(value) >= sizeof(config->overhead))
		return -EINVAL;
	snprintf(out, sizeof(config->overhead), "%s", value);
	return 0;
}

static int parse_overhead(struct config *config, char *value, size_t offset)
{
	double percent;

	return cli_parse_percent(value, &percent) || !(percent >= 0.1) || percent > 100
		       ? -EINVAL
		       : word_set(config, value, offset);
}

static int parse_after_cpu(struct config *config, char *value, size_t offset)
{
	uint64_t ns;

	return cli_parse_pause(value, &ns) ?: word_set(config, value, offset);
}

static int parse_machine_overhead(struct config *config, char *value, size_t offset)
{
	double percent;

	return cli_parse_percent(value, &percent) || !(percent >= 0.1 || percent == 0)
		       ? -EINVAL
		       : word_set(config, value, offset);
}

static int parse_budget(struct config *config, char *value, size_t offset)
{
	uint64_t bytes;

	return cli_parse_bytes(value, &bytes) || bytes < 1 << 20 ? -EINVAL
								 : word_set(config, value, offset);
}

static int parse_memory(struct config *config, char *value, size_t offset)
{
	(void)offset;
	config->triggers = (struct triggers){0};
	return strcmp(value, "no") != 0 ? triggers_parse(value, &config->triggers) : 0;
}

static int parse_pause(struct config *config, char *value, size_t offset)
{
	return cli_parse_pause(value, (uint64_t *)((char *)config + offset));
}

/* ADDRESS:PORT, [ADDRESS]:PORT, PORT of the loopback address, or no. */
static int parse_listen(struct config *config, char *value, size_t offset)
{
	char *colon = strrchr(value, ':'), *address = colon ? value : "127.0.0.1";
	uint64_t port;

	config->http = strcmp(value, "no") != 0;
	if (!config->http)
		return text_set(config, "", offset);
	if (cli_parse_number(colon ? colon + 1 : value, 1, UINT16_MAX, &port))
		return -EINVAL;
	config->port = (uint16_t)port;
	if (colon)
		*colon = '\0';
	if (address[0] == '[' && colon[-1] == ']') {
		colon[-1] = '\0';
		address++;
	}
	return address[0] ? text_set(config, address, offset) : -EINVAL;
}

/* Words, each a target. offset: an enum target_pod, or TARGET_PODS and the others' number. */
static int parse_targets(struct config *config, char *value, size_t offset)
{
	static int (*const add[])(struct target_set * set, const char *text) = {
		target_set_container, target_set_cgroup, target_set_name};
	struct target_set *set = &config->targets;
	int err = value[0] ? 0 : -EINVAL;

	for (char *word = strtok(value, " \t"); word && !err; word = strtok(NULL, " \t"))
		err = offset < TARGET_PODS ? target_set_pod(set, (enum target_pod)offset, word)
					   : add[offset - TARGET_PODS](set, word);
	return err;
}

#define AT(member) offsetof(struct config, member)
#define URL        "http://HOST[:PORT][/PATH] or https://…"

static const struct config_key keys[] = {
	{"targets", "container", parse_targets, TARGET_PODS, "names or ids of containers", NULL},
	{"targets", "cgroup", parse_targets, TARGET_PODS + 1, "cgroups, as paths", NULL},
	{"targets", "namespace", parse_targets, TARGET_NAMESPACE,
	 "namespaces of Kubernetes, with * and ?", NULL},
	{"targets", "pod", parse_targets, TARGET_POD, "names of pods, with * and ?", NULL},
	{"targets", "label", parse_targets, TARGET_LABEL, "words, each KEY or KEY=VALUE", NULL},
	{"targets", "annotation", parse_targets, TARGET_ANNOTATION, "words, each KEY or KEY=VALUE",
	 NULL},
	{"targets", "comm", parse_targets, TARGET_PODS + 2, "names of processes, with * and ?",
	 NULL},
	{"trace", "enabled", parse_flag, AT(trace), "yes or no", "yes"},
	{"trace", "overhead", parse_overhead, AT(overhead), "0.1% to 100%", "1%"},
	{"trace", "after-cpu", parse_after_cpu, AT(after_cpu), "a time, such as 100ms, or 0",
	 "100ms"},
	{"trace", "machine-overhead", parse_machine_overhead, AT(machine_overhead),
	 "percent of one CPU from 0.1%, or 0: no limit", "5%"},
	{"trace", "budget", parse_budget, AT(budget), "bytes, from 1M on", "256M"},
	{"evidence", "enabled", parse_flag, AT(evidence), "yes or no", "yes"},
	{"evidence", "folder", parse_path, AT(folder), "an absolute path", "/var/lib/tracer"},
	{"evidence", "on-oom", parse_flag, AT(on_oom), "yes or no", "yes"},
	{"evidence", "on-memory", parse_memory, 0, TRIGGER_FORMS ", several with commas, or no",
	 "no"},
	{"evidence", "keep", parse_number, AT(keep), "a number from 1 to 100000", "20"},
	{"evidence", "space", parse_bytes, AT(space), "bytes, such as 2G", "2G"},
	{"evidence", "pause", parse_pause, AT(pause_ns), "a time, such as 5m, or 0", "5m"},
	{"evidence", "hook", parse_path, AT(hook), "the absolute path of a program", ""},
	{"http", "listen", parse_listen, AT(address), "ADDRESS:PORT, PORT or no", "127.0.0.1:9464"},
	{"http", "token-file", parse_path, AT(token_file), "an absolute path", ""},
	{"http", "certificate", parse_path, AT(certificate), "an absolute path", ""},
	{"http", "key", parse_path, AT(key), "an absolute path", ""},
	{"http", "top", parse_number, AT(top), "a number from 1 to 100000", "20"},
	{"push", "otlp", parse_url, AT(otlp), URL, ""},
	{"push", "pyroscope", parse_url, AT(pyroscope), URL, ""},
	{"push", "pyroscope-api", parse_pyroscope_api, AT(ingest), "push or ingest", "push"},
	{"push", "interval", parse_interval, AT(interval), "seconds, from 1 to 86400", "60"},
	{"push", "timeout", parse_timeout, AT(timeout), "seconds, from 1 to 60", "10"},
	{"push", "spool", parse_path, AT(spool), "an absolute path", "/var/lib/tracer/spool"},
	{"push", "spool-space", parse_bytes, AT(spool_space), "bytes, such as 64M", "64M"},
	{"push", "headers-file", parse_path, AT(headers_file), "an absolute path", ""},
	{"push", "ca", parse_path, AT(ca), "an absolute path", ""},
};

struct config_place {
	unsigned int line;
	const char *start; /* of the line */
	const char *section;
	bool unknown; /* the section: its keys are not looked at */
};

static int wrong(const struct config_place *place, const char *at, const char *why)
{
	return error_set(-EINVAL, "line %u, column %zu: %s", place->line,
			 (size_t)(at - place->start) + 1, why);
}

static int section_take(struct config_place *place, char *text)
{
	char *end = strchr(text, ']'), why[128];

	place->section = NULL;
	place->unknown = true;
	if (!end || end[1])
		return wrong(place, text, "a section is [NAME]");
	*end = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (strcmp(keys[i].section, text + 1) != 0)
			continue;
		place->section = keys[i].section;
		place->unknown = false;
		return 0;
	}
	snprintf(why, sizeof(why),
		 "no section %.32s; there are targets, trace, evidence, http and "
		 "push",
		 text + 1);
	return wrong(place, text + 1, why);
}

static const struct config_key *key_find(const struct config_place *place, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys) && place->section; i++)
		if (!strcmp(keys[i].section, place->section) && !strcmp(keys[i].name, name))
			return &keys[i];
	return NULL;
}

static int key_unknown(const struct config_place *place, const char *name)
{
	char why[192];
	size_t used;

	if (!place->section)
		return wrong(place, name, "a key belongs into a section, such as [trace]");
	used = (size_t)snprintf(why, sizeof(why), "no key %.32s; [%s] has", name, place->section);
	for (size_t i = 0; i < ARRAY_SIZE(keys) && used < sizeof(why); i++)
		if (!strcmp(keys[i].section, place->section))
			used += (size_t)snprintf(why + used, sizeof(why) - used, " %s",
						 keys[i].name);
	return wrong(place, name, why);
}

static char *trim(char *text)
{
	char *end = text + strlen(text);

	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	while (isspace((unsigned char)*text))
		text++;
	return text;
}

static int value_take(struct config *config, const struct config_key *key, const char *value)
{
	size_t i = (size_t)(key - keys);

	free(config->values[i]);
	free(config->words[i]);
	config->values[i] = strdup(value);
	config->words[i] = strdup(value);
	if (!config->values[i] || !config->words[i])
		return -ENOMEM;
	return key->parse(config, config->words[i], key->offset);
}

static int line_take(struct config *config, struct config_place *place, char *line, uint64_t *set)
{
	char *text = trim(line), *equals = strchr(text, '='), why[160];

	if (!*text || *text == '#')
		return 0;
	if (*text == '[')
		return section_take(place, text);
	if (place->unknown)
		return 0;
	if (!equals)
		return wrong(place, text, "it is no section and no KEY = VALUE");
	*equals = '\0';
	const struct config_key *key = key_find(place, trim(text));
	if (!key)
		return key_unknown(place, trim(text));
	char *value = trim(equals + 1);
	if (*set & 1ull << (key - keys))
		return wrong(place, text, "the key is set for the second time");
	*set |= 1ull << (key - keys);
	snprintf(why, sizeof(why), "%s is %s", key->name, key->allowed);
	int err = value_take(config, key, value);
	return err == -EINVAL ? wrong(place, value, why) : err;
}

static int defaults_set(struct config *config)
{
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(keys) && !err; i++)
		if (keys[i].initial)
			err = value_take(config, &keys[i], keys[i].initial);
	return err;
}

static int together_check(const struct config *config)
{
	if (!config->certificate[0] != !config->key[0])
		return error_set(-EINVAL, "http.certificate and http.key belong together");
	if ((config->otlp[0] || config->pyroscope[0]) && !config->trace)
		return error_set(-EINVAL, "what is pushed comes from the session: push.otlp and "
					  "push.pyroscope need trace.enabled = yes");
	if ((config->otlp[0] || config->pyroscope[0]) && !config->spool[0])
		return error_set(-EINVAL, "push.otlp and push.pyroscope need push.spool");
	return 0;
}

/* The text is cut into lines. 0; -EINVAL: reported; -ENOMEM. */
static int lines_take(struct config *config, const char *path, char *text)
{
	struct config_place place = {0};
	unsigned int mistakes = 0;
	uint64_t set = 0;
	char *next = text, *line;

	while (mistakes < CONFIG_MISTAKES && (line = strsep(&next, "\n"))) {
		place.line++;
		place.start = line;
		int err = line_take(config, &place, line, &set);
		if (err == -ENOMEM)
			return err;
		if (err)
			error_print(err, NULL, "%s", path);
		mistakes += err != 0;
	}
	return mistakes ? -EINVAL : 0;
}

static int config_parse(struct config *out, const char *path, char *text)
{
	struct config config = {0};
	int err = defaults_set(&config) ?: lines_take(&config, path, text);

	_Static_assert(ARRAY_SIZE(keys) == CONFIG_KEYS && CONFIG_KEYS <= 64, "a bit each");
	if (!err && (err = together_check(&config)))
		error_print(err, NULL, "%s", path);
	else if (err == -ENOMEM)
		error_print(err, NULL, "the configuration");
	if (target_set_is_empty(&config.targets))
		config.targets.all = 1;
	if (err) {
		config_free(&config);
		*out = (struct config){0};
		return err;
	}
	*out = config;
	return 0;
}

/* *text is malloc'd. 0, -errno. */
static int file_read(const char *path, char **text)
{
	struct infile file;
	int err = infile_open(&file, path);

	if (err)
		return err;
	err = infile_fill(&file, CONFIG_BYTES + 1);
	if (!err && file.end > CONFIG_BYTES)
		err = error_set(-EFBIG, "it is larger than 64 KiB");
	if (!err && memchr(file.data, '\0', file.end))
		err = error_set(-EINVAL, "it has a NUL byte, so it is no text");
	if (!err && !(*text = strndup((const char *)file.data, file.end)))
		err = -ENOMEM;
	infile_close(&file);
	return err;
}

int config_read(struct config *out, const char *path)
{
	_cleanup_free_ char *text = NULL;
	char nothing[] = "";
	int err = path ? file_read(path, &text) : 0;

	*out = (struct config){0};
	return err ? error_print(err, NULL, "%s", path) : config_parse(out, path, text ?: nothing);
}

void config_free(struct config *config)
{
	target_set_free(&config->targets);
	free(config->folder);
	free(config->hook);
	free(config->address);
	free(config->token_file);
	free(config->certificate);
	free(config->key);
	free(config->otlp);
	free(config->pyroscope);
	free(config->spool);
	free(config->headers_file);
	free(config->ca);
	for (size_t i = 0; i < CONFIG_KEYS; i++) {
		free(config->values[i]);
		free(config->words[i]);
	}
	*config = (struct config){0};
}

bool config_keeps(const struct config *config)
{
	return config->evidence && (config->on_oom || triggers_any(&config->triggers));
}

static void targets_print(const struct config *config, FILE *out)
{
	const char *before = "Pythons of ";

	if (config->targets.all)
		fputs("every Python", out);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (strcmp(keys[i].section, "targets") != 0 || !config->values[i])
			continue;
		fprintf(out, "%s%s ", before, keys[i].name);
		text_print(out, config->values[i]);
		before = " and ";
	}
}

void config_print(const struct config *config, FILE *out)
{
	bool six = strchr(config->address, ':');

	targets_print(config, out);
	fputs(config->trace ? " at " : " without probes", out);
	if (config->trace)
		fputs(config->overhead, out);
	fputs(config_keeps(config) ? ", evidence in " : ", no evidence", out);
	if (config_keeps(config))
		text_print(out, config->folder);
	fputs(config->http ? ", figures at " : ", no figures", out);
	if (config->http)
		fprintf(out, six ? "[%s]:%u" : "%s:%u", config->address, config->port);
	for (int i = 0; i < 2; i++) {
		const char *url = i ? config->pyroscope : config->otlp;

		if (url[0])
			fprintf(out, ", profiles to %s", url);
	}
	fputs(config->otlp[0] || config->pyroscope[0] ? "\n" : ", nothing is sent\n", out);
}

static unsigned int section_bit(const char *name)
{
	static const char *const names[] = {"targets", "trace", "evidence", "http", "push"};
	unsigned int i = 0;

	while (i < ARRAY_SIZE(names) && strcmp(names[i], name) != 0)
		i++;
	return 1u << i;
}

unsigned int config_compare(const struct config *old, const struct config *now)
{
	unsigned int sections = 0;

	for (size_t i = 0; i < CONFIG_KEYS; i++) {
		const char *before = old->values[i] ?: "all", *after = now->values[i] ?: "all";

		if (!strcmp(before, after))
			continue;
		log_info("%s.%s: was %s, is %s", keys[i].section, keys[i].name,
			 before[0] ? before : "not set", after[0] ? after : "not set");
		sections |= section_bit(keys[i].section);
	}
	return sections;
}
