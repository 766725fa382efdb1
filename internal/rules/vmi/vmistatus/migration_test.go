package vmistatus

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// onTheWay is a VMI on node source with the migration m to node target, as edited.
func onTheWay(edits ...func(*v1.VirtualMachineInstanceMigrationState)) *v1.VirtualMachineInstance {
	vmi := instance(v1.Running, says(v1.VirtualMachineInstanceReady, "True", ""))
	vmi.Status.NodeName = "source"
	vmi.Status.ActivePods = map[types.UID]string{"p": "source", "q": "target"}
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
		MigrationUID: "m", SourceNode: "source", SourcePod: "one", TargetNode: "target", TargetPod: "two",
	}
	for _, edit := range edits {
		edit(vmi.Status.MigrationState)
	}
	return vmi
}

type edit = func(*v1.VirtualMachineInstanceMigrationState)

func begun(m *v1.VirtualMachineInstanceMigrationState) {
	m.StartTimestamp, m.Mode = second(now.Add(-time.Minute)), v1.MigrationPreCopy
}

func completed(m *v1.VirtualMachineInstanceMigrationState) {
	m.Completed, m.TargetNodeDomainDetected = true, true
	m.EndTimestamp, m.TargetNodeDomainReadyTimestamp = second(now), second(now)
}

func failedWith(reason string) edit {
	return func(m *v1.VirtualMachineInstanceMigrationState) {
		m.Failed, m.FailureReason, m.EndTimestamp = true, reason, second(now)
	}
}

// over is KubeVirt's mark on a failed migration of which nothing is left.
func over(m *v1.VirtualMachineInstanceMigrationState) { m.Completed = true }

func asked(m *v1.VirtualMachineInstanceMigrationState) { m.AbortRequested = true }

