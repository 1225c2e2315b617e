/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer agent: watches a machine. It starts processes and looks after them: a session that traces
 * under a budget (as tracer -a), one that serves figures (web.h) and one that sends profiles
 * (push.h). It keeps evidence itself (cmd/evidence/). One that ends is started again.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/agent/board.h"
#include "cmd/agent/config.h"
#include "cmd/agent/finder.h"
#include "cmd/agent/push.h"
#include "cmd/agent/service.h"
#include "cmd/agent/web.h"
#include "cmd/cli.h"
#include "cmd/evidence/evidence.h"
#include "cmd/options/options.h"
#include "cmd/options/targets.h"
#include "proc/priority.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/folder.h"
#include "util/http_client.h"
#include "util/id_map.h"
#include "util/regular.h"
#include "util/stream.h"

#define NS 1000000000ull
/* A window that is closed late slows its target, and so the whole machine, and the next one. */
#define SESSION_NICE -10
#define LIST_NS      (2 * NS)   /* how often new processes are looked for */
#define YOUNG_NS     (5 * NS)   /* a process that is younger may still load its Python */
#define CHANGED_NS   (60 * NS)  /* what has changed is looked at again, as ids are used again; */
#define FORGET_NS    (600 * NS) /* and all, as one may be in another cgroup by now */
#define AGAIN_NS     NS         /* before a process of ours is started again, at first, */
#define AGAIN_MOST   (60 * NS)  /* and at the most */
#define LIVED_NS     (60 * NS)  /* one that ran for so long may start again at once */
#define END_NS       (10 * NS)  /* for our processes to end */
#define HOOK_S       60         /* for a hook */
#define WORDS_MAX    256u
#define POLLS_MAX    2048u

enum agent_child { CHILD_TRACE, CHILD_WEB, CHILD_PUSH, AGENT_CHILDREN };

/* A process of ours. */
struct agent_process {
	pid_t pid; /* 0: it does not run */
	uint64_t began_ns, again_ns, pause_ns;
	unsigned int ended; /* how often it has ended by itself */
};

struct agent {
	const char *file; /* of the configuration; NULL: none */
	struct config config;
	struct agent_process children[AGENT_CHILDREN];
	struct evidence_set *evidence;
	int folder;          /* of evidence, which is ours alone while it is open; -1: it is not */
	struct web *web;     /* its socket; NULL: nothing is served */
	struct board *board; /* the same with containers */
	struct push_figures *pushed; /* shared with the sender and the web server */
	char token[HTTP_TOKEN_SIZE]; /* that requests must have; "": none */
	struct python_finder finder;
	struct id_map seen; /* processes that were looked at, by their id */
	int signals;
	uint64_t list_ns, changed_ns, forget_ns, watchdog_ns, alive_ns;
	uint64_t lacked_ns; /* about when a process was found in a container that was not known */
	uint64_t retry_ns, pause_ns; /* of parts that could not begin */
	int evidence_err, http_err;  /* why they could not, as it was told; 0: they could */
	bool ending, reloading;
	bool is_new_container; /* since the board was updated */
};

/* --- processes of ours ------------------------------------------------------------------------ */

static void word_add(char *words[WORDS_MAX], int *count, const char *word)
{
	if (*count < (int)WORDS_MAX - 1)
		words[(*count)++] = (char *)word;
}

