// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-lab-peer: runs in the lab's guests. QEMU's edu device (docs/specs/edu.rst) copies a page
// of another function's BAR by DMA into its buffer and on into memory, and back, by guest-physical
// addresses, as a driver would in a guest without IOMMU; and the data is compared.
//
// What the CPU does is the same however often the copies between the two functions are repeated.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "pcilend/fd.h"
#include "pcilend/result.h"

namespace {

using namespace pcilend;
using namespace std::chrono_literals;

constexpr char kUsage[] =
    "usage: pcilend-lab-peer EDU TARGET BAR REPEAT SHIFT\n"
    "         EDU and TARGET are PCI addresses of functions without driver; each copy between "
    "them\n"
    "         is made REPEAT times, with the BAR SHIFT bytes further on than it is\n";
constexpr size_t kPage = 4096;
constexpr size_t kWords = kPage / sizeof(uint32_t);

// Registers of edu; see the specification.
constexpr size_t kSource = 0x80, kDestination = 0x88, kCount = 0x90, kCommand = 0x98;
constexpr uint64_t kRun = 1, kFromBuffer = 2, kBuffer = 0x40000;

// Its registers are left alone while it copies: in the lab, hosts that read from one another at the
// same time get all-ones.
constexpr auto kCopyTime = 400ms;
constexpr int kPolls = 100;

class Page {
 public:
  static Result<Page> anonymous() { return map(-1, 0, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED); }
  static Result<Page> device(const UniqueFd& memory, uint64_t address) {
    return map(memory.get(), address, MAP_SHARED);
  }
  Page(Page&& other) noexcept : at_(std::exchange(other.at_, nullptr)) {}
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  Page& operator=(Page&&) = delete;
  ~Page() {
    if (at_) ::munmap(at_, kPage);
  }

  [[nodiscard]] volatile uint32_t& word(size_t i) const {
    return static_cast<volatile uint32_t*>(at_)[i];
  }
  [[nodiscard]] volatile uint64_t& quad(size_t offset) const {
    return static_cast<volatile uint64_t*>(at_)[offset / sizeof(uint64_t)];
  }
  [[nodiscard]] uintptr_t address() const { return reinterpret_cast<uintptr_t>(at_); }

 private:
  explicit Page(void* at) : at_(at) {}
  static Result<Page> map(int fd, uint64_t offset, int flags) {
    void* at =
        ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(offset));
    if (at == MAP_FAILED) return fail_errno(fmt::format("a page at {:#x}", offset));
    return Page(at);
  }

  void* at_;
};

// Of this process.
Result<uint64_t> physical(const Page& page) {
  const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  uint64_t entry = 0;
  if (!pagemap ||
      ::pread(pagemap.get(), &entry, sizeof(entry),
              static_cast<off_t>(page.address() / kPage * sizeof(entry))) != sizeof(entry))
    return fail_errno("/proc/self/pagemap");
  if (!(entry >> 63)) return fail(ErrorClass::Failure, "the page is not in memory");
  return (entry & ((uint64_t{1} << 55) - 1)) * kPage;
}

class Function {
 public:
  static Result<Function> enable(const std::string& address) {
    const std::string path = "/sys/bus/pci/devices/" + address;
    if (!(std::ofstream(path + "/enable") << "1" << std::flush))
      return fail(ErrorClass::Failure, "{} can't be enabled: has it a driver?", address);
    UniqueFd config(::open((path + "/config").c_str(), O_RDWR | O_CLOEXEC));
    if (!config) return fail_errno(path + "/config");
    return Function(path, std::move(config));
  }

  [[nodiscard]] Result<uint64_t> bar(unsigned int number) const {
    std::ifstream lines(path_ + "/resource");
    std::string line;
    for (unsigned int i = 0; i <= number; ++i) std::getline(lines, line);
    unsigned long long start = 0;
    if (std::sscanf(line.c_str(), "%llx", &start) != 1 || !start)
      return fail(ErrorClass::Failure, "{} has no BAR {}", path_, number);
    return start;
  }
  // Memory and bus mastering.
  [[nodiscard]] Result<> let_master() const { return put<uint16_t>(0x04, 0x0006); }
  // Its lower half; it stays in the same 4 GiB.
  [[nodiscard]] Result<> move_bar(unsigned int number, uint64_t address) const {
    return put<uint32_t>(0x10 + 4 * number, static_cast<uint32_t>(address));
  }

