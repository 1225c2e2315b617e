/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A C++ program whose requests are the same in every run: containers that grow, shrink, move and
 * go. usage: containers [wait]
 *
 * With "wait" it speaks as golden.py does: "ready", then for each line on its stdin some work, and
 * a line of JSON with the bytes and blocks that its containers have from their allocator. Without,
 * it works three times and ends; what is kept then is never given back.
 */
#include <cstdio>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

static long long live_bytes, live_blocks;

/* Keeps the books of what a container asks operator new for. */
template <typename T> struct counting {
	using value_type = T;
	counting() = default;
	template <typename U> counting(const counting<U> &)
	{
	}
	T *allocate(size_t count)
	{
		live_bytes += (long long)(count * sizeof(T));
		live_blocks++;
		return static_cast<T *>(::operator new(count * sizeof(T)));
	}
	void deallocate(T *block, size_t count)
	{
		live_bytes -= (long long)(count * sizeof(T));
		live_blocks--;
		::operator delete(block, count * sizeof(T));
	}
	template <typename U> bool operator==(const counting<U> &) const
	{
		return true;
	}
	template <typename U> bool operator!=(const counting<U> &) const
	{
		return false;
	}
};

using text = std::basic_string<char, std::char_traits<char>, counting<char>>;
template <typename T> using many = std::vector<T, counting<T>>;

struct state {
	many<text> names;
	std::map<int, text, std::less<int>, counting<std::pair<const int, text>>> by_number;
	std::unordered_map<int, many<int>, std::hash<int>, std::equal_to<int>,
			   counting<std::pair<const int, many<int>>>>
		lists;
	std::list<text, counting<text>> queue;
	std::deque<int, counting<int>> ring;
};

/* Nobody destroys the state. */
static void work(void *place, int round)
{
	state &kept = round ? *static_cast<state *>(place) : *new (place) state;

	for (int i = 0; i < 3000; i++) {
		int key = round * 3000 + i;
		text name(static_cast<size_t>(10 + i % 90), 'x');

		kept.names.push_back(name);
		kept.by_number[key] = name;
		kept.lists[key % 500].push_back(key);
		kept.queue.push_back(std::move(name));
		kept.ring.push_back(key);
		if (i % 3 == 0)
			kept.queue.pop_front();
		if (i % 7 == 0)
			kept.by_number.erase(kept.by_number.begin());
	}
	kept.names.resize(kept.names.size() / 2);
	kept.names.shrink_to_fit();
}

int main(int count, char **arguments)
{
	bool waits = count > 1 && !strcmp(arguments[1], "wait");
	alignas(state) static char place[sizeof(state)];
	char line[16];
	static char buffer[4096];

	setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	if (!waits) {
		for (int round = 0; round < 3; round++)
			work(place, round);
		printf("{\"own\": [%lld, %lld]}\n", live_bytes, live_blocks);
		return 0;
	}
	puts("ready");
	fflush(stdout);
	for (int round = 0; fgets(line, sizeof(line), stdin); round++) {
		work(place, round);
		printf("{\"own\": [%lld, %lld]}\n", live_bytes, live_blocks);
		fflush(stdout);
	}
	return 0;
}
