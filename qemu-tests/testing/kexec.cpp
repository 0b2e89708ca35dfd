// SPDX-License-Identifier: GPL-2.0-or-later
#include "testing/kexec.h"

#include <algorithm>
#include <filesystem>

#include "lab/kernels.h"
#include "lab/lab.h"
#include "lab/layout.h"

namespace pcilend::scenarios {
namespace {

// The system calls, as kexec-tools make them: kexec_file_load(2); reboot(2) with
// LINUX_REBOOT_CMD_KEXEC.
constexpr const char* kLoad =
    "open K, '<', '/tmp/vmlinuz' or die; open I, '<', '/tmp/initrd' or die; "
    "open C, '<', '/proc/cmdline' or die; chomp($c = <C>); "
    "syscall(320, fileno(K), fileno(I), length($c) + 1, $c, 0) == 0 or die $!";
constexpr const char* kGo =
    "select(undef, undef, undef, 0.5); syscall(169, 0xfee1dead, 672274793, 0x45584543, 0)";

// What QEMU was started with.
std::string word_after(const std::vector<std::string>& command, const std::string& option) {
  const auto at = std::find(command.begin(), command.end(), option);
  return at == command.end() || at + 1 == command.end() ? std::string() : *(at + 1);
}

}  // namespace

bool can_kexec() {
  const auto artefacts = lab::Artefacts::find(lab::default_kernel());
  return artefacts && std::filesystem::exists(artefacts->bz_image());
}

Result<> kexec(const lab::Host& host) {
  const auto& command = host.machine().state().command;
  // QEMU starts an uncompressed kernel, which kexec_file_load(2) does not take.
  const auto artefacts = lab::Artefacts::find(lab::default_kernel());
  if (!artefacts) return tl::unexpected(artefacts.error());
  PCILEND_TRY(host.put(artefacts->bz_image(), "/tmp/vmlinuz"));
  PCILEND_TRY(host.put(word_after(command, "-initrd"), "/tmp/initrd"));
  const auto boot = host.run("cat /proc/sys/kernel/random/boot_id");
  if (!boot) return tl::unexpected(boot.error());
  PCILEND_TRY(host.run({"perl", "-e", kLoad}));
  // In the background, so that the answer comes before the end of this kernel.
  PCILEND_TRY(host.run(fmt::format("sync; setsid perl -e '{}' >/dev/null 2>&1 </dev/null &", kGo)));
  return lab::eventually(host.name() + " is up again", lab::kPatience, [&] {
    const auto now =
        host.exec("cat /proc/sys/kernel/random/boot_id", {{}, std::chrono::seconds(5)});
    return now && now->code == 0 && now->out != *boot;
  });
}

}  // namespace pcilend::scenarios