 private:
  Function(std::string path, UniqueFd config)
      : path_(std::move(path)), config_(std::move(config)) {}
  template <typename Register>
  [[nodiscard]] Result<> put(size_t offset, Register value) const {
    if (::pwrite(config_.get(), &value, sizeof(value), static_cast<off_t>(offset)) != sizeof(value))
      return fail_errno(path_ + "/config");
    return {};
  }

  std::string path_;
  UniqueFd config_;
};

uint32_t pattern(size_t word, uint32_t seed) {
  return static_cast<uint32_t>(word + 1) * 2654435761U ^ seed;
}

void fill(const Page& page, uint32_t seed) {
  for (size_t i = 0; i < kWords; ++i) page.word(i) = pattern(i, seed);
}

Result<> compare(const Page& page, const char* where, uint32_t seed) {
  for (size_t i = 0; i < kWords; ++i) {
    const uint32_t word = page.word(i);
    if (word != pattern(i, seed))
      return fail(ErrorClass::Failure, "word {} in {} is {:08x}, not {:08x}", i, where, word,
                  pattern(i, seed));
  }
  return {};
}

// One of the two addresses is in its buffer.
Result<> copy(const Page& edu, uint64_t source, uint64_t destination, uint64_t direction) {
  edu.quad(kSource) = source;
  edu.quad(kDestination) = destination;
  edu.quad(kCount) = kPage;
  edu.quad(kCommand) = kRun | direction;
  for (int i = 0; i < kPolls; ++i) {
    std::this_thread::sleep_for(kCopyTime);
    if (!(edu.quad(kCommand) & kRun)) return {};
  }
  return fail(ErrorClass::Failure, "DMA does not end");
}

Result<> copy_both_ways(const Page& edu, const Page& peer, uint64_t peer_address, int repeat) {
  const auto memory = Page::anonymous();
  if (!memory) return tl::unexpected(memory.error());
  fill(*memory, 0);
  const auto memory_address = physical(*memory);
  if (!memory_address) return tl::unexpected(memory_address.error());

  fill(peer, 0x5a000001);
  for (int i = 0; i < repeat; ++i) PCILEND_TRY(copy(edu, peer_address, kBuffer, 0));
  PCILEND_TRY(copy(edu, kBuffer, *memory_address, kFromBuffer));
  PCILEND_TRY(compare(*memory, "memory", 0x5a000001));

  fill(*memory, 0xa5000002);
  PCILEND_TRY(copy(edu, *memory_address, kBuffer, 0));
  for (int i = 0; i < repeat; ++i) PCILEND_TRY(copy(edu, kBuffer, peer_address, kFromBuffer));
  // Its writes and the CPU's reads may go different ways.
  PCILEND_TRY(copy(edu, peer_address, kBuffer, 0));
  return compare(peer, "the BAR", 0xa5000002);
}

Result<> exercise(const std::string& edu_name, const std::string& target_name, unsigned int bar,
                  int repeat, uint64_t shift) {
  const auto edu = Function::enable(edu_name);
  if (!edu) return tl::unexpected(edu.error());
  const auto target = Function::enable(target_name);
  if (!target) return tl::unexpected(target.error());
  const auto registers = edu->bar(0);
  if (!registers) return tl::unexpected(registers.error());
  const auto home = target->bar(bar);
  if (!home) return tl::unexpected(home.error());
  const UniqueFd memory(::open("/dev/mem", O_RDWR | O_SYNC | O_CLOEXEC));
  if (!memory) return fail_errno("/dev/mem");
  const auto edu_page = Page::device(memory, *registers);
  if (!edu_page) return tl::unexpected(edu_page.error());
  const auto peer = Page::device(memory, *home + shift);
  if (!peer) return tl::unexpected(peer.error());

  PCILEND_TRY(edu->let_master());
  if (shift) PCILEND_TRY(target->move_bar(bar, *home + shift));
  const auto copied = copy_both_ways(*edu_page, *peer, *home + shift, repeat);
  if (shift) PCILEND_TRY(target->move_bar(bar, *home));
  if (copied) fmt::print("{} reaches {} at {:#x}\n", edu_name, target_name, *home + shift);
  return copied;
}

}  // namespace

int main(int argc, char** argv) {
  const int repeat = argc == 6 ? std::atoi(argv[4]) : 0;
  if (repeat <= 0) {
    std::fputs(kUsage, stderr);
    return static_cast<int>(ErrorClass::Usage);
  }
  const auto done = exercise(argv[1], argv[2], static_cast<unsigned int>(std::atoi(argv[3])),
                             repeat, std::strtoull(argv[5], nullptr, 0));
  if (done) return 0;
  fmt::print(stderr, "pcilend-lab-peer: {}\n", done.error().message);
  return static_cast<int>(done.error().kind);
}
