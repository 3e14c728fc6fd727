#include "launch/own_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "unit/temporary_folder.h"

namespace overtake {
namespace {

namespace fs = std::filesystem;

// What a process leaves behind that made a folder in `parent` and was killed.
void leave_folder_in(const fs::path& parent) {
  const pid_t child = fork();
  if (child == 0) {
    const OwnFolder folder(parent, "job");
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

fs::path only_entry_of(const fs::path& folder) { return fs::directory_iterator(folder)->path(); }

TEST(OwnFolder, GoesWithItsProcessOrWithTheNextOne) {
  const TemporaryFolder parent;
  leave_folder_in(parent.path());
  ASSERT_EQ(parent.file_count(), 1u);
  {
    const OwnFolder folder(parent.path(), "job");
    EXPECT_EQ(parent.file_count(), 1u) << "what was left is gone";
    EXPECT_EQ(only_entry_of(parent.path()), folder.path());
    const OwnFolder beside(parent.path(), "job");
    EXPECT_TRUE(fs::exists(folder.path())) << "it is in use";
  }
  EXPECT_EQ(parent.file_count(), 0u);
}

TEST(OwnFolder, LeavesAloneWhatIsNotItsOwn) {
  const TemporaryFolder parent, elsewhere;
  const auto made = [&](const char* name) {
    fs::create_directory(parent.path() / name);
    return parent.path() / name;
  };
  const fs::path notes = made("job-notes");  // a user's folder of such a name
  std::ofstream(notes / "diary.txt") << "dear diary";
  const fs::path forged = made("job-forged");
  std::ofstream(forged / kOwnFolderMark) << "something else";
  const fs::path folder_as_mark = made("job-folder");
  fs::create_directory(folder_as_mark / kOwnFolderMark);
  made("job-empty");
  std::ofstream(parent.path() / "job-file") << "no folder at all";
  // A link to what a killed process left somewhere else, and its mark behind a link.
  leave_folder_in(elsewhere.path());
  fs::create_directory_symlink(only_entry_of(elsewhere.path()), parent.path() / "job-link");
  fs::create_symlink(only_entry_of(elsewhere.path()) / kOwnFolderMark, made("job-linked") / kOwnFolderMark);
  std::optional<OwnFolder> folder;
  folder.emplace(parent.path(), "job");
  folder.reset();
  EXPECT_EQ(parent.file_count(), 7u);
  EXPECT_TRUE(fs::exists(notes / "diary.txt"));
  EXPECT_EQ(elsewhere.file_count(), 1u);
}

TEST(OwnFolder, LeavesAloneWhatBelongsToOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const TemporaryFolder parent;
  leave_folder_in(parent.path());
  const fs::path left = only_entry_of(parent.path());
  ASSERT_EQ(chown(left.c_str(), 65534, 65534), 0);
  { const OwnFolder folder(parent.path(), "job"); }
  EXPECT_TRUE(fs::exists(left / kOwnFolderMark));
}

}  // namespace
}  // namespace overtake
