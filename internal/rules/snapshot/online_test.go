package snapshot

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/object/condition"
)

// runs gives the VM a guest.
func runs(o *Observed) {
	o.VMI = &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm"}, Status: v1.VirtualMachineInstanceStatus{Phase: v1.Running}}
}

func guest(change func(*v1.VirtualMachineInstance)) edit {
	return func(o *Observed) {
		runs(o)
		change(o.VMI)
	}
}

// hold is the answer of the guest's node: this snapshot's hold t1.
func hold(changes ...func(*launch.Hold)) edit {
	return func(o *Observed) {
		runs(o)
		o.Hold = &launch.Hold{Token: "t1", Holder: "s1", Method: launch.MethodAgent, Milliseconds: 400}
		for _, change := range changes {
			change(o.Hold)
		}
	}
}

func over(h *launch.Hold) { h.Ended = "it was released" }

func under(v VolumeSnapshot, token string) VolumeSnapshot {
	v.Token = token
	return v
}

func TestDecideOfAGuestThatRuns(t *testing.T) {
	const (
		inProg  = snapshotv1.InProgress
		failure = snapshotv1.Failed
	)
	plugged := func(phase v1.VolumePhase) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) {
			vmi.Spec.Volumes = []v1.Volume{{Name: "more", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "more"}}}}}
			vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "more", Phase: phase, HotplugVolume: &v1.HotplugVolumeStatus{}}}
		}
	}
	nothing := func(o *Observed) { runs(o); o.Hold = &launch.Hold{} }
	made := under(VolumeSnapshot{}, "t1")
	taken := under(cut, "t1")
	for name, c := range map[string]struct {
		edits []edit
		want  want
	}{
		"it is held first":                       {[]edit{begun(), nothing}, want{Quiesce, inProg, "", time.Second}},
		"not before somebody says what holds it": {[]edit{begun(), runs}, want{Rest, inProg, messageSilent, whileStored}},
		"not while it is migrated": {[]edit{begun(), nothing, func(o *Observed) {
			o.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}
		}}, want{Rest, inProg, "the VM vm is being migrated", whileStored}},
		"not while it is stopped": {[]edit{begun(), nothing, func(o *Observed) { o.VMI.DeletionTimestamp = then }}, want{Rest, inProg, "the VM vm is being stopped", whileStored}},
		"not while a disk is plugged": {[]edit{begun(), nothing, func(o *Observed) { plugged(v1.HotplugVolumeMounted)(o.VMI) }},
			want{Rest, inProg, "the volume more of the VM vm is being plugged", whileStored}},
		"but with one that is plugged":          {[]edit{begun(), nothing, func(o *Observed) { plugged(v1.VolumeReady)(o.VMI) }}, want{Quiesce, inProg, "", whileStored}},
		"while somebody else holds it":          {[]edit{begun(), hold(func(h *launch.Hold) { h.Holder = "user" })}, want{Quiesce, inProg, "", whileStored}},
		"again, if an earlier hold is over":     {[]edit{begun(), hold(over)}, want{Quiesce, inProg, "", whileStored}},
		"then the VolumeSnapshots are made":     {[]edit{begun(), hold()}, want{Cut, inProg, "", 0}},
		"those that are missing":                {[]edit{begun(made), hold()}, want{Cut, inProg, "", 0}},
		"and awaited, closely":                  {[]edit{begun(taken, made), hold()}, want{Rest, inProg, "", 50 * time.Millisecond}},
		"less so after a while":                 {[]edit{begun(taken, made), hold(func(h *launch.Hold) { h.Milliseconds = 5000 })}, want{Rest, inProg, "", 250 * time.Millisecond}},
		"also if nobody answers":                {[]edit{begun(taken, made), runs}, want{Rest, inProg, "", 250 * time.Millisecond}},
		"none is made then":                     {[]edit{begun(taken), runs}, want{Rest, inProg, messageSilent, whileStored}},
		"all are taken, but was it held":        {[]edit{begun(taken, taken), runs}, want{Rest, inProg, messageSilent, whileLocked}},
		"it was":                                {[]edit{begun(taken, taken), hold()}, want{Report, inProg, "", 0}},
		"it was not, and there are more":        {[]edit{begun(taken), hold(over)}, want{Rest, failure, "the guest of the VM vm went on before all of its disks were snapshotted: it was released", 0}},
		"it was not":                            {[]edit{begun(taken, taken), hold(over)}, want{Rest, failure, "the guest of the VM vm went on before all", 0}},
		"it was, by another hold":               {[]edit{begun(taken, taken), hold(func(h *launch.Hold) { h.Token = "t2" })}, want{Rest, failure, "the guest of the VM vm was moved or restarted", 0}},
		"it was, by somebody else":              {[]edit{begun(taken, taken), hold(func(h *launch.Hold) { h.Token, h.Holder = "t2", "user" })}, want{Rest, failure, "the guest of the VM vm was moved or restarted", 0}},
		"nobody has held it":                    {[]edit{begun(taken, taken), nothing}, want{Rest, failure, "the guest of the VM vm was moved or restarted", 0}},
		"it has ended":                          {[]edit{begun(taken, taken)}, want{Rest, failure, "the guest of the VM vm has ended", 0}},
		"it was started":                        {[]edit{begun(cut, cut), hold()}, want{Rest, failure, "the VM vm was started", 0}},
		"two holds":                             {[]edit{begun(taken, under(cut, "t2")), hold()}, want{Rest, failure, "the disks of the VM vm were snapshotted at different times", 0}},
		"one before it was started":             {[]edit{begun(cut, taken), hold()}, want{Rest, failure, "the disks of the VM vm were snapshotted at different times", 0}},
		"once it is reported the guest goes on": {[]edit{begun(taken, taken), reported(false), hold(over)}, want{Unlock, inProg, "", 0}},
		"also if nobody answers then":           {[]edit{begun(taken, taken), reported(false), runs}, want{Unlock, inProg, "", 0}},
		"also if it has ended":                  {[]edit{begun(taken, taken), reported(false)}, want{Unlock, inProg, "", 0}},
		"its time is over":                      {[]edit{begun(taken, made), hold(), at(time.Hour)}, want{Rest, failure, "the snapshot was not complete within 5m0s", 0}},
		"one that is deleted lets it go on":     {[]edit{begun(taken, made), hold(), deleted}, want{Unlock, snapshotv1.Deleting, "", 0}},
		"and one that has failed":               {[]edit{begun(taken, made), hold(), failed}, want{Unlock, failure, "", 0}},
		"a VM without disks is not held":        {[]edit{inProgress, locked, func(o *Observed) { o.Disks = nil }, begun(), runs, born1}, want{Report, inProg, "", 0}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(observed(c.edits...))
			got := want{plan.Step, plan.Snapshot.Status.Phase, "", plan.After}
			if p := condition.Find(plan.Snapshot.Status.Conditions, snapshotv1.ConditionProgressing); p != nil {
				got.message = p.Message
			}
			if got.step != c.want.step || got.phase != c.want.phase || got.after != c.want.after || !strings.HasPrefix(got.message, c.want.message) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			for _, cut := range plan.Cuts {
				if cut.Token != "t1" {
					t.Errorf("the VolumeSnapshot %s is made under the hold %q", cut.Name, cut.Token)
				}
			}
		})
	}
}

