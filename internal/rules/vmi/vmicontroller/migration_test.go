package vmicontroller

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// moving is a VMI that runs on node a in pod one, with a migration to pod two on node b that has begun.
func moving(edits ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
	start := metav1.NewTime(now.Add(-time.Minute))
	return newVMI(append([]func(*v1.VirtualMachineInstance){inPhase(v1.Running, time.Hour), func(vmi *v1.VirtualMachineInstance) {
		vmi.Labels = map[string]string{v1.NodeNameLabel: "a", v1.MigrationTargetNodeNameLabel: "b", "app": "web"}
		vmi.Status.NodeName = "a"
		vmi.Status.LauncherContainerImageVersion = "launcher:1"
		vmi.Status.ActivePods = map[types.UID]string{"one": "a", "two": "b"}
		vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue}}
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
			MigrationUID: "m", SourceNode: "a", SourcePod: "one", TargetNode: "b", TargetPod: "two", StartTimestamp: &start,
		}
	}}, edits...)...)
}

func notBegun(vmi *v1.VirtualMachineInstance) { vmi.Status.MigrationState.StartTimestamp = nil }

func hasFailed(vmi *v1.VirtualMachineInstance) { vmi.Status.MigrationState.Failed = true }

func aborting(vmi *v1.VirtualMachineInstance) { vmi.Status.MigrationState.AbortRequested = true }

func hasCompleted(ago time.Duration) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.MigrationState.Completed = true
		vmi.Status.MigrationState.EndTimestamp = new(metav1.NewTime(now.Add(-ago)))
	}
}

func hasSwitched(vmi *v1.VirtualMachineInstance) {
	vmi.Status.NodeName, vmi.Labels[v1.NodeNameLabel] = "b", "b"
	delete(vmi.Labels, v1.MigrationTargetNodeNameLabel)
}

func without(uid types.UID) func(*v1.VirtualMachineInstance) {
	return func(vmi *v1.VirtualMachineInstance) { delete(vmi.Status.ActivePods, uid) }
}

func sourcePod(edits ...func(*corev1.Pod)) *corev1.Pod {
	return newPod(append([]func(*corev1.Pod){onItsNode("one", "a")}, edits...)...)
}

func targetPod(edits ...func(*corev1.Pod)) *corev1.Pod {
	return newPod(append([]func(*corev1.Pod){onItsNode("two", "b"), func(p *corev1.Pod) {
		p.Labels[v1.MigrationJobLabel] = "m"
		p.Spec.Containers[0].Image = "launcher:2"
	}}, edits...)...)
}

func onItsNode(name, node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Name, p.UID, p.Spec.NodeName, p.Status.Phase = name, types.UID(name), node, corev1.PodRunning
	}
}

func going(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(now)) }

// quit is a pod whose QEMU has exited with this message of virt-launcher; "" for no message.
func quit(reason launch.Reason, incoming launch.Incoming) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		state := corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 137}
		if reason != "" {
			said, err := json.Marshal(launch.Exit{Reason: reason, Incoming: incoming})
			if err != nil {
				panic(err)
			}
			state.Message = string(said)
		}
		p.Status.Phase = corev1.PodFailed
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: layout.ComputeContainer, State: corev1.ContainerState{Terminated: &state}}}
	}
}

// nil is a pod that is known to be gone for good.
func seen(vmi *v1.VirtualMachineInstance, current, other *corev1.Pod) Observed {
	if ready := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady); current == nil && ready.Status == corev1.ConditionTrue {
		*ready = v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse,
			Reason: v1.PodNotExistsReason, LastProbeTime: metav1.NewTime(now.Add(-time.Hour))}
	}
	return Observed{VMI: vmi, Pod: current, PodAsked: true, Other: other, OtherAsked: true, OtherMissed: now.Add(-time.Hour),
		Node: answering, NodeAsked: true, OtherNode: answering, OtherNodeAsked: true, Now: now}
}

