/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/links_closer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct closing {
	struct closing *next;
	struct links links;
};

void links_closer_begin(struct links_closer *closer)
{
	*closer = (struct links_closer){.lock = PTHREAD_MUTEX_INITIALIZER};
}

/* The next one; NULL, and the thread counts as gone, if there is none. */
static struct closing *closing_next(struct links_closer *closer)
{
	struct closing *closing;

	pthread_mutex_lock(&closer->lock);
	closing = closer->first;
	if (closing)
		closer->first = closing->next;
	else
		closer->running = 0;
	pthread_mutex_unlock(&closer->lock);
	return closing;
}

static void *closer_run(void *context)
{
	struct closing *closing;

	while ((closing = closing_next(context))) {
		links_free(&closing->links);
		free(closing);
	}
	return NULL;
}

/* Signals are the other thread's. */
static int closer_start(struct links_closer *closer)
{
	sigset_t all, before;
	int err;

	if (closer->started)
		pthread_join(closer->thread, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&closer->thread, NULL, closer_run, closer);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	closer->started = !err;
	return err;
}

void links_closer_take(struct links_closer *closer, struct links *links)
{
	struct closing *closing = malloc(sizeof(*closing));
	int running;

	if (!closing) {
		links_free(links);
		return;
	}
	closing->links = *links;
	*links = (struct links){.backend = links->backend};
	pthread_mutex_lock(&closer->lock);
	closing->next = closer->first;
	closer->first = closing;
	running = closer->running;
	closer->running = 1;
	pthread_mutex_unlock(&closer->lock);
	if (!running && closer_start(closer))
		closer_run(closer);
}

void links_closer_end(struct links_closer *closer)
{
	if (closer->started)
		pthread_join(closer->thread, NULL);
	closer->started = 0;
}

static int fds_compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Closes all but these, in ascending order: whoever reads our output must not wait for us. */
static void others_close(const int *fds, size_t count)
{
	unsigned int from = 0;

	for (size_t i = 0; i < count; i++) {
		if ((unsigned int)fds[i] > from)
			syscall(SYS_close_range, from, fds[i] - 1, 0);
		from = fds[i] + 1;
	}
	syscall(SYS_close_range, from, ~0u, 0);
}

/* Keeps the descriptors until the other end of wait_fd, one of them, is closed. Other threads of ours are not there. */
static void keeper_run(const int *fds, size_t count, int wait_fd)
{
	char byte;

	setsid();
	prctl(PR_SET_NAME, "tracer-detach");
	others_close(fds, count);
	while (read(wait_fd, &byte, 1) < 0 && errno == EINTR)
		;
	_exit(0);
}

int links_leave_begin(const int *fds, size_t count, int *left)
{
	int *kept = malloc((count + 1) * sizeof(*kept)), ends[2], err = 0;
	pid_t child;

	if (!kept || pipe2(ends, O_CLOEXEC)) {
		free(kept);
		return kept ? -errno : -ENOMEM;
	}
	memcpy(kept, fds, count * sizeof(*kept));
	kept[count] = ends[0];
	qsort(kept, count + 1, sizeof(*kept), fds_compare);
	/* Its parent's parent is init, which reaps it. */
	child = fork();
	if (!child) {
		if (!fork())
			keeper_run(kept, count + 1, ends[0]);
		_exit(0);
	}
	err = child < 0 ? -errno : 0;
	while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	free(kept);
	close(ends[0]);
	if (err)
		close(ends[1]);
	else
		*left = ends[1];
	return err;
}

void links_leave_end(int left)
{
	close(left);
}
