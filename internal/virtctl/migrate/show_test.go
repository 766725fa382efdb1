package migrate

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
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
		synctest.Test(t, func(t *testing.T) {
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
		})
	}
}

func TestHowFarAMigrationIsShown(t *testing.T) {
	var out bytes.Buffer
	p := &progress{env: &env.Env{Out: &out}, began: time.Now()}
	for _, say := range []func(){
		func() { p.tell("") }, func() { p.set("TargetReady") }, func() { p.set("Running") }, func() { p.tell("5%") }, func() { p.tell("5%") },
		func() { p.tell("10%") }, func() { p.tell("") }, func() { p.set("Running (is being canceled)") }, func() { p.end("moved") },
	} {
		say()
	}
	if want := "TargetReady\nRunning\nRunning: 5%\nRunning: 10%\nRunning (is being canceled): 10%\nmoved\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	early := &progress{env: &env.Env{Out: &out}, began: time.Now()}
	early.tell("5%")
	if early.set("Running"); out.String() != "Running: 5%\n" {
		t.Errorf("%q", out.String())
	}
}

func TestWhatAVMISaysOfItsMigration(t *testing.T) {
	said := v1.VirtualMachineInstanceCondition{Type: layout.MigrationProgress, Status: "True", Message: "5%"}
	for name, c := range map[string]struct {
		of   *v1.VirtualMachineInstanceMigrationState
		says []v1.VirtualMachineInstanceCondition
		want string
	}{
		"nothing":                  {nil, nil, ""},
		"without a migration":      {nil, []v1.VirtualMachineInstanceCondition{said}, ""},
		"of another migration":     {&v1.VirtualMachineInstanceMigrationState{MigrationUID: "n"}, []v1.VirtualMachineInstanceCondition{said}, ""},
		"not yet":                  {&v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}, []v1.VirtualMachineInstanceCondition{{Type: "Ready", Status: "True", Message: "x"}}, ""},
		"a condition of no effect": {&v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}, []v1.VirtualMachineInstanceCondition{{Type: layout.MigrationProgress, Status: "False", Message: "x"}}, ""},
		"how far it is":            {&v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}, []v1.VirtualMachineInstanceCondition{{Type: "Ready"}, said}, "5%"},
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Status.MigrationState, vmi.Status.Conditions = c.of, c.says
		if got := howFar(vmi, "m"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
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