// told formats a plan's changes of the VMI.
func told(o Observed, p Plan) string {
	m, was := p.VMI.Status.MigrationState, o.VMI.Status.MigrationState
	var words []string
	say := func(applies bool, word string) {
		if applies {
			words = append(words, word)
		}
	}
	say(p.Needs != "", "asks for "+string(p.Needs))
	say(p.VMI.Status.Phase != o.VMI.Status.Phase, string(p.VMI.Status.Phase)+" "+p.VMI.Status.Reason)
	say(m.Failed && !was.Failed && p.VMI.Status.Phase == o.VMI.Status.Phase, "failed: "+m.FailureReason)
	say(m.AbortRequested && !was.AbortRequested, "abort")
	say(p.VMI.Status.NodeName != o.VMI.Status.NodeName, "to node "+p.VMI.Status.NodeName)
	for _, uid := range slices.Sorted(maps.Keys(o.VMI.Status.ActivePods)) {
		_, kept := p.VMI.Status.ActivePods[uid]
		say(!kept, "without "+string(uid))
	}
	say(p.DeletePod, "deletes the pod")
	say(p.DeleteOther, "deletes the other")
	say(p.OpenGate, "opens the gate")
	say(len(p.VMI.Finalizers) == 0, "lets go")
	return strings.Join(words, ", ")
}

