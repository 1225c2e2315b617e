/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A signal's handler allocates wherever the signal has interrupted the program: in prologues,
 * epilogues, leaves, stubs of the PLT, libc's assembly. Waits for a line, then prints for each
 * block its size and the addresses that libgcc's unwinder finds, the interrupted one marked. Twice.
 */
#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

#define NOINLINE   __attribute__((noinline))
#define BLOCKS_MAX 400
#define DEPTH_MAX  40

struct noted {
	void *addresses[DEPTH_MAX], *interrupted;
	int depth;
};

static struct noted noted[BLOCKS_MAX];
static void *blocks[BLOCKS_MAX];
static volatile sig_atomic_t count, limit;
static unsigned long sum;

static void tick(int signal, siginfo_t *info, void *context)
{
	struct noted *now = &noted[count];

	(void)signal;
	(void)info;
	if (count >= limit)
		return;
	now->interrupted = (void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	now->depth = backtrace(now->addresses, DEPTH_MAX);
	blocks[count] = malloc(100000 + 16 * (size_t)count);
	count++;
}

NOINLINE static unsigned long leaf(unsigned long a)
{
	char red[64];

	__asm__ volatile("" : : "r"(red) : "memory");
	for (int i = 0; i < 8; i++)
		red[i * 8] = (char)(a >> i);
	__asm__ volatile("" : : : "memory");
	return a * 31 + red[8];
}

NOINLINE static unsigned long fibonacci(unsigned long n)
{
	return n < 2 ? leaf(n) : fibonacci(n - 1) + fibonacci(n - 2);
}

NOINLINE static unsigned long many(unsigned long a, unsigned long b, unsigned long c)
{
	unsigned long d = leaf(a), e = leaf(b), f = leaf(c), g = leaf(a + b), h = leaf(b + c);

	return leaf(d ^ e) + leaf(f ^ g) + leaf(h ^ a) + d + e + f + g + h;
}

/* With a frame pointer, and a stack that is realigned. */
NOINLINE static unsigned long aligned(unsigned long n)
{
	char room[64 + n % 64] __attribute__((aligned(64)));

	memset(room, (int)n, sizeof(room));
	__asm__ volatile("" : : "r"(room) : "memory");
	return leaf(n) + (unsigned char)room[n % 64];
}

static int compare(const void *one, const void *two)
{
	return *(const int *)one - *(const int *)two;
}

NOINLINE static void work(unsigned long turn)
{
	int numbers[16];
	char text[100];

	for (int i = 0; i < 16; i++)
		numbers[i] = (int)((turn * 7919 + (unsigned long)i * 104729) % 1000);
	qsort(numbers, 16, sizeof(numbers[0]), compare);
	snprintf(text, sizeof(text), "%lu %d", turn, numbers[0]);
	sum += fibonacci(6) + many(turn, sum, 3) + aligned(turn) + strlen(text) +
	       strtoul(text, NULL, 10);
}

static void run(int until)
{
	struct itimerval timer = {{0, 1000}, {0, 1000}}, off = {0};
	char line[16];
	int first = count;

	if (!fgets(line, sizeof(line), stdin))
		exit(0);
	limit = until;
	setitimer(ITIMER_REAL, &timer, NULL);
	for (unsigned long turn = 0; count < until; turn++)
		work(turn);
	setitimer(ITIMER_REAL, &off, NULL);
	for (int i = first; i < until; i++) {
		/* The first one: a recursion's frames further out may return to the address. */
		int marked = 0;

		printf("%d", 100000 + 16 * i);
		for (int k = 0; k < noted[i].depth; k++)
			printf(" %s%lx",
			       noted[i].addresses[k] == noted[i].interrupted && !marked++ ? "@"
											  : "",
			       (unsigned long)noted[i].addresses[k]);
		putchar('\n');
	}
	puts("end");
	fflush(stdout);
}

int main(void)
{
	struct sigaction action = {.sa_sigaction = tick, .sa_flags = SA_SIGINFO};
	void *first[4];

	backtrace(first, 4); /* loads libgcc */
	setvbuf(stdout, NULL, _IOFBF, 1 << 20);
	sigaction(SIGALRM, &action, NULL);
	puts("ready");
	fflush(stdout);
	run(100);
	run(BLOCKS_MAX);
	return getchar() == EOF;
}