// Each part must report its own facts about a migration, and none about another migration or about one that is over.
func TestWhatAPartSaysOfAMigration(t *testing.T) {
	source := func(s SourceMigration) Facts { s.UID = "m"; return Facts{Source: Known(s)} }
	target := func(s TargetMigration) Facts { s.UID = "m"; return Facts{Target: Known(s)} }
	controller := func(m Migration) Facts { m.Of = "m"; return Facts{Migration: m} }
	for name, c := range map[string]struct {
		by    Writer
		f     Facts
		given []edit
		more  []edit
	}{
		"the source is about to begin": {Handler, source(SourceMigration{Begins: true}), nil, []edit{func(m *v1.VirtualMachineInstanceMigrationState) {
			m.StartTimestamp, m.Mode = second(now), v1.MigrationPreCopy
		}}},
		"the source began long ago":                              {Handler, source(SourceMigration{Begins: true}), []edit{begun}, nil},
		"the source wants to begin what is to be aborted":        {Handler, source(SourceMigration{Begins: true}), []edit{asked}, nil},
		"the source wants to begin what it knows to have failed": {Handler, source(SourceMigration{Begins: true, Failure: "x"}), nil, []edit{failedWith("x")}},
		"the source sends the rest after the guest":              {Handler, source(SourceMigration{Mode: v1.MigrationPostCopy}), []edit{begun}, []edit{func(m *v1.VirtualMachineInstanceMigrationState) { m.Mode = v1.MigrationPostCopy }}},
		"the source has a mode before it has begun":              {Handler, source(SourceMigration{Mode: v1.MigrationPostCopy}), nil, nil},
		"it fails":                                                 {Handler, source(SourceMigration{Failure: "x"}), []edit{begun}, []edit{failedWith("x")}},
		"it fails because it is aborted":                           {Handler, source(SourceMigration{Failure: "x", Abort: v1.MigrationAbortSucceeded}), []edit{begun, asked}, []edit{failedWith("x"), func(m *v1.VirtualMachineInstanceMigrationState) { m.AbortStatus = v1.MigrationAbortSucceeded }}},
		"it fails after it has completed":                          {Handler, source(SourceMigration{Failure: "x"}), []edit{begun, completed}, nil},
		"it has failed for another reason":                         {Handler, source(SourceMigration{Failure: "x"}), []edit{begun, failedWith("y")}, nil},
		"another one fails":                                        {Handler, Facts{Source: Known(SourceMigration{UID: "n", Failure: "x"})}, []edit{begun}, nil},
		"the source says nothing":                                  {Handler, Facts{}, []edit{begun}, nil},
		"the target can take the guest in":                         {TargetHandler, target(TargetMigration{Address: "10.0.0.2:49152"}), nil, []edit{func(m *v1.VirtualMachineInstanceMigrationState) { m.TargetNodeAddress = "10.0.0.2:49152" }}},
		"the guest runs on the target":                             {TargetHandler, target(TargetMigration{Runs: true}), []edit{begun}, []edit{completed}},
		"the guest runs on the target, it is said, and never left": {TargetHandler, target(TargetMigration{Runs: true}), nil, nil},
		"the guest runs on the target, too late":                   {TargetHandler, target(TargetMigration{Runs: true}), []edit{begun, failedWith("y")}, nil},
		"the guest of another migration runs":                      {TargetHandler, Facts{Target: Known(TargetMigration{UID: "n", Runs: true})}, []edit{begun}, nil},
		"the target speaks as the source":                          {TargetHandler, source(SourceMigration{Failure: "x"}), []edit{begun}, nil},
		"the source speaks as the target":                          {Handler, target(TargetMigration{Runs: true}), []edit{begun}, nil},
		"virt-controller aborts one that has begun":                {Controller, controller(Migration{Abort: true}), []edit{begun}, []edit{asked}},
		"virt-controller aborts one that has not":                  {Controller, controller(Migration{Abort: true, Failure: "x"}), nil, []edit{asked, failedWith("x"), func(m *v1.VirtualMachineInstanceMigrationState) { m.AbortStatus = v1.MigrationAbortSucceeded }}},
		"virt-controller gives up one that has not begun":          {Controller, controller(Migration{Failure: "x"}), nil, []edit{failedWith("x")}},
		"virt-controller can't give up one that has begun":         {Controller, controller(Migration{Failure: "x"}), []edit{begun}, nil},
		"virt-controller aborts another":                           {Controller, Facts{Migration: Migration{Of: "n", Abort: true}}, []edit{begun}, nil},
		"virt-controller aborts one that has completed":            {Controller, controller(Migration{Abort: true}), []edit{begun, completed}, nil},
	} {
		vmi := onTheWay(c.given...)
		want := onTheWay(append(c.given, c.more...)...).Status
		c.f.Now = now
		got := Project(vmi, c.by, c.f)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		vmi.Status = got
		if again := Project(vmi, c.by, c.f); !cmp.Equal(again, got) {
			t.Errorf("%s: saying it again changes it:\n%s", name, cmp.Diff(got, again))
		}
	}
}

// An abort without a reason must get one.
func TestAnAbortBeforeTheStartSaysSo(t *testing.T) {
	status := Project(onTheWay(), Controller, Facts{Now: now, Migration: Migration{Of: "m", Abort: true}})
	if m := status.MigrationState; !m.Failed || !strings.Contains(m.FailureReason, "aborted") || m.AbortStatus != v1.MigrationAbortSucceeded {
		t.Errorf("the migration is %+v", m)
	}
}