func TestAVMIWithTwoPods(t *testing.T) {
	migrated, killed := quit(launch.ReasonMigrated, ""), quit("", "")
	never, ran := quit(launch.ReasonHostShutdown, launch.IncomingNeverRan), quit(launch.ReasonGuestShutdown, launch.IncomingRan)
	for name, c := range map[string]struct {
		vmi           *v1.VirtualMachineInstance
		current       *corev1.Pod
		other         *corev1.Pod
		want          string
		keepsTheLabel bool
	}{
		"both pods run": {moving(), sourcePod(), targetPod(), "", true},

		"the target ends before anything was sent":            {moving(notBegun), sourcePod(), targetPod(never), "failed: the target pod has ended", true},
		"the target is being deleted before":                  {moving(notBegun), sourcePod(), targetPod(going), "failed: the target pod is being deleted", true},
		"the target vanishes before":                          {moving(notBegun), sourcePod(), nil, "failed: the target pod has ended", true},
		"the target is being deleted":                         {moving(), sourcePod(), targetPod(going), "abort", true},
		"the target is being deleted, and the abort is known": {moving(aborting), sourcePod(), targetPod(going), "", true},
		"the target ends and never ran the guest":             {moving(), sourcePod(), targetPod(never), "without two", true},
		"the target ends without a word":                      {moving(), sourcePod(), targetPod(killed), "abort", true},
		"the target vanishes":                                 {moving(), sourcePod(), nil, "abort", true},
		"the guest has run on the target, and ended there":    {moving(), sourcePod(), targetPod(ran), "Succeeded ", true},

		"the source has sent the guest, and ends":                 {moving(), sourcePod(migrated), targetPod(), "without one", true},
		"the source has sent the guest, and that is recorded":     {moving(without("one")), sourcePod(migrated), targetPod(), "", true},
		"the source ends without a word":                          {moving(), sourcePod(killed), targetPod(), "abort", true},
		"the source vanishes":                                     {moving(), nil, targetPod(), "abort", true},
		"the guest ends on the source":                            {moving(), sourcePod(quit(launch.ReasonGuestShutdown, "")), targetPod(), "Succeeded ", true},
		"the source vanishes before anything was sent":            {moving(notBegun), nil, targetPod(), "Failed LauncherPodGone", true},
		"the source has sent the guest, and the target never ran": {moving(), sourcePod(migrated), targetPod(never), "Failed GuestLostInMigration", true},
		"both vanish": {moving(), nil, nil, "Failed GuestLostInMigration", true},

		"the guest runs on the target":                           {moving(hasCompleted(time.Second)), sourcePod(), targetPod(), "to node b, opens the gate", false},
		"the guest runs on the target, and the source has ended": {moving(hasCompleted(time.Second)), sourcePod(migrated), targetPod(), "to node b, opens the gate", false},
		"the gate is open already": {moving(hasCompleted(time.Second)), sourcePod(), targetPod(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: launcherpod.GuestGate, Status: corev1.ConditionTrue}}
		}), "to node b", false},
		"the VMI says where the guest is":               {moving(hasCompleted(time.Second), hasSwitched), targetPod(), sourcePod(), "", false},
		"the source does not end":                       {moving(hasCompleted(11*time.Second), hasSwitched), targetPod(), sourcePod(), "deletes the other", false},
		"the source does not end, and is being deleted": {moving(hasCompleted(11*time.Second), hasSwitched), targetPod(), sourcePod(going), "", false},
		"the source has ended":                          {moving(hasCompleted(time.Second), hasSwitched), targetPod(), sourcePod(migrated), "without one, deletes the other", false},
		"the source has vanished":                       {moving(hasCompleted(time.Second), hasSwitched), targetPod(), nil, "without one", false},
		"all is done":                                   {moving(hasCompleted(time.Second), hasSwitched, without("one")), targetPod(), nil, "", false},
		"the source does not end, and nobody has written when it was left": {moving(hasCompleted(time.Hour), func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.MigrationState.EndTimestamp = nil
		}, hasSwitched), targetPod(), sourcePod(), "", false},
		"all is done, but the source's pod is there": {moving(hasCompleted(time.Second), hasSwitched, without("one")), targetPod(), sourcePod(migrated), "deletes the other", false},
		"the guest ends on the target":               {moving(hasCompleted(time.Second), hasSwitched), targetPod(ran), sourcePod(), "Succeeded ", false},

		"it has failed": {moving(hasFailed), sourcePod(), targetPod(), "without two, deletes the other", false},
		"it has failed, the target is on its way out":  {moving(hasFailed), sourcePod(), targetPod(going), "without two", false},
		"it has failed, and nothing is left":           {moving(hasFailed, without("two")), sourcePod(), nil, "", false},
		"it has failed, but the target's pod is there": {moving(hasFailed, without("two")), sourcePod(), targetPod(), "deletes the other", false},
		"it has failed, and a pod of somebody else's has the name": {moving(hasFailed, without("two")), sourcePod(), targetPod(func(p *corev1.Pod) {
			p.OwnerReferences, p.Labels = nil, nil
		}), "", false},
		"it has failed, and then the guest ends": {moving(hasFailed), sourcePod(quit(launch.ReasonCrashed, "")), targetPod(), "Failed Crashed, deletes the other", false},

		"the VMI is deleted":                                  {moving(deleted(time.Second)), sourcePod(), targetPod(), "abort", true},
		"the VMI is deleted, and nobody ends its guest":       {moving(deleted(11*time.Second), aborting), sourcePod(), targetPod(), "deletes the pod, deletes the other", true},
		"the VMI is deleted, its source has ended":            {moving(deleted(time.Second), aborting), sourcePod(quit(launch.ReasonHostShutdown, "")), targetPod(going), "Succeeded ", true},
		"the VMI is deleted, both have ended":                 {moving(deleted(time.Second), aborting), sourcePod(quit(launch.ReasonHostShutdown, "")), targetPod(never), "Succeeded , lets go", true},
		"the VMI is deleted, both are gone":                   {moving(deleted(time.Second), aborting), nil, nil, "Failed GuestLostInMigration, lets go", true},
		"the VMI is deleted after the guest has arrived":      {moving(deleted(time.Second), hasCompleted(time.Second)), sourcePod(), targetPod(), "to node b, opens the gate", false},
		"the same, and it has ended there":                    {moving(deleted(time.Second), hasCompleted(time.Second)), sourcePod(migrated), targetPod(ran), "to node b, opens the gate", false},
		"the VMI is deleted, the guest ended on the target":   {moving(deleted(time.Second), hasCompleted(time.Second), hasSwitched), targetPod(ran), sourcePod(going), "Succeeded ", false},
		"the same, and the source has ended as well":          {moving(deleted(time.Second), hasCompleted(time.Second), hasSwitched), targetPod(ran), sourcePod(migrated), "Succeeded , deletes the other, lets go", false},
		"the VMI is deleted, it has ended, the other has not": {moving(deleted(time.Second), inPhase(v1.Succeeded, time.Minute), both), sourcePod(ran), targetPod(), "", true},
		"the same, for a while":                               {moving(deleted(time.Minute), inPhase(v1.Succeeded, time.Minute), both), sourcePod(ran), targetPod(), "deletes the other", true},
		"the same, and the other has ended":                   {moving(deleted(time.Minute), inPhase(v1.Succeeded, time.Minute), both), sourcePod(ran), targetPod(never), "lets go", true},
		"the VMI has ended, both pods live on":                {moving(inPhase(v1.Succeeded, time.Minute), both), sourcePod(), targetPod(), "deletes the pod, deletes the other", true},
	} {
		o := seen(c.vmi, c.current, c.other)
		p := Decide(o)
		if got := told(o, p); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if _, labeled := p.VMI.Labels[v1.MigrationTargetNodeNameLabel]; labeled != c.keepsTheLabel || p.VMI.Labels["app"] != "web" {
			t.Errorf("%s: the labels are %v", name, p.VMI.Labels)
		}
		if p.VMI.Labels[v1.NodeNameLabel] != p.VMI.Status.NodeName {
			t.Errorf("%s: the node is %s, and the label %s", name, p.VMI.Status.NodeName, p.VMI.Labels[v1.NodeNameLabel])
		}
	}
}

