package vmihandler

import (
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

func TestWhatANodeIsToAGuest(t *testing.T) {
	state := func(completed bool) *v1.VirtualMachineInstanceMigrationState {
		return &v1.VirtualMachineInstanceMigrationState{SourceNode: "a", TargetNode: "b", Completed: completed}
	}
	for name, c := range map[string]struct {
		node, at string
		state    *v1.VirtualMachineInstanceMigrationState
		want     Role
	}{
		"a guest that never migrated": {"a", "a", nil, Home},
		"the source":                  {"a", "a", state(false), Home},
		"the target":                  {"b", "a", state(false), Destination},
		"the target, where the guest runs already":   {"b", "a", state(true), Destination},
		"the target, when the VMI says so":           {"b", "b", state(true), Home},
		"the source, before the VMI says so":         {"a", "a", state(true), Home},
		"the source, when the VMI says so":           {"a", "b", state(true), Former},
		"a node that has nothing to do with it":      {"c", "b", state(true), Home},
		"a source whose VMI names another node only": {"a", "b", state(false), Home},
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Status.NodeName, vmi.Status.MigrationState = c.at, c.state
		if got := RoleOf(vmi, c.node); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestNextAtDestination(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	zero := int64(0)
	vmi := &v1.VirtualMachineInstance{}
	vmi.Status.Phase = v1.Running
	up := func(phase launch.Phase, attached bool) Observed {
		return Observed{VMI: vmi, Pod: &Pod{UID: "p"}, Link: LinkUp, Launcher: launch.State{Phase: phase}, Attached: attached, Now: now}
	}
	changed, told, late, gone := up(launch.PhaseRunning, true), up(launch.PhaseRunning, true), up(launch.PhaseRunning, true), Observed{VMI: vmi, Now: now}
	changed.Changed = true
	told.Stopping, told.StoppingSince = &zero, now
	late.Stopping, late.StoppingSince = &zero, now.Add(-killAfter)
	plugs, awaits, early := up(launch.PhaseRunning, true), up(launch.PhaseWaiting, false), up(launch.PhaseWaiting, false)
	plugs.Plug, awaits.Awaits, early.Plug = true, true, true
	recovers := up(launch.PhaseRunning, true)
	recovers.Migrate = true
	stuck := up(launch.PhaseRunning, false)
	stuck.Migrate = true
	moved := up(launch.PhaseRunning, false)
	moved.Changed = true
	unprobed := up(launch.PhaseWaiting, false)
	unprobed.Unprobed = true
	deserted := up(launch.PhaseRunning, true)
	deserted.Deserted = true
	for name, c := range map[string]struct {
		o      Observed
		action switchover.TargetAction
		want   Step
		after  time.Duration
	}{
		"no connection to the pod": {Observed{VMI: vmi, Pod: &Pod{UID: "p"}}, switchover.TargetWait, Connect, 0},
		"no pod":                   {gone, switchover.TargetWait, Wait, 0},
		"a launcher that waits":    {up(launch.PhaseWaiting, false), switchover.StartIncoming, Start, 0},
		"a launcher that waits, on a node whose probe goes on":                         {unprobed, switchover.StartIncoming, Wait, 0},
		"a launcher whose guest's volumes are not there yet":                           {awaits, switchover.StartIncoming, Wait, 0},
		"a QEMU to which disks come":                                                   {plugs, switchover.TargetWait, Plug, 0},
		"a QEMU to which disks come, that has not said where it is":                    {plugs, switchover.ReportReady, Wait, addressAgain},
		"a QEMU to which no disks come any more":                                       {plugs, switchover.MarkAndRun, Take, 0},
		"a launcher that waits, with disks to come":                                    {early, switchover.TargetWait, Wait, 0},
		"a QEMU that waits for its guest":                                              {up(launch.PhaseRunning, true), switchover.TargetWait, Wait, 0},
		"a guest that has come, with disks to come":                                    {plugs, switchover.ReportCompleted, Wait, 0},
		"a launcher that is not to start anything":                                     {up(launch.PhaseWaiting, false), switchover.Kill, Stop, 0},
		"a QEMU that nobody has looked at":                                             {up(launch.PhaseRunning, false), switchover.TargetWait, Attach, 0},
		"a QEMU that is ready, without an address":                                     {up(launch.PhaseRunning, true), switchover.ReportReady, Wait, addressAgain},
		"a QEMU that is ready":                                                         {changed, switchover.ReportReady, Report, addressAgain},
		"a guest that was released":                                                    {up(launch.PhaseRunning, true), switchover.MarkAndRun, Take, 0},
		"a guest that was marked":                                                      {up(launch.PhaseRunning, true), switchover.Run, Take, 0},
		"a guest whose memory's stream has broken":                                     {recovers, switchover.RecoverIncoming, Migrate, 0},
		"a guest whose memory's stream has broken, and whose QEMU has answered nobody": {stuck, switchover.RecoverIncoming, Migrate, 0},
		"one that was told of it, and whose QEMU has answered nobody":                  {up(launch.PhaseRunning, false), switchover.RecoverIncoming, Attach, 0},
		"one that was told of it, and whose address is to be written":                  {moved, switchover.RecoverIncoming, Report, 0},
		"a QEMU whose stream is none that was broken":                                  {recovers, switchover.TargetWait, Wait, 0},
		"one that was told of it":                                                      {up(launch.PhaseRunning, true), switchover.RecoverIncoming, Wait, 0},
		"a guest that runs":                                                            {changed, switchover.ReportCompleted, Report, 0},
		"a guest that is not to come":                                                  {up(launch.PhaseRunning, true), switchover.Kill, Stop, 0},
		"one that was told to end":                                                     {told, switchover.Kill, Wait, killAfter},
		"one that was told to end, and is released":                                    {told, switchover.MarkAndRun, Wait, killAfter},
		"one that has not ended in time":                                               {late, switchover.Kill, Kill, killAfter},
		"a QEMU that has ended":                                                        {up(launch.PhaseExited, false), switchover.TargetWait, Wait, 0},
		"a VMI that does not exist any more":                                           {deserted, switchover.TargetWait, Stop, 0},
	} {
		if step, after := NextAtDestination(c.o, c.action); step != c.want || after != c.after {
			t.Errorf("%s: %s after %v, want %s after %v", name, step, after, c.want, c.after)
		}
	}
}

func TestNextAtFormer(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Status.Phase = v1.Running
	up := Observed{VMI: vmi, Pod: &Pod{UID: "p"}, Link: LinkUp, Launcher: launch.State{Phase: launch.PhaseRunning}, Attached: true}
	migrates, loose, exited, unused := up, up, up, up
	migrates.Migrate = true
	loose.Attached = false
	exited.Launcher.Phase = launch.PhaseExited
	unused.Launcher.Phase, unused.Attached = launch.PhaseWaiting, false
	for name, c := range map[string]struct {
		o     Observed
		want  Step
		after time.Duration
	}{
		"a QEMU that is to end":            {migrates, Migrate, 0},
		"a QEMU that nobody has looked at": {loose, Attach, 0},
		"a launcher that has no QEMU":      {unused, Wait, 2 * time.Second},
		"a QEMU that waits for the target": {up, Wait, 2 * time.Second},
		"a QEMU that has ended":            {exited, Release, 0},
		"no connection to the pod":         {Observed{VMI: vmi, Pod: &Pod{UID: "p"}}, Connect, 0},
		"a pod that has finished":          {Observed{VMI: vmi, Pod: &Pod{UID: "p", Finished: true}}, Release, 0},
		"no pod":                           {Observed{VMI: vmi}, Release, 0},
	} {
		if step, after := NextAtFormer(c.o); step != c.want || after != c.after {
			t.Errorf("%s: %s after %v, want %s after %v", name, step, after, c.want, c.after)
		}
	}
}

func TestWhatIsKnownOfAPodsQEMU(t *testing.T) {
	heard := func(phase launch.Phase, link Link, attached bool) Observed {
		return Observed{Pod: &Pod{UID: "p"}, Launcher: launch.State{Phase: phase}, Link: link, Attached: attached}
	}
	pod := func(p Pod) Observed { return Observed{Pod: &p, Link: LinkUp, Attached: true} }
	for name, c := range map[string]struct {
		o    Observed
		want switchover.Process
	}{
		"virt-launcher says that QEMU has ended":            {heard(launch.PhaseExited, LinkUp, true), switchover.ProcessEnded},
		"it has said so before the connection ended":        {heard(launch.PhaseExited, LinkNone, false), switchover.ProcessEnded},
		"the pod has finished":                              {pod(Pod{Finished: true}), switchover.ProcessEnded},
		"the pod has finished, and its folder is there yet": {pod(Pod{Finished: true, Remains: true}), switchover.ProcessEnded},
		"the pod is gone, with all its processes":           {pod(Pod{Gone: true}), switchover.ProcessEnded},
		"the pod is gone, and its processes may be there":   {pod(Pod{Gone: true, Remains: true}), switchover.ProcessRuns},
		"the pod is there, without processes":               {pod(Pod{}), switchover.ProcessRuns},
		"virt-launcher waits":                               {heard(launch.PhaseWaiting, LinkUp, false), switchover.ProcessNotStarted},
		"virt-launcher has waited, and is not heard now":    {heard(launch.PhaseWaiting, LinkNone, false), switchover.ProcessUnknown},
		"QEMU answers":                            {heard(launch.PhaseRunning, LinkUp, true), switchover.ProcessRuns},
		"QEMU runs, and nobody has looked at it":  {heard(launch.PhaseRunning, LinkUp, false), switchover.ProcessUnknown},
		"QEMU has answered, and is not heard now": {heard(launch.PhaseRunning, LinkNone, true), switchover.ProcessUnknown},
		"nothing is known, no pod has been seen":  {Observed{}, switchover.ProcessUnknown},
	} {
		if got := ProcessOf(c.o); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestAHandoverIsNotWorthAStatus(t *testing.T) {
	for _, c := range []struct {
		state     string
		handsOver bool
		want      string
	}{
		{"finish-migrate", true, "running"}, {"postmigrate", true, "running"}, {"finish-migrate", false, "finish-migrate"},
		{"postmigrate", false, "postmigrate"}, {"io-error", true, "io-error"}, {"running", true, "running"}, {"internal-error", true, "internal-error"},
	} {
		if got := StatusOf(c.state, c.handsOver); got != c.want {
			t.Errorf("%s, handed over %v: %s", c.state, c.handsOver, got)
		}
	}
}

func TestAGuestThatEndsIsGivenUpAsAMigrationFirst(t *testing.T) {
	grace := int64(30)
	now := time.Now()
	vmi := &v1.VirtualMachineInstance{}
	vmi.Status.Phase = v1.Failed
	vmi.Spec.TerminationGracePeriodSeconds = &grace
	o := Observed{
		VMI: vmi, Pod: &Pod{UID: "p"}, Link: LinkUp, Launcher: launch.State{Phase: launch.PhaseRunning}, Attached: true,
		Migrate: true, Stopping: new(int64(0)), StoppingSince: now, Now: now,
	}
	if step, after := Next(o); step != Migrate || after <= 0 {
		t.Errorf("%s after %v", step, after)
	}
}
