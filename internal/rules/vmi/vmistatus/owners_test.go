package vmistatus

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// The table must have every field of the API's status once, and every condition that is ever set.
func TestEveryFieldHasItsOwners(t *testing.T) {
	var want, got []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[v1.VirtualMachineInstanceStatus]()) {
		if name := inJSON(f); name != "migrationState" {
			want = append(want, name)
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[v1.VirtualMachineInstanceMigrationState]()) {
		want = append(want, "migrationState."+inJSON(f))
	}
	for _, rule := range conditionRules {
		want = append(want, "condition "+string(rule.kind))
	}
	for _, f := range Fields {
		name := f.Name
		if f.Condition {
			name = "condition " + name
		}
		got = append(got, name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the table has %q\nthe status has %q", got, want)
	}
}

func inJSON(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// A field must have one owner per stage, who is nobody's deputy there.
func TestAFieldHasOneOwnerAtAStage(t *testing.T) {
	for _, f := range Fields {
		for stage := range stages {
			switch o := f.Owners[stage]; {
			case len(o.Deputies) > 0 && (o.Owner == Nobody || slices.Contains(o.Deputies, o.Owner) || slices.Contains(o.Deputies, Nobody)):
				t.Errorf("%s, %s: %q deputize for %q", f.Name, stage, o.Deputies, o.Owner)
			case len(o.Deputies) > 0 && f.Deputizes == "":
				t.Errorf("%s: nothing says when %q write it", f.Name, o.Deputies)
			case stage == Ended && o.Owner != Nobody:
				t.Errorf("%s: %q writes it although the VMI has ended", f.Name, o.Owner)
			}
		}
	}
}

func TestEveryPhaseHasAStage(t *testing.T) {
	for phase, want := range map[v1.VirtualMachineInstancePhase]Stage{
		v1.VmPhaseUnset: Waiting, v1.Pending: Waiting, v1.Scheduling: Waiting,
		v1.Scheduled: HandedOver, v1.Running: HandedOver, v1.WaitingForSync: HandedOver, v1.Unknown: HandedOver, "of another release": HandedOver,
		v1.Succeeded: Ended, v1.Failed: Ended,
	} {
		if got := StageOf(phase); got != want {
			t.Errorf("phase %q is %q, want %q", phase, got, want)
		}
	}
}

func TestTheTargetOfAMigrationIsNotTheGuestsNode(t *testing.T) {
	migrating := &v1.VirtualMachineInstanceMigrationState{TargetNode: "b", SourceNode: "a"}
	for name, c := range map[string]struct {
		node   string
		status v1.VirtualMachineInstanceStatus
		want   Writer
	}{
		"no migration":                         {"a", v1.VirtualMachineInstanceStatus{NodeName: "a"}, Handler},
		"the source":                           {"a", v1.VirtualMachineInstanceStatus{NodeName: "a", MigrationState: migrating}, Handler},
		"the target":                           {"b", v1.VirtualMachineInstanceStatus{NodeName: "a", MigrationState: migrating}, TargetHandler},
		"the target that the guest has got to": {"b", v1.VirtualMachineInstanceStatus{NodeName: "b", MigrationState: migrating}, Handler},
	} {
		if got := HandlerOn(c.node, &c.status); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestWhatAWriterMayWriteAtSomeStage(t *testing.T) {
	names := Writable(Handler)
	for name, want := range map[string]bool{"interfaces": true, "phase": true, "migrationState": true, "nodeName": false, "Ready": false, "AgentConnected": false, "topologyHints": false} {
		if got := slices.Contains(names, name); got != want {
			t.Errorf("virt-handler writes %s: %v, want %v", name, got, want)
		}
	}
	if names := Writable(TargetHandler); !slices.Equal(names, []string{"migrationState"}) {
		t.Errorf("virt-handler of the target writes %q", names)
	}
	if names := Writable(Nobody); len(names) > 0 {
		t.Errorf("nobody writes %q", names)
	}
}
