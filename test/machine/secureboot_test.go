package machine_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/test/guest"
)

const secureVMI = `
metadata: {name: secure, namespace: default}
spec:
  domain:
    firmware: {uuid: ` + uuid + `, bootloader: {efi: {persistent: true}}}
    features: {smm: {}}
    memory: {guest: 384Mi}
    devices:
      autoattachGraphicsDevice: false
      disks: [{name: root, disk: {bus: virtio}}]
  volumes:
  - {name: root, containerDisk: {image: test-guest}}
`

// ownKeys are variables in which keys are enrolled that are not Microsoft's, as a user's own are.
const ownKeys = "/usr/share/OVMF/OVMF_VARS_4M.snakeoil.fd"

// TestSecureBootTakesWhatIsSignedAndNothingElse boots a disk whose loader, kernel and modules are signed by whom the
// kept variables have keys of, and sees the firmware refuse one that is not signed, and the signed one where the user's own
// keys are enrolled.
func TestSecureBootTakesWhatIsSignedAndNothingElse(t *testing.T) {
	files := buildGuest(t, guest.Cloud)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	signed, err := guest.SignedDisk(ctx, buildCache, files)
	if err != nil {
		t.Fatal(err)
	}
	vmi := parse(t, secureVMI)
	boot := func(t *testing.T, disk, variables string) *pod {
		p := newPod(t)
		p.place(disk, filepath.Join(layout.VolumeDir("root"), layout.ContainerDiskDir, "guest.qcow2"))
		// A file of its own: the firmware writes it.
		text, err := os.ReadFile(variables)
		kept := p.path(layout.KeptNVRAMFile())
		if err == nil {
			err = os.MkdirAll(filepath.Dir(kept), 0o700)
		}
		if err == nil {
			err = os.WriteFile(kept, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		p.boot(vmi)
		return p
	}
	refused := func(t *testing.T, p *pod) {
		if _, err := p.console.Expect(p.ctx, regexp.MustCompile(`failed to load Boot.*Access Denied`)); err != nil {
			t.Errorf("the firmware does not refuse it: %v", err)
		}
	}
	microsofts := machine.VariablesTemplate(&vmi.Spec)
	t.Run("signed", func(t *testing.T) {
		p := boot(t, signed, microsofts)
		p.login()
		p.prints("mount -t efivarfs none /sys/firmware/efi/efivars; tail -c 1 /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c | od -An -tu1 | tr -d ' '", "1")
		p.prints("mount -t securityfs none /sys/kernel/security; cat /sys/kernel/security/lockdown", "none [integrity] confidentiality")
	})
	t.Run("not signed", func(t *testing.T) { refused(t, boot(t, files.Disk, microsofts)) })
	t.Run("signed by others than the user's own keys", func(t *testing.T) { refused(t, boot(t, signed, ownKeys)) })
}