func born1(o *Observed) { o.Content.CreationTimestamp = *then }

func TestHowLongAGuestIsHeld(t *testing.T) {
	nothing := func(o *Observed) { runs(o); o.Hold = &launch.Hold{} }
	deadline := func(d time.Duration) edit {
		return func(o *Observed) { o.Snapshot.Spec.FailureDeadline = &metav1.Duration{Duration: d} }
	}
	for name, c := range map[string]struct {
		edits []edit
		want  time.Duration
	}{
		"what is left":  {nil, 5*time.Minute - time.Second},
		"of its own":    {[]edit{deadline(11 * time.Second)}, 10 * time.Second},
		"not for long":  {[]edit{deadline(time.Hour)}, 5 * time.Minute},
		"nor for ever":  {[]edit{deadline(0)}, 5 * time.Minute},
		"a little left": {[]edit{at(5*time.Minute - 1)}, 1},
	} {
		if plan := Decide(observed(append([]edit{begun(), nothing}, c.edits...)...)); plan.Step != Quiesce || plan.Timeout != c.want {
			t.Errorf("%s: %s for %v, want %v", name, plan.Step, plan.Timeout, c.want)
		}
	}
}

func TestWhenTheHoldMatters(t *testing.T) {
	taken := under(cut, "t1")
	for name, c := range map[string]struct {
		edits       []edit
		ask, verify bool
	}{
		"of a VM that does not run": {[]edit{begun(cut, cut)}, false, false},
		"before there is a content": {[]edit{inProgress, locked, runs}, false, false},
		"before it is held":         {[]edit{begun(), runs}, true, false},
		"while one is not taken":    {[]edit{begun(taken, under(VolumeSnapshot{}, "t1")), runs}, true, false},
		"when all are":              {[]edit{begun(taken, taken), runs}, true, true},
		"when that is reported":     {[]edit{begun(taken, taken), reported(false), runs}, true, false},
		"when the VM is unlocked":   {[]edit{begun(taken, taken), reported(false), runs, unlocked}, false, false},
		"one that is deleted":       {[]edit{begun(taken, taken), runs, deleted}, false, false},
		"one that has failed":       {[]edit{begun(taken, taken), runs, failed}, false, false},
	} {
		if ask, verify := AsksHold(observed(c.edits...)); ask != c.ask || verify != c.verify {
			t.Errorf("%s: ask %v, verify %v", name, ask, verify)
		}
	}
}

