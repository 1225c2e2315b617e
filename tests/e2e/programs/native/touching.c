/* SPDX-License-Identifier: Apache-2.0 */
/* Prints "ready", and touches memory and releases it for ever, with some work in between. */
#include <stdio.h>
#include <sys/mman.h>

#define BYTES (16ul << 20)
#define PAGE  4096ul
#define WORK  2000

int main(void)
{
	volatile unsigned char *area =
		mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int sum = 0;

	if (area == MAP_FAILED)
		return 1;
	madvise((void *)area, BYTES, MADV_NOHUGEPAGE);
	puts("ready");
	fflush(stdout);
	for (;;) {
		for (unsigned long i = 0; i < BYTES; i += PAGE) {
			area[i] = 1; /* # line touching */
			for (int n = 0; n < WORK; n++)
				sum = sum * 31 + area[i];
		}
		madvise((void *)area, BYTES, MADV_DONTNEED);
		if (sum == 12345)
			puts("once");
	}
}
