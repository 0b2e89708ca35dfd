// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/pci_names.h"

extern "C" {
#include <pci/pci.h>
}

#include <array>
#include <csetjmp>
#include <cstring>

namespace pcilend {
namespace {

// libpci wants an error handler that does not return, and calls it for a malformed pci.ids. Only C
// frames of libpci lie between the handler and look_up().
thread_local std::jmp_buf on_error;

__attribute__((noreturn)) void give_up(char*, ...) {
  std::longjmp(on_error, 1);
}
void ignore(char*, ...) {}

}  // namespace

struct PciNames::Access {
  pci_access* pci = pci_alloc();
  int errors = 0;

  Access() {
    pci->error = give_up;
    pci->warning = ignore;
    pci->debug = ignore;
  }
  ~Access() { pci_cleanup(pci); }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

  template <class... Numbers>
  std::string look_up(int what, Numbers... numbers) {
    std::array<char, 256> buffer{};
    // After an error libpci goes on with the part of the list that it understood.
    if (setjmp(on_error) && ++errors > 1) return {};
    const char* const name =
        pci_lookup_name(pci, buffer.data(), buffer.size(), what | PCI_LOOKUP_NO_HWDB, numbers...);
    return name ? name : "";
  }
};

PciNames::PciNames(const std::string& list) : access_(std::make_unique<Access>()) {
  if (!list.empty()) pci_set_name_list_path(access_->pci, ::strdup(list.c_str()), 1);
}

PciNames::~PciNames() = default;

std::string PciNames::device_class(uint16_t class_code) const {
  return access_->look_up(PCI_LOOKUP_CLASS, static_cast<int>(class_code));
}

std::string PciNames::vendor(uint16_t vendor) const {
  return access_->look_up(PCI_LOOKUP_VENDOR, static_cast<int>(vendor));
}

std::string PciNames::device(uint16_t vendor, uint16_t device) const {
  return access_->look_up(PCI_LOOKUP_DEVICE, static_cast<int>(vendor), static_cast<int>(device));
}

}  // namespace pcilend
