// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/model.h"

#include "pcilend/wire.h"

namespace pcilend {

static_assert(kBarMem64 == PCILEND_BAR_MEM64 && kBarPrefetch == PCILEND_BAR_PREFETCH &&
              kBarIo == PCILEND_BAR_IO);

std::string_view function_state_name(uint32_t state) {
  switch (state) {
    case PCILEND_FUNCTION_LOCAL:
      return "local";
    case PCILEND_FUNCTION_ADDED:
      return "added";
    case PCILEND_FUNCTION_AVAILABLE:
      return "available";
    case PCILEND_FUNCTION_BORROWED:
      return "borrowed";
    case PCILEND_FUNCTION_FENCING:
      return "fencing";
    case PCILEND_FUNCTION_RESETTING:
      return "resetting";
    case PCILEND_FUNCTION_QUARANTINED:
      return "quarantined";
    default:
      return "unknown";
  }
}

std::string_view link_state_name(uint32_t state) {
  switch (state) {
    case PCILEND_LINK_DOWN:
      return "down";
    case PCILEND_LINK_HANDSHAKE:
      return "handshake";
    case PCILEND_LINK_UP:
      return "up";
    case PCILEND_LINK_REFUSED:
      return "refused";
    default:
      return "unknown";
  }
}

std::string_view client_state_name(uint32_t state) {
  switch (state) {
    case PCILEND_CLIENT_REQUESTED:
      return "requested";
    case PCILEND_CLIENT_ADMITTED:
      return "admitted";
    case PCILEND_CLIENT_ACTIVE:
      return "active";
    case PCILEND_CLIENT_QUARANTINING:
      return "quarantining";
    case PCILEND_CLIENT_QUARANTINED:
      return "quarantined";
    case PCILEND_CLIENT_ENDING:
      return "ending";
    case PCILEND_CLIENT_CLEARING:
      return "clearing";
    case PCILEND_CLIENT_CLEARED:
      return "cleared";
    default:
      return "unknown";
  }
}

std::string_view segment_state_name(uint32_t state) {
  switch (state) {
    case PCILEND_SEGMENT_CREATED:
      return "created";
    case PCILEND_SEGMENT_OFFERED:
      return "offered";
    case PCILEND_SEGMENT_CONNECTED:
      return "connected";
    case PCILEND_SEGMENT_WITHDRAWN:
      return "withdrawn";
    case PCILEND_SEGMENT_LOST:
      return "lost";
    default:
      return "unknown";
  }
}

std::string_view region_kind_name(uint32_t kind) {
  switch (kind) {
    case PCILEND_REGION_DMA:
      return "dma";
    case PCILEND_REGION_INTERRUPTS:
      return "interrupts";
    case PCILEND_REGION_EXPORTS:
      return "exports";
    case PCILEND_REGION_SLOTS:
      return "slots";
    default:
      return "unknown";
  }
}

std::string_view event_name(uint32_t kind) {
  switch (kind) {
    case PCILEND_EVENT_LINK:
      return "link";
    case PCILEND_EVENT_FUNCTION:
      return "function";
    case PCILEND_EVENT_FUNCTION_GONE:
      return "function-gone";
    case PCILEND_EVENT_LEASE_LOST:
      return "lease-lost";
    case PCILEND_EVENT_RECALL:
      return "recall";
    case PCILEND_EVENT_AUDIT:
      return "audit";
    case PCILEND_EVENT_WAS_RESET:
      return "was-reset";
    case PCILEND_EVENT_SEGMENT:
      return "segment";
    case PCILEND_EVENT_SEGMENT_GONE:
      return "segment-gone";
    default:
      return "unknown";
  }
}

}  // namespace pcilend