// inPhase has set the pods of a VMI that was never migrated.
func both(vmi *v1.VirtualMachineInstance) {
	vmi.Status.ActivePods = map[types.UID]string{"one": "a", "two": "b"}
}

// The node, its label and the image must change in one write.
func TestTheSwitchOfTheNodeIsOneWrite(t *testing.T) {
	o := seen(moving(hasCompleted(time.Second)), sourcePod(), targetPod())
	p := Decide(o)
	if s := p.VMI.Status; s.NodeName != "b" || s.LauncherContainerImageVersion != "launcher:2" || len(s.ActivePods) != 2 || p.VMI.Labels[v1.NodeNameLabel] != "b" {
		t.Errorf("on node %s (%s) with %s and the pods %v", s.NodeName, p.VMI.Labels[v1.NodeNameLabel], s.LauncherContainerImageVersion, s.ActivePods)
	}
	if o.VMI.Labels[v1.NodeNameLabel] != "a" || o.VMI.Status.NodeName != "a" {
		t.Error("the VMI that was given has been changed")
	}
	if after := Decide(seen(p.VMI, targetPod(), sourcePod())); after.After != 9*time.Second {
		t.Errorf("it looks again after %v, want when the source's time is over", after.After)
	}
}

// movesToNew gives the VMI a volume that is copied from the claim old to the claim new.
func movesToNew(vmi *v1.VirtualMachineInstance) {
	vmi.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "old"}}}}
	vmi.Status.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{VolumeName: "root",
		SourcePVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "old"}, DestinationPVCInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "new"}}}
}

