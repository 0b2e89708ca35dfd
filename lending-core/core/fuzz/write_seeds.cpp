// SPDX-License-Identifier: GPL-2.0-or-later
// Writes the seed corpora of the fuzzers into the directory given, from the tests' samples.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "../tests/snapshots.h"
#include "../tests/wire_samples.h"

namespace {

void Write(const std::filesystem::path& path, const std::vector<u8>& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

std::vector<u8> VconfigInput(const snapshots::Snapshot& snapshot) {
  std::vector<u8> bytes;
  for (const auto& bar : snapshot.bar) {
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<u8>(bar.size >> (8 * i)));
    bytes.push_back(static_cast<u8>(bar.flags));
  }
  bytes.push_back(snapshot.length == 256 ? 1 : 0);
  const u8 accesses[] = {0x04, 0, 2, 0, 6,    0,    0,    0,  // command: memory, bus master
                         0x10, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, snapshot.bytes[PCI_CAPABILITY_LIST],
                         0,    4, 0, 0, 0,    0xff, 0xff};
  bytes.insert(bytes.end(), std::begin(accesses), std::end(accesses));
  size_t end = snapshot.length;
  while (end > 0 && snapshot.bytes[end - 1] == 0) --end;
  bytes.insert(bytes.end(), snapshot.bytes.begin(), snapshot.bytes.begin() + end);
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS-DIRECTORY\n", argv[0]);
    return 2;
  }
  const std::filesystem::path corpus = argv[1];
  for (const samples::Sample& sample : samples::All()) {
    const size_t length =
        sizeof(pcilend_msg_header) + pcilend_wire_length(sample.type, sample.answer);
    Write(corpus / "fuzz_wire" /
              (std::string(pcilend_msg_name(sample.type)) + (sample.answer ? "-answer" : "")),
          std::vector<u8>(sample.slot.begin(), sample.slot.begin() + length));
  }
  for (const snapshots::Snapshot& snapshot : snapshots::All()) {
    Write(corpus / "fuzz_vconfig" / snapshot.name, VconfigInput(snapshot));
  }
  return 0;
}
