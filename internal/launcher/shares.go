package launcher

import (
	"fmt"
	"path/filepath"
	"strconv"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

// startShare starts virtiofsd, which gives the guest what its own user may do in the folder. It can leave the folder for
// no path: the guest resolves links itself, and virtiofsd opens one name at a time.
//
// In a migration the next virtiofsd finds the guest's open files by their paths. The guest gets an error for those that it
// does not find, instead of staying where it is.
func startShare(config Config, share launch.Share, children *reaper) (*companion, error) {
	argv := []string{
		config.Share, "--fd=" + strconv.Itoa(inheritedFD), "--shared-dir=" + share.Folder, "--sandbox=none",
		"--cache=auto", "--migration-mode=find-paths", "--migration-on-error=guest-error", "--log-level=warn",
	}
	subject := fmt.Sprintf("the program that shares %s with the guest (virtiofsd)", share.Name)
	return startCompanion("virtiofsd", subject, filepath.Join(config.Dir, layout.ShareSocket(share.Name)), argv, config, children)
}
