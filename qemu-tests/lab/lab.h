// SPDX-License-Identifier: GPL-2.0-or-later
// A lab: host VMs joined by a simulated NTB.
//
//   auto lab = Lab::up(options);             // fabric and hosts; down again when it goes
//   Host& lender = lab->host(1);
//   ASSERT_TRUE(lender.run("pcilend connect 8"));
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lab/fabric_client.h"
#include "lab/host.h"
#include "lab/layout.h"
#include "lab/options.h"
#include "lab/rogue.h"
#include "lab/state.h"
#include "lab/transcript.h"

namespace pcilend::lab {

// Told about each finished step, with the seconds since the beginning.
using Progress = std::function<void(double seconds, const std::string& step)>;

class Lab {
 public:
  // Starts a lab and waits until every host is up. On failure nothing is left of it but, in the
  // error's text, the end of the console. The lab belongs to this process, and ends with it, even
  // if it is killed meanwhile. What a dead owner left of a lab of that name is cleared away first.
  static Result<Lab> up(const Options& options, const Progress& progress = {},
                        Transcript::Sink sink = {});
  // A lab that is up; it stays up when this goes.
  static Result<Lab> attach(const std::string& name, Transcript::Sink sink = {});
  // Ends every process of a lab and removes its files, in whatever state it is and whoever it
  // belongs to. True if there was anything.
  static Result<bool> down(const std::string& name);

  Lab(Lab&& other) noexcept;
  Lab& operator=(Lab&&) = delete;
  ~Lab();

  // From now on it belongs to nobody: it stays up when this goes.
  Result<> keep();

  [[nodiscard]] const std::string& name() const { return state_.name; }
  [[nodiscard]] const State& state() const { return state_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] int hosts() const { return static_cast<int>(hosts_.size()); }
  // From 1; the number must be of this lab.
  [[nodiscard]] Host& host(int number) { return *hosts_.at(static_cast<size_t>(number) - 1); }
  [[nodiscard]] Result<Host*> host(std::string_view host_name);
  [[nodiscard]] const Fabric& fabric() const { return fabric_; }
  // Answers only if the lab was started with Options::rogue.
  [[nodiscard]] const Rogue& rogue() const { return rogue_; }
  [[nodiscard]] Transcript& transcript() { return *transcript_; }

  [[nodiscard]] bool fabric_runs() const;

  // Puts the build's programs and modules into the running hosts and loads the modules anew.
  Result<> update(const Progress& progress = {});

 private:
  Lab(State state, Layout layout, Transcript::Sink sink);

  State state_;
  Layout layout_;
  Fabric fabric_;
  Rogue rogue_;
  std::unique_ptr<Transcript> transcript_;
  std::vector<std::unique_ptr<Host>> hosts_;
  bool owned_ = false;
};

// Asks `condition` again and again until it is true; State with `what` if it isn't within the time.
Result<> eventually(std::string_view what, std::chrono::milliseconds within,
                    const std::function<bool()>& condition);

}  // namespace pcilend::lab
