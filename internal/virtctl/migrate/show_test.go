package migrate

import (
	"bytes"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/virtctl/env"
)

func TestALineOnATerminalIsWrittenOverItself(t *testing.T) {
	for name, c := range map[string]struct {
		rewrites bool
		last     string
		want     string
	}{
		"a terminal":                 {true, "moved", "\r\033[KPending, 1m0s\r\033[KRunning, 1m0s\r\033[Kmoved\n"},
		"a terminal, after an error": {true, "", "\r\033[KPending, 1m0s\r\033[KRunning, 1m0s\r\033[K"},
		"a file":                     {false, "moved", "Pending\nRunning\nmoved\n"},
		"a file, after an error":     {false, "", "Pending\nRunning\n"},
	} {
		var out bytes.Buffer
		p := &progress{env: &env.Env{Out: &out}, began: time.Now().Add(-time.Minute), rewrites: c.rewrites}
		stop := p.keepTime(t.Context())
		for _, text := range []string{"Pending", "Pending", "Running"} {
			p.set(text)
		}
		stop()
		p.end(c.last)
		if out.String() != c.want {
			t.Errorf("%s: %q, want %q", name, out.String(), c.want)
		}
	}
}

func TestDescribe(t *testing.T) {
	m := &v1.VirtualMachineInstanceMigration{}
	if got := describe(m); got != "Pending" {
		t.Errorf("of one that nobody has seen: %q", got)
	}
	m.Status.Phase, m.DeletionTimestamp = v1.MigrationRunning, &metav1.Time{}
	m.Status.Conditions = []v1.VirtualMachineInstanceMigrationCondition{{Type: v1.VirtualMachineInstanceMigrationRejectedByResourceQuota, Status: "True", Message: "exceeded quota"}}
	if got := describe(m); got != "Running (is being canceled): exceeded quota" {
		t.Errorf("of one that is canceled: %q", got)
	}
}
