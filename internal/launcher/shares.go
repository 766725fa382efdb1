package launcher

import (
	"fmt"
	"path/filepath"
	"strconv"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

// startShare starts virtiofsd, which gives the guest the rights of its own user in the folder. The guest resolves links itself,
// and the kernel lets virtiofsd open nothing above the folder. But virtiofsd removes, makes and renames whatever path a guest
// with a kernel of its own sends, also "../x": Landlock keeps it in the folder.
//
// In a migration the next virtiofsd finds the guest's open files by their paths, which this one looks at again once the guest
// stands still: others may have put another file there meanwhile. The guest gets an error for those that it
// does not find, instead of staying where it is.
func startShare(config Config, share launch.Share, children *reaper) (*companion, error) {
	if landlock() < leastLandlock {
		return nil, fmt.Errorf("sharing %s with the guest: the kernel of the node has no Landlock (Linux 5.19 or later, and enabled), "+
			"without which a hostile guest could change files outside of the folder: run the guest on another node, or without spec.domain.devices.filesystems", share.Name)
	}
	argv := []string{
		config.Share, "--fd=" + strconv.Itoa(inheritedFD), "--shared-dir=" + share.Folder, "--sandbox=none",
		"--cache=auto", "--migration-mode=find-paths", "--migration-confirm-paths", "--migration-on-error=guest-error", "--log-level=warn",
	}
	subject := fmt.Sprintf("the program that shares %s with the guest (virtiofsd)", share.Name)
	return startCompanion(childProgram{name: "virtiofsd", argv: argv, writes: share.Folder}, subject, filepath.Join(config.Dir, layout.ShareSocket(share.Name)), config, children)
}
