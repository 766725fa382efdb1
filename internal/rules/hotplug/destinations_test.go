package hotplug

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/migration/volumemigration"
)

// goesToX copies the disk of volume a to the claim x.
func goesToX() []Destination {
	return []Destination{{From: vol("a")[0], To: vol("a=x")[0]}}
}

// TestTheTargetHoldsTheNewClaim: until the guest has arrived, the pods at the source must have the old claim and
// those at the target the new one.
func TestTheTargetHoldsTheNewClaim(t *testing.T) {
	under := Move{Migration: "m", UnderWay: true}
	unfilled := goesToX()
	unfilled[0].Unfilled = true
	unfilledOther := []Destination{{From: vol("b")[0], To: vol("b=y")[0], Unfilled: true}}
	// claims lists the claims of a record's volumes.
	claims := func(r Record) string {
		var out []string
		for _, h := range r.all() {
			for _, v := range h.Volumes {
				out = append(out, h.Name+" "+v.Name+"="+v.Claim)
			}
		}
		return strings.Join(out, ", ")
	}
	for name, test := range map[string]struct {
		to       []Destination
		incoming *Incoming
		pods     []Pod
		want     string
		noted    bool
	}{
		"it is recorded":             {goesToX(), nil, nil, "hp-1 a=a, hp-3 a=x", false},
		"another volume's is not":    {[]Destination{{From: vol("b")[0], To: vol("b=x")[0]}}, nil, nil, "hp-1 a=a, hp-3 a=a", false},
		"another claim's is not":     {[]Destination{{From: vol("a=z")[0], To: vol("a=x")[0]}}, nil, nil, "hp-1 a=a, hp-3 a=a", false},
		"once":                       {goesToX(), comes(held(2, "a=x")), nil, "hp-1 a=a, hp-2 a=x", false},
		"the old claim is another":   {goesToX(), comes(held(2, "a")), nil, "hp-1 a=a, hp-2 a=a, hp-3 a=x", false},
		"its pod runs":               {goesToX(), comes(held(2, "a=x")), []Pod{elsewhere(runs(2, "a=x"), false)}, "hp-1 a=a, hp-2 a=x", true},
		"it is not filled yet":       {unfilled, comes(held(2, "a=x")), []Pod{elsewhere(runs(2, "a=x"), false)}, "hp-1 a=a, hp-2 a=x", false},
		"another one is not filled":  {unfilledOther, comes(held(2, "a")), []Pod{elsewhere(runs(2, "a"), false)}, "hp-1 a=a, hp-2 a=a", true},
		"one of two is not filled":   {unfilledOther, comes(held(2, "a", "b=y")), []Pod{elsewhere(runs(2, "a", "b=y"), false)}, "hp-1 a=a, hp-2 a=a, hp-2 b=y", false},
		"nothing but the node moves": {nil, comes(held(2, "a")), []Pod{elsewhere(runs(2, "a"), false)}, "hp-1 a=a, hp-2 a=a", true},
	} {
		t.Run(name, func(t *testing.T) {
			plan := decided(Observed{
				Prefix: "hp", Stage: Moving, Move: under, Destinations: test.to, Entries: []Entry{through(1, v1.VolumeReady, "a")},
				Record: Record{Generation: 2, Pods: []AttachmentPod{noted(held(1, "a"))}, Incoming: test.incoming},
				Pods:   append([]Pod{runs(1, "a")}, test.pods...),
			})
			if got := claims(plan.Record); got != test.want {
				t.Errorf("recorded is %s, want %s", got, test.want)
			}
			if noted := plan.Record.Incoming.Pods[0].UID != ""; noted != test.noted {
				t.Errorf("its pod is noted: %v, want %v", noted, test.noted)
			}
			if len(plan.Entries) != 1 || plan.Entries[0] != through(1, v1.VolumeReady, "a") {
				t.Errorf("the status says %+v", plan.Entries)
			}
		})
	}
}