/* The session: what tracer -a does, with the configured targets and costs. */
static int trace_run(const struct agent *agent)
{
	static const char *const pod_options[TARGET_PODS] = {"--pod-namespace", "--pod", "--label",
							     "--annotation"};
	const struct target_set *set = &agent->config.targets;
	char *words[WORDS_MAX] = {NULL};
	int count = 0, nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);

	word_add(words, &count, "trace");
	word_add(words, &count, "--layer");
	word_add(words, &count, "python");
	word_add(words, &count, "--overhead");
	word_add(words, &count, agent->config.overhead);
	word_add(words, &count, "--after-cpu");
	word_add(words, &count, agent->config.after_cpu);
	word_add(words, &count, "--machine-overhead");
	word_add(words, &count, agent->config.machine_overhead);
	word_add(words, &count, "--budget");
	word_add(words, &count, agent->config.budget);
	word_add(words, &count, "--buffer");
	word_add(words, &count, "4M");
	if (set->all)
		word_add(words, &count, "--all");
	for (size_t i = 0; i < set->container_count; i++) {
		word_add(words, &count, "--container");
		word_add(words, &count, set->containers[i].text);
	}
	for (size_t i = 0; i < set->cgroup_count; i++) {
		word_add(words, &count, "--cgroup");
		word_add(words, &count, set->cgroups[i].text);
	}
	for (int kind = 0; kind < TARGET_PODS; kind++)
		for (size_t i = 0; i < set->pods[kind].count; i++) {
			word_add(words, &count, pod_options[kind]);
			word_add(words, &count, set->pods[kind].texts[i]);
		}
	for (size_t i = 0; i < set->name_count; i++) {
		word_add(words, &count, "--comm");
		word_add(words, &count, set->names[i]);
	}
	if (set->container_count)
		word_add(words, &count, "--wait");
	word_add(words, &count, "--quiet");
	if (count == (int)WORDS_MAX - 1) {
		error_print(-E2BIG, "name cgroups above them", "targets");
		return EXIT_FAILED;
	}
	priority_set(SESSION_NICE);
	/* What the agent has open is not for it. Its report at the end is for nobody. */
	if (nothing < 0 || dup2(nothing, STDOUT_FILENO) < 0 ||
	    syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, 0))
		return EXIT_FAILED;
	return cli_watch(count, words);
}

static int serve_run(const struct agent *agent)
{
	int err = web_run(agent->web);

	return err ? error_print(err, NULL, "http"), EXIT_FAILED : EXIT_DONE;
}

static struct push_opts push_opts_of(const struct agent *agent)
{
	const struct config *config = &agent->config;

	return (struct push_opts){
		.url = {[PUSH_OTLP] = config->otlp, [PUSH_PYROSCOPE] = config->pyroscope},
		.ingest = config->ingest,
		.interval = (unsigned int)config->interval,
		.timeout = (unsigned int)config->timeout,
		.spool = config->spool,
		.space = config->spool_space,
		.headers_file = config->headers_file,
		.ca = config->ca,
		.session = agent->children[CHILD_TRACE].pid,
		.figures = agent->pushed,
		.board = agent->board};
}

static int push_child_run(const struct agent *agent)
{
	const struct push_opts opts = push_opts_of(agent);

	push_run(&opts);
	return EXIT_FAILED;
}

static int (*const child_runs[AGENT_CHILDREN])(const struct agent *agent) = {trace_run, serve_run,
									     push_child_run};
static const char *const child_names[AGENT_CHILDREN] = {"the session", "the web server",
							"the sender"};

static bool child_is_wanted(const struct agent *agent, enum agent_child child)
{
	return child == CHILD_TRACE ? agent->config.trace
	       : child == CHILD_WEB ? agent->web != NULL
				    : agent->pushed && (agent->pushed->is_on[PUSH_OTLP] ||
							agent->pushed->is_on[PUSH_PYROSCOPE]);
}

static void child_start(struct agent *agent, enum agent_child child, uint64_t now_ns)
{
	struct agent_process *process = &agent->children[child];
	pid_t parent = getpid();

	process->began_ns = now_ns;
	process->pid = fork();
	if (!process->pid) {
		sigset_t none;

		prctl(PR_SET_PDEATHSIG, SIGTERM);
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		close(agent->signals);
		/* Each of them closes what it does not need, and opens files of its own. */
		regular_forget();
		unsetenv("NOTIFY_SOCKET");
		_exit(getppid() == parent ? child_runs[child](agent) : EXIT_FAILED);
	}
	if (process->pid > 0)
		return;
	error_print(error_errno(), NULL, "%s", child_names[child]);
	process->pid = 0;
	process->again_ns = now_ns + AGAIN_MOST;
}

