// SPDX-License-Identifier: GPL-2.0-or-later
#include "manager/manager.h"

#include <algorithm>
#include <bit>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

constexpr uint32_t kClientsMax = 64;  // pcilend.ko's
// Unless more are asked for: pcilend.ko shares out among them what processes of this host can map,
// 8 pieces of memory for each of so many.
constexpr uint32_t kClients = 16;
constexpr uint64_t kOwnBytes = uint64_t{1} << 20;  // admin queues and pages
constexpr uint32_t kDoorbellPage = 1;              // of BAR 0 (Base 3.1.3)

}  // namespace

uint64_t manager_slice(const ManagerOptions& options) {
  const uint64_t clients = options.clients ? options.clients : kClients;
  // Memory of 2 MiB and more begins where a large page does.
  const uint64_t unit = uint64_t{2} << 20;
  const uint64_t each = (options.near_bytes + unit - 1) / unit * unit;
  return std::bit_ceil(kOwnBytes + unit + clients * each);
}

Result<std::unique_ptr<Manager>> Manager::open(Device& device, ManagerLease& lease,
                                               const ManagerOptions& options, Tell tell) {
  auto controller = Controller::start(device, options.patience);
  if (!controller) return tl::unexpected(std::move(controller).error());
  std::unique_ptr<Manager> manager(
      new Manager(lease, std::move(*controller), options, std::move(tell)));
  PCILEND_TRY(manager->begin());
  return manager;
}

Result<> Manager::begin() {
  const uint32_t room = std::min(controller_->queues() / options_.each.pairs, kClientsMax);
  if (room == 0 || options_.clients > room)
    return fail(ErrorClass::Usage,
                "{} clients with {} pairs of queues each: the drive has {} pairs, and {} clients "
                "can share it",
                options_.clients, options_.each.pairs, controller_->queues(), kClientsMax);
  admits_ = options_.clients ? options_.clients : std::min(room, kClients);
  if (options_.own_bytes != 0) PCILEND_TRY(open_memory());
  const auto node = lease_.node();
  if (!node) return tl::unexpected(node.error());
  node_ = *node;
  auto fenced = lease_.fenced();
  if (!fenced) return tl::unexpected(std::move(fenced).error());
  fenced_ = std::move(*fenced);
  const auto page = controller_->controller_page();
  if (!page) return tl::unexpected(page.error());
  std::ranges::copy(*page, page_.begin());
  hide_what_is_shared(page_);
  return lease_.share(policy(admits_));
}

Result<> Manager::open_memory() {
  const auto memory = controller_->open_memory();
  if (!memory) return tl::unexpected(memory.error());
  const uint64_t most = memory->bytes / admits_ / kPage * kPage;
  if (options_.own_bytes > most)
    return fail(ErrorClass::Usage,
                "{} clients with {} bytes of the drive's own memory each: it has {}", admits_,
                options_.own_bytes, memory->bytes);
  options_.own_bytes = (options_.own_bytes + kPage - 1) / kPage * kPage;
  memory_ = *memory;
  return {};
}

// Registers are the manager's: who has their page can stop the drive.
SharePolicy Manager::policy(uint32_t clients) const {
  SharePolicy policy{.clients = clients,
                     .vectors = options_.vectors,
                     .slice = options_.slice,
                     .ranges = {{.bar = 0, .page = kDoorbellPage, .pages = 1}},
                     .nodes = options_.nodes};
  if (options_.own_bytes != 0)
    policy.ranges.push_back({.bar = memory_.bar,
                             .page = static_cast<uint32_t>(memory_.offset / kPage),
                             .pages = static_cast<uint32_t>(options_.own_bytes / kPage),
                             .pool = true});
  return policy;
}

Result<> Manager::serve() {
  for (;;) {
    if (controller_->failed())
      return fail(ErrorClass::State, "the drive was reset by others, taken back, or is silent");
    // One at a time: who makes the drive talk must not keep clients from being served.
    const auto event = controller_->next_event();
    if (!event) return tl::unexpected(event.error());
    if (*event) heed(**event);
    const auto mail = lease_.next_mail();
    if (!mail) return tl::unexpected(mail.error());
    // Behind it: who asks may have joined just now.
    PCILEND_TRY(hear_of_clients());
    if (!*mail) return {};
    const Mail& asked = **mail;
    const auto question = mail::decode_question(asked.bytes);
    const auto said = question ? reply(asked.client, question->what)
                               : mail::Answer(mail::Refusal{question.error()});
    // Who is gone waits for no answer.
    (void)lease_.send_mail({asked.client, mail::encode(mail::number_of(asked.bytes), said)});
  }
}