func TestWhatASnapshotSaysOfAGuestThatRan(t *testing.T) {
	taken := under(cut, "t1")
	diskless := func(o *Observed) {
		o.Disks = nil
		begun()(o)
		reported(true)(o)
		o.Snapshot.Status.CreationTime = then
	}
	says := func(kind v1.VirtualMachineInstanceConditionType) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: kind, Status: corev1.ConditionTrue}}
		}
	}
	by := func(method launch.Method) func(*launch.Hold) { return func(h *launch.Hold) { h.Method = method } }
	for name, c := range map[string]struct {
		edits []edit
		want  []string
	}{
		"frozen": {[]edit{begun(taken, taken), reported(false), hold(over)}, []string{"GuestAgent: The guest agent had frozen the guest's file systems, for 0.40 s.", "Online"}},
		"nothing to freeze": {[]edit{begun(taken, taken), reported(false), hold(func(h *launch.Hold) { h.Method, h.NothingToFreeze = launch.MethodStop, true })},
			[]string{"GuestAgent: The guest agent found no file system to freeze. The guest was stopped for", "Online"}},
		"refused": {[]edit{begun(taken, taken), reported(false), hold(func(h *launch.Hold) { h.Method, h.Refusal = launch.MethodStop, "failed to freeze /:\n\x1b[31mbusy." })},
			[]string{"Online", "QuiesceFailed: The guest agent could not freeze file systems: failed to freeze /: [31mbusy. The guest was stopped for 0.40 s"}},
		"stopped":    {[]edit{begun(taken, taken), reported(false), hold(by(launch.MethodStop))}, []string{"NoGuestAgent: No guest agent had frozen file systems. The guest was stopped for 0.40 s", "Online"}},
		"paused":     {[]edit{begun(taken, taken), reported(false), hold(by(launch.MethodPaused))}, []string{"Online", "Paused: The VM was paused"}},
		"not known":  {[]edit{begun(taken, taken), reported(false), runs}, []string{"Online"}},
		"of another": {[]edit{begun(taken, taken), reported(false), hold(func(h *launch.Hold) { h.Token = "t2" })}, []string{"Online"}},
		"no disk":    {[]edit{diskless, runs}, []string{"NoGuestAgent: The VM has no disk to snapshot, and no guest agent.", "Online"}},
		"no disk, with an agent": {[]edit{diskless, guest(says(v1.VirtualMachineInstanceAgentConnected))},
			[]string{"GuestAgent: The VM has no disk to snapshot, so its guest agent had nothing to freeze.", "Online"}},
		"no disk, paused": {[]edit{diskless, guest(says(v1.VirtualMachineInstancePaused))}, []string{"Online", "Paused: The VM was paused. It has no disk to snapshot."}},
		"stopped VM":      {[]edit{begun(cut, cut), reported(false)}, nil},
		"timed out":       {[]edit{begun(taken, taken), hold(over, func(h *launch.Hold) { h.TimedOut = true })}, []string{"Online", "QuiesceTimeout: it was released"}},
		"it went on":      {[]edit{begun(taken, taken), hold(over)}, nil},
	} {
		status := Decide(observed(c.edits...)).Snapshot.Status
		if len(status.SourceIndications) != len(c.want) {
			t.Errorf("%s: it says %+v", name, status.SourceIndications)
			continue
		}
		for i, said := range status.SourceIndications {
			if !strings.HasPrefix(string(said.Indication)+": "+said.Message, c.want[i]) {
				t.Errorf("%s: it says %+v", name, said)
			}
			if status.Indications[i] != said.Indication { //nolint:staticcheck // What older programs read.
				t.Errorf("%s: older programs read %q", name, status.Indications[i]) //nolint:staticcheck // Likewise.
			}
		}
		// For a stopped VM the next write includes it.
		if status.Phase == snapshotv1.InProgress && status.CreationTime.Equal(then) != (c.want != nil) {
			t.Errorf("%s: the snapshot is of %v", name, status.CreationTime)
		}
	}
}

