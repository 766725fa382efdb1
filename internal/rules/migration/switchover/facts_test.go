package switchover_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

func TestRecordOfAVMI(t *testing.T) {
	now := metav1.Now()
	migrating := func(edit func(*v1.VirtualMachineInstance, *v1.VirtualMachineInstanceMigrationState)) *v1.VirtualMachineInstance {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Status.Phase, vmi.Status.NodeName = v1.Running, "one"
		vmi.Status.ActivePods = map[types.UID]string{"source": "one", "target": "two"}
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m", SourceNode: "one", TargetNode: "two"}
		edit(vmi, vmi.Status.MigrationState)
		return vmi
	}
	type state = v1.VirtualMachineInstanceMigrationState
	type instance = v1.VirtualMachineInstance
	named := switchover.Record{Current: true, SourceNamed: true, TargetNamed: true}
	with := func(edit func(*switchover.Record)) switchover.Record {
		r := named
		edit(&r)
		return r
	}
	tests := map[string]struct {
		edit func(*instance, *state)
		want switchover.Record
	}{
		"a target that is prepared":  {func(*instance, *state) {}, named},
		"no migration":               {func(vmi *instance, _ *state) { vmi.Status.MigrationState = nil }, switchover.Record{}},
		"another migration":          {func(_ *instance, m *state) { m.MigrationUID, m.Completed = "m0", true }, switchover.Record{}},
		"another, and the VMI's end": {func(vmi *instance, m *state) { m.MigrationUID, vmi.Status.Phase = "m0", v1.Failed }, switchover.Record{Final: true}},
		"another, and its deletion":  {func(vmi *instance, m *state) { m.MigrationUID, vmi.DeletionTimestamp = "m0", &now }, switchover.Record{Deleting: true}},
		"the target's address":       {func(_ *instance, m *state) { m.TargetNodeAddress = "10.0.0.2:8188" }, with(func(r *switchover.Record) { r.Addressed = true })},
		"the start":                  {func(_ *instance, m *state) { m.StartTimestamp, m.Mode = &now, v1.MigrationPreCopy }, with(func(r *switchover.Record) { r.Started = true })},
		"the mode PostCopy":          {func(_ *instance, m *state) { m.Mode = v1.MigrationPostCopy }, with(func(r *switchover.Record) { r.PostCopy = true })},
		"a failure":                  {func(_ *instance, m *state) { m.Failed = true }, with(func(r *switchover.Record) { r.Failed = true })},
		"a completion":               {func(_ *instance, m *state) { m.Completed = true }, with(func(r *switchover.Record) { r.Completed = true })},
		"an abort":                   {func(_ *instance, m *state) { m.AbortRequested, m.AbortStatus = true, v1.MigrationAbortInProgress }, with(func(r *switchover.Record) { r.AbortRequested = true })},
		"an abort that failed":       {func(_ *instance, m *state) { m.AbortStatus = v1.MigrationAbortFailed }, with(func(r *switchover.Record) { r.AbortFailed = true })},
		"the VMI is at the target":   {func(vmi *instance, _ *state) { vmi.Status.NodeName = "two" }, with(func(r *switchover.Record) { r.Switched = true })},
		"the VMI is being deleted":   {func(vmi *instance, _ *state) { vmi.DeletionTimestamp = &now }, with(func(r *switchover.Record) { r.Deleting = true })},
		"the VMI has ended":          {func(vmi *instance, _ *state) { vmi.Status.Phase = v1.Succeeded }, with(func(r *switchover.Record) { r.Final = true })},
		"the source is dropped":      {func(vmi *instance, _ *state) { delete(vmi.Status.ActivePods, "source") }, with(func(r *switchover.Record) { r.SourceNamed = false })},
		"the target is dropped":      {func(vmi *instance, _ *state) { delete(vmi.Status.ActivePods, "target") }, with(func(r *switchover.Record) { r.TargetNamed = false })},
		"a pod on neither node":      {func(vmi *instance, _ *state) { vmi.Status.ActivePods = map[types.UID]string{"x": "three"} }, switchover.Record{Current: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := switchover.RecordOf(migrating(test.edit), "m"); got != test.want {
				t.Errorf("the record is %+v, expected %+v", got, test.want)
			}
		})
	}
}

