package machine_test

import (
	"os"
	"path/filepath"
	"testing"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/test/guest"
	"drydock.dev/drydock/test/shipped"
)

const keptVMI = `
metadata: {name: kept, namespace: default}
spec:
  domain:
    firmware: {uuid: ` + uuid + `, bootloader: {efi: {persistent: true, secureBoot: false}}}
    features: {smm: {}}
    memory: {guest: 256Mi}
    devices:
      autoattachGraphicsDevice: false
      tpm: {persistent: true}
      disks: [{name: root, disk: {bus: virtio}}]
  volumes:
  - {name: root, containerDisk: {image: test-guest}}
`

// TPM commands that define an NV index as its owner, and read its public part.
const (
	tpmDefine = "8002 0000002d 0000012a 40000001 00000009 40000009 0000 00 0000" + // by the owner, without a password
		" 0000 000e 01500000 000b 00040004 0000 0008" // of 8 bytes, readable with its password, which is empty
	tpmDefined = "80020000001300000000000000000000010000"
	tpmAsk     = "8001 0000000e 00000169 01500000"
	tpmKnows   = "[ $(tpmsend " + tpmAsk + " | cut -c13-20) = 00000000 ] && echo known"
	tpmUnknown = "80010000000a0000018b"
)

// eccPublic is the size of the public part of a key on the curve P-256, with its attributes.
const eccPublic = 90

// efiVariable has a GUID of our own: the firmware knows the names under UEFI's GUID.
const efiVariable = "/sys/firmware/efi/efivars/Drydock-5d307ca9-b3ef-428c-8861-06e72d69f223"

// efiKeys is the variable with the keys that may boot under Secure Boot.
const efiKeys = "/sys/firmware/efi/efivars/db-d719b2cb-3d3a-4596-a3bc-dad00e67656f"

// enrolled is the digest of a program, 32 bytes.
const enrolled = "the digest of a loader to trust!"

// enroll adds that digest to the firmware's keys, which the owner of a machine without keys may do: the variable's
// attributes, a time and an empty signature, and a list of one SHA-256 digest with a nil owner.
const enroll = `printf '\047\0\0\0` +
	`\352\007\001\001\0\0\0\0\0\0\0\0\0\0\0\0` +
	`\030\0\0\0\0\002\361\016\235\322\257\112\337\150\356\111\212\251\064\175\067\126\145\247` +
	`\046\026\304\301\114\120\222\100\254\251\101\371\066\223\103\050\114\0\0\0\0\0\0\0\060\0\0\0` +
	`\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0` + enrolled + `' > ` + efiKeys

func TestWhatIsKeptOutlivesTheGuest(t *testing.T) {
	t.Parallel()
	files := buildGuest(t, guest.Lean)
	vmi := parse(t, keptVMI)
	claim := t.TempDir()
	start := func() *pod {
		p := newPod(t)
		p.place(files.Disk, filepath.Join(layout.VolumeDir("root"), layout.ContainerDiskDir, "guest.qcow2"))
		if err := os.Symlink(claim, p.path(layout.StateDir)); err != nil {
			t.Fatal(err)
		}
		p.boot(vmi)
		p.login()
		return p
	}
	p := filepath.Join(claim, layout.StateFolder)
	template, err := os.ReadFile(shipped.File(t, machine.VariablesTemplate(&vmi.Spec)))
	if err == nil {
		err = os.Mkdir(p, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(p, layout.NVRAM), template, 0o600) // as virt-handler does
	}
	if err != nil {
		t.Fatal(err)
	}
	first := start()
	first.prints("tpmsend "+tpmAsk, tpmUnknown)
	first.prints("tpmsend "+tpmDefine, tpmDefined)
	first.prints("mount -t efivarfs none /sys/firmware/efi/efivars; ls "+efiVariable+" 2>/dev/null || echo none", "none")
	// The kernel refuses a second write.
	first.prints("[ -e "+efiVariable+` ] || printf '\007\000\000\000kept' > `+efiVariable+"; tail -c 4 "+efiVariable, "kept")
	first.prints(enroll+"; tail -c 32 "+efiKeys, enrolled)
	// On a busy host the TPM may answer too late for the kernel, which then manages no keys.
	first.prints("echo MSFT0101:00 > /sys/bus/acpi/drivers/tpm_crb/unbind; ls /dev/tpmrm0 2>/dev/null || echo none", "none")
	key, sealed := first.says("tpmkey"), first.says("tpmseal a secret")
	if len(key) != 2*eccPublic {
		t.Errorf("the TPM's endorsement key is %q", key)
	}
	first.powersOff()

	second := start()
	second.prints("tpmkey", key)
	second.prints("tpmunseal "+sealed, "a secret")
	second.prints(tpmKnows, "known")
	second.prints("mount -t efivarfs none /sys/firmware/efi/efivars; tail -c 4 "+efiVariable, "kept")
	second.prints("tail -c 32 "+efiKeys, enrolled)
}
