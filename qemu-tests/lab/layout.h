// SPDX-License-Identifier: GPL-2.0-or-later
// Where a lab's files are, and where what it is made from is.
#pragma once

#include <filesystem>
#include <string>

#include "pcilend/result.h"

namespace pcilend::lab {

// The directory of one lab and the files in it.
class Layout {
 public:
  // ${PCILEND_LAB_DIR:-/run/pcilend-lab}/NAME. The name must be valid (check_lab_name).
  static Layout of(const std::string& name);
  // The directory of all labs.
  static std::filesystem::path base();
  explicit Layout(std::filesystem::path dir) : dir_(std::move(dir)) {}

  [[nodiscard]] std::string dir() const { return dir_; }
  // Beside the directory, so that it outlives its removal.
  [[nodiscard]] std::string lock() const { return dir_.native() + ".lock"; }
  [[nodiscard]] std::string state() const { return dir_ / "lab.json"; }
  [[nodiscard]] std::string watcher_pid() const { return dir_ / "watcher.pid"; }
  [[nodiscard]] std::string watcher_log() const { return dir_ / "watcher.log"; }
  [[nodiscard]] std::string initrd() const { return dir_ / "initrd"; }

  [[nodiscard]] std::string fabric_dir() const { return dir_ / "fabric"; }
  [[nodiscard]] std::string fabric_control() const { return dir_ / "fabric/control.sock"; }
  [[nodiscard]] std::string fabric_log() const { return dir_ / "fabric.log"; }
  [[nodiscard]] std::string fabric_pid() const { return dir_ / "fabric.pid"; }
  [[nodiscard]] std::string rogue_control() const { return dir_ / "fabric/rogue.sock"; }
  [[nodiscard]] std::string rogue_log() const { return dir_ / "rogue.log"; }
  [[nodiscard]] std::string rogue_pid() const { return dir_ / "rogue.pid"; }
  // An adapter that host `a` has towards host `b`; paths count from 1.
  [[nodiscard]] std::string adapter(int a, int b, int path = 1) const;

  [[nodiscard]] std::string console(int host) const { return of_host(host, "console"); }
  [[nodiscard]] std::string qemu_log(int host) const { return of_host(host, "qemu.log"); }
  [[nodiscard]] std::string qemu_pid(int host) const { return of_host(host, "pid"); }
  // Where in the console's log the present boot begins.
  [[nodiscard]] std::string boot(int host) const { return of_host(host, "boot"); }
  [[nodiscard]] std::string power_lock(int host) const { return of_host(host, "power.lock"); }
  [[nodiscard]] std::string qmp(int host) const { return of_host(host, "qmp"); }
  // The agent's ports: this, and this with ".1", ".2"… behind it.
  [[nodiscard]] std::string agent(int host) const { return of_host(host, "agent"); }
  [[nodiscard]] std::string root_overlay(int host) const { return of_host(host, "root.qcow2"); }
  [[nodiscard]] std::string drive(int host, const std::string& device) const;

 private:
  [[nodiscard]] std::string of_host(int host, const char* what) const;

  std::filesystem::path dir_;
};

// What a lab is started from.
struct Artefacts {
  std::filesystem::path bin;      // programs
  std::filesystem::path image;    // QEMU, kernels, file systems
  std::filesystem::path modules;  // of the kernel that the lab runs

  // Beside and above the directory of `program` (build/bin/pcilend-lab, build/sanitize/bin/…);
  // PCILEND_BUILD_DIR names another build directory for image and modules.
  static Result<Artefacts> find(const std::filesystem::path& program, const std::string& kernel);
  static Result<Artefacts> find(const std::string& kernel);

  [[nodiscard]] std::string qemu() const { return image / "qemu-system-x86_64"; }
  [[nodiscard]] std::string qemu_img() const { return image / "qemu-img"; }
  [[nodiscard]] std::string vmlinuz() const { return image / ("vmlinuz-" + kernel); }
  // The same, compressed, as a boot loader takes it; of the debug kernel there is none.
  [[nodiscard]] std::string bz_image() const { return image / ("bzimage-" + kernel); }
  [[nodiscard]] std::string release() const { return image / ("release-" + kernel); }
  [[nodiscard]] std::string initrd() const { return image / ("initrd-" + kernel); }
  [[nodiscard]] std::string root() const { return image / ("root-" + kernel + ".ext4"); }
  // Made only when it is asked for.
  [[nodiscard]] std::string installed() const { return image / ("installed-" + kernel + ".ext4"); }
  [[nodiscard]] std::string guest_initrd() const { return image / "guest-initrd"; }
  // What scenarios attach to hosts (image/build --attached).
  [[nodiscard]] std::string cluster() const { return image / "cluster.ext4"; }
  [[nodiscard]] std::string vfio_users() const { return image / "vfio-users.ext4"; }
  [[nodiscard]] std::string guest_disk() const { return image / "guest-disk.img"; }
  [[nodiscard]] std::string lab() const { return bin / "pcilend-lab"; }
  [[nodiscard]] std::string agent() const { return bin / "pcilend-lab-agent"; }
  [[nodiscard]] std::string peer() const { return bin / "pcilend-lab-peer"; }
  [[nodiscard]] std::string reach() const { return bin / "pcilend-lab-reach"; }
  [[nodiscard]] std::string fabric() const { return bin / "ntb-fabric"; }
  [[nodiscard]] std::string rogue() const { return bin / "ntb-rogue"; }
  // Put into the hosts if they are there.
  [[nodiscard]] std::string tool() const { return bin / "pcilend"; }
  [[nodiscard]] std::string libvirt_hook() const { return bin / "pcilend-libvirt-hook"; }
  [[nodiscard]] std::string vfio_client() const { return bin / "pcilend-vfio-client"; }

  std::string kernel;
};

}  // namespace pcilend::lab