func TestWhatIsKnownOfAnEnd(t *testing.T) {
	for name, c := range map[string]struct {
		exit    *launch.Exit
		arrives bool
		want    switchover.Exit
	}{
		"nothing":                                     {nil, false, switchover.Exit{}},
		"nothing of a target":                         {nil, true, switchover.Exit{}},
		"a source that has sent its guest":            {&launch.Exit{Reason: launch.ReasonMigrated}, false, switchover.Exit{Known: true, Sent: true, Ran: true}},
		"a source whose guest has ended":              {&launch.Exit{Reason: launch.ReasonGuestShutdown}, false, switchover.Exit{Known: true, Ran: true}},
		"a source that its guest once arrived at":     {&launch.Exit{Reason: launch.ReasonMigrated, Incoming: launch.IncomingRan}, false, switchover.Exit{Known: true, Sent: true, Ran: true}},
		"a source whose monitor was lost":             {&launch.Exit{Reason: launch.ReasonCrashed, Unheard: true}, false, switchover.Exit{}},
		"a source that has sent, and was lost then":   {&launch.Exit{Reason: launch.ReasonMigrated, Unheard: true}, false, switchover.Exit{Known: true, Sent: true, Ran: true}},
		"a target that has run, and was lost then":    {&launch.Exit{Reason: launch.ReasonCrashed, Incoming: launch.IncomingRan, Unheard: true}, true, switchover.Exit{Known: true, Ran: true}},
		"a target whose monitor was lost":             {&launch.Exit{Reason: launch.ReasonCrashed, Unheard: true}, true, switchover.Exit{}},
		"a target whose guest has run":                {&launch.Exit{Incoming: launch.IncomingRan}, true, switchover.Exit{Known: true, Ran: true}},
		"a target whose guest has never run":          {&launch.Exit{Incoming: launch.IncomingNeverRan}, true, switchover.Exit{Known: true}},
		"a target of which nobody knows that":         {&launch.Exit{Reason: launch.ReasonCrashed}, true, switchover.Exit{}},
		"a target with a word that nobody knows here": {&launch.Exit{Reason: launch.ReasonCrashed, Incoming: "Perhaps"}, true, switchover.Exit{}},
	} {
		if got := switchover.ExitOf(c.exit, c.arrives); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestWhereAMigrationStands(t *testing.T) {
	for name, c := range map[string]struct {
		completed, failed       bool
		node                    string
		open, arrived, inFlight bool
	}{
		"it has begun":                            {node: "source", open: true, inFlight: true},
		"the guest runs at the target":            {completed: true, node: "source", inFlight: true},
		"and the VMI's node is switched":          {completed: true, node: "target", arrived: true},
		"it has failed, and the target has a pod": {failed: true, node: "source"},
		"it has failed, and the target has none":  {completed: true, failed: true, node: "source"},
		"a later one back to the first node":      {completed: true, failed: true, node: "target"},
	} {
		m := &v1.VirtualMachineInstanceMigrationState{TargetNode: "target", Completed: c.completed, Failed: c.failed}
		status := &v1.VirtualMachineInstanceStatus{NodeName: c.node, MigrationState: m}
		if open, arrived, inFlight := switchover.Open(m), switchover.Arrived(status), switchover.InFlight(status); open != c.open || arrived != c.arrived || inFlight != c.inFlight {
			t.Errorf("%s: open %t, arrived %t, in flight %t", name, open, arrived, inFlight)
		}
	}
	if none := (&v1.VirtualMachineInstanceStatus{NodeName: "n"}); switchover.Open(nil) || switchover.Arrived(none) || switchover.InFlight(none) {
		t.Error("a VMI that was never migrated is")
	}
}
