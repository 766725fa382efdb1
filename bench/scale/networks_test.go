package scale

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

func TestMultusSaysWhatAPodWasMadeWith(t *testing.T) {
	status, interfaces, err := attached(`[{"name":"blue","namespace":"shop","interface":"pod1"}]`)
	if want := `[{"interface":"eth0","name":"cbr0"},{"interface":"pod1","name":"shop/blue"}]`; err != nil || status != want || !interfaces["pod1"] {
		t.Errorf("got %s, %v, %v, want %s", status, interfaces, err, want)
	}
	if _, _, err := attached("blue"); err == nil {
		t.Error("an annotation was read that is no list")
	}
}

func TestBothHandlersWriteTheirStepsOfAMigration(t *testing.T) {
	now := metav1.Now()
	for name, c := range map[string]struct {
		state                 v1.VirtualMachineInstanceMigrationState
		node                  string
		writes, begins, there bool
	}{
		"not handed over":  {v1.VirtualMachineInstanceMigrationState{}, "a", false, false, false},
		"at the target":    {v1.VirtualMachineInstanceMigrationState{TargetNode: "b"}, "b", true, false, false},
		"the target waits": {v1.VirtualMachineInstanceMigrationState{TargetNode: "b", TargetNodeAddress: "c"}, "a", true, true, false},
		"the guest comes":  {v1.VirtualMachineInstanceMigrationState{TargetNode: "b", TargetNodeAddress: "c", StartTimestamp: &now}, "b", true, false, true},
	} {
		vmi := &v1.VirtualMachineInstance{Status: v1.VirtualMachineInstanceStatus{NodeName: "a", MigrationState: &c.state}}
		f, writes := migrating(vmi, vmihandler.Facts{Node: "a", Now: time.Now()})
		if writes != c.writes || f.Node != c.node || (f.Source != nil && f.Source.Begins) != c.begins || (f.Target != nil && f.Target.Runs) != c.there {
			t.Errorf("%s: %t on %s: %+v, %+v", name, writes, f.Node, f.Source, f.Target)
		}
	}
}
