// SPDX-License-Identifier: GPL-2.0-or-later
#include "fault_bench.h"

#include <future>
#include <thread>
#include <utility>

#include "main_job.h"

namespace pcilend::scenarios {
namespace {

using namespace std::chrono_literals;
using lab::Condition;
using lab::ExecOptions;
using lab::Guest;
using lab::Host;
using lab::Output;
using nlohmann::json;

constexpr auto kLease = 10s;
// How long a link is down that only flaps.
constexpr auto kFlap = 1s;
// What the peers need after the lease is over, a guest's driver to give its device up, or any
// command on a busy machine. Nobody hangs longer.
constexpr auto kPatience = 2min;
constexpr auto kBoot = 5min;
// Of the guest's driver, instead of 30 s.
constexpr auto kIoTimeout = 10s;
// Stretches the control messages of a step, so that the fault meets it in the middle.
constexpr auto kStretch = 150ms;
constexpr int kRun = 512;       // slots of one run of I/O
constexpr size_t kVerify = 40;  // slots that are read after each case
constexpr const char* kGuest = "faulty";

bool is_dead(const FaultCase& one, Victim victim) {
  return one.victim == victim &&
         (one.fault == Fault::PowerOff || one.fault == Fault::Panic || one.fault == Fault::Reset);
}

bool has_guest(const FaultCase& one) {
  return one.moment == Moment::Idle || one.moment == Moment::UnderIo;
}

// A command that a living host or guest must carry out.
Result<> answers(const auto& machine) {
  const auto output = machine.run("true", {{}, kPatience});
  if (!output)
    return tl::unexpected(
        Error(output.error()).in(fmt::format("{} does not answer", machine.name())));
  return {};
}

// A dead host's device goes on and nobody can stop it: what it still sends meets closed pages.
lab::Expected expected_in_log(const Host& host, const FaultCase& one) {
  if (host.number() == 2 && one.victim == Victim::Lender && one.fault == Fault::Panic)
    return {
        std::regex("^DMAR: DRHD: handling fault status reg"),
        std::regex("^DMAR: \\[DMA (Read|Write) NO_PASID\\] Request device \\[00:0[0-9a-f]\\.0\\] "
                   "fault addr ")};
  return {};
}

}  // namespace

Result<lab::Options> FaultBench::options(const std::string& lab_name) {
  lab::Options options;
  options.name = lab_name;
  PCILEND_TRY(options.add_device("host1:nvme,serial=faults,drive-size=256M"));
  // The last one on the command line counts.
  const auto lease = std::chrono::milliseconds(kLease).count();
  for (const int host : {1, 2})
    options.kernel_arguments[host].push_back(fmt::format("pcilend.lease_ms={}", lease));
  return options;
}

Result<> FaultBench::run(const FaultCase& one, const Timing& timing) {
  lab_.transcript().say("bench", '*', name_of(one));
  PCILEND_TRY(prepare(one));
  sound_ = false;
  PCILEND_TRY(reach(one, timing));
  PCILEND_TRY(inject(one));
  PCILEND_TRY(observe(one));
  PCILEND_TRY(restore(one));
  PCILEND_TRY(nothing_is_left());
  PCILEND_TRY(check_logs(one));
  PCILEND_TRY(borrow_again());
  sound_ = true;
  return {};
}

Result<> FaultBench::close() {
  if (!sound_) return {};
  PCILEND_TRY(end_guest());
  PCILEND_TRY(await_state(lender(), "available"));
  PCILEND_TRY(nothing_is_left());
  return check_logs({Victim::Link, Fault::Flap, Moment::Idle});
}

// ---- up to the moment

Result<> FaultBench::prepare(const FaultCase& one) {
  if (!sound_) {
    PCILEND_TRY(restart_hosts());
    const auto address = lender().address(0);
    if (!address) return tl::unexpected(address.error());
    address_ = *address;
    PCILEND_TRY(see_link_up());
    PCILEND_TRY(offer());
    for (Host* host : {&lender(), &borrower()}) PCILEND_TRY(host->mark_log());
    sound_ = true;
  }
  if (one.moment == Moment::Borrowing) {
    PCILEND_TRY(end_guest());
    PCILEND_TRY(await_state(borrower(), "available"));
    return define_guest();
  }
  if (!guest_) PCILEND_TRY(start_guest());
  const auto function = function_on(lender());
  if (!function) return tl::unexpected(function.error());
  lease_ = function->at("lease");
  return {};
}

// Whatever the last case left: both hosts begin anew. The first time they do already.
Result<> FaultBench::restart_hosts() {
  const bool left = !address_.empty();
  io_.reset();
  step_.reset();
  guest_.reset();
  PCILEND_TRY(lab_.fabric().set_delay(1, 2, 0ms));
  PCILEND_TRY(lab_.fabric().link_up(1, 2));
  std::vector<std::future<Result<>>> boots;
  for (Host* host : {&lender(), &borrower()}) {
    if (!left && host->machine().condition() == Condition::Running) continue;
    PCILEND_TRY(host->power_off());
    host->forget_log();
    boots.push_back(std::async(std::launch::async, [host] { return host->power_on(kBoot); }));
  }
  Result<> result;
  for (auto& boot : boots)
    if (auto booted = boot.get(); !booted) result = booted;
  return result;
}

// connect, add, available: as far as it is not so.
Result<> FaultBench::offer() {
  const auto links = lender().json("pcilend link --json");
  if (!links) return tl::unexpected(links.error());
  if (!links->at("links").at(0).at("connected").get<bool>())
    PCILEND_TRY(lender().run(fmt::format("pcilend connect {}", borrower().node())));
  const auto list = lender().json("pcilend list --json");
  if (!list) return tl::unexpected(list.error());
  std::string state = "local";
  for (const json& function : list->at("functions"))
    if (function.value("bdf", "") == address_ && function.at("lender") == lender().node())
      state = function.at("state").get<std::string>();
  if (state == "local") PCILEND_TRY(lender().run("pcilend add " + address_));
  if (state == "local" || state == "added")
    PCILEND_TRY(lender().run("pcilend available " + address_));
  const auto own = lender().json("pcilend list --json");
  if (!own) return tl::unexpected(own.error());
  for (const json& function : own->at("functions"))
    if (function.value("bdf", "") == address_ && function.at("lender") == lender().node())
      id_ = function.at("id").get<std::string>();
  return await_state(borrower(), "available");
}

Result<> FaultBench::start_guest() {
  PCILEND_TRY(define_guest());
  PCILEND_TRY(guest_->start());
  return use_new_drive();
}

Result<> FaultBench::define_guest() {
  auto spec = borrower().guest_spec(kGuest, {id_});
  if (!spec) return tl::unexpected(spec.error());
  guest_.emplace(borrower().guest(*spec));
  PCILEND_TRY(borrower().exec(
      fmt::format("virsh undefine {0}; : >{1}", kGuest, lab::guest_console(kGuest))));
  return guest_->define();
}

Result<> FaultBench::use_new_drive() {
  PCILEND_TRY(MainJob::await_disk(*guest_));
  PCILEND_TRY(guest_->run(fmt::format("echo {} >/sys/block/nvme0n1/queue/io_timeout",
                                      std::chrono::milliseconds(kIoTimeout).count())));
  return see_guest_use_its_drive(0s);
}

Result<> FaultBench::reach(const FaultCase& one, const Timing& timing) {
  switch (one.moment) {
    case Moment::Idle:
      break;
    case Moment::UnderIo:
      PCILEND_TRY(begin_io());
      break;
    case Moment::Borrowing:
      PCILEND_TRY(begin_step(fmt::format("virsh start {}", kGuest),
                             triggers(one.moment).at(timing.trigger)));
      break;
    case Moment::Returning:
      PCILEND_TRY(begin_step(fmt::format("virsh destroy {}", kGuest),
                             triggers(one.moment).at(timing.trigger)));
      break;
  }
  std::this_thread::sleep_for(timing.delay);
  return {};
}

Result<> FaultBench::begin_io() {
  const int writes = ledger_.writes();
  auto io = guest_->start(write_script(ledger_.begin_run(kRun), kRun), {{}, 10min});
  if (!io) return tl::unexpected(io.error());
  io_.emplace(std::move(*io));
  noted_ = 0;
  Result<> noted;
  PCILEND_TRY(lab::eventually("the guest has written three slots", kPatience, [&] {
    noted = note_io();
    return !noted || ledger_.writes() >= writes + 3 || io_->ended();
  }));
  if (noted && io_->ended())
    return fail(ErrorClass::Failure, "the guest's I/O ended before the fault: {}",
                io_->output_so_far());
  return noted;
}

// Begins virsh, and returns when the borrower's kernel is at the trigger.
Result<> FaultBench::begin_step(const std::string& command, const Trigger& trigger) {
  auto watch = borrower().start(
      fmt::format("cd /sys/kernel/tracing && echo >trace && echo 1 >events/{0}/enable && "
                  "echo armed && grep -m 1 '{1}' trace_pipe",
                  trigger.event, trigger.pattern),
      {{}, kPatience});
  if (!watch) return tl::unexpected(watch.error());
  PCILEND_TRY(lab::eventually("the tracepoint is armed", kPatience, [&] {
    return watch->output_so_far().find("armed\n") != std::string::npos || watch->ended();
  }));
  PCILEND_TRY(lab_.fabric().set_delay(1, 2, kStretch));
  auto step = borrower().start(command, {{}, kPatience});
  if (!step) return tl::unexpected(step.error());
  step_.emplace(std::move(*step));
  PCILEND_TRY(
      lab::eventually(trigger.text, kPatience, [&] { return watch->ended() || step_->ended(); }));
  // A step that ends in the same moment was met at its very end.
  if (!watch->ended() && !lab::eventually("", 1s, [&] { return watch->ended(); }))
    return fail(ErrorClass::Failure, "'{}' ended before {}", command, trigger.text);
  return {};
}

// ---- the fault

Result<> FaultBench::inject(const FaultCase& one) {
  Host& host = one.victim == Victim::Borrower ? borrower() : lender();
  const auto fault = [&]() -> Result<> {
    switch (one.fault) {
      case Fault::PowerOff:
        return host.power_off();
      case Fault::Panic:
        PCILEND_TRY(host.check_log());
        return host.panic();
      case Fault::Reset:
        lab_.transcript().say(host.name(), '*', "reset");
        return host.machine().reset();
      case Fault::Flap:
        lab_.transcript().say("link", '*', "down, for a moment");
        PCILEND_TRY(lab_.fabric().link_down(1, 2));
        std::this_thread::sleep_for(kFlap);
        return lab_.fabric().link_up(1, 2);
      case Fault::Loss:
        lab_.transcript().say("link", '*', "down");
        return lab_.fabric().link_down(1, 2);
      case Fault::Unload:
        break;
    }
    return try_unload(one);
  };
  PCILEND_TRY(fault());
  return lab_.fabric().set_delay(1, 2, 0ms);
}

Result<> FaultBench::try_unload(const FaultCase& one) {
  // The frontend would keep the module for itself: on the lender nothing but the lease does.
  const bool on_lender = one.victim == Victim::Lender;
  Host& host = on_lender ? lender() : borrower();
  const auto unload =
      host.exec(on_lender ? "rmmod pcilend_mdev && rmmod pcilend" : "rmmod pcilend_mdev");
  if (!unload) return tl::unexpected(unload.error());
  // When the return is through, nothing speaks against it.
  const bool too_late = unload->code == 0 && one.moment == Moment::Returning;
  PCILEND_TRY(
      host.run(fmt::format("modprobe pcilend node={} && modprobe pcilend_mdev", host.node())));
  if (too_late) return {};
  if (unload->code == 0 || unload->err.find("in use") == std::string::npos)
    return fail(ErrorClass::Failure, "{}: a module that has a lease was not kept: {}", host.name(),
                unload->code == 0 ? "it is unloaded" : unload->err);
  return {};
}

Result<> FaultBench::observe(const FaultCase& one) {
  if (is_dead(one, Victim::Lender)) return see_lender_gone(one);
  if (is_dead(one, Victim::Borrower)) {
    PCILEND_TRY(answers(lender()));
    return see_function_come_back();
  }
  for (Host* host : {&lender(), &borrower()}) PCILEND_TRY(answers(*host));
  if (one.fault == Fault::Unload) return see_nothing_happen(one);
  if (one.fault == Fault::Flap) return see_flap(one);
  PCILEND_TRY(see_function_come_back());
  return see_lender_gone(one);
}

// Dead, or out of reach for longer than the lease.
Result<> FaultBench::see_lender_gone(const FaultCase& one) {
  PCILEND_TRY(answers(borrower()));
  if (!has_guest(one)) {
    const auto ended = see_step_end();
    if (!ended) return tl::unexpected(ended.error());
    if (one.moment == Moment::Returning && *ended != 0)
      return fail(ErrorClass::Failure, "virsh destroy ended with {}", *ended);
    return {};
  }
  PCILEND_TRY(answers(*guest_));
  PCILEND_TRY(see_guest_lose_its_drive());
  if (io_) {
    PCILEND_TRY(lab::eventually("the guest's I/O ends", kPatience, [&] { return io_->ended(); }));
    const int errors = ledger_.errors();
    PCILEND_TRY(note_io());
    if (ledger_.errors() == errors)
      return fail(ErrorClass::Failure, "the guest's I/O met no error, though its drive is gone");
  }
  return answers(*guest_);
}

// Errors are the fault's, as with a pulled cable; but the lease is the same, and use resumes.
Result<> FaultBench::see_flap(const FaultCase& one) {
  PCILEND_TRY(see_link_up());
  if (!has_guest(one)) {
    const auto ended = see_step_end();
    if (!ended) return tl::unexpected(ended.error());
    if (one.moment == Moment::Returning && *ended != 0)
      return fail(ErrorClass::Failure, "virsh destroy ended with {}", *ended);
    if (one.moment == Moment::Borrowing && *ended == 0) return use_new_drive();
    return {};
  }
  PCILEND_TRY(answers(*guest_));
  PCILEND_TRY(end_io());
  PCILEND_TRY(see_guest_use_its_drive(kPatience));
  const auto function = function_on(lender());
  if (!function) return tl::unexpected(function.error());
  if (function->at("state") != "borrowed" || function->at("lease") != lease_)
    return fail(ErrorClass::Failure, "a flap has ended lease {}: it is {}, lease {}", lease_.dump(),
                function->at("state").dump(), function->at("lease").dump());
  return {};
}

Result<> FaultBench::see_nothing_happen(const FaultCase& one) {
  if (!has_guest(one)) {
    const auto ended = see_step_end();
    if (!ended) return tl::unexpected(ended.error());
    if (*ended != 0) return fail(ErrorClass::Failure, "virsh ended with {}", *ended);
    return one.moment == Moment::Borrowing ? use_new_drive() : Result<>();
  }
  const int errors = ledger_.errors();
  const int writes = ledger_.writes();
  if (io_) {
    Result<> noted;
    PCILEND_TRY(lab::eventually("the guest has written three more slots", kPatience, [&] {
      noted = note_io();
      return !noted || ledger_.writes() >= writes + 3 || io_->ended();
    }));
    if (!noted) return noted;
    PCILEND_TRY(end_io());
  }
  PCILEND_TRY(see_guest_use_its_drive(0s));
  if (ledger_.errors() != errors)
    return fail(ErrorClass::Failure, "the guest's I/O met an error, but nothing has happened");
  return {};
}

// The lender has ended the lease by itself, and reset the function.
Result<> FaultBench::see_function_come_back() {
  return await_state(lender(), "available");
}

Result<> FaultBench::see_link_up() const {
  for (const Host* host : {&lender(), &borrower()}) {
    const auto up = host->until(
        "pcilend link --json",
        [](const Output& output) {
          const json links = json::parse(output.out, nullptr, false);
          return links.is_object() && !links.at("links").empty() &&
                 links.at("links").at(0).at("state") == "up";
        },
        kPatience);
    if (!up) return tl::unexpected(Error(up.error()).in("the link does not come up"));
  }
  return {};
}

Result<> FaultBench::see_guest_lose_its_drive() {
  const auto lost = guest_->exec(
      "while [ -b /dev/nvme0n1 ] && "
      "dd if=/dev/nvme0n1 of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null; do sleep 0.1; done",
      {{}, kPatience});
  if (!lost)
    return tl::unexpected(Error(lost.error()).in("the guest's drive neither works nor fails"));
  return {};
}

Result<> FaultBench::see_guest_use_its_drive(std::chrono::milliseconds within) {
  const lab::Deadline deadline(within);
  const int first = ledger_.begin_run(2);
  for (;;) {
    const int errors = ledger_.errors();
    const int writes = ledger_.writes();
    const auto io = guest_->exec(write_script(first, 2), {{}, kPatience});
    if (!io) return tl::unexpected(io.error());
    PCILEND_TRY(ledger_.note_all(io->out));
    if (ledger_.errors() == errors && ledger_.writes() == writes + 2) return {};
    if (deadline.over())
      return fail(ErrorClass::Failure, "the guest can't use its drive: {}{}", io->out, io->err);
    std::this_thread::sleep_for(200ms);
  }
}

Result<int> FaultBench::see_step_end() {
  if (!step_) return fail(ErrorClass::Failure, "no virsh was begun");
  const auto ended = step_->wait();
  step_.reset();
  if (!ended) return tl::unexpected(Error(ended.error()).in("virsh hangs"));
  if (ended->code != 0 && ended->err.empty())
    return fail(ErrorClass::Failure, "virsh failed without a word");
  return ended->code;
}

Result<> FaultBench::note_io() {
  const std::string said = io_->output_so_far();
  const size_t end = said.rfind('\n');
  if (end == std::string::npos || end < noted_) return {};
  const size_t from = std::exchange(noted_, end + 1);
  return ledger_.note_all(std::string_view(said).substr(from, noted_ - from));
}

Result<> FaultBench::end_io() {
  if (!io_) return {};
  PCILEND_TRY(guest_->run(": >/tmp/stop", {{}, kPatience}));
  PCILEND_TRY(lab::eventually("the guest's I/O ends", kPatience, [&] { return io_->ended(); }));
  PCILEND_TRY(note_io());
  io_.reset();
  return {};
}

// ---- everything as before

Result<> FaultBench::restore(const FaultCase& one) {
  if (one.fault == Fault::Loss) PCILEND_TRY(lab_.fabric().link_up(1, 2));
  if (is_dead(one, Victim::Lender) || is_dead(one, Victim::Borrower)) {
    Host& host = one.victim == Victim::Lender ? lender() : borrower();
    // Its last words are its own.
    if (one.fault == Fault::Panic) host.forget_log();
    PCILEND_TRY(one.fault == Fault::PowerOff ? host.power_on(kBoot)
                : one.fault == Fault::Panic  ? host.reset(kBoot)
                                             : host.machine().wait_until_up(lab::Deadline(kBoot)));
  }
  if (io_) {
    PCILEND_TRY(note_io());
    io_.reset();
  }
  step_.reset();
  if (is_dead(one, Victim::Borrower)) guest_.reset();
  PCILEND_TRY(see_link_up());
  if (guest_) PCILEND_TRY(guest_is_clean());
  PCILEND_TRY(end_guest());
  return offer();
}

Result<> FaultBench::end_guest() {
  if (!guest_) return {};
  const auto state = guest_->state();
  if (!state) return tl::unexpected(state.error());
  if (*state != "shut off") PCILEND_TRY(guest_->destroy());
  guest_.reset();
  return {};
}

Result<> FaultBench::nothing_is_left() const {
  for (const Host* host : {&lender(), &borrower()}) {
    const auto links = host->json("pcilend link --json");
    if (!links) return tl::unexpected(links.error());
    for (const json& link : links->at("links"))
      for (const char* what : {"export_bytes", "slot_bytes", "bad_messages"})
        if (link.at(what) != 0)
          return fail(ErrorClass::Failure, "{} has {} {} left", host->name(), link.at(what).dump(),
                      what);
  }
  const auto left =
      borrower().run("ls /sys/bus/mdev/devices; ls /run/pcilend/domains 2>/dev/null; true");
  if (!left) return tl::unexpected(left.error());
  if (!left->empty())
    return fail(ErrorClass::Failure, "mdevs or records of the hook are left: {}", *left);
  return {};
}

Result<> FaultBench::guest_is_clean() const {
  const auto console = guest_->console();
  if (!console) return tl::unexpected(console.error());
  for (const lab::LogFinding& finding : lab::scan_kernel_log(*console))
    return fail(ErrorClass::Failure, "the guest's kernel complains: {}", finding.line);
  return {};
}

Result<> FaultBench::check_logs(const FaultCase& one) {
  for (Host* host : {&lender(), &borrower()}) {
    PCILEND_TRY(host->check_log(expected_in_log(*host, one)));
    PCILEND_TRY(host->mark_log());
  }
  return {};
}

Result<> FaultBench::borrow_again() {
  PCILEND_TRY(start_guest());
  const int errors = ledger_.errors();
  const auto read = guest_->exec(read_script(ledger_.latest(kVerify)), {{}, kPatience});
  if (!read) return tl::unexpected(read.error());
  PCILEND_TRY(ledger_.note_all(read->out));
  if (ledger_.errors() != errors)
    return fail(ErrorClass::Failure, "what was written can't be read again: {}", read->out);
  return {};
}

Result<json> FaultBench::function_on(const Host& host) const {
  const auto list = host.json("pcilend list --json");
  if (!list) return tl::unexpected(list.error());
  for (const json& function : list->at("functions"))
    if (function.at("id") == id_) return function;
  return fail(ErrorClass::NotFound, "{} does not list function {}", host.name(), id_);
}

Result<> FaultBench::await_state(const Host& host, const std::string& state) const {
  const auto listed = host.until(
      "pcilend list --json",
      [&](const Output& output) {
        const json list = json::parse(output.out, nullptr, false);
        if (!list.is_object()) return false;
        for (const json& function : list.at("functions"))
          if (function.at("id") == id_ && function.at("state") == state) return true;
        return false;
      },
      kPatience);
  if (!listed)
    return fail(ErrorClass::State, "function {} is not '{}' on {}: {}", id_, state, host.name(),
                listed.error().message);
  return {};
}

}  // namespace pcilend::scenarios