// TestTheClaimsChangeWithTheNode: the VMI must name the claim with its guest's last writes, in the write that reports
// where the guest is, or how it has ended.
func TestTheClaimsChangeWithTheNode(t *testing.T) {
	migrated, killed := quit(launch.ReasonMigrated, ""), quit("", "")
	never, ran := quit(launch.ReasonHostShutdown, launch.IncomingNeverRan), quit(launch.ReasonGuestShutdown, launch.IncomingRan)
	for name, test := range map[string]struct {
		vmi             *v1.VirtualMachineInstance
		current, other  *corev1.Pod
		want            string
		lists, hasEnded bool
	}{
		"it is on its way":                     {moving(movesToNew), sourcePod(), targetPod(), "old", true, false},
		"it has arrived":                       {moving(movesToNew, hasCompleted(0)), sourcePod(), targetPod(), "new", false, false},
		"it has arrived, and ended there":      {moving(movesToNew, hasCompleted(0)), sourcePod(migrated), targetPod(ran), "new", false, false},
		"it has failed":                        {moving(movesToNew, hasFailed), sourcePod(), targetPod(never), "old", true, false},
		"it ends where it was":                 {moving(movesToNew, notBegun), sourcePod(killed), targetPod(), "old", true, true},
		"it has run there, and nobody says so": {moving(movesToNew), sourcePod(migrated), targetPod(ran), "new", true, true},
		"nobody knows":                         {moving(movesToNew), sourcePod(killed), targetPod(killed), "old", true, true},
		"it had arrived, and ends when more is to be copied": {moving(movesToNew, hasCompleted(time.Hour), hasSwitched, without("one")), targetPod(ran), nil, "old", true, true},
		"it has arrived with nothing to change":              {moving(movesToNew, hasCompleted(0), func(vmi *v1.VirtualMachineInstance) { vmi.Status.MigratedVolumes = nil }), sourcePod(), targetPod(), "old", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := seen(test.vmi, test.current, test.other)
			p := Decide(o)
			if got := p.VMI.Spec.Volumes[0].DataVolume.Name; got != test.want {
				t.Errorf("it is on the claim %s, want %s", got, test.want)
			}
			if lists := len(p.VMI.Status.MigratedVolumes) > 0; lists != test.lists || p.VMI.IsFinal() != test.hasEnded {
				t.Errorf("volumes to be copied: %v, phase %s", p.VMI.Status.MigratedVolumes, p.VMI.Status.Phase)
			}
			if o.VMI.Spec.Volumes[0].DataVolume.Name != "old" {
				t.Error("the VMI that was given has been changed")
			}
		})
	}
}

// TestAPluggedDiskChangesItsClaimWithTheNode: status and spec must change in one write.
func TestAPluggedDiskChangesItsClaimWithTheNode(t *testing.T) {
	plugged := func(vmi *v1.VirtualMachineInstance) {
		vmi.Spec.Volumes[0].DataVolume.Hotpluggable = true
		vmi.Status.VolumeStatus = []v1.VolumeStatus{{
			Name: "root", Phase: v1.VolumeReady, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "old"},
			HotplugVolume: &v1.HotplugVolumeStatus{AttachPodName: "hp-1", AttachPodUID: "u1"},
		}}
		record := hotplug.Record{Incoming: &hotplug.Incoming{Migration: "m", Pods: []hotplug.AttachmentPod{
			{Name: "hp-2", UID: "u2", Volumes: []hotplug.Volume{{Name: "root", Claim: "new"}}},
		}}}
		vmi.Annotations = map[string]string{hotplug.RecordAnnotation: record.Text()}
	}
	for name, test := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		want string
	}{
		"it is on its way": {moving(movesToNew, plugged), "old u1"},
		"it has arrived":   {moving(movesToNew, plugged, hasCompleted(0)), "new u2"},
	} {
		p := Decide(seen(test.vmi, sourcePod(), targetPod()))
		volume, status := p.VMI.Spec.Volumes[0].DataVolume, p.VMI.Status.VolumeStatus[0]
		got := status.PersistentVolumeClaimInfo.ClaimName + " " + string(status.HotplugVolume.AttachPodUID)
		if got != test.want || volume.Name != status.PersistentVolumeClaimInfo.ClaimName || !volume.Hotpluggable || status.Phase != v1.VolumeReady {
			t.Errorf("%s: the status says %q, and the spec %+v", name, got, volume)
		}
	}
}

