package disk

import (
	"fmt"
	"os"
	"regexp"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/podpath"
)

// maxTemplate bounds the template of the UEFI variables.
const maxTemplate = 4 << 20

// make makes the folder, and the UEFI variables if they are missing. What is there may be anybody's who can mount the
// claim: it is never read here, and used only if it is what it has to be.
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
	return s.makeVariables(pod, folder)
}

// makeVariables copies the template once. The file has its name when it is whole and stored, so that a crash of
// whatever part leaves either nothing of that name or all.
func (s State) makeVariables(pod Pod, folder *podpath.Dir) error {
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

// tpmFolder is what a folder of a TPM can be called (layout.FirstTPM, layout.IncomingTPM).
var tpmFolder = regexp.MustCompile("^" + layout.FirstTPM + "(-[0-9a-z-]{1,40})?$")

// maxTPMFolder bounds the name of one.
const maxTPMFolder = 64

// CurrentTPM returns the name of the folder of the TPM that the VM's guest uses, or the next one will.
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

// SetCurrentTPM records that the guest uses the TPM in that folder from now on. When it returns, this is stored.
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

// stateFolder is the folder of the VM's state. From the claim on no link is followed.
func stateFolder(pod Pod) (*podpath.Dir, error) {
	claim, err := pod.Root.Strict(layout.StateDir)
	if err != nil {
		return nil, err
	}
	defer claim.Close()
	return claim.Sub(layout.StateFolder)
}
