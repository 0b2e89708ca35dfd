// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/payload.h"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>

#include "lab/cpio.h"
#include "pcilend/environment.h"
#include "pcilend/fd.h"

namespace pcilend::lab {

namespace fs = std::filesystem;

namespace {

constexpr const char* kGuestInitrd = "usr/share/pcilend-lab/guest/initrd";

// What an installation has besides programs: files below build/system, at their places in a host.
std::vector<PayloadFile> system_files(const Artefacts& artefacts) {
  std::vector<PayloadFile> files;
  const fs::path top = artefacts.bin.parent_path() / "system";
  std::error_code error;
  for (fs::recursive_directory_iterator it(top, error), end; !error && it != end;
       it.increment(error))
    if (it->is_regular_file(error)) {
      const auto owner = it->status(error).permissions() & fs::perms::owner_exec;
      files.push_back({it->path(), "/" + it->path().lexically_relative(top).native(),
                       owner == fs::perms::none ? 0644u : 0755u});
    }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

Result<> write_file(const std::string& path, std::string_view content) {
  // Not replace_file(): run state need not reach the disk.
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) return fail_errno(path);
  if (auto written = write_all(fd.get(), std::as_bytes(std::span(content))); !written)
    return tl::unexpected(std::move(written).error().in(path));
  return {};
}

}  // namespace

Result<std::string> kernel_release(const Artefacts& artefacts) {
  const auto text = Environment().read(artefacts.release());
  if (!text) return tl::unexpected(text.error());
  const std::string release = text->substr(0, text->find('\n'));
  if (release.empty() || release.find('/') != std::string::npos)
    return fail(ErrorClass::Failure, "{} names no kernel release: run 'make image' again",
                artefacts.release());
  return release;
}

Result<std::vector<PayloadFile>> payload_files(const Artefacts& artefacts,
                                               const std::string& release) {
  std::vector<PayloadFile> files = {
      {artefacts.agent(), "/usr/lib/pcilend-lab/agent", 0755},
  };
  const PayloadFile programs[] = {
      {artefacts.tool(), "/usr/sbin/pcilend", 0755},
      {artefacts.libvirt_hook(), "/usr/sbin/pcilend-libvirt-hook", 0755},
      {artefacts.vfio_client(), "/usr/lib/pcilend-lab/vfio-client", 0755},
      {artefacts.bin / "pcilend-lease-user", "/usr/lib/pcilend-lab/lease-user", 0755},
      {artefacts.bin / "pcilend-interrupt-user", "/usr/lib/pcilend-lab/interrupt-user", 0755},
      {artefacts.bin / "pcilend-nvme-bench", "/usr/lib/pcilend-lab/nvme-bench", 0755},
      {artefacts.bin / "pcilend-nvme-disk", "/usr/libexec/pcilend/pcilend-nvme-disk", 0755},
      {artefacts.bin / "pcilend-nvme-intruder", "/usr/lib/pcilend-lab/nvme-intruder", 0755},
      {artefacts.bin / "fence_pcilend", "/usr/sbin/fence_pcilend", 0755},
      {artefacts.bin / "pcilend-nvme-manager", "/usr/sbin/pcilend-nvme-manager", 0755},
      {artefacts.bin / "pcilend-bar-user", "/usr/lib/pcilend-lab/bar-user", 0755},
      {artefacts.bin / "pcilend-path-user", "/usr/lib/pcilend-lab/path-user", 0755},
      {artefacts.bin / "pcilend-share-user", "/usr/lib/pcilend-lab/share-user", 0755},
      {artefacts.bin / "pcilend-segment-user", "/usr/lib/pcilend-lab/segment-user", 0755},
      {artefacts.bin / "pcilend-target-user", "/usr/lib/pcilend-lab/target-user", 0755},
  };
  for (const PayloadFile& program : programs)
    if (fs::exists(program.source)) files.push_back(program);
  for (PayloadFile& file : system_files(artefacts)) files.push_back(std::move(file));

  // The modules, and depmod's index with them: depmod itself takes a host seconds.
  std::vector<PayloadFile> modules;
  std::error_code error;
  const std::string place = "/usr/lib/modules/" + release;
  for (const auto& entry : fs::directory_iterator(artefacts.modules, error))
    if (entry.path().extension() == ".ko")
      modules.push_back({entry.path(), place + "/updates/" + entry.path().filename().native()});
  for (const auto& entry : fs::directory_iterator(artefacts.modules / "index", error))
    modules.push_back({entry.path(), place + "/" + entry.path().filename().native()});
  std::sort(modules.begin(), modules.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  files.insert(files.end(), modules.begin(), modules.end());
  return files;
}

Result<std::string> guest_initrd(const Artefacts& artefacts) {
  auto archive = Environment().read(artefacts.guest_initrd());
  if (!archive) return tl::unexpected(archive.error());
  const auto agent = Environment().read(artefacts.agent());
  if (!agent) return tl::unexpected(agent.error());
  const auto peer = Environment().read(artefacts.peer());
  if (!peer) return tl::unexpected(peer.error());
  const auto reach = Environment().read(artefacts.reach());
  if (!reach) return tl::unexpected(reach.error());
  CpioWriter addition;
  addition.add_file("agent", *agent, 0755);
  addition.add_file("bin/peer", *peer, 0755);
  addition.add_file("bin/reach", *reach, 0755);
  pad_archive(*archive);
  return *archive + std::move(addition).finish();
}

Result<> write_initrd(const Artefacts& artefacts, const std::string& path) {
  const auto release = kernel_release(artefacts);
  if (!release) return tl::unexpected(release.error());
  const auto files = payload_files(artefacts, *release);
  if (!files) return tl::unexpected(files.error());
  auto guest = guest_initrd(artefacts);
  if (!guest) return tl::unexpected(guest.error());
  auto archive = Environment().read(artefacts.initrd());
  if (!archive) return tl::unexpected(archive.error());

  CpioWriter payload;
  for (const PayloadFile& file : *files) {
    const auto content = Environment().read(file.source);
    if (!content) return tl::unexpected(content.error());
    payload.add_file("payload" + file.path, *content, file.permissions);
  }
  payload.add_file(std::string("payload/") + kGuestInitrd, *guest, 0644);
  pad_archive(*archive);
  return write_file(path, *archive + std::move(payload).finish());
}

}  // namespace pcilend::lab
