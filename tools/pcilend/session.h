// SPDX-License-Identifier: GPL-2.0-or-later
// What a command has at hand while it runs, and what its user asked for.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answer.h"
#include "pcilend/client.h"
#include "pcilend/environment.h"
#include "pcilend/events.h"

namespace pcilend {

// The command line after parsing; a command uses what its entry in the command table offers.
struct Options {
  std::vector<std::string> targets;  // functions or nodes
  std::vector<std::string> words;    // what follows them
  bool json = false;
  std::optional<std::string> columns;
  bool no_headings = false;
  bool verbose = false;
  bool force = false;
  bool cancel = false;
  bool end = false;
  bool mdev = false;
  bool direct = false;
  bool sanitize = false;
  std::string near;
  bool wait = false;
  bool emulated = false;
  bool hex = false;
  std::string frontend;
  std::string owner;
  std::string adapter;
  std::string label;
  std::string slot;    // lspci's -s
  std::string device;  // lspci's -d, or an address
  std::string function;
  std::string file;
  bool list = false;
  bool boot = false;
  bool borrows = false;
  bool in_use = false;
  std::vector<std::string> ignored;  // adapters
  bool remove = false;
  bool dry_run = false;
  std::optional<std::string> reserved_for;
  std::optional<uint32_t> ttl;  // seconds, as all times here
  std::optional<uint32_t> grace;
  std::optional<uint32_t> timeout;
  std::optional<uint32_t> count;
  std::string size;  // "64M"
  std::string name;
  bool read_only = false;
  bool write_combining = false;
  bool huge = false;
  bool link_loss = false;
  bool alone = false;
  bool shared_fs = false;
  std::optional<uint32_t> name_space;
  std::optional<uint32_t> queues;
  std::optional<uint32_t> depth;
  std::optional<uint32_t> patience;  // seconds
};

// The host a command runs on.
struct Host {
  const Environment& environment;
  std::function<Result<std::unique_ptr<Client>>()> open_client;
  std::function<Result<std::unique_ptr<EventStream>>()> open_events;
  // One line on stderr that does not stop the command.
  std::function<void(std::string_view)> warn;
  // Where a command that takes long stands: a line that the next replaces, on terminals only.
  std::function<void(std::string_view)> progress;
  // Prints an answer while the command goes on.
  std::function<Result<>(const Answer&)> emit;
  std::function<void(std::chrono::milliseconds)> sleep;
  std::function<std::chrono::steady_clock::time_point()> now;
  std::function<WallTime()> wall_time;
  // Runs a program, and waits for its end.
  std::function<Result<>(const std::vector<std::string>& words)> run_program;
  // The same, and what it has printed.
  std::function<Result<std::string>(const std::vector<std::string>& words)> read_program;
};

// A host with its pcilend.ko.
struct Session : Host {
  Client& client;
};

}  // namespace pcilend
