package machine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/qemu/migrationstatus"
	"drydock.dev/drydock/test/guest"
)

// sharesVMI starts by its kernel, so that nothing of it but the share is on a disk.
const sharesVMI = `
metadata: {name: shares, namespace: default}
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
      filesystems:
      - {name: data, virtiofs: {}}
      - {name: settings, virtiofs: {}}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: settings, configMap: {name: settings}}
`

// TestAGuestSharesFoldersWithItsPod: the guest and others see each other's changes, no link leads out of the folder, and
// open files go on after a migration to a pod with the same claim.
func TestAGuestSharesFoldersWithItsPod(t *testing.T) {
	t.Parallel()
	files, vmi := buildGuest(t, guest.Lean), parse(t, sharesVMI)
	claim, settings, outside := t.TempDir(), t.TempDir(), t.TempDir()
	write := func(folder, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pod := func() *pod {
		p := newPod(t)
		p.place(files.Kernel, layout.KernelBootDir+"/boot/vmlinuz")
		p.place(files.Initrd, layout.KernelBootDir+"/boot/initrd.img")
		for name, folder := range map[string]string{"data": claim, "settings": settings} {
			at := p.path(layout.VolumeDir(name))
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			link(t, folder, at)
		}
		return p
	}
	write(claim, "greeting", "from the pod\n")
	write(outside, "secret", "of the node\n")
	link(t, filepath.Join(outside, "secret"), filepath.Join(claim, "link"))
	// As the kubelet mounts a ConfigMap.
	for version, level := range map[string]string{"first": "1\n", "second": "2\n"} {
		folder := filepath.Join(settings, version)
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		write(folder, "level", level)
	}
	link(t, "first", filepath.Join(settings, "..data"))
	link(t, "..data/level", filepath.Join(settings, "level"))

	source := pod()
	source.boot(vmi)
	source.login()
	source.prints("mkdir /data /settings && mount -t virtiofs data /data && mount -t virtiofs settings /settings && cat /data/greeting", "from the pod")
	source.prints("echo from the guest > /data/answer; sync; echo so", "so")
	if text, err := os.ReadFile(filepath.Join(claim, "answer")); err != nil || string(text) != "from the guest\n" {
		t.Errorf("others read %q, %v", text, err)
	}
	source.prints("cat /data/link 2>&1 | grep -c 'of the node'; ls /data/.. | grep -c '^secret'; true", "0\n0")
	source.prints("cat /settings/level", "1")
	link(t, "second", filepath.Join(settings, "next"))
	if err := os.Rename(filepath.Join(settings, "next"), filepath.Join(settings, "..data")); err != nil {
		t.Fatal(err)
	}
	source.prints("cat /settings/level", "2")
	source.prints("exec 7>>/data/journal; echo before >&7; exec 8>>/data/replaced; echo so", "so")

	target := pod()
	target.start(vmi, "a-migration")
	source.migrateTo(target, func() {
		write(claim, "new", "of others\n")
		if err := os.Rename(filepath.Join(claim, "new"), filepath.Join(claim, "replaced")); err != nil {
			t.Error(err)
		}
	})
	target.prints("(echo after >&8) 2>/dev/null || echo refused", "refused")
	if text, err := os.ReadFile(filepath.Join(claim, "replaced")); err != nil || string(text) != "of others\n" {
		t.Errorf("a file that replaced the guest's during its migration has %q, %v", text, err)
	}
	target.prints("echo after >&7; cat /data/journal", "before\nafter")
	write(claim, "greeting", "again\n")
	target.prints("cat /data/greeting", "again")
	if text, err := os.ReadFile(filepath.Join(claim, "journal")); err != nil || strings.Count(string(text), "\n") != 2 {
		t.Errorf("others read the journal %q, %v", text, err)
	}
	target.powersOff()
}

func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

// migrateTo sends the guest to a pod that waits for it. meanwhile is called when the guest's memory is on its way.
func (p *pod) migrateTo(target *pod, meanwhile func()) {
	p.t.Helper()
	to := map[string]any{"uri": "unix:" + target.path(layout.Socket(layout.MigrationSocket))}
	execute := func(on *pod, command string, arguments, answer any) {
		p.t.Helper()
		if err := on.monitor.Execute(p.ctx, command, arguments, answer); err != nil {
			p.t.Fatal(err)
		}
	}
	bandwidth := func(bytes int) {
		p.t.Helper()
		execute(p, "migrate-set-parameters", map[string]any{"max-bandwidth": bytes}, nil)
	}
	execute(target, "migrate-incoming", to, nil)
	bandwidth(1 << 20)
	execute(p, "migrate", to, nil)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var is struct {
			Status    migrationstatus.Status `json:"status"`
			ErrorDesc string                 `json:"error-desc"`
			RAM       struct {
				Transferred int64 `json:"transferred"`
			} `json:"ram"`
		}
		execute(p, "query-migrate", nil, &is)
		if meanwhile != nil && is.Status == migrationstatus.Active && is.RAM.Transferred > 1<<20 {
			meanwhile()
			meanwhile = nil
			bandwidth(1 << 30)
		}
		switch is.Status {
		case migrationstatus.Completed:
			execute(target, "cont", nil, nil)
			target.login()
			return
		case migrationstatus.Failed:
			p.t.Fatalf("the migration failed: %s", is.ErrorDesc)
		}
		select {
		case <-tick.C:
		case <-p.ctx.Done():
			p.t.Fatalf("the migration is %s", is.Status)
		}
	}
}