/* Asks it to end, and waits for that. */
static void child_stop(struct agent *agent, enum agent_child child)
{
	struct agent_process *process = &agent->children[child];
	uint64_t end_ns = clock_ns(CLOCK_MONOTONIC) + END_NS;

	if (process->pid <= 0)
		return;
	kill(process->pid, SIGTERM);
	while (!waitpid(process->pid, NULL, WNOHANG)) {
		if (clock_ns(CLOCK_MONOTONIC) >= end_ns)
			kill(process->pid, SIGKILL);
		usleep(10000);
	}
	*process = (struct agent_process){.ended = process->ended};
}

/* The others ask this session from now on. The web server's socket waits while it starts again. */
static void session_started(struct agent *agent)
{
	child_stop(agent, CHILD_PUSH);
	child_stop(agent, CHILD_WEB);
	if (agent->web)
		web_session(agent->web, agent->children[CHILD_TRACE].pid);
}

static uint64_t pause_longer(uint64_t pause_ns)
{
	return pause_ns * 2 < AGAIN_MOST ? pause_ns * 2 : AGAIN_MOST;
}

/* It has ended by itself: it is started again after a pause that grows. */
static void child_ended(struct agent *agent, enum agent_child child, int status, uint64_t now_ns)
{
	struct agent_process *process = &agent->children[child];
	bool lived = now_ns - process->began_ns >= LIVED_NS;

	process->pid = 0;
	process->ended++;
	process->pause_ns =
		lived || !process->pause_ns ? AGAIN_NS : pause_longer(process->pause_ns);
	process->again_ns = now_ns + process->pause_ns;
	log_info("%s has ended (%s %d); it is started again in %d s", child_names[child],
		 WIFSIGNALED(status) ? "signal" : "status",
		 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
		 (int)(process->pause_ns / NS));
}

static void children_step(struct agent *agent, uint64_t now_ns)
{
	for (enum agent_child child = 0; child < AGENT_CHILDREN; child++) {
		struct agent_process *process = &agent->children[child];
		int status;

		if (process->pid > 0 && waitpid(process->pid, &status, WNOHANG) == process->pid)
			child_ended(agent, child, status, now_ns);
		if (process->pid || !child_is_wanted(agent, child) || now_ns < process->again_ns)
			continue;
		child_start(agent, child, now_ns);
		if (child == CHILD_TRACE && process->pid > 0)
			session_started(agent);
	}
}

/* --- evidence --------------------------------------------------------------------------------- */

static int hook_check(const char *path)
{
	struct stat st;

	if (!path[0])
		return 0;
	if (stat(path, &st))
		return error_errno();
	return S_ISREG(st.st_mode) && st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)
		       ? 0
		       : error_set(-EACCES, "it is no program");
}

struct kept {
	char name[256];
	struct timespec time;
	uint64_t bytes;
};

static int kept_compare(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;

	if (x->time.tv_sec != y->time.tv_sec)
		return x->time.tv_sec < y->time.tv_sec ? 1 : -1;
	return x->time.tv_nsec < y->time.tv_nsec ? 1 : x->time.tv_nsec > y->time.tv_nsec ? -1 : 0;
}

/* Removes the oldest bundles beyond their number and size. */
static void bundles_prune(const struct config *config, const char *newest)
{
	_cleanup_(closedirp) DIR *dir = opendir(config->folder);
	size_t count = 0, capacity = 0;
	_cleanup_free_ struct kept *kept = NULL;
	struct dirent *entry;
	uint64_t bytes = 0;
	struct stat st;

	while (dir && (entry = readdir(dir))) {
		const char *dot = strrchr(entry->d_name, '.');

		if (!dot || strcmp(dot, ".evidence") != 0 || entry->d_name[0] == '.' ||
		    fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
		    !S_ISREG(st.st_mode) || ARRAY_GROW(kept, capacity, count))
			continue;
		snprintf(kept[count].name, sizeof(kept[count].name), "%s", entry->d_name);
		kept[count].time = st.st_mtim;
		kept[count++].bytes = (uint64_t)st.st_size;
	}
	if (count)
		qsort(kept, count, sizeof(*kept), kept_compare);
	for (size_t i = 0; i < count; i++) {
		bytes += kept[i].bytes;
		/* The newest one stays, whatever its size, and the one that was just written. */
		if (!i || !strcmp(kept[i].name, strrchr(newest, '/') + 1) ||
		    (i < config->keep && bytes <= config->space))
			continue;
		unlinkat(dirfd(dir), kept[i].name, 0);
		log_info("%s/%s: removed, newer evidence is kept", config->folder, kept[i].name);
	}
}

