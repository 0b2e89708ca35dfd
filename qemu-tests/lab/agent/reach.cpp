// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-lab-reach: runs in the lab's guests and shows that a drive reaches their memory wherever
// it lies. The drive's DMA goes straight to the pages whose addresses are known here: direct I/O,
// page by page, and no IOMMU in the guest.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "pcilend/fd.h"
#include "pcilend/result.h"

namespace {

using namespace pcilend;

constexpr char kUsage[] =
    "usage: pcilend-lab-reach [--in FILE] DISK MIB START-END...\n"
    "         takes MIB of memory, or of a file that is mapped as such; 16 pages of what lies in "
    "each range (physical addresses,\n"
    "         hexadecimal) are written to the beginning of DISK, and read from it into each "
    "other\n";
constexpr size_t kPage = 4096;
constexpr size_t kPagesOfARange = 16;
constexpr int kAttempts = 8;  // until none of the chosen pages is moved under way

struct Page {
  uint64_t physical;
  uint64_t* at;
};

// Of `count` pages from `address` on in this process; 0 where there is none.
Result<std::vector<uint64_t>> physical(const UniqueFd& pagemap, const void* address, size_t count) {
  constexpr uint64_t kPresent = uint64_t{1} << 63, kFrame = (uint64_t{1} << 55) - 1;
  std::vector<uint64_t> entries(count);
  const auto size = static_cast<ssize_t>(count * sizeof(uint64_t));
  const auto offset = reinterpret_cast<uintptr_t>(address) / kPage * sizeof(uint64_t);
  if (::pread(pagemap.get(), entries.data(), count * sizeof(uint64_t),
              static_cast<off_t>(offset)) != size)
    return fail_errno("/proc/self/pagemap");
  for (uint64_t& entry : entries) entry = entry & kPresent ? (entry & kFrame) * kPage : 0;
  return entries;
}

// Of the file, if there is one: its pages are where it lies, if it lies in memory.
Result<std::span<char>> take(size_t mib, const char* file) {
  const size_t size = mib << 20;
  const UniqueFd fd(file ? ::open(file, O_RDWR | O_CLOEXEC) : -1);
  if (file && !fd) return fail_errno(file);
  void* memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
             (file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_POPULATE, fd.get(), 0);
  if (memory == MAP_FAILED) return fail_errno(fmt::format("{} MiB", mib));
  return std::span(static_cast<char*>(memory), size);
}

// Its pages, sorted by their addresses.
Result<std::vector<Page>> pages_of(const UniqueFd& pagemap, std::span<char> memory) {
  const auto addresses = physical(pagemap, memory.data(), memory.size() / kPage);
  if (!addresses) return tl::unexpected(addresses.error());
  std::vector<Page> pages;
  for (const uint64_t address : *addresses) {
    char* const at = memory.data() + pages.size() * kPage;
    pages.push_back({address, reinterpret_cast<uint64_t*>(at)});
  }
  std::sort(pages.begin(), pages.end(),
            [](const Page& a, const Page& b) { return a.physical < b.physical; });
  return pages;
}

// Evenly from all that lie in the range, the first and the last among them.
Result<std::vector<Page>> choose(const std::vector<Page>& pages, const char* range) {
  unsigned long start = 0, end = 0;
  if (std::sscanf(range, "%lx-%lx", &start, &end) != 2)
    return fail(ErrorClass::Usage, "'{}' is not a range, as in 100000000-140000000", range);
  std::vector<Page> inside;
  for (const Page& page : pages)
    if (page.physical >= start && page.physical < end) inside.push_back(page);
  if (inside.size() < kPagesOfARange)
    return fail(ErrorClass::Failure, "{}: only {} of {} pages lie there", range, inside.size(),
                pages.size());
  std::vector<Page> chosen;
  for (size_t i = 0; i < kPagesOfARange; ++i)
    chosen.push_back(inside[i * (inside.size() - 1) / (kPagesOfARange - 1)]);
  fmt::print("{}: {} pages, from {:#x} to {:#x}\n", range, inside.size(), chosen.front().physical,
             chosen.back().physical);
  return chosen;
}

void fill(uint64_t* page, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::generate_n(page, kPage / sizeof(*page), random);
}

Result<> exercise(const char* disk, const std::vector<Page>& pages) {
  const UniqueFd drive(::open(disk, O_RDWR | O_DIRECT | O_CLOEXEC));
  if (!drive) return fail_errno(disk);
  const uint64_t seed = std::random_device()();
  for (size_t i = 0; i < pages.size(); ++i) {
    fill(pages[i].at, seed + i);
    if (::pwrite(drive.get(), pages[i].at, kPage, static_cast<off_t>(i * kPage)) != kPage)
      return fail_errno(fmt::format("{}: write from {:#x}", disk, pages[i].physical));
  }
  for (size_t i = 0; i < pages.size(); ++i) {
    const size_t from = (i + pages.size() / 2) % pages.size();
    std::memset(pages[i].at, 0, kPage);
    if (::pread(drive.get(), pages[i].at, kPage, static_cast<off_t>(from * kPage)) != kPage)
      return fail_errno(fmt::format("{}: read into {:#x}", disk, pages[i].physical));
    uint64_t expected[kPage / sizeof(uint64_t)];
    fill(expected, seed + from);
    if (std::memcmp(pages[i].at, expected, kPage) != 0)
      return fail(ErrorClass::Failure, "{}: {:#x} does not hold what was written from {:#x}", disk,
                  pages[i].physical, pages[from].physical);
  }
  return {};
}

// The page that is elsewhere now, and where.
Result<std::optional<std::string>> moved(const UniqueFd& pagemap, const std::vector<Page>& pages) {
  for (const Page& page : pages) {
    const auto now = physical(pagemap, page.at, 1);
    if (!now) return tl::unexpected(now.error());
    if (now->front() != page.physical)
      return fmt::format("{:#x} to {:#x}", page.physical, now->front());
  }
  return std::nullopt;
}

// The guest's kernel compacts memory when it likes. What was compared holds wherever the pages have
// been, but shows nothing of these ranges then: others are chosen.
Result<> reach(const char* file, const char* disk, size_t mib,
               const std::vector<const char*>& ranges) {
  const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (!pagemap) return fail_errno("/proc/self/pagemap");
  const auto memory = take(mib, file);
  if (!memory) return tl::unexpected(memory.error());
  std::string last;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto all = pages_of(pagemap, *memory);
    if (!all) return tl::unexpected(all.error());
    std::vector<Page> pages;
    for (const char* range : ranges) {
      const auto chosen = choose(*all, range);
      if (!chosen) return tl::unexpected(chosen.error());
      pages.insert(pages.end(), chosen->begin(), chosen->end());
    }
    PCILEND_TRY(exercise(disk, pages));
    const auto page = moved(pagemap, pages);
    if (!page) return tl::unexpected(page.error());
    if (!*page) return {};
    last = **page;
    fmt::print("the kernel has moved {} meanwhile\n", last);
  }
  return fail(ErrorClass::Failure, "{} times the kernel has moved a page meanwhile, the last {}",
              kAttempts, last);
}

}  // namespace

int main(int argc, char** argv) {
  const char* file = nullptr;
  if (argc > 2 && std::strcmp(argv[1], "--in") == 0) {
    file = argv[2];
    argv += 2;
    argc -= 2;
  }
  const int mib = argc < 4 ? 0 : std::atoi(argv[2]);
  if (mib <= 0) {
    std::fputs(kUsage, stderr);
    return static_cast<int>(ErrorClass::Usage);
  }
  const auto reached = reach(file, argv[1], static_cast<size_t>(mib),
                             std::vector<const char*>(argv + 3, argv + argc));
  if (reached) return 0;
  fmt::print(stderr, "pcilend-lab-reach: {}\n", reached.error().message);
  return static_cast<int>(reached.error().kind);
}
