/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests memory from stacks of every kind, and knows them: each function notes its own return
 * address in a list before it calls another one. Each block has a size of its own, which names the
 * stack. usage: stack_truth LIBRARY SCENE...    "fork": the first line makes a child, which runs
 * the scenes;
 * "/PATH": another library, which is loaded only then
 *
 * Prints "ready". At each line on stdin it runs the scenes of its command line, then prints
 *   SIZE ADDRESS...    for each block: the return addresses in this program's functions
 *   end
 * Ends with its stdin. With -DLIBRARY it is the library that it loads.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE   __attribute__((noinline, noclone))
#define DEPTH_MAX  512
#define STACKS_MAX 60000
#define FIRST_SIZE 1000

struct list {
	int depth;
	void *addresses[DEPTH_MAX];
};

#ifdef LIBRARY
/* A frame of another file, which may be unmapped. */
NOINLINE int through_library(int (*next)(int), int argument)
{
	char text[64];

	snprintf(text, sizeof(text), "%d", argument);
	return next(argument) + text[0];
}
#else

static __thread struct list current;
static struct list kept[STACKS_MAX];
static void *blocks[STACKS_MAX];
static int kept_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int seed = 1;
static int (*library)(int (*next)(int), int argument);

/* With barriers: the compiler does not see that a signal's handler reads the list. */
#define ENTER()                                                                                    \
	do {                                                                                       \
		current.addresses[current.depth++ % DEPTH_MAX] = __builtin_return_address(0);      \
		__asm__ volatile("" : : : "memory");                                               \
	} while (0)
#define LEAVE()                                                                                    \
	do {                                                                                       \
		__asm__ volatile("" : : : "memory");                                               \
		current.depth--;                                                                   \
	} while (0)
/* The function must not end in a jump to another one, which would take its frame away. */
#define RETURN(value)                                                                              \
	do {                                                                                       \
		int returned = (value);                                                            \
                                                                                                   \
		__asm__ volatile("" : "+r"(returned));                                             \
		LEAVE();                                                                           \
		return returned;                                                                   \
	} while (0)

/* Not thread-safe: scenes with threads take the lock. */
NOINLINE int take(int unused)
{
	int index = __atomic_fetch_add(&kept_count, 1, __ATOMIC_RELAXED);

	ENTER();
	if (index < STACKS_MAX) {
		kept[index] = current;
		blocks[index] = malloc(FIRST_SIZE + 16 * index);
	}
	RETURN(unused);
}

static unsigned int chance(unsigned int below)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 16) % below;
}

static int any(int depth);

NOINLINE int plain(int depth)
{
	ENTER();
	RETURN(any(depth - 1) + 1);
}

/* A frame pointer: the size of the frame is not constant. */
NOINLINE int variable(int depth)
{
	volatile char space[chance(300) + 1];

	ENTER();
	space[0] = (char)depth;
	RETURN(any(depth - 1) + space[0]);
}

/* The stack is realigned, through rbp or another register. */
NOINLINE int aligned(int depth)
{
	volatile char space[64] __attribute__((aligned(64)));

	ENTER();
	space[0] = (char)depth;
	RETURN(any(depth - 1) + space[0]);
}

NOINLINE int aligned_variable(int depth)
{
	volatile char space[64] __attribute__((aligned(64)));
	volatile char more[chance(100) + 1];

	ENTER();
	more[0] = space[0] = (char)depth;
	RETURN(any(depth - 1) + space[0] + more[0]);
}

/* Arguments on the stack. */
NOINLINE int many(int depth, int a, int b, int c, int d, int e, int f, int g, int h)
{
	ENTER();
	RETURN(any(depth - 1) + a + b + c + d + e + f + g + h);
}

NOINLINE int calls_many(int depth)
{
	ENTER();
	RETURN(many(depth, 1, 2, 3, 4, 5, 6, 7, depth));
}

/* All registers that a function saves. */
NOINLINE int saves(int depth)
{
	int a = chance(9), b = chance(9), c = chance(9), d = chance(9), e = chance(9), value;

	ENTER();
	value = any(depth - 1);
	__asm__ volatile("" : : "r"(a), "r"(b), "r"(c), "r"(d), "r"(e));
	RETURN(value + a * b + c * d + e);
}

/* As code without frame pointers may: rbp holds any value. */
NOINLINE int rbp_is_odd(int depth)
{
	register long odd __asm__("rbp") = 0x1235;
	int value;

	ENTER();
	__asm__ volatile("" : "+r"(odd));
	value = any(depth - 1);
	__asm__ volatile("" : "+r"(odd));
	RETURN(value + (int)odd);
}

static int compare(const void *a, const void *b)
{
	ENTER();
	if (!*(const int *)a && *(const int *)b)
		any(*(const int *)b - 1);
	RETURN(*(const int *)a - *(const int *)b);
}