// A user may have removed all labels.
func TestTheSwitchOfTheNodeOfAVMIWithoutLabels(t *testing.T) {
	p := Decide(seen(moving(hasCompleted(time.Second), func(vmi *v1.VirtualMachineInstance) { vmi.Labels = nil }), sourcePod(), targetPod()))
	if p.VMI.Labels[v1.NodeNameLabel] != "b" || p.VMI.Status.NodeName != "b" {
		t.Errorf("on node %s, labels %v", p.VMI.Status.NodeName, p.VMI.Labels)
	}
}

// virt-controller's facts about a migration must be in the labels as well.
func TestTheLabelGoesWithTheMigration(t *testing.T) {
	begin := &vmistatus.MigrationBegin{UID: "n", SourceNode: "a", SourcePod: "one", TargetNode: "c", TargetPod: "three", TargetPodUID: "three"}
	for name, c := range map[string]struct {
		vmi   *v1.VirtualMachineInstance
		m     vmistatus.Migration
		label string
	}{
		"it begins":                                   {moving(hasFailed), vmistatus.Migration{Of: "n", Begin: begin}, "c"},
		"it begins, of a VMI without labels":          {moving(hasFailed, func(vmi *v1.VirtualMachineInstance) { vmi.Labels = nil }), vmistatus.Migration{Of: "n", Begin: begin}, "c"},
		"it can't begin, because another one goes on": {moving(), vmistatus.Migration{Of: "n", Begin: begin}, "b"},
		"it is to be aborted":                         {moving(), vmistatus.Migration{Of: "m", Abort: true}, "b"},
	} {
		if got := WithMigration(c.vmi, c.m, now).Labels[v1.MigrationTargetNodeNameLabel]; got != c.label {
			t.Errorf("%s: the label is %q, want %q", name, got, c.label)
		}
	}
}

// Conditions about a source that vanished must not stay on a guest that has arrived.
func TestAGuestThatHasArrivedCanBeReadyAgain(t *testing.T) {
	vmi := moving(hasCompleted(time.Second), missed(time.Second))
	vmi.Status.NodeName = "a"
	p := Decide(seen(vmi, nil, targetPod()))
	ready := condition.Find(p.VMI.Status.Conditions, v1.VirtualMachineInstanceReady)
	if ready == nil || ready.Reason != v1.GuestNotRunningReason || p.VMI.Status.NodeName != "b" {
		t.Errorf("Ready is %+v on node %s", ready, p.VMI.Status.NodeName)
	}
}