/* In a session of its own, so that all that it starts can be ended. 0, -errno. */
static int hook_start(const char *hook, const char *path, pid_t *pid)
{
	char *const words[] = {(char *)hook, (char *)path, NULL};
	static char *const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
	posix_spawnattr_t how;
	sigset_t none;

	sigemptyset(&none);
	if (posix_spawnattr_init(&how))
		return -ENOMEM;
	posix_spawnattr_setsigmask(&how, &none);
	posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
	int err = -posix_spawn(pid, hook, NULL, &how, words, environment);
	posix_spawnattr_destroy(&how);
	return err;
}

/* Runs the hook and tells how it has failed. */
static void hook_attend(const char *hook, const char *path)
{
	struct pollfd end = {.events = POLLIN};
	int status = 0;
	pid_t pid;

	/* What the agent has open, such as its lock, is not for it. */
	syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, 0);
	int err = hook_start(hook, path, &pid);
	if (err) {
		error_print(err, "evidence.hook names it", "%s", hook);
		return;
	}
	end.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	bool is_late = end.fd >= 0 && !poll(&end, 1, HOOK_S * 1000);
	if (is_late)
		kill(-pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid || !status)
		return;
	if (is_late)
		log_info("%s: it took longer than %d s for %s: it is ended", hook, HOOK_S, path);
	else
		log_info("%s: it has failed (%s %d) for %s", hook,
			 WIFSIGNALED(status) ? "signal" : "status",
			 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), path);
}