/* libc calls back. */
NOINLINE int sorts(int depth)
{
	int pair[2] = {0, depth};

	ENTER();
	qsort(pair, 2, sizeof(pair[0]), compare);
	RETURN(pair[1]);
}

NOINLINE int by_library(int depth)
{
	ENTER();
	RETURN(library(any, depth - 1));
}

NOINLINE static int any(int depth)
{
	static int (*const functions[])(int) = {plain,      variable, aligned, aligned_variable,
						calls_many, saves,    sorts,   by_library,
						rbp_is_odd};
	int value;

	ENTER();
	if (depth <= 0)
		value = take(depth);
	else
		value = functions[chance(sizeof(functions) / sizeof(functions[0]))](depth);
	RETURN(value);
}

NOINLINE static void scene_calls(void)
{
	ENTER();
	for (int i = 0; i < 3000; i++)
		any(i % 9);
	LEAVE();
}

NOINLINE static void scene_deep(void)
{
	ENTER();
	for (int i = 0; i < 50; i++)
		any(i * 4);
	LEAVE();
}

static void *thread_run(void *unused)
{
	ENTER();
	pthread_mutex_lock(&lock);
	for (int i = 0; i < 300; i++)
		any(i % 9);
	pthread_mutex_unlock(&lock);
	LEAVE();
	return unused;
}

NOINLINE static void scene_threads(void)
{
	pthread_t threads[4];

	ENTER();
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, thread_run, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	LEAVE();
}

#define LOCKED_BYTES (64ul << 20)

static volatile int locks, is_unlocked;

/* Holds the lock of the mappings nearly all the time: the kernel visits every page under it. */
static void *mappings_lock(void *unused)
{
	char *area = mmap(NULL, LOCKED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	madvise(area, LOCKED_BYTES, MADV_NOHUGEPAGE);
	memset(area, 1, LOCKED_BYTES);
	while (!is_unlocked) {
		locks++;
		mprotect(area, LOCKED_BYTES, PROT_READ);
		mprotect(area, LOCKED_BYTES, PROT_READ | PROT_WRITE);
	}
	munmap(area, LOCKED_BYTES);
	return unused;
}

/* Another mapping of code: what the tracer knows of addresses is void. */
NOINLINE static void scene_locked(void)
{
	pthread_t locker;

	ENTER();
	pthread_create(&locker, NULL, mappings_lock, NULL);
	for (int i = 0; i < 200; i++) {
		int before;

		mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		before = locks;
		while (locks == before)
			;
		any(i % 9);
	}
	is_unlocked = 1;
	pthread_join(locker, NULL);
	LEAVE();
}

static void handler(int signal)
{
	ENTER();
	any(signal % 5);
	LEAVE();
}

static void handle(int signal, int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};

	sigaction(signal, &action, NULL);
}

/* The handlers run at a system call, on this stack and on another one. */
NOINLINE static void scene_signals(void)
{
	stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};

	ENTER();
	handle(SIGUSR1, 0);
	sigaltstack(&stack, NULL);
	handle(SIGUSR2, SA_ONSTACK);
	for (int i = 0; i < 100; i++)
		raise(i % 2 ? SIGUSR1 : SIGUSR2);
	LEAVE();
}

static volatile sig_atomic_t ticks;

static void tick(int signal)
{
	(void)signal;
	ENTER();
	take(0);
	ticks++;
	LEAVE();
}

/* The handler interrupts the loop anywhere. */
NOINLINE static void scene_interrupts(void)
{
	struct itimerval timer = {{0, 2000}, {0, 2000}}, off = {0};
	struct sigaction action = {.sa_handler = tick};

	ENTER();
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	while (ticks < 20)
		__asm__ volatile("nop\n\tnop\n\tnop");
	setitimer(ITIMER_REAL, &off, NULL);
	LEAVE();
}

static ucontext_t outside, inside;

static void coroutine(void)
{
	struct list *whose = &current;
	int depth = whose->depth;

	/* Its stack begins here. */
	whose->depth = 0;
	ENTER();
	for (int i = 0; i < 100; i++) {
		any(i % 9);
		if (i % 10)
			continue;
		LEAVE();
		swapcontext(&inside, &outside);
		ENTER();
	}
	LEAVE();
	whose->depth = depth;
}

NOINLINE static void scene_contexts(void)
{
	static char stack[1 << 18];
	struct list mine;

	ENTER();
	mine = current;
	getcontext(&inside);
	inside.uc_stack.ss_sp = stack;
	inside.uc_stack.ss_size = sizeof(stack);
	inside.uc_link = &outside;
	makecontext(&inside, coroutine, 0);
	for (int i = 0; i <= 10; i++) {
		current.depth = 0;
		swapcontext(&outside, &inside);
		current = mine;
		any(i);
	}
	LEAVE();
}

#define HUGE_BYTES (2ul << 30) /* of one frame */