func TestAMigrationTakesThePlaceOfTheOneBefore(t *testing.T) {
	begin := &MigrationBegin{UID: "n", SourceNode: "source", SourcePod: "one", TargetNode: "target", TargetPod: "three", TargetPodUID: "r",
		PolicyName: "slow", Configuration: &v1.VMIMConfigurationOptions{AllowPostCopy: new(true)}}
	want := &v1.VirtualMachineInstanceMigrationState{MigrationUID: "n", SourceNode: "source", SourcePod: "one", TargetNode: "target", TargetPod: "three",
		MigrationPolicyName: new("slow"), VMIMConfigurationOptions: &v1.VMIMConfigurationOptions{AllowPostCopy: new(true)}}
	for name, c := range map[string]struct {
		given  []edit
		end    *End
		begins bool
	}{
		"one that has failed":            {[]edit{begun, failedWith("x")}, nil, true},
		"one that has completed":         {[]edit{begun, completed}, nil, true},
		"one that goes on":               {[]edit{begun}, nil, false},
		"one that waits":                 {nil, nil, false},
		"itself":                         {[]edit{failedWith("x"), func(m *v1.VirtualMachineInstanceMigrationState) { m.MigrationUID = "n" }}, nil, false},
		"one that has failed at the end": {[]edit{failedWith("x")}, &End{}, false},
	} {
		vmi := onTheWay(c.given...)
		status := Project(vmi, Controller, Facts{Now: now, End: c.end, Migration: Migration{Begin: begin}})
		if begins := cmp.Equal(status.MigrationState, want); begins != c.begins {
			t.Errorf("%s: it begins: %v, state %+v", name, begins, status.MigrationState)
		}
		if _, second := status.ActivePods["r"]; second != c.begins {
			t.Errorf("%s: the active pods are %v", name, status.ActivePods)
		}
		if _, second := vmi.Status.ActivePods["r"]; second {
			t.Errorf("%s: the VMI that was given has been changed", name)
		}
	}
	first := instance(v1.Running)
	status := Project(first, Controller, Facts{Now: now, Migration: Migration{Begin: begin}})
	if !cmp.Equal(status.MigrationState, want) || status.ActivePods["r"] != "target" {
		t.Errorf("the first migration is %+v, with the pods %v", status.MigrationState, status.ActivePods)
	}
}

// The guest's node, its pod's image and the migration's request must change together.
func TestTheGuestsNodeIsTheTargetOnceItRunsThere(t *testing.T) {
	arrived := Migration{Of: "m", Arrived: &Arrival{Image: "launcher:2"}, Ended: []types.UID{"p"}}
	for name, c := range map[string]struct {
		of    types.UID
		given []edit
		node  string
	}{
		"it has completed":                 {"m", []edit{begun, completed}, "target"},
		"it has not":                       {"m", []edit{begun}, "source"},
		"it has failed":                    {"m", []edit{begun, failedWith("x")}, "source"},
		"another one is said to be there ": {"n", []edit{begun, completed}, "source"},
	} {
		vmi := onTheWay(c.given...)
		vmi.Status.EvacuationNodeName = "source"
		m := arrived
		m.Of = c.of
		status := Project(vmi, Controller, Facts{Now: now, Migration: m})
		if status.NodeName != c.node || (status.LauncherContainerImageVersion == "launcher:2") != (c.node == "target") {
			t.Errorf("%s: the node is %s, with image %q", name, status.NodeName, status.LauncherContainerImageVersion)
		}
		if marked := status.EvacuationNodeName != ""; marked != (c.node == "source") {
			t.Errorf("%s: it is marked for node %q", name, status.EvacuationNodeName)
		}
		if diff := cmp.Diff(map[types.UID]string{"q": "target"}, status.ActivePods); diff != "" {
			t.Errorf("%s: the pods (-want +got)\n%s", name, diff)
		}
	}
	volumes := []v1.VolumeStatus{{Name: "there"}}
	for name, c := range map[string]struct {
		given []edit
		said  []v1.VolumeStatus
		want  string
	}{
		"it has completed":                    {[]edit{begun, completed}, volumes, "there"},
		"it has not":                          {[]edit{begun}, volumes, "here"},
		"nothing is said of where it is come": {[]edit{begun, completed}, nil, "here"},
	} {
		vmi := onTheWay(c.given...)
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "here"}}
		status := Project(vmi, Controller, Facts{Now: now, Migration: Migration{Of: "m", Arrived: &Arrival{Volumes: c.said}}})
		if len(status.VolumeStatus) != 1 || status.VolumeStatus[0].Name != c.want {
			t.Errorf("%s: the volumes are %+v", name, status.VolumeStatus)
		}
	}
	required := onTheWay(begun, completed)
	required.Status.Conditions = append(required.Status.Conditions, says(v1.VirtualMachineInstanceMigrationRequired, "True", "x"))
	for what, m := range map[string]Migration{"it stays until then": {}, "it goes": arrived} {
		status := Project(required, Controller, Facts{Now: now, Migration: m})
		if there := condition.Find(status.Conditions, v1.VirtualMachineInstanceMigrationRequired) != nil; there != (m.Arrived == nil) {
			t.Errorf("%s: the condition is there: %v", what, there)
		}
	}
	// A guest that is evicted from its new node must leave it.
	vmi := onTheWay(begun, completed)
	vmi.Status.EvacuationNodeName = "target"
	if status := Project(vmi, Controller, Facts{Now: now, Migration: arrived}); status.EvacuationNodeName != "target" {
		t.Errorf("a guest that is to leave its new node is marked for %q", status.EvacuationNodeName)
	}
}

