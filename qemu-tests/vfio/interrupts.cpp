// SPDX-License-Identifier: GPL-2.0-or-later
#include "vfio/interrupts.h"

#include <numeric>

#include "pcilend/result.h"
#include "vfio/xhci.h"

namespace pcilend::vfio {
namespace {

using Numbers = std::vector<int>;

Result<> expect(std::string_view step, int error, int expected = 0) {
  if (error == expected) return {};
  return fail(ErrorClass::Failure, "{}: {}, not {}", step, strerrorname_np(error),
              strerrorname_np(expected));
}

// MSI or MSI-X, and as many eventfds as there are interrupters.
class Vectors {
 public:
  static Result<Vectors> make(const Device& device, uint32_t index) {
    auto xhci = Xhci::start(device);
    if (!xhci) return tl::unexpected(xhci.error());
    Vectors vectors(device, index, std::move(*xhci));
    for (unsigned i = 0; i < Xhci::kInterrupters; ++i) {
      auto event = EventFd::make();
      if (!event) return tl::unexpected(event.error());
      vectors.events_.push_back(std::move(*event));
    }
    return vectors;
  }

  // Vectors from `start` on signal these eventfds; -1: none.
  [[nodiscard]] int set(unsigned start, const Numbers& events) {
    Numbers fds;
    for (const int event : events) fds.push_back(event < 0 ? -1 : events_[event].get());
    const int error = device_.set_eventfds(index_, start, fds);
    if (!error) std::copy(events.begin(), events.end(), event_of_.begin() + start);
    return error;
  }
  [[nodiscard]] int disable() const { return device_.set_irqs(index_, kNone | kTrigger, 0, 0); }

  // The device raises all of them: the loud ones are heard, and nothing else is.
  Result<> check(std::string_view step, const Numbers& loud, const Numbers& silent = {}) {
    for (const int number : silent) xhci_.raise(number);
    for (const int number : loud) xhci_.raise(number);
    return expect_signals(step, loud);
  }
  // The user himself triggers them.
  Result<> loop_back(std::string_view step, uint32_t data, unsigned start,
                     const std::vector<uint8_t>& on, const Numbers& loud) {
    const std::span<const uint8_t> bytes(on.data(), data == kBool ? on.size() : 0);
    PCILEND_TRY(expect(
        step, device_.set_irqs(index_, data | kTrigger, start, on.size(), std::as_bytes(bytes))));
    return expect_signals(step, loud);
  }

  Result<> reset() {
    PCILEND_TRY(expect("reset", device_.reset()));
    return xhci_.set_up(device_);
  }

 private:
  Vectors(const Device& device, uint32_t index, Xhci xhci)
      : device_(device), index_(index), xhci_(std::move(xhci)), event_of_(Xhci::kInterrupters) {}

  Result<> expect_signals(std::string_view step, const Numbers& loud) {
    for (const int number : loud)
      if (const auto heard = events_[event_of_[number]].wait(); !heard)
        return fail(ErrorClass::Failure, "{}: vector {}: {}", step, number, heard.error().message);
    for (size_t i = 0; i < events_.size(); ++i)
      if (events_[i].take())
        return fail(ErrorClass::Failure, "{}: event {} was signalled too often", step, i);
    return {};
  }

