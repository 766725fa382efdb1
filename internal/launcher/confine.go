package launcher

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// leastLandlock is the version of Landlock since which files can be moved between the folders that it allows.
const leastLandlock = 2

// truncateLandlock is the version of Landlock that knows truncation.
const truncateLandlock = 3

// changes are all ways to change a file system.
const changes = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
	unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
	unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
	unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER

// landlock returns the kernel's version of Landlock, 0 if a process can't confine itself.
func landlock() int {
	version, _, failed := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if failed != 0 {
		return 0
	}
	return int(version)
}

// confine keeps the calling thread, for ever, and the programs that it starts from changing anything outside of a folder, by
// whatever path. The kernel must have leastLandlock.
func confine(folder string) error {
	allowed := uint64(changes)
	if landlock() >= truncateLandlock {
		allowed |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	rules := unix.LandlockRulesetAttr{Handled_access_fs: allowed}
	set, _, failed := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), unsafe.Sizeof(rules.Handled_access_fs), 0)
	if failed != 0 {
		return fmt.Errorf("making the rules of Landlock: %w", failed)
	}
	defer func() { _ = unix.Close(int(set)) }()
	if err := allow(int(set), folder, allowed); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("renouncing new privileges: %w", err)
	}
	if _, _, failed := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); failed != 0 {
		return fmt.Errorf("putting the rules of Landlock into force: %w", failed)
	}
	return nil
}

// allow allows nothing in a folder that can't be opened: the program itself says why.
func allow(set int, folder string, access uint64) error {
	fd, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, failed := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if failed != 0 {
		return fmt.Errorf("allowing changes in %s: %w", folder, failed)
	}
	return nil
}