/* Runs the hook with the bundle's path; the agent does not wait for it. */
static void hook_run(const struct config *config, const char *path)
{
	int status = 0;

	if (!config->hook[0])
		return;
	pid_t pid = fork();
	if (!pid) {
		/* Twice, so that it is no child of ours. */
		pid_t again = fork();
		if (again)
			_exit(again < 0);
		hook_attend(config->hook, path);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		log_info("%s could not be run for %s", config->hook, path);
}

static void bundle_done(void *context, const char *path)
{
	const struct agent *agent = context;

	bundles_prune(&agent->config, path);
	hook_run(&agent->config, path);
}

static int hook_tell(const struct config *config)
{
	int err = config->evidence ? hook_check(config->hook) : 0;

	return err ? error_print(err, "evidence.hook names it", "%s", config->hook) : 0;
}

static void evidence_stop(struct agent *agent)
{
	evidence_free(agent->evidence);
	agent->evidence = NULL;
	descriptor_close(agent->folder);
	agent->folder = -1;
}

static void evidence_start(struct agent *agent)
{
	const struct config *config = &agent->config;
	struct evidence_opts opts = {.on_oom = config->on_oom,
				     .triggers = config->triggers,
				     .pause_ns = config->pause_ns,
				     .folder = config->folder,
				     .space = config->space,
				     .done = bundle_done,
				     .done_context = agent};

	if (!config_keeps(config))
		return;
	/* What is written there tells what others must not know. */
	agent->folder = folder_take(config->folder);
	int err = agent->folder < 0 ? agent->folder : evidence_new(&agent->evidence, &opts);
	if (err)
		evidence_stop(agent);
	if (err && err != agent->evidence_err)
		error_print(err, "evidence.folder names it", "%s", config->folder);
	else if (!err && agent->evidence_err)
		log_info("%s: evidence is kept from now on", config->folder);
	agent->evidence_err = err;
}

/* --- pushing ---------------------------------------------------------------------------------- */

/* Figures go on where the configuration is read again. */
static void push_start(struct agent *agent)
{
	bool otlp = agent->config.otlp[0], pyroscope = agent->config.pyroscope[0];

	if (!agent->pushed && (otlp || pyroscope)) {
		agent->pushed = mmap(NULL, sizeof(*agent->pushed), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (agent->pushed == MAP_FAILED) {
			agent->pushed = NULL;
			error_print(error_errno(), "nothing is pushed", "push");
		}
	}
	if (!agent->pushed)
		return;
	agent->pushed->is_on[PUSH_OTLP] = otlp;
	agent->pushed->is_on[PUSH_PYROSCOPE] = pyroscope;
}

/* --- the web server --------------------------------------------------------------------------- */

/* 0; -errno: the token cannot be read. */
static int http_opts(struct agent *agent, struct web_opts *out)
{
	struct config *config = &agent->config;
	int err = config->token_file[0] ? http_token_read(config->token_file, agent->token) : 0;

	*out = (struct web_opts){.address = config->address,
				 .port = config->port,
				 /* one that runs already */
				 .session = agent->children[CHILD_TRACE].pid,
				 .token = config->token_file[0] ? agent->token : NULL,
				 .certificate = config->certificate[0] ? config->certificate : NULL,
				 .key = config->key[0] ? config->key : NULL,
				 .top = config->top > WEB_TOP_MAX ? WEB_TOP_MAX
								  : (unsigned int)config->top,
				 .evidence = config->evidence ? config->folder : NULL,
				 .targets = &config->targets,
				 .push = child_is_wanted(agent, CHILD_PUSH) ? agent->pushed : NULL,
				 .board = agent->board};
	return err;
}

static void address_tell(const struct web_opts *opts)
{
	if (!opts->token && !web_is_loopback(opts->address))
		log_info("http: %s is no loopback address, and there is no http.token-file: who "
			 "reaches it may read command lines, and names of files and functions",
			 opts->address);
}

static void http_start(struct agent *agent)
{
	struct web_opts opts;

	if (!agent->config.http)
		return;
	int err = http_opts(agent, &opts);
	const char *file = err ? agent->config.token_file : NULL;

	err = err ?: web_open(&agent->web, &opts);
	if (!err)
		address_tell(&opts);
	if (err && err != agent->http_err)
		error_print(err, file ? "http.token-file names it" : NULL, "%s", file ?: "http");
	else if (!err && agent->http_err)
		log_info("http: %s port %u is served from now on", opts.address, opts.port);
	agent->http_err = err;
}

/* --- processes that are watched --------------------------------------------------------------- */

static bool is_wanted(struct agent *agent, pid_t pid)
{
	struct process_info info;

	return !process_info_read(pid, &info) && !info.kernel_thread &&
	       target_set_match(&agent->config.targets, &info) == 1 &&
	       finder_has_python(&agent->finder, pid);
}

/*
 * Of a process: another program, one that has the id of one that has ended, another name or more
 * memory mapped has another one, almost surely.
 */
static uint32_t signature_of(pid_t pid)
{
	struct process_info info;
	uint64_t parts[4]; /* a name has 15 bytes at most */

	if (process_stat_read(pid, &info))
		return 0;
	memcpy(parts, info.name, 16);
	parts[2] = info.start_ticks;
	parts[3] = info.mapped;
	uint64_t hash = 0;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		hash = hash_u64(hash ^ parts[i]);
	uint32_t signature = (uint32_t)hash;
	return signature != ID_MAP_NONE ? signature : 0;
}

/*
 * A process that was not seen before, or has changed since. One that has begun just now may still
 * load its Python. old: what was seen in the time before, where it begins anew.
 */
static void process_look(struct agent *agent, pid_t pid, const struct id_map *old)
{
	if (id_map_find(&agent->seen, (uint64_t)pid) != ID_MAP_NONE)
		return;
	uint32_t signature = signature_of(pid);
	if (id_map_find(old, (uint64_t)pid) == signature) {
		(void)!id_map_put(&agent->seen, (uint64_t)pid, signature);
		return;
	}
	if (agent->board && board_lacks(agent->board, pid)) {
		agent->is_new_container = true;
		agent->lacked_ns = agent->list_ns;
	}
	if (agent->evidence && !evidence_has(agent->evidence, pid) && is_wanted(agent, pid))
		evidence_add(agent->evidence, pid, 0);
	else if (process_age_ns(pid) < YOUNG_NS)
		return;
	/* One that cannot be remembered is looked at again. */
	(void)!id_map_put(&agent->seen, (uint64_t)pid, signature);
}

static void processes_look(struct agent *agent, uint64_t now_ns)
{
	_cleanup_(id_map_free) struct id_map old = {0};

	agent->list_ns = now_ns + LIST_NS;
	if (now_ns >= agent->forget_ns) {
		id_map_free(&agent->seen);
		agent->forget_ns = now_ns + FORGET_NS;
		agent->changed_ns = 0;
		agent->is_new_container = true; /* one may have another name by now */
	}
	if (now_ns >= agent->changed_ns) {
		old = agent->seen;
		agent->seen = (struct id_map){0};
		agent->changed_ns = now_ns + CHANGED_NS;
		/*
		 * The state of a runtime may have been written since. It takes a look at all
		 * processes, so not where there was nothing to be found.
		 */
		agent->is_new_container |=
			agent->lacked_ns && now_ns < agent->lacked_ns + FORGET_NS;
	}
	_cleanup_(closedirp) DIR *dir = opendir("/proc");
	struct dirent *entry;
	while (dir && (entry = readdir(dir))) {
		long pid = strtol(entry->d_name, NULL, 10);

		if (pid > 0)
			process_look(agent, (pid_t)pid, &old);
	}
	if (agent->board && agent->is_new_container)
		board_update(agent->board);
	agent->is_new_container = false;
}

/* --- the agent -------------------------------------------------------------------------------- */

static void targets_start(struct agent *agent)
{
	const char *what;
	int err;

	agent->config.targets.wait = 1;
	err = target_set_resolve(&agent->config.targets, &what);
	if (err)
		error_print(err, "the agent goes on without it", "%s", what);
}

/* Containers may come later; a cgroup that is missing is looked for when the agent starts. */
static unsigned int targets_check(const struct target_set *targets)
{
	unsigned int mistakes = 0;

	for (size_t i = 0; i < targets->cgroup_count; i++) {
		struct target_set one = {.cgroups = &targets->cgroups[i], .cgroup_count = 1};
		const char *what;
		int err = target_set_resolve(&one, &what);

		if (err)
			error_print(err, "targets.cgroup names it", "%s", what);
		mistakes += err != 0;
	}
	return mistakes;
}

static unsigned int evidence_check(const struct config *config)
{
	int folder = folder_check(config->folder);

	if (folder)
		error_print(folder, "evidence.folder names it", "%s", config->folder);
	return !!folder + !!hook_tell(config);
}

static unsigned int http_check(struct agent *agent)
{
	struct web_opts opts;
	int token = http_opts(agent, &opts);

	if (token)
		error_print(token, "http.token-file names it", "%s", agent->config.token_file);
	return !!token + web_check(&opts);
}

/* The spool may be in the evidence's folder, which the agent makes first. */
static unsigned int sender_check(const struct agent *agent)
{
	const struct config *config = &agent->config;
	const struct push_opts opts = push_opts_of(agent);
	size_t bytes = strlen(config->folder);
	int spool = folder_check(config->spool);

	if (spool == -ENOENT && config_keeps(config) &&
	    !strncmp(config->spool, config->folder, bytes) && config->spool[bytes] == '/' &&
	    !strchr(config->spool + bytes + 1, '/'))
		spool = 0;
	if (spool)
		error_print(spool, "push.spool names it", "%s", config->spool);
	return !!spool + push_check(&opts);
}

/* What the file names must be of use. The number of mistakes, each reported. */
static unsigned int config_check(struct agent *agent)
{
	const struct config *config = &agent->config;
	unsigned int mistakes = targets_check(&config->targets);

	if (config_keeps(config))
		mistakes += evidence_check(config);
	if (config->http)
		mistakes += http_check(agent);
	if (config->otlp[0] || config->pyroscope[0])
		mistakes += sender_check(agent);
	if (!mistakes) {
		printf("%s: no mistake; ", agent->file ?: "no configuration");
		config_print(config, stdout);
		mistakes += stream_flush(stdout) != 0;
	}
	return mistakes;
}

/* What does not run yet. */
static void agent_start(struct agent *agent)
{
	agent->evidence_err = agent->http_err = 0;
	agent->pause_ns = AGAIN_NS;
	agent->retry_ns = clock_ns(CLOCK_MONOTONIC) + AGAIN_NS;
	targets_start(agent);
	hook_tell(&agent->config);
	if (!agent->evidence)
		evidence_start(agent);
	push_start(agent);
	http_start(agent);
	/* What is watched from now on watches nobody yet. */
	agent->list_ns = agent->forget_ns = 0;
}

/*
 * Parts whose sections have not changed go on: a session that starts again loses its figures, and
 * evidence its copies. The server and the sender lose nothing, and read files again that may have
 * changed, such as a certificate.
 */
static void config_take(struct agent *agent, struct config *now, unsigned int changed)
{
	if (changed & (CONFIG_TARGETS | CONFIG_TRACE))
		child_stop(agent, CHILD_TRACE);
	child_stop(agent, CHILD_WEB);
	child_stop(agent, CHILD_PUSH);
	if (changed & (CONFIG_TARGETS | CONFIG_EVIDENCE))
		evidence_stop(agent);
	web_free(agent->web);
	agent->web = NULL;
	config_free(&agent->config);
	agent->config = *now;
	agent_start(agent);
}

/* A new configuration takes the place of the old one, if it is right. */
static void agent_reload(struct agent *agent)
{
	struct config now;
	unsigned int changed;

	agent->reloading = 0;
	service_notify("RELOADING=1");
	if (config_read(&now, agent->file)) {
		log_info("the configuration before stays in force");
	} else if (!(changed = config_compare(&agent->config, &now)) && !now.token_file[0] &&
		   !now.certificate[0] && !now.headers_file[0]) {
		log_info("%s: nothing has changed", agent->file ?: "no configuration");
		config_free(&now);
	} else {
		config_take(agent, &now, changed);
	}
	service_notify("READY=1");
}

static void signals_take(struct agent *agent)
{
	struct signalfd_siginfo info;

	while (read(agent->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGHUP)
			agent->reloading = 1;
		else
			agent->ending = 1;
	}
}

/* Does a descriptor say something? */
static bool agent_wait(struct agent *agent, uint64_t wait_ns)
{
	static struct pollfd fds[POLLS_MAX];
	size_t count = 1;

	fds[0] = (struct pollfd){.fd = agent->signals, .events = POLLIN};
	if (agent->evidence)
		count += evidence_poll_fds(agent->evidence, fds + 1, POLLS_MAX - 1);
	return poll(fds, count, (int)(wait_ns / 1000000 + 1)) > 0;
}

/* What could not begin: an address may be free by now, and a folder mounted. */
static void parts_retry(struct agent *agent, uint64_t now_ns)
{
	if (!agent->evidence) {
		evidence_start(agent);
		/* The web server may only open a folder that was there when it began. */
		if (agent->evidence)
			child_stop(agent, CHILD_WEB);
	}
	if (!agent->web)
		http_start(agent);
	agent->pause_ns = pause_longer(agent->pause_ns);
	agent->retry_ns = now_ns + agent->pause_ns;
}

static void agent_loop(struct agent *agent)
{
	bool events = 1;

	while (!agent->ending) {
		uint64_t now_ns = clock_ns(CLOCK_MONOTONIC), wait_ns = NS / 2;

		children_step(agent, now_ns);
		if (now_ns >= agent->list_ns)
			processes_look(agent, now_ns);
		if (now_ns >= agent->retry_ns)
			parts_retry(agent, now_ns);
		if (agent->evidence) {
			uint64_t next_ns = evidence_step(agent->evidence, events);

			wait_ns = next_ns < wait_ns ? next_ns : wait_ns;
		}
		if (agent->watchdog_ns && now_ns >= agent->alive_ns) {
			service_notify("WATCHDOG=1");
			agent->alive_ns = now_ns + agent->watchdog_ns;
		}
		events = agent_wait(agent, wait_ns);
		signals_take(agent);
		/* A bundle is written first: it may take a minute, and others are watched. */
		if (agent->reloading && !(agent->evidence && evidence_is_writing(agent->evidence)))
			agent_reload(agent);
	}
}

static int agent_run(struct agent *agent)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	agent->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (agent->signals < 0)
		return error_print(error_errno(), NULL, "agent");
	agent->board = board_new();
	agent->watchdog_ns = service_watchdog_ns();
	agent_start(agent);
	log_info("the agent watches %s; evidence: %s; http: %s%s%.0d",
		 agent->config.targets.all ? "every Python" : "its targets",
		 agent->evidence ? agent->config.folder : "none",
		 agent->web ? agent->config.address : "none", agent->web ? " port " : "",
		 agent->web ? (int)agent->config.port : 0);
	service_notify("READY=1");
	agent_loop(agent);
	service_notify("STOPPING=1");
	return 0;
}

static void agent_free(struct agent *agent)
{
	for (enum agent_child child = 0; child < AGENT_CHILDREN; child++)
		child_stop(agent, child);
	evidence_stop(agent);
	web_free(agent->web);
	finder_end(&agent->finder);
	id_map_free(&agent->seen);
	config_free(&agent->config);
	descriptor_close(agent->signals);
}

struct agent_choice {
	const char *file;
	int check;
	struct cli_arguments rest;
};

enum { KEY_CONFIG = 0x700, KEY_CHECK };

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct agent_choice *choice = state->input;

	switch (key) {
	case KEY_CONFIG:
		choice->file = arg;
		return 0;
	case KEY_CHECK:
		choice->check = 1;
		return 0;
	case 'v':
		log_level = 2;
		return 0;
	}
	return cli_parse_arguments(key, state, &choice->rest);
}