  const Device& device_;
  uint32_t index_;
  Xhci xhci_;
  std::vector<EventFd> events_;
  Numbers event_of_;
};

Numbers from_0_to(int end) {
  Numbers all(end);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Result<> use_both_ways(Vectors& vectors) {
  PCILEND_TRY(vectors.loop_back("triggered, no data", kNone, 0, {1, 1, 1}, {0, 1, 2}));
  PCILEND_TRY(vectors.loop_back("triggered, one of three", kBool, 0, {0, 1, 0}, {1}));
  PCILEND_TRY(vectors.loop_back("triggered, none", kBool, 1, {0, 0}, {}));
  PCILEND_TRY(expect("another eventfd", vectors.set(2, {9})));
  return vectors.check("another eventfd", {0, 2});
}

}  // namespace

Result<> use_msix(const Device& device) {
  auto vectors = Vectors::make(device, VFIO_PCI_MSIX_IRQ_INDEX);
  if (!vectors) return tl::unexpected(vectors.error());
  PCILEND_TRY(expect("set", vectors->set(0, {0, 1, 2})));
  PCILEND_TRY(vectors->check("set", {0, 1, 2}));
  PCILEND_TRY(use_both_ways(*vectors));

  PCILEND_TRY(expect("grown", vectors->set(5, {5, 6})));
  PCILEND_TRY(vectors->check("grown", {0, 1, 5, 6}, {3, 7}));
  PCILEND_TRY(expect("shrunk", vectors->set(5, {-1})));
  PCILEND_TRY(vectors->check("shrunk", {0, 6}, {5}));

  PCILEND_TRY(vectors->reset());
  PCILEND_TRY(vectors->check("after a reset", {0, 1, 6}));

  PCILEND_TRY(expect("disabled", vectors->disable()));
  PCILEND_TRY(expect("all", vectors->set(0, from_0_to(Xhci::kInterrupters))));
  PCILEND_TRY(vectors->check("all", from_0_to(Xhci::kInterrupters)));
  PCILEND_TRY(expect("disabled", vectors->disable()));
  PCILEND_TRY(expect("not from 0", vectors->set(4, {4})));
  return vectors->check("not from 0", {4}, {1});
}

Result<> use_msi(const Device& device) {
  auto vectors = Vectors::make(device, VFIO_PCI_MSI_IRQ_INDEX);
  if (!vectors) return tl::unexpected(vectors.error());
  PCILEND_TRY(expect("single", vectors->set(0, {0})));
  PCILEND_TRY(vectors->check("single", {0}));
  // Not while it is enabled (VFIO_IRQ_INFO_NORESIZE).
  PCILEND_TRY(expect("grown", vectors->set(1, {1}), EINVAL));
  PCILEND_TRY(vectors->check("still single", {0}));
  PCILEND_TRY(expect("disabled", vectors->disable()));

  PCILEND_TRY(expect("three", vectors->set(0, {0, 1, 2})));
  PCILEND_TRY(vectors->check("three", {0, 1, 2}));
  PCILEND_TRY(use_both_ways(*vectors));
  PCILEND_TRY(vectors->reset());
  PCILEND_TRY(vectors->check("after a reset", {0, 1, 2}));
  PCILEND_TRY(expect("disabled", vectors->disable()));

  PCILEND_TRY(expect("all", vectors->set(0, from_0_to(Xhci::kInterrupters))));
  return vectors->check("all", from_0_to(Xhci::kInterrupters));
}

Result<> use_intx(const Device& device) {
  auto xhci = Xhci::start(device);
  auto event = EventFd::make();
  auto unmask = EventFd::make();
  if (!xhci) return tl::unexpected(xhci.error());
  if (!event) return tl::unexpected(event.error());
  if (!unmask) return tl::unexpected(unmask.error());
  const auto set = [&](uint32_t flags, int fd) {
    const bool data = flags & kEventFd;
    return device.set_irqs(VFIO_PCI_INTX_IRQ_INDEX, flags, 0, 1,
                           std::as_bytes(std::span(&fd, data ? 1 : 0)));
  };
  const auto heard = [&](std::string_view step) -> Result<> {
    if (const auto waited = event->wait(); !waited)
      return fail(ErrorClass::Failure, "{}: {}", step, waited.error().message);
    return {};
  };
  const auto silent = [&](std::string_view step) -> Result<> {
    if (event->take()) return fail(ErrorClass::Failure, "{}: it was not masked", step);
    return {};
  };

  PCILEND_TRY(expect("set", set(kEventFd | kTrigger, event->get())));
  xhci->raise(0);
  PCILEND_TRY(heard("raised"));
  // Masked by itself; it is a level: asserted still, then not.
  PCILEND_TRY(expect("unmask", set(kNone | kUnmask, 0)));
  PCILEND_TRY(heard("still asserted"));
  xhci->acknowledge(0);
  xhci->raise(0);
  PCILEND_TRY(silent("raised again"));
  PCILEND_TRY(expect("eventfd that unmasks", set(kEventFd | kUnmask, unmask->get())));
  const uint64_t one = 1;
  PCILEND_TRY(write_all(unmask->get(), std::as_bytes(std::span(&one, 1))));
  PCILEND_TRY(heard("unmasked by an eventfd"));
  xhci->acknowledge(0);
  PCILEND_TRY(expect("unmask", set(kNone | kUnmask, 0)));
  PCILEND_TRY(expect("mask", set(kNone | kMask, 0)));
  event->take();  // of before it was acknowledged
  xhci->raise(0);
  PCILEND_TRY(silent("masked"));
  PCILEND_TRY(expect("unmask", set(kNone | kUnmask, 0)));
  PCILEND_TRY(heard("unmasked"));
  xhci->acknowledge(0);

  PCILEND_TRY(expect("trigger", set(kNone | kTrigger, 0)));
  PCILEND_TRY(heard("triggered"));
  PCILEND_TRY(expect("no eventfd", set(kEventFd | kTrigger, -1)));
  PCILEND_TRY(expect("trigger", set(kNone | kTrigger, 0)));
  PCILEND_TRY(silent("without an eventfd"));
  return expect("disable", device.set_irqs(VFIO_PCI_INTX_IRQ_INDEX, kNone | kTrigger, 0, 0));
}

}  // namespace pcilend::vfio
