/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocator that is left in the middle. usage: leaves jump | switch | pass
 *
 * 	jump	a signal handler jumps out of it, and what comes then is deeper in the stack
 * 	switch	a signal handler goes on with another stack, in which the same happens, and
 * 		so on: threads without the kernel
 * 	pass	it jumps to malloc
 *
 * Speaks as golden.py does: "ready", and for a line on its stdin one of JSON.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define DEEP   1000 /* requests after the jump */
#define ROUNDS 500  /* requests of each stack */
#define STACK  (256 << 10)

void *pool_get(size_t bytes);

static char pool[1 << 20];
static size_t used;
static sigjmp_buf out;
static ucontext_t stacks[2], end;
static int current, done[2];
static void *volatile kept[DEEP];

static void jump(int signal)
{
	(void)signal;
	siglongjmp(out, 1);
}

static void change(int signal)
{
	int from = current;

	(void)signal;
	if (done[!from])
		return;
	current = !from;
	swapcontext(&stacks[from], &stacks[current]);
}

__attribute__((noinline)) void *pool_get(size_t bytes)
{
	void *block = pool + used;

	used += bytes;
	raise(SIGUSR1);
	return block;
}

/* Compiled to a jump. */
__attribute__((noinline)) void *pool_pass(size_t bytes)
{
	return malloc(bytes + 100);
}

__attribute__((noinline)) static void deep(int more)
{
	char pad[256];

	memset(pad, more, sizeof(pad));
	__asm__ volatile("" ::"r"(pad) : "memory");
	if (more)
		deep(more - 1);
	else
		for (int i = 0; i < DEEP; i++)
			kept[i] = malloc(100); /* # line DEEP */
	__asm__ volatile("" ::"r"(pad) : "memory");
}

static void work(int self)
{
	for (int i = 0; i < ROUNDS; i++)
		pool_get(64);
	done[self] = 1;
	/* The other one first: it is in the middle of its request. */
	if (!done[!self]) {
		current = !self;
		swapcontext(&stacks[self], &stacks[!self]);
	}
	setcontext(&end);
}

static void switch_stacks(void)
{
	volatile int back = 0;

	signal(SIGUSR1, change);
	getcontext(&end);
	if (back++)
		return;
	for (int i = 0; i < 2; i++) {
		getcontext(&stacks[i]);
		stacks[i].uc_stack.ss_sp = malloc(STACK);
		stacks[i].uc_stack.ss_size = STACK;
		makecontext(&stacks[i], (void (*)(void))work, 1, i);
	}
	setcontext(&stacks[0]);
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "";
	char line[16];

	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	if (!strcmp(what, "jump")) {
		struct sigaction action = {.sa_handler = jump, .sa_flags = SA_NODEFER};

		sigaction(SIGUSR1, &action, NULL);
		if (!sigsetjmp(out, 1))
			pool_get(64);
		deep(20);
		printf("{\"DEEP\": [%d, %d]}\n", DEEP * 100, DEEP);
	} else if (!strcmp(what, "switch")) {
		switch_stacks();
		printf("{\"requests\": [%zu, %d]}\n", used, 2 * ROUNDS);
	} else {
		for (int i = 0; i < DEEP; i++)
			kept[i] = pool_pass(64); /* # line PASS */
		printf("{\"PASS\": [%d, %d]}\n", DEEP * 64, DEEP);
	}
	fflush(stdout);
	return fgets(line, sizeof(line), stdin) ? 0 : 0;
}