NOINLINE static void huge(unsigned long bytes)
{
	volatile char *frame = __builtin_alloca(bytes);

	ENTER();
	frame[0] = 1;
	for (int i = 0; i < 60; i++)
		any(i % 9);
	frame[0] = 2;
	LEAVE();
}

static void huge_begin(void)
{
	struct list mine = current;

	current.depth = 0;
	ENTER();
	huge(HUGE_BYTES);
	LEAVE();
	current = mine;
}

/* A frame of 2 GB, on a stack that is larger. */
NOINLINE static void scene_huge(void)
{
	size_t bytes = HUGE_BYTES + (64 << 20);
	void *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ENTER();
	if (stack != MAP_FAILED) {
		getcontext(&inside);
		inside.uc_stack.ss_sp = stack;
		inside.uc_stack.ss_size = bytes;
		inside.uc_link = &outside;
		makecontext(&inside, huge_begin, 0);
		swapcontext(&outside, &inside);
		munmap(stack, bytes);
	}
	LEAVE();
}

/* Its return address is none: the stack that can be known ends here. */
NOINLINE static void garbage(void *address)
{
	void *volatile *place_of = (void *volatile *)__builtin_frame_address(0) + 1;
	void *real = *place_of;
	struct list mine = current;

	*place_of = address;
	current.depth = 0;
	for (int i = 0; i < 20; i++)
		any(i % 9);
	current = mine;
	*place_of = real;
}

NOINLINE static void scene_garbage(void)
{
	void *addresses[] = {(void *)0x10, (void *)0xdeadbeefdeadbeef, (void *)0xffffffff81000000,
			     (void *)~0ul, addresses};

	ENTER();
	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++)
		garbage(addresses[i]);
	LEAVE();
}

static jmp_buf place;

NOINLINE static int jumps(int depth)
{
	ENTER();
	if (!depth)
		longjmp(place, 1);
	RETURN(jumps(depth - 1));
}

NOINLINE static void scene_jumps(void)
{
	volatile int depth;

	ENTER();
	depth = current.depth;
	for (volatile int i = 0; i < 100; i++) {
		if (!setjmp(place))
			jumps(i % 9);
		current.depth = depth;
		any(i % 9);
	}
	LEAVE();
}

/* The library comes and goes; the block must not name what is there no longer. */
NOINLINE static void scene_libraries(const char *path)
{
	ENTER();
	for (int i = 0; i < 20; i++) {
		void *handle = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
		int (*through)(int (*next)(int), int argument) =
			handle ? (void *)dlsym(handle, "through_library") : NULL;

		if (through)
			through(take, i);
		if (handle)
			dlclose(handle);
		any(i % 9);
	}
	LEAVE();
}

/* The library stays. */
NOINLINE static void scene_late(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW);
	int (*through)(int (*next)(int), int argument) =
		handle ? (void *)dlsym(handle, "through_library") : NULL;

	ENTER();
	for (int i = 0; i < 20 && through; i++)
		through(any, i % 9);
	LEAVE();
}

NOINLINE static void scene(const char *name, const char *path)
{
	ENTER();
	if (!strcmp(name, "calls"))
		scene_calls();
	else if (!strcmp(name, "deep"))
		scene_deep();
	else if (!strcmp(name, "threads"))
		scene_threads();
	else if (!strcmp(name, "locked"))
		scene_locked();
	else if (!strcmp(name, "signals"))
		scene_signals();
	else if (!strcmp(name, "interrupts"))
		scene_interrupts();
	else if (!strcmp(name, "contexts"))
		scene_contexts();
	else if (!strcmp(name, "huge"))
		scene_huge();
	else if (!strcmp(name, "garbage"))
		scene_garbage();
	else if (!strcmp(name, "jumps"))
		scene_jumps();
	else if (!strcmp(name, "libraries"))
		scene_libraries(path);
	else if (name[0] == '/')
		scene_late(name);
	LEAVE();
}

static void stacks_print(void)
{
	for (int i = 0; i < kept_count && i < STACKS_MAX; i++) {
		printf("%d", FIRST_SIZE + 16 * i);
		for (int k = kept[i].depth; k-- > 0;)
			printf(" %lx", (unsigned long)kept[i].addresses[k]);
		putchar('\n');
	}
	puts("end");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	void *handle = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	static char output[1 << 16];
	int forks = argc > 2 && !strcmp(argv[2], "fork");
	char byte;

	library = handle ? (int (*)(int (*)(int), int))dlsym(handle, "through_library") : NULL;
	if (!library)
		return 1;
	setvbuf(stdout, output, _IOFBF, sizeof(output));
	ENTER();
	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) == 1) {
		if (byte != '\n')
			continue;
		if (forks) {
			forks = 0;
			if (fork())
				wait(NULL);
			continue;
		}
		for (int i = 2; i < argc; i++)
			scene(argv[i], argv[1]);
		stacks_print();
	}
	return 0;
}
#endif
