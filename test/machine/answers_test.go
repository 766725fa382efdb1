package machine_test

import (
	"os"
	"path/filepath"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/test/guest"
)

const answersVMI = `
metadata:
  name: answers
  namespace: default
  annotations: {kubevirt.io/ignitiondata: '{"ignition": {"version": "3.4.0"}}'}
spec:
  domain:
    firmware:
      uuid: ` + uuid + `
      kernelBoot:
        kernelArgs: console=ttyS0 quiet no_timer_check cryptomgr.notests
        container: {image: test-guest-kernel, kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd.img}
    memory: {guest: 160Mi}
    devices:
      autoattachGraphicsDevice: false
      disks:
      - {name: answers, cdrom: {bus: scsi}}
      - {name: seed, disk: {bus: virtio}}
  volumes:
  - {name: answers, sysprep: {configMap: {name: answers}}}
  - {name: seed, cloudInitNoCloud: {userData: "#cloud-config"}}
  accessCredentials:
  - sshPublicKey:
      source: {secret: {secretName: keys}}
      propagationMethod: {noCloud: {}}
`

// Installers look for answers on a CD, keys in cloud-init's meta-data, Ignition's configuration in the
// firmware's.
func TestAGuestFindsWhatItIsToSetItselfUpBy(t *testing.T) {
	t.Parallel()
	files := buildGuest(t, guest.Lean)
	p := newPod(t)
	p.place(files.Kernel, layout.KernelBootDir+"/boot/vmlinuz")
	p.place(files.Initrd, layout.KernelBootDir+"/boot/initrd.img")
	p.write(filepath.Join(layout.VolumeDir("answers"), "autounattend.xml"), "<unattend/>")
	p.write(filepath.Join(layout.AccessCredentialDir(0), "key"), "ssh-ed25519 AAAA alice")
	vmi := parse(t, answersVMI)
	p.boot(vmi)
	p.login()
	p.prints("cat /sys/firmware/qemu_fw_cfg/by_name/opt/com.coreos/config/raw", vmi.Annotations[v1.IgnitionAnnotation])
	p.prints("mkdir -p /a && mount -t iso9660 -o ro /dev/sr0 /a && cat /a/autounattend.xml; umount /a", "<unattend/>")
	p.prints("dd if=/dev/sr0 bs=1 skip=32808 count=10 2>/dev/null", "unattendCD")
	p.prints("mkdir -p /s && mount -t iso9660 -o ro /dev/vda /s && cat /s/meta-data; umount /s",
		`{"instance-id":"`+uuid+`","local-hostname":"answers","public-keys":{"0":"ssh-ed25519 AAAA alice"}}`)
}

func (p *pod) write(inContainer, text string) {
	p.t.Helper()
	file := p.path(inContainer)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}