// If the cache shows no pod the API server must be asked; if it shows both, no request is needed.
func TestWhatIsAskedAboutTwoPods(t *testing.T) {
	for name, c := range map[string]struct {
		o    Observed
		want Question
	}{
		"both are shown":                                {Observed{VMI: moving(), Pod: sourcePod(), Other: targetPod()}, ""},
		"the current one is not":                        {Observed{VMI: moving(), Other: targetPod()}, NeedPod},
		"the current one is gone":                       {Observed{VMI: moving(), PodAsked: true, Other: targetPod()}, NeedNode},
		"another one has the current one's name":        {Observed{VMI: moving(), Pod: sourcePod(func(p *corev1.Pod) { p.UID = "x" }, quit("", "")), Other: targetPod()}, NeedPod},
		"the current one has sent its guest, and ended": {Observed{VMI: moving(without("one")), Pod: sourcePod(quit(launch.ReasonMigrated, "")), Other: targetPod()}, ""},
		"the same, and it is gone":                      {Observed{VMI: moving(without("one")), Other: targetPod()}, ""},
		"the same, and another one has its name":        {Observed{VMI: moving(without("one")), Pod: sourcePod(), Other: targetPod()}, NeedPod},
		"the other one is not":                          {Observed{VMI: moving(), Pod: sourcePod()}, NeedOther},
		"the other one is another pod":                  {Observed{VMI: moving(), Pod: sourcePod(), Other: targetPod(func(p *corev1.Pod) { p.UID = "x" })}, NeedOther},
		"the other one is gone":                         {Observed{VMI: moving(), Pod: sourcePod(), OtherAsked: true}, NeedOtherNode},
		"nothing is left of the other":                  {Observed{VMI: moving(hasFailed, without("two"), func(vmi *v1.VirtualMachineInstance) { delete(vmi.Labels, v1.MigrationTargetNodeNameLabel) }), Pod: sourcePod()}, ""},
		"a VMI that has ended, not its other":           {Observed{VMI: moving(inPhase(v1.Failed, time.Minute), both), Pod: sourcePod(quit("", ""))}, ""},
		"the same, and it is to go":                     {Observed{VMI: moving(inPhase(v1.Failed, time.Minute), both, deleted(0)), Pod: sourcePod(quit("", ""))}, NeedOther},
		"one that was never migrated is to go":          {Observed{VMI: newVMI(inPhase(v1.Failed, time.Minute), deleted(0)), Pod: newPod(quit("", ""))}, ""},
	} {
		c.o.Now = now
		if got := Decide(c.o).Needs; got != c.want {
			t.Errorf("%s: asks for %q, want %q", name, got, c.want)
		}
	}
}

// The other pod's object is gone: its processes must get their time, on a node that answers.
func TestAnOtherPodThatVanishes(t *testing.T) {
	for name, c := range map[string]struct {
		node  *corev1.Node
		since time.Duration
		want  string
		after time.Duration
	}{
		"just now":                         {answering, 0, "", whole},
		"a while ago":                      {answering, whole - time.Second, "", time.Second},
		"so long ago that it has ended":    {answering, whole, "without one", 0},
		"on a node that does not answer":   {silent, 24 * time.Hour, "", nodePause},
		"on a node that is out of service": {fenced, 0, "without one", 0},
		"on a node that is gone":           {nil, whole, "without one", 0},
	} {
		o := seen(moving(hasCompleted(time.Hour), hasSwitched), targetPod(), nil)
		o.OtherNode, o.OtherMissed = c.node, now.Add(-c.since)
		p := Decide(o)
		if got := told(o, p); got != c.want || p.After != c.after {
			t.Errorf("%s: %q, again after %v; want %q, %v", name, got, p.After, c.want, c.after)
		}
	}
}

// A source that is being deleted must be reported as for a guest that does not migrate.
func TestAMigratingVMISaysWhatIsWrongWithItsPod(t *testing.T) {
	terminating := Decide(seen(moving(), sourcePod(going), targetPod()))
	gone := seen(moving(missed(time.Second)), nil, targetPod())
	gone.VMI.Status.NodeName = "a"
	for name, c := range map[string]struct {
		p      Plan
		reason string
	}{
		"it is being deleted": {terminating, v1.PodTerminatingReason},
		"it is gone":          {Decide(gone), v1.PodNotExistsReason},
	} {
		if ready := condition.Find(c.p.VMI.Status.Conditions, v1.VirtualMachineInstanceReady); ready == nil || ready.Reason != c.reason {
			t.Errorf("%s: Ready is %+v, want %s", name, ready, c.reason)
		}
	}
}

// The gate looks like a node that does not answer.
func TestAClosedGateIsNoLostNode(t *testing.T) {
	pod := func(reason string) *corev1.Pod {
		return targetPod(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
		})
	}
	if MarksNodeLost(pod("ReadinessGatesNotReady")) || !MarksNodeLost(pod("")) {
		t.Error("a pod that waits for its gate counts as one of a lost node, or one of a lost node does not")
	}
}