func TestAGuestThatCannotBeHeld(t *testing.T) {
	o := observed(begun(), runs)
	got := NotHeld(o, Decide(o), "the agent is silent", true)
	if got.Status.Phase != snapshotv1.Failed || *got.Status.Error.Message != "the guest of the VM vm could not be held still: the agent is silent" ||
		len(got.Status.SourceIndications) != 2 || got.Status.SourceIndications[1].Indication != "QuiesceTimeout" {
		t.Errorf("it says %+v", got.Status)
	}
	judgeFailure(t, got)
	got = NotHeld(o, Decide(o), "it is being migrated", false)
	said := condition.Find(got.Status.Conditions, snapshotv1.ConditionProgressing)
	if got.Status.Phase != snapshotv1.InProgress || said.Message != "the guest of the VM vm can't be held still just now: it is being migrated" {
		t.Errorf("it says %+v", got.Status)
	}
}

func TestWhatWasPluggedIntoTheGuestAloneIsNotIncluded(t *testing.T) {
	claims := func(names ...string) (volumes []v1.Volume) {
		for _, name := range names {
			volumes = append(volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name + "-claim"}}}})
		}
		return volumes
	}
	o := observed(inProgress, locked, guest(func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Volumes = claims("root", "more", "data") }))
	o.VM.Spec.Template.Spec.Volumes = claims("root", "data")
	plan := Decide(o)
	if v := plan.Snapshot.Status.SnapshotVolumes; plan.Step != MakeContent || !slices.Equal(v.IncludedVolumes, []string{"root", "data"}) || !slices.Equal(v.ExcludedVolumes, []string{"more"}) {
		t.Errorf("%s, volumes %+v", plan.Step, v)
	}
	if said := condition.Find(plan.Snapshot.Status.Conditions, snapshotv1.ConditionProgressing).Message; said != "not included: more (it was plugged into the guest that runs, and is not in the VM's spec)" {
		t.Errorf("it says %q", said)
	}
}
