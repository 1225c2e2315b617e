/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that allocates and frees at random in several threads, keeps a record of what is live,
 * and then stands still: this test program again, on this machine's glibc or on one below
 * build/roots.
 */
#pragma once

#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_THREADS 3u
#define CHILD_BLOCKS  6000u /* of a thread; half of them are freed */
#define CHILD_WORD    "malloc-child"

struct malloc_record {
	volatile int ready, stop;
	struct mallinfo2 info;
	size_t trimmed;
	uint32_t live_count, freed_count;
	uint64_t live[(CHILD_THREADS + 1) * CHILD_BLOCKS];
	uint64_t freed[(CHILD_THREADS + 1) * CHILD_BLOCKS]; /* not among live at the end */
};

struct malloc_child {
	pid_t pid;
	struct malloc_record *record;
};

static struct malloc_record *child_record;
static pthread_barrier_t child_barrier;
static void *child_blocks[CHILD_THREADS + 1][CHILD_BLOCKS];

static void *child_churn(void *number_of)
{
	unsigned int number = (unsigned int)(uintptr_t)number_of, seed = 7 + number;
	void **blocks = child_blocks[number];

	for (unsigned int i = 0; i < CHILD_BLOCKS; i++) {
		unsigned int kind = rand_r(&seed) % 100;
		size_t bytes = kind < 60   ? rand_r(&seed) % 200
			       : kind < 97 ? rand_r(&seed) % 3000
			       : kind < 99 ? rand_r(&seed) % 60000
					   : 140000 + rand_r(&seed) % 300000;

		blocks[i] = malloc(bytes + 1);
		memset(blocks[i], 0xa5, bytes + 1);
		/* Frees of every age, so that all kinds of lists are used. */
		if (i > 50 && rand_r(&seed) % 2) {
			unsigned int which = i - rand_r(&seed) % 50;

			free(blocks[which]);
			blocks[which] = NULL;
		}
	}
	for (unsigned int i = 0; i < CHILD_BLOCKS; i += 9 + number) {
		free(blocks[i]);
		blocks[i] = NULL;
	}
	pthread_barrier_wait(&child_barrier);
	while (number)
		pause();
	return NULL;
}

static int child_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void child_main(int fd) __attribute__((noreturn));
static void child_main(int fd)
{
	struct malloc_record *record =
		mmap(NULL, sizeof(*record), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pthread_t thread;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	child_record = record;
	pthread_barrier_init(&child_barrier, NULL, CHILD_THREADS + 1);
	for (uintptr_t i = 1; i <= CHILD_THREADS; i++)
		pthread_create(&thread, NULL, child_churn, (void *)i);
	child_churn(NULL);
	for (unsigned int i = 0; i <= CHILD_THREADS; i++)
		for (unsigned int n = 0; n < CHILD_BLOCKS; n++)
			if (child_blocks[i][n])
				record->live[record->live_count++] = (uintptr_t)child_blocks[i][n];
	record->info = mallinfo2();
	record->ready = 1;
	while (record->stop != 1)
		usleep(1000);
	record->trimmed = (size_t)malloc_trim(0);
	record->stop = 2;
	for (;;)
		pause();
}

/* root: NULL for this machine's glibc, else a root file system. Returns 0 if root has no glibc. */
static int child_start(struct malloc_child *child, const char *root)
{
	int fd = memfd_create("record", 0);
	char loader[PATH_MAX], libraries[PATH_MAX], number[16], self[PATH_MAX];
	ssize_t bytes = readlink("/proc/self/exe", self, sizeof(self) - 1);

	assert_true(fd >= 0 && bytes > 0);
	self[bytes] = '\0';
	assert_int_equal(ftruncate(fd, sizeof(*child->record)), 0);
	child->record =
		mmap(NULL, sizeof(*child->record), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(child->record, MAP_FAILED);
	snprintf(number, sizeof(number), "%d", fd);
	if (root) {
		snprintf(loader, sizeof(loader), "%s/lib64/ld-linux-x86-64.so.2", root);
		snprintf(libraries, sizeof(libraries),
			 "%s/usr/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu", root);
		if (access(loader, X_OK))
			return 0;
	}
	child->pid = fork();
	assert_true(child->pid >= 0);
	if (!child->pid) {
		if (root)
			execl(loader, loader, "--library-path", libraries, self, CHILD_WORD, number,
			      NULL);
		else
			execl(self, self, CHILD_WORD, number, NULL);
		_exit(127);
	}
	close(fd);
	for (int i = 0; i < 30000 && !child->record->ready; i++) {
		assert_int_equal(waitpid(child->pid, NULL, WNOHANG), 0);
		usleep(1000);
	}
	assert_true(child->record->ready);
	qsort(child->record->live, child->record->live_count, sizeof(uint64_t), child_compare);
	return 1;
}

static void child_stop(struct malloc_child *child)
{
	kill(child->pid, SIGKILL);
	waitpid(child->pid, NULL, 0);
	munmap(child->record, sizeof(*child->record));
}
