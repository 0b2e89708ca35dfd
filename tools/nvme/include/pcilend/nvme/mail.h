// SPDX-License-Identifier: GPL-2.0-or-later
// What a client of a shared drive asks its manager, and what that answers: mail of pcilend.ko
// (Lease::send_mail()), at most kMailMax bytes, little-endian. Each end believes nothing of the
// other: what is not exactly as it is here is refused.
//
// A client says hello first, and looks at the drive's Identify page, in pieces. Then it asks for
// pairs of queues in its own memory, and for what else needs the admin queue; data of that the
// drive writes to the client's memory itself. Who has lost a path to it asks as another client, by
// the key that he has given with the hello there, to have the queues of the lost one deleted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "pcilend/error.h"
#include "pcilend/nvme/client_name.h"
#include "pcilend/nvme/drive_event.h"
#include "pcilend/nvme/queues.h"

namespace pcilend::nvme::mail {

inline constexpr uint16_t kVersion = 3;
inline constexpr size_t kPieceBytes = 160;  // of the Identify page
inline constexpr size_t kChangedMax = 40;   // ids of namespaces

// Questions.
struct Hello {
  uint64_t key = 0;  // who has it may ask for Clear of this one; 0: nobody
};
struct CreatePair {
  QueueRequest request;  // the vector: of the client's own
};
struct DeletePair {
  uint16_t id = 0;
};
// Confirmed: the drive does nothing any more of what that client has told it, who gets no queues
// any more. NotFound if there is no such client (any more), or it has another key: so one that had
// it has ended.
struct Clear {
  ClientName client;
};
enum class Fencing : uint16_t {
  Ask,  // is it fenced?
  Off,  // it is: the drive does nothing any more of what its clients have told it, and it gets none
  On,   // it is not any more
};
struct Fence {
  Fencing what = Fencing::Ask;
  uint32_t node = 0;
};
struct AskIdentify {
  uint16_t what = 0;  // CNS (Base 5.17)
  uint32_t name_space = 0;
  uint64_t page = 0;  // device address
};
struct AskController {
  uint32_t offset = 0;  // of the Identify page; a piece is less at its end
};
struct AskLog {
  uint16_t log = 0;  // page identifier (Base 5.16)
  uint32_t name_space = 0;
  uint32_t bytes = 0;
  uint64_t data = 0;  // device address
};
struct AskChanges {
  uint64_t since = 0;  // Welcome::changes, or Changes::now
};
using Question = std::variant<Hello, CreatePair, DeletePair, AskIdentify, AskController, AskLog,
                              Clear, Fence, AskChanges>;

// Answers.
struct Refusal {
  // Its message is cut where mail ends. Unreachable: this client has lost its queues, and gets none
  // any more; it may join anew.
  Error error;
};
struct Confirmed {};
struct Welcome {
  uint32_t entries = 0;  // of a queue, at most
  uint32_t pairs = 0;    // that it may have
  // Memory for what the drive reads of this client: a segment beside it or, if that is 0, a part of
  // one of its BARs.
  uint32_t near_segment = 0;
  uint64_t near_address = 0;  // device address
  uint64_t near_bytes = 0;    // 0: none
  uint32_t near_bar = 0;
  uint64_t near_offset = 0;  // in the BAR
  uint64_t changes = 0;      // of namespaces, until now
};
struct Created {
  QueueGrant grant;
};
struct Fenced {
  bool fenced = false;  // that node, from now on
};
struct Piece {
  std::array<std::byte, kPieceBytes> bytes{};
};
// Namespaces that have changed since then.
struct Changes {
  uint64_t now = 0;
  NamespaceChanges which;  // kChangedMax at most, else all
};
using Answer = std::variant<Refusal, Confirmed, Welcome, Created, Piece, Fenced, Changes>;

// `number` is the client's, and comes back with the answer: what is late is not taken for another.
template <class What>
struct Letter {
  uint32_t number = 0;
  What what;
};

std::vector<std::byte> encode(uint32_t number, const Question& question);
std::vector<std::byte> encode(uint32_t number, const Answer& answer);
// Failure if it is none; Unsupported if it is of another version.
Result<Letter<Question>> decode_question(std::span<const std::byte> bytes);
Result<Letter<Answer>> decode_answer(std::span<const std::byte> bytes);
// That of something that can't be read: 0 if it has none.
uint32_t number_of(std::span<const std::byte> bytes);

}  // namespace pcilend::nvme::mail
