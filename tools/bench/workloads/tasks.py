"""asyncio tasks that do nothing but allocate: four with names, 100 rounds of w1's between two awaits.
usage: tasks.py NFRAME ROUNDS    NFRAME 0 = untraced, else tracemalloc with that many frames. Prints the seconds of the work."""
import asyncio, sys, time, tracemalloc

from works import churn, leaf

TASKS = 4


async def work(rounds, kept):
    for i in range(rounds):
        kept.append(leaf(i))
        churn(i)
        if i % 100 == 99:
            await asyncio.sleep(0)


async def main(rounds, kept):
    await asyncio.gather(
        *(asyncio.create_task(work(rounds // TASKS, kept), name="worker-%d" % i) for i in range(TASKS))
    )


nframe, rounds = int(sys.argv[1]), int(sys.argv[2])
if nframe:
    tracemalloc.start(nframe)
kept = []
start = time.perf_counter()
asyncio.run(main(rounds, kept))
print(f"{time.perf_counter() - start:.3f}")