func TestWhatMigrationRequiredSays(t *testing.T) {
	required := onTheWay(begun, completed)
	required.Status.Conditions = append(required.Status.Conditions, says(v1.VirtualMachineInstanceMigrationRequired, "True", "x"))
	arrived := Migration{Of: "m", Arrived: &Arrival{Image: "image"}}
	wanted := says(v1.VirtualMachineInstanceMigrationRequired, "False", "y")
	for what, c := range map[string]struct {
		facts Facts
		want  string
	}{
		"it changes":           {Facts{MigrationRequired: Known(&wanted)}, "y"},
		"nothing is needed":    {Facts{MigrationRequired: Known[*v1.VirtualMachineInstanceCondition](nil)}, ""},
		"it arrives all right": {Facts{MigrationRequired: Known(&wanted), Migration: arrived}, ""},
	} {
		c.facts.Now = now
		status := Project(required, Controller, c.facts)
		got := condition.Find(status.Conditions, v1.VirtualMachineInstanceMigrationRequired)
		if reason := ""; got != nil && got.Reason != c.want || got == nil && c.want != reason {
			t.Errorf("%s: it says %+v", what, got)
		}
	}
}

// A migration must not outlive its VMI, whoever reports the VMI's end.
func TestAMigrationFailsWithItsVMI(t *testing.T) {
	for _, by := range []Writer{Controller, Handler} {
		for name, given := range map[string][]edit{"waiting": nil, "begun": {begun}} {
			m := Project(onTheWay(given...), by, Facts{Now: now, End: &End{Message: "The guest's kernel panicked."}}).MigrationState
			if want := "The VMI has ended while it was migrated: The guest's kernel panicked."; !m.Failed || m.FailureReason != want || m.EndTimestamp == nil {
				t.Errorf("%s ends it, %s: %+v", by, name, m)
			}
			if !m.Completed {
				t.Errorf("%s ends it, %s: the migration is not said to be over: %+v", by, name, m)
			}
		}
		m := Project(onTheWay(begun, completed), by, Facts{Now: now, End: &End{}}).MigrationState
		if m.Failed || !m.Completed {
			t.Errorf("%s ends it after the migration: %+v", by, m)
		}
	}
	// The target's virt-handler must end nothing.
	if status := Project(onTheWay(begun), TargetHandler, Facts{Now: now, End: &End{}}); status.Phase != v1.Running || status.MigrationState.Failed {
		t.Errorf("the target ends it: %s, %+v", status.Phase, status.MigrationState)
	}
}

// A failed migration must be completed, as in KubeVirt, when no pod at the target is the VMI's any more: in the write
// that reports that, without one of its own.
func TestAFailedMigrationIsCompletedWhenItsTargetPodIsOut(t *testing.T) {
	given := []edit{begun, failedWith("x")}
	for name, c := range map[string]struct {
		by    Writer
		facts Facts
		pods  map[types.UID]string
		want  bool
	}{
		"the target pod is there":                    {Controller, Facts{}, map[types.UID]string{"p": "source", "q": "target"}, false},
		"virt-controller takes it out":               {Controller, Facts{Migration: Migration{Of: "m", Ended: []types.UID{"q"}}}, map[types.UID]string{"p": "source", "q": "target"}, true},
		"it went before the source knew":             {Handler, Facts{}, map[types.UID]string{"p": "source"}, true},
		"it is there when virt-handler writes":       {Handler, Facts{}, map[types.UID]string{"p": "source", "q": "target"}, false},
		"virt-handler of the target writes no more":  {TargetHandler, Facts{}, map[types.UID]string{"p": "source"}, false},
		"the VMI ends while the target pod is there": {Handler, Facts{End: &End{}}, map[types.UID]string{"p": "source", "q": "target"}, true},
	} {
		vmi := onTheWay(given...)
		vmi.Status.ActivePods = c.pods
		c.facts.Now = now
		if m := Project(vmi, c.by, c.facts).MigrationState; !m.Failed || m.Completed != c.want {
			t.Errorf("%s: the migration is %+v", name, m)
		}
	}
	// A migration that is completed because it failed moves no guest.
	vmi := onTheWay(begun, failedWith("x"), over)
	if status := Project(vmi, Controller, Facts{Now: now, Migration: Migration{Of: "m", Arrived: &Arrival{}}}); status.NodeName != "source" {
		t.Errorf("a failed migration has the guest be on node %s", status.NodeName)
	}
}

