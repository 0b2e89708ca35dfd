// SPDX-License-Identifier: GPL-2.0-or-later
// Loads and stores in memory that guests use at the same time.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace pcilend::fabric {

namespace detail {

template <class T>
bool aligned(const void* at) {
  return (reinterpret_cast<uintptr_t>(at) & (sizeof(T) - 1)) == 0;
}

template <class T>
void store_whole(std::byte* to, const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  __atomic_store_n(reinterpret_cast<T*>(to), value, __ATOMIC_RELEASE);
}

template <class T>
void load_whole(std::byte* to, const std::byte* from) {
  const T value = __atomic_load_n(reinterpret_cast<const T*>(from), __ATOMIC_ACQUIRE);
  std::memcpy(to, &value, sizeof value);
}

}  // namespace detail

// Naturally aligned accesses of up to 8 bytes are seen whole, as a PCIe transaction's are.
inline void store(std::span<std::byte> to, std::span<const std::byte> from) {
  std::byte* at = to.data();
  if (to.size() == 8 && detail::aligned<uint64_t>(at))
    detail::store_whole<uint64_t>(at, from.data());
  else if (to.size() == 4 && detail::aligned<uint32_t>(at))
    detail::store_whole<uint32_t>(at, from.data());
  else if (to.size() == 2 && detail::aligned<uint16_t>(at))
    detail::store_whole<uint16_t>(at, from.data());
  else
    std::memcpy(at, from.data(), to.size());
}

inline void load(std::span<std::byte> to, std::span<const std::byte> from) {
  const std::byte* at = from.data();
  if (to.size() == 8 && detail::aligned<uint64_t>(at))
    detail::load_whole<uint64_t>(to.data(), at);
  else if (to.size() == 4 && detail::aligned<uint32_t>(at))
    detail::load_whole<uint32_t>(to.data(), at);
  else if (to.size() == 2 && detail::aligned<uint16_t>(at))
    detail::load_whole<uint16_t>(to.data(), at);
  else
    std::memcpy(to.data(), at, to.size());
}

}  // namespace pcilend::fabric
