package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

// startTPM starts swtpm with its state in its own folder.
func startTPM(config Config, request *launch.TPM, children *reaper) (*companion, error) {
	state := request.State
	if err := removeOldTPMs(request); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the TPM's state: %w", err)
	}
	argv := []string{
		config.TPM, "socket", "--tpm2", "--terminate",
		"--tpmstate", "dir=" + state + ",mode=0600",
		"--ctrl", fmt.Sprintf("type=unixio,fd=%d", inheritedFD),
	}
	return startCompanion(childProgram{name: "swtpm", argv: argv}, "the guest's TPM (swtpm)", filepath.Join(config.Dir, layout.TPMSocket), config, children)
}

// removeOldTPMs removes the folders of TPMs from before a migration, and of failed migrations.
func removeOldTPMs(request *launch.TPM) error {
	if request.Current == "" {
		return nil
	}
	folder, own := filepath.Split(request.State)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("looking for what earlier TPMs have left: %w", err)
	}
	for _, e := range entries {
		if name := e.Name(); e.IsDir() && strings.HasPrefix(name, layout.FirstTPM) && name != own && name != request.Current {
			if err := os.RemoveAll(filepath.Join(folder, name)); err != nil {
				return fmt.Errorf("removing what an earlier TPM has left: %w", err)
			}
		}
	}
	return nil
}