int cli_agent(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{"config", KEY_CONFIG, "FILE", 0,
		 "the configuration (default: what an empty one means)", 1},
		{"check", KEY_CHECK, NULL, 0, "only tell whether the configuration is right", 1},
		{"verbose", 'v', NULL, 0, "print more remarks", 1},
		{0},
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "Watches the processes of a machine until it is told to end: traces every "
		       "Python under a budget, and writes a bundle of evidence when the kernel "
		       "kills one for memory (tracer report BUNDLE). SIGHUP reads the "
		       "configuration again.",
	};
	struct agent_choice choice = {0};
	struct agent agent = {.signals = -1, .folder = -1};
	int status = cli_parse(&argp, argc, argv, 0, &choice);

	if (status)
		return status < 0 ? EXIT_DONE : status;
	if (choice.rest.count) {
		error_print(error_set(-EINVAL, "it takes no argument"),
			    "tracer agent --config FILE", "%s", choice.rest.items[0]);
		return EXIT_USAGE;
	}
	if (geteuid() && !choice.check) {
		error_print(-EPERM, "run it with sudo", "agent");
		return EXIT_FAILED;
	}
	agent.file = choice.file;
	if (config_read(&agent.config, agent.file))
		return EXIT_FAILED;
	if (choice.check ? config_check(&agent) != 0 : agent_run(&agent) != 0)
		status = EXIT_FAILED;
	agent_free(&agent);
	return status;
}
