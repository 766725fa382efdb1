package guest_test

import (
	"context"
	"path/filepath"
	"regexp"
	"testing"

	"drydock.dev/drydock/test/guest"
)

// KubeVirt's functional tests wait for these words.
func TestAGuestGreetsAsAnotherDistribution(t *testing.T) {
	for _, test := range []struct {
		distribution string
		// The expected output and the typed answer alternate.
		dialog []string
	}{
		{"alpine", []string{`localhost login: $`, "root", `localhost:~# $`}},
		{"cirros", []string{`login as 'cirros' user\. default password: 'gocubsgo'\. use 'sudo' for root\.\s+cirros login: $`, "cirros",
			`Password: $`, "gocubsgo", `\n\$ $`, "sudo dmesg -n 1; echo $?", `\n0\n\$ $`}},
		{"fedora", []string{`fedora login: $`, "fedora", `Password: $`, "fedora", `\[fedora@fedora ~\]\$ $`, "sudo su", `\[root@fedora fedora\]# $`}},
	} {
		t.Run(test.distribution, func(t *testing.T) {
			t.Parallel()
			disk := filepath.Join(t.TempDir(), "disk.qcow2")
			ctx, cancel := context.WithTimeout(t.Context(), life)
			defer cancel()
			if err := guest.WriteDiskAs(ctx, buildCache, test.distribution, disk); err != nil {
				t.Fatal(err)
			}
			m := start(t, "-m", "128M", "-drive", "if=virtio,format=qcow2,file="+disk)
			for i, text := range test.dialog {
				if i%2 == 1 {
					if err := m.console.Send(text + "\n"); err != nil {
						t.Fatal(err)
					}
				} else if _, err := m.console.Expect(m.ctx, regexp.MustCompile(text)); err != nil {
					t.Fatalf("awaiting %q: %v; the console shows %q", text, err, m.console.Transcript())
				}
			}
		})
	}
}