Result<> Manager::hear_of_clients() {
  for (;;) {
    const auto notice = lease_.next_client();
    if (!notice) return tl::unexpected(notice.error());
    if (!*notice) return {};
    PCILEND_TRY(heed(**notice));
  }
}

void Manager::heed(const DriveEvent& event) {
  tell_("the drive says: " + to_string(event));
  if (event.changes) changes_.note(*event.changes);
}

Result<> Manager::close() {
  return lease_.share(policy(0));
}

Result<> Manager::heed(const ClientNotice& notice) {
  if (notice.news != PCILEND_NEWS_JOINED) return end(notice);
  book_.join(notice);
  nodes_[notice.lease] = notice.node;
  pieces_[notice.lease] = notice.piece;
  tell_(fmt::format("client {} of node {} has joined", notice.lease, notice.node));
  return {};
}

// The drive uses nothing of that client any more; or what fails is not confirmed.
Result<> Manager::end(const ClientNotice& notice) {
  const bool gone = notice.news == PCILEND_NEWS_GONE;
  const auto pairs = book_.pairs(notice.lease);
  for (const uint16_t id : pairs) {
    // Those of one in quarantine are deleted.
    if (book_.allow_delete(notice.lease, id)) PCILEND_TRY(controller_->drop(id));
    if (gone) controller_->release(id);
  }
  if (gone)
    book_.leave(notice.lease);
  else
    book_.quarantine(notice.lease);
  PCILEND_TRY(lease_.cleared(notice));
  // Nobody of its host stores there any more, and nothing of the drive reads it.
  if (gone) {
    near_.erase(notice.lease);
    nodes_.erase(notice.lease);
    pieces_.erase(notice.lease);
  }
  tell_(fmt::format("client {} of node {} {}: {} pairs of queues deleted", notice.lease,
                    notice.node, gone ? "has ended" : "has lost its link", pairs.size()));
  return {};
}

mail::Answer Manager::reply(uint32_t client, const mail::Question& question) {
  auto said = std::visit([&](const auto& what) { return answer(client, what); }, question);
  if (said) return *said;
  tell_(fmt::format("client {} is refused: {}", client, said.error().message));
  return mail::Refusal{std::move(said).error()};
}

Result<mail::Answer> Manager::answer(uint32_t client, const mail::Hello& hello) {
  if (!book_.knows(client))
    return fail(ErrorClass::NotFound, "client {} is not known: join the drive", client);
  PCILEND_TRY(check_admitted(client));
  if (hello.key != 0) book_.give_key(client, hello.key);
  const uint32_t entries = std::min(options_.each.entries, controller_->limits().entries);
  mail::Welcome welcome{
      .entries = entries, .pairs = options_.each.pairs, .changes = changes_.now()};
  if (options_.own_bytes != 0) {
    const uint64_t at = pieces_[client] * options_.own_bytes;
    welcome.near_bar = memory_.bar;
    welcome.near_offset = memory_.offset + at;
    welcome.near_address = memory_.address + at;
    welcome.near_bytes = options_.own_bytes;
    book_.give_near(client, welcome.near_address, welcome.near_bytes);
    return welcome;
  }
  // Beside the drive is the lender's memory: for a process of the lender's all is.
  if (nodes_[client] == node_ || options_.near_bytes == 0) return welcome;
  auto& near = near_[client];
  if (!near) {
    auto made = lease_.make_near(nodes_[client], options_.near_bytes);
    if (!made) {
      near_.erase(client);
      return tl::unexpected(std::move(made).error().in("memory beside the drive"));
    }
    near = std::move(*made);
    book_.give_near(client, near->address(), near->bytes());
  }
  welcome.near_segment = near->segment().value;
  welcome.near_address = near->address();
  welcome.near_bytes = near->bytes();
  return welcome;
}

Result<mail::Answer> Manager::answer(uint32_t client, const mail::CreatePair& create) {
  const auto allowed = book_.allow_pair(client, create.request);
  if (!allowed) return tl::unexpected(allowed.error());
  PCILEND_TRY(check_admitted(client));
  // Of one of another host commands would be in its slice then.
  if (nodes_[client] != node_ && options_.near_bytes != 0 && options_.own_bytes == 0 &&
      !near_.contains(client))
    return fail(ErrorClass::State, "client {} has not said hello", client);
  const auto grant = controller_->create(*allowed);
  if (!grant) return tl::unexpected(grant.error());
  book_.add_pair(client, grant->id);
  return mail::Created{*grant};
}