// TestAVolumeThatHasComeToAnotherClaim: the old pod must stay until the status names the new one, and until the
// source has ended.
func TestAVolumeThatHasComeToAnotherClaim(t *testing.T) {
	const ready = v1.VolumeReady
	for name, test := range map[string]struct {
		entry Entry
		pods  []Pod
		want  string
	}{
		"the status names the new pod, and the source may run": {
			through(2, ready, "a=x"), []Pod{elsewhere(runs(1, "a"), false), runs(2, "a=x")}, "a=x Ready hp-2; hp-2{a}"},
		"the source has ended": {
			through(2, ready, "a=x"), []Pod{elsewhere(runs(1, "a"), true), runs(2, "a=x")}, "a=x Ready hp-2; hp-2{a}; delete hp-1"},
		"the status names the old pod": {
			through(1, ready, "a=x"), []Pod{elsewhere(runs(1, "a"), true), runs(2, "a=x")}, "a=x Ready hp-1; hp-2{a}"},
		"it names the old pod, of a disk that is about to be plugged": {
			through(1, v1.HotplugVolumeAttachedToNode, "a=x"), []Pod{elsewhere(runs(1, "a"), true), runs(2, "a=x")}, "a=x AttachedToNode hp-1; hp-2{a}"},
	} {
		t.Run(name, func(t *testing.T) {
			got := told(decided(Observed{
				Prefix: "hp", MaxAttachmentPods: 4, Live: true, Move: Move{Migration: "m", Arrived: true}, Wanted: want("a=x"), Entries: []Entry{test.entry},
				Record: Record{Generation: 2, Pods: []AttachmentPod{noted(held(2, "a=x"))}}, Pods: test.pods, Budget: Budget{State: BudgetRight},
			}))
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// copying is a VMI whose volume a is copied to the claim x.
func copying(record Record, entries ...Entry) *v1.VirtualMachineInstance {
	vmi := migrating(record, &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m", TargetNode: "node2"}, entries...)
	vmi.Status.MigratedVolumes = volumemigration.Write([]volumemigration.Move{{Volume: "a", From: "a", To: "x"}})
	return vmi
}

func TestWhichPluggedVolumesAreCopied(t *testing.T) {
	vmi := copying(Record{})
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "r"}}})
	vmi.Status.MigratedVolumes = append(volumemigration.Write([]volumemigration.Move{{Volume: "root", From: "r", To: "s"}}), vmi.Status.MigratedVolumes...)
	if diff := cmp.Diff(goesToX(), DestinationsOf(vmi)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWhatIsThereOnAnotherClaim: a pod with the old claim must not count at the target.
func TestWhatIsThereOnAnotherClaim(t *testing.T) {
	has := through(1, v1.VolumeReady, "a")
	for name, test := range map[string]struct {
		held       AttachmentPod
		pod        Pod
		missing    string
		unattached string
	}{
		"the new claim": {noted(held(2, "a=x")), runs(2, "a=x"), "", ""},
		"the old claim": {noted(held(2, "a")), runs(2, "a"), "a", "a"},
	} {
		vmi := copying(Record{Incoming: comes(test.held)}, has)
		record, missing := Arrivals(vmi, []Pod{test.pod})
		if strings.Join(missing, " ") != test.missing || fmt.Sprint(record.Pods) != fmt.Sprint([]AttachmentPod{test.held}) {
			t.Errorf("%s: missing is %v of %v", name, missing, record.Pods)
		}
		if again, missing := Arrivals(volumemigration.Target(vmi), []Pod{test.pod}); strings.Join(missing, " ") != test.missing || len(again.Pods) != 1 {
			t.Errorf("%s: of what is seen at the target %v is missing", name, missing)
		}
		if got := Unattached(vmi); got != test.unattached {
			t.Errorf("%s: not attached is %q", name, got)
		}
	}
}

// TestAGuestArrivesOnItsNewClaims: the status must change with the spec.
func TestAGuestArrivesOnItsNewClaims(t *testing.T) {
	has, other := through(1, v1.VolumeReady, "a"), through(1, v1.VolumeReady, "b")
	for name, test := range map[string]struct {
		incoming *Incoming
		want     Entry
	}{
		"its pod is known":      {comes(noted(held(2, "a=x"))), through(2, v1.VolumeReady, "a=x")},
		"of two the last":       {comes(noted(held(2, "a=x")), noted(held(3, "a=x"))), through(3, v1.VolumeReady, "a=x")},
		"one is not known yet":  {comes(noted(held(2, "a=x")), held(3, "a=x")), through(2, v1.VolumeReady, "a=x")},
		"none is known":         {comes(held(2, "a=x")), through(1, v1.VolumeReady, "a=x")},
		"none has it":           {comes(noted(held(2, "a"))), through(1, v1.VolumeReady, "a=x")},
		"another migration's":   {&Incoming{Migration: "z", Pods: []AttachmentPod{noted(held(2, "a=x"))}}, through(1, v1.VolumeReady, "a=x")},
		"a record that is none": {nil, through(1, v1.VolumeReady, "a=x")},
	} {
		vmi := copying(Record{Generation: 1, Incoming: test.incoming}, other, has)
		fixed := v1.VolumeStatus{Name: "a"}
		vmi.Status.VolumeStatus = append([]v1.VolumeStatus{fixed}, vmi.Status.VolumeStatus...)
		was := vmi.DeepCopy()
		arrived := vmi.DeepCopy()
		arrived.Status.VolumeStatus = Arrive(vmi)
		if diff := cmp.Diff([]Entry{other, test.want}, EntriesOf(arrived)); diff != "" || !cmp.Equal(arrived.Status.VolumeStatus[0], fixed) {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(was, vmi); diff != "" {
			t.Errorf("%s: the VMI itself has changed:\n%s", name, diff)
		}
	}
}

func TestWhetherAClaimIsFilled(t *testing.T) {
	for name, test := range map[string]struct {
		f    ClaimFacts
		want bool
	}{
		"one that is not there":         {ClaimFacts{}, false},
		"one that nothing fills":        {ClaimFacts{Claim: claim(corev1.ClaimBound)}, true},
		"one whose filler is not known": {ClaimFacts{Claim: filledBy(claim(corev1.ClaimBound))}, false},
		"one that is being filled":      {ClaimFacts{Claim: filledBy(claim(corev1.ClaimBound)), DataVolume: dataVolume(cdiv1.ImportInProgress, "", "")}, false},
		"one that is filled":            {ClaimFacts{Claim: filledBy(claim(corev1.ClaimBound)), DataVolume: dataVolume(cdiv1.Succeeded, "", "")}, true},
	} {
		if got := test.f.Filled(); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