func TestTheMigrationThatIsNotOver(t *testing.T) {
	for name, c := range map[string]struct {
		given  []edit
		active bool
	}{
		"it waits": {nil, true}, "it has begun": {[]edit{begun}, true}, "it is to be aborted": {[]edit{begun, asked}, true},
		"it has failed": {[]edit{failedWith("x")}, false}, "it has completed": {[]edit{begun, completed}, false},
	} {
		if m := ActiveMigration(&onTheWay(c.given...).Status); (m != nil) != c.active {
			t.Errorf("%s: it counts as %+v", name, m)
		}
	}
	if m := ActiveMigration(&v1.VirtualMachineInstanceStatus{}); m != nil {
		t.Errorf("without one there is %+v", m)
	}
}

// A VMI must not succeed because its guest was sent away and has not arrived.
func TestAGuestThatWasSentAndHasNotArrivedIsLost(t *testing.T) {
	end := EndOfQEMU(onTheWay(begun), launch.Exit{Reason: launch.ReasonMigrated}, Disruption{})
	if !end.Failed || end.Reason != ReasonMigrationLost || !strings.Contains(end.Message, "lost") {
		t.Errorf("it ends as %+v", end)
	}
	if lost := EndOfMigration("x"); !lost.Failed || lost.Message != "The guest was lost while it was migrated: x." {
		t.Errorf("a guest that is lost ends its VMI as %+v", lost)
	}
}

// A guest that an eviction has marked must have a condition, as in KubeVirt, until it has left the node, the mark is
// removed, or it ends; after a failed migration it stays, for another try.
func TestAnEvictionIsACondition(t *testing.T) {
	evicted := func(node string, edits ...edit) *v1.VirtualMachineInstance {
		vmi := onTheWay(edits...)
		vmi.Status.EvacuationNodeName = node
		return vmi
	}
	told := evicted("")
	told.Status.Conditions = append(told.Status.Conditions, says(v1.VirtualMachineInstanceEvictionRequested, "True", "EvictionRequested"))
	gone := evicted("source", begun, completed)
	gone.Status.Conditions = append(gone.Status.Conditions, told.Status.Conditions...)
	for name, c := range map[string]struct {
		vmi   *v1.VirtualMachineInstance
		by    Writer
		facts Facts
		want  bool
	}{
		"it is marked":                      {evicted("source"), Controller, Facts{}, true},
		"virt-handler writes first":         {evicted("source"), Handler, Facts{}, true},
		"its migration has failed":          {evicted("source", begun, failedWith("x")), Controller, Facts{}, true},
		"it is not marked":                  {evicted(""), Controller, Facts{}, false},
		"the mark is off":                   {told, Controller, Facts{}, false},
		"it has arrived":                    {gone, Controller, Facts{Migration: Migration{Of: "m", Arrived: &Arrival{}}}, false},
		"it ends":                           {evicted("source"), Handler, Facts{End: &End{}}, false},
		"virt-handler of the target writes": {evicted("source"), TargetHandler, Facts{}, false},
	} {
		c.facts.Now = now
		status := Project(c.vmi, c.by, c.facts)
		got := condition.Find(status.Conditions, v1.VirtualMachineInstanceEvictionRequested)
		if c.want != (got != nil) || got != nil && (got.Status != "True" || got.Reason != "EvictionRequested" || !strings.Contains(got.Message, "node source")) {
			t.Errorf("%s: the condition is %+v", name, got)
		}
	}
}
