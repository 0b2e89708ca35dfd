// SPDX-License-Identifier: GPL-2.0-or-later
// libvirt runs it, by /etc/libvirt/hooks/qemu.d/pcilend, with the domain's name, an operation, a
// sub-operation and an extra argument, and the domain's XML on stdin. Nothing goes to stdout, which
// libvirt would take for changed XML. https://libvirt.org/hooks.html
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "hook.h"
#include "pcilend/fd.h"

namespace pcilend {
namespace {

// Who runs the hook: libvirtd, which does not end it when it is restarted (KillMode=process) or
// crashes.
class Caller {
 public:
  Caller() : fd_(static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0))) {}

  // False also if this kernel does not tell.
  [[nodiscard]] bool gone() const {
    pollfd waiting{fd_.get(), POLLIN, 0};
    return fd_ && ::poll(&waiting, 1, 0) == 1;
  }

 private:
  UniqueFd fd_;
};

constexpr std::chrono::seconds kStepLimit{20};

Result<std::string> read_stdin() {
  std::string text;
  char chunk[65536];
  for (;;) {
    pollfd waiting{STDIN_FILENO, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, std::chrono::milliseconds(kStepLimit).count());
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return fail(ErrorClass::Unreachable, "libvirt sent no domain XML on stdin");
    const ssize_t n = ready < 0 ? -1 : ::read(STDIN_FILENO, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("stdin");
    if (n == 0) return text;
    text.append(chunk, static_cast<size_t>(n));
    if (text.size() > kDomainXmlBytesMax)
      return fail(ErrorClass::Usage, "the domain's XML is larger than {} bytes",
                  kDomainXmlBytesMax);
  }
}

Result<> run(Phase phase) {
  const Caller caller;
  const auto xml = read_stdin();
  if (!xml) return tl::unexpected(xml.error());
  const auto domain = parse_domain_xml(*xml);
  if (!domain) return tl::unexpected(domain.error());
  return supervise(kStepLimit, [&](Steps& steps) {
    const Environment environment;
    const PciNames names;
    HookContext context{environment,
                        names,
                        [] { return open_client(); },
                        [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); },
                        [] { return std::chrono::steady_clock::now(); },
                        steps,
                        [&caller] { return caller.gone(); },
                        ::geteuid() == 0};
    switch (phase) {
      case Phase::Prepare:
        return prepare_domain(context, *domain);
      case Phase::Reconnect:
        return reconcile_domain(context, *domain);
      default:
        return release_domain(context, *domain);
    }
  });
}

}  // namespace
}  // namespace pcilend

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: pcilend-libvirt-hook DOMAIN OPERATION SUB-OPERATION [EXTRA] <XML\n", stderr);
    return static_cast<int>(pcilend::ErrorClass::Usage);
  }
  const pcilend::Phase phase = pcilend::phase_of(argv[2], argv[3]);
  if (phase == pcilend::Phase::Other) return 0;
  const auto done = pcilend::run(phase);
  if (done) return 0;
  std::fprintf(stderr, "pcilend: domain '%s': %s\n", argv[1], done.error().message.c_str());
  return phase == pcilend::Phase::Reconnect ? 0 : static_cast<int>(done.error().kind);
}
