// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-bar-user: as a program of a GPU does it: has a dma-buf of memory in a BAR, of
// pcilend_bar.ko, gives it to another program as descriptor 9, and looks at that memory itself.
//
//	BYTES TAKE COMMAND...	the BAR is taken from all who have it when the file TAKE is there,
//and 				its first BYTES are zeroed
//
// At its end: `seen CKSUM`, of its first BYTES, as cksum(1) has it. The exit status is the
// command's.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "pcilend/fd.h"
#include "pcilend/result.h"

namespace {

using namespace pcilend;

constexpr unsigned kExport = 0;  // of pcilend_bar.ko
constexpr unsigned kTake = 1;
constexpr int kDescriptor = 9;
constexpr useconds_t kLook = 20000;
constexpr size_t kPage = 4096;

uint32_t step(uint32_t crc, uint8_t byte) {
  crc ^= static_cast<uint32_t>(byte) << 24;
  for (int bit = 0; bit < 8; ++bit) crc = crc << 1 ^ (crc >> 31 ? 0x04c11db7U : 0U);
  return crc;
}

// Of registers of eight bytes.
uint32_t cksum(std::span<std::byte> bytes) {
  const auto* const words = reinterpret_cast<const volatile uint64_t*>(bytes.data());
  uint32_t crc = 0;
  for (size_t at = 0; at < bytes.size() / sizeof(uint64_t); ++at) {
    const uint64_t word = words[at];
    for (unsigned byte = 0; byte < sizeof word; ++byte)
      crc = step(crc, static_cast<uint8_t>(word >> 8 * byte));
  }
  for (uint64_t left = bytes.size(); left != 0; left >>= 8)
    crc = step(crc, static_cast<uint8_t>(left));
  return ~crc;
}

[[noreturn]] void become(int buffer, std::span<char*> command) {
  std::vector<char*> words(command.begin(), command.end());
  words.push_back(nullptr);
  if (::dup2(buffer, kDescriptor) == kDescriptor) ::execvp(words[0], words.data());
  std::cerr << words[0] << ": " << std::strerror(errno) << "\n";
  ::_exit(127);
}

Result<int> use(const std::string& bytes_text, const std::string& take, std::span<char*> command) {
  size_t bytes = 0;
  const auto end = std::from_chars(bytes_text.data(), bytes_text.data() + bytes_text.size(), bytes);
  if (end.ec != std::errc() || bytes == 0 || bytes % kPage != 0)
    return fail(ErrorClass::Usage, "'{}' bytes are no whole pages", bytes_text);
  const UniqueFd device(::open("/dev/pcilend-bar", O_RDWR | O_CLOEXEC));
  if (!device) return fail_errno("/dev/pcilend-bar");
  const UniqueFd buffer(::ioctl(device.get(), kExport));
  if (!buffer) return fail_errno("export of a BAR");
  const auto view = Mapping::map(buffer.get(), 0, bytes, true);
  if (!view) return tl::unexpected(view.error());
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("fork");
  if (child == 0) become(buffer.get(), command);
  int status = 0;
  for (bool taken = false; ::waitpid(child, &status, WNOHANG) == 0; ::usleep(kLook)) {
    if (taken || ::access(take.c_str(), F_OK) != 0) continue;
    if (::ioctl(device.get(), kTake) < 0) return fail_errno("taking the BAR");
    for (auto* word = reinterpret_cast<volatile uint64_t*>(view->bytes().data());
         word != reinterpret_cast<volatile uint64_t*>(view->bytes().data() + bytes); ++word)
      *word = 0;
    std::cout << "taken" << std::endl;
    taken = true;
  }
  std::cout << "seen " << cksum(view->bytes()) << std::endl;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: bar-user BYTES TAKE COMMAND...\n";
    return static_cast<int>(ErrorClass::Usage);
  }
  const std::span<char*> arguments(argv, static_cast<size_t>(argc));
  const auto done = use(argv[1], argv[2], arguments.subspan(3));
  if (done) return *done;
  std::cerr << done.error().message << "\n";
  return static_cast<int>(done.error().kind);
}
