package disk

import (
	"fmt"
	"os"
	"regexp"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/podpath"
)

// maxTemplate is in bytes.
const maxTemplate = 4 << 20

// make creates the folder and missing UEFI variables. Anyone who can mount the claim may have written its files: they
// are never read, and used only if they have the right type and size.
func (s State) make(pod Pod) error {
	claim, err := pod.Root.Strict(layout.StateDir)
	if err != nil {
		return err
	}
	defer claim.Close()
	folder, err := claim.Folder(layout.StateFolder, pod.User)
	if err != nil {
		return err
	}
	defer folder.Close()
	if s.Template == "" {
		return nil
	}
	// A file that is synced before it gets its name survives a crash as a whole or not at all.
	template, err := pod.Root.ReadFile(s.Template, maxTemplate)
	if err != nil {
		return err
	}
	exists, err := folder.Exists(layout.NVRAM)
	if err != nil {
		return err
	}
	if !exists {
		return folder.Create(layout.NVRAM, pod.User, 0o600, func(f *os.File) error {
			if _, err := f.Write(template); err != nil {
				return fmt.Errorf("writing the UEFI variables: %w", err)
			}
			if err := f.Sync(); err != nil {
				return fmt.Errorf("storing the UEFI variables: %w", err)
			}
			return nil
		})
	}
	size, err := folder.FileSize(layout.NVRAM)
	if err != nil {
		return err
	}
	if size != int64(len(template)) {
		return fmt.Errorf("the UEFI variables (%s/%s on the claim) have %d bytes instead of the %d that the firmware takes: restore them, or delete the file to begin anew",
			layout.StateFolder, layout.NVRAM, size, len(template))
	}
	return folder.OwnFile(layout.NVRAM, pod.User)
}

// tpmFolder matches layout.FirstTPM and layout.IncomingTPM.
var tpmFolder = regexp.MustCompile("^" + layout.FirstTPM + "(-[0-9a-z-]{1,40})?$")

const maxTPMFolder = 64

// CurrentTPM returns the name of the TPM folder of the VM's guest, or of its next one.
func CurrentTPM(pod Pod) (string, error) {
	folder, err := stateFolder(pod)
	if err != nil {
		return "", err
	}
	defer folder.Close()
	if exists, err := folder.Exists(layout.CurrentTPM); err != nil || !exists {
		return layout.FirstTPM, err
	}
	name, err := folder.ReadFile(layout.CurrentTPM, maxTPMFolder)
	if err != nil {
		return "", fmt.Errorf("finding the state of the VM's TPM: %w", err)
	}
	if !tpmFolder.Match(name) {
		return "", fmt.Errorf("finding the state of the VM's TPM: the file %s/%s on the claim holds %q, which names no folder of a TPM",
			layout.StateFolder, layout.CurrentTPM, name)
	}
	return string(name), nil
}

// SetCurrentTPM records name as the TPM folder of the guest, synced.
func SetCurrentTPM(pod Pod, name string) error {
	folder, err := stateFolder(pod)
	if err != nil {
		return err
	}
	defer folder.Close()
	err = folder.Create(layout.CurrentTPM, pod.User, 0o600, func(f *os.File) error {
		if _, err := f.WriteString(name); err != nil {
			return fmt.Errorf("recording the guest's TPM: %w", err)
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("storing which TPM the guest has: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return folder.Sync()
}

// stateFolder follows no symlink from the claim on.
func stateFolder(pod Pod) (*podpath.Dir, error) {
	claim, err := pod.Root.Strict(layout.StateDir)
	if err != nil {
		return nil, err
	}
	defer claim.Close()
	return claim.Sub(layout.StateFolder)
}
