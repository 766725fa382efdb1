package machine_test

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/test/guest"
	"drydock.dev/drydock/test/shipped"
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

// TestSecureBootTakesWhatIsSignedAndNothingElse boots a disk whose loader, kernel and modules are signed with keys in
// the kept variables. The firmware must refuse an unsigned disk.
func TestSecureBootTakesWhatIsSignedAndNothingElse(t *testing.T) {
	t.Parallel()
	files := buildGuest(t, guest.Full)
	ctx, cancel := context.WithTimeout(t.Context(), life)
	defer cancel()
	signed, err := guest.SignedDisk(ctx, buildCache, files)
	if err != nil {
		t.Fatal(err)
	}
	vmi := parse(t, secureVMI)
	microsofts := machine.VariablesTemplate(&vmi.Spec)
	t.Run("signed", func(t *testing.T) { bootWith(t, vmi, signed, copyOf(t, microsofts)).isSecure() })
	t.Run("not signed", func(t *testing.T) { bootWith(t, vmi, files.Disk, copyOf(t, microsofts)).refuses() })
}

// TestAGuestEnrollsKeysOfItsOwner starts a guest without keys and without Secure Boot, and lets it enroll its owner's.
// From the next start on, with Secure Boot, the firmware must boot the owner's signed disk, and none of Microsoft's.
func TestAGuestEnrollsKeysOfItsOwner(t *testing.T) {
	t.Parallel()
	files := buildGuest(t, guest.Full)
	ctx, cancel := context.WithTimeout(t.Context(), 3*life)
	defer cancel()
	owner, err := guest.NewOwner(ctx, buildCache, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	own, err := owner.SignedDisk(ctx, buildCache, files)
	if err != nil {
		t.Fatal(err)
	}
	microsofts, err := guest.SignedDisk(ctx, buildCache, files)
	if err != nil {
		t.Fatal(err)
	}
	vmi := parse(t, secureVMI)
	secure := vmi.Spec.Domain.Firmware.Bootloader.EFI
	secure.SecureBoot = new(false)
	kept := copyOf(t, machine.VariablesTemplate(&vmi.Spec))
	p := bootWith(t, vmi, own, kept)
	p.login()
	p.prints(secureBootState, "0")
	for _, variable := range []string{
		"db-d719b2cb-3d3a-4596-a3bc-dad00e67656f", "KEK-8be4df61-93ca-11d2-aa0d-00e098032b8c", "PK-8be4df61-93ca-11d2-aa0d-00e098032b8c",
	} {
		name, _, _ := strings.Cut(variable, "-")
		text, err := owner.Enrollment(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		p.writes(text, "/sys/firmware/efi/efivars/"+variable)
	}
	p.powersOff()

	secure.SecureBoot = new(true)
	p = bootWith(t, vmi, own, kept)
	p.isSecure()
	p.powersOff()
	bootWith(t, vmi, microsofts, kept).refuses()
}

// The firmware writes the variables.
func copyOf(t *testing.T, variables string) string {
	t.Helper()
	text, err := os.ReadFile(shipped.File(t, variables))
	kept := filepath.Join(t.TempDir(), layout.NVRAM)
	if err == nil {
		err = os.WriteFile(kept, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

func bootWith(t *testing.T, vmi *v1.VirtualMachineInstance, disk, kept string) *pod {
	t.Helper()
	p := newPod(t)
	p.place(disk, filepath.Join(layout.VolumeDir("root"), layout.ContainerDiskDir, "guest.qcow2"))
	p.place(kept, layout.KeptNVRAMFile())
	p.boot(vmi)
	return p
}

// secureBootState prints 1 where the firmware checks signatures.
const secureBootState = "mount -t efivarfs none /sys/firmware/efi/efivars; " +
	"tail -c 1 /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c | od -An -tu1 | tr -d ' '"

func (p *pod) isSecure() {
	p.t.Helper()
	p.login()
	p.prints(secureBootState, "1")
	p.prints("mount -t securityfs none /sys/kernel/security; cat /sys/kernel/security/lockdown", "none [integrity] confidentiality")
}

func (p *pod) refuses() {
	p.t.Helper()
	if _, err := p.console.Expect(p.ctx, regexp.MustCompile(`failed to load Boot.*Access Denied`)); err != nil {
		p.t.Errorf("the firmware does not refuse it: %v", err)
	}
}

// UEFI variables need one write.
func (p *pod) writes(text []byte, to string) {
	p.t.Helper()
	// A console limits the length of its lines.
	for chunk := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(text)), 1024) {
		p.says("printf %s " + string(chunk) + " >> /tmp/text")
	}
	p.says("base64 -d /tmp/text > /tmp/bytes && rm /tmp/text && dd if=/tmp/bytes of=" + to + " bs=64k 2>&1 && tail -c +5 " + to + " | wc -c")
}