Result<mail::Answer> Manager::answer(uint32_t client, const mail::DeletePair& remove) {
  PCILEND_TRY(book_.allow_delete(client, remove.id));
  PCILEND_TRY(controller_->drop(remove.id));
  controller_->release(remove.id);
  book_.remove_pair(client, remove.id);
  return mail::Confirmed{};
}

Result<mail::Answer> Manager::answer(uint32_t client, const mail::AskIdentify& identify) {
  PCILEND_TRY(book_.allow_identify(client, identify));
  PCILEND_TRY(controller_->identify_to(static_cast<uint8_t>(identify.what), identify.name_space,
                                       identify.page));
  return mail::Confirmed{};
}

Result<mail::Answer> Manager::answer(uint32_t client, const mail::AskController& ask) const {
  if (!book_.knows(client))
    return fail(ErrorClass::NotFound, "client {} is not known: join the drive", client);
  if (ask.offset >= page_.size())
    return fail(ErrorClass::Usage, "Identify's page has {} bytes: not from {} on", page_.size(),
                ask.offset);
  mail::Piece piece;
  const size_t bytes = std::min(piece.bytes.size(), page_.size() - ask.offset);
  std::copy_n(page_.begin() + ask.offset, bytes, piece.bytes.begin());
  return piece;
}

Result<mail::Answer> Manager::answer(uint32_t client, const mail::AskLog& log) {
  PCILEND_TRY(book_.allow_log(client, log));
  PCILEND_TRY(
      controller_->log_to(static_cast<uint8_t>(log.log), log.name_space, log.bytes, log.data));
  return mail::Confirmed{};
}

Result<mail::Answer> Manager::answer(uint32_t client, const mail::AskChanges& ask) const {
  if (!book_.knows(client))
    return fail(ErrorClass::NotFound, "client {} is not known: join the drive", client);
  return mail::Changes{changes_.now(), changes_.since(ask.since)};
}

// As when its link is lost, of which the lender may not know yet. Its ids stay with it: it may ring
// them.
Result<mail::Answer> Manager::answer(uint32_t, const mail::Clear& clear) {
  PCILEND_TRY(book_.allow_clear(clear));
  PCILEND_TRY(cut(clear.client.lease, "is cleared, as it asks over another path"));
  return mail::Confirmed{};
}

Result<> Manager::cut(uint32_t client, std::string_view why) {
  if (book_.quarantined(client)) return {};
  const auto pairs = book_.pairs(client);
  for (const uint16_t id : pairs) PCILEND_TRY(controller_->drop(id));
  book_.quarantine(client);
  tell_(fmt::format("client {} of node {} {}: {} pairs of queues deleted", client, nodes_[client],
                    why, pairs.size()));
  return {};
}

Result<> Manager::check_admitted(uint32_t client) const {
  const auto it = nodes_.find(client);
  if (it == nodes_.end() || !fenced_.contains(it->second)) return {};
  return fail(
      ErrorClass::Permission,
      "node {} is fenced: 'fence_pcilend --action on' ends that, when it has forgotten what "
      "it was about to write",
      it->second);
}

// Whoever is fenced may ask, as at its next boot, but for others to be.
Result<mail::Answer> Manager::answer(uint32_t client, const mail::Fence& fence) {
  const auto asking = nodes_.find(client);
  if (asking == nodes_.end())
    return fail(ErrorClass::NotFound, "client {} is not known: join the drive", client);
  if (fence.what == mail::Fencing::Ask) return mail::Fenced{fenced_.contains(fence.node)};
  auto nodes = fenced_;
  if (fence.what == mail::Fencing::On) {
    nodes.erase(fence.node);
  } else {
    if (fence.node == 0 || fence.node == asking->second)
      return fail(ErrorClass::Usage, "node {} asks to fence node {}: name another one",
                  asking->second, fence.node);
    PCILEND_TRY(check_admitted(client));
    nodes.insert(fence.node);
  }
  if (nodes != fenced_) {
    PCILEND_TRY(lease_.keep_fenced(nodes));
    fenced_ = std::move(nodes);
    tell_(fmt::format("node {} is fenced{}, as node {} asks", fence.node,
                      fence.what == mail::Fencing::On ? " no more" : "", asking->second));
  }
  if (fence.what == mail::Fencing::Off)
    for (const auto& [other, node] : nodes_)
      if (node == fence.node) PCILEND_TRY(cut(other, "is cut off"));
  return mail::Fenced{fence.what == mail::Fencing::Off};
}

}  // namespace pcilend::nvme
