package vmistatus

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/propertytest"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/migration/switchover"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func instance(phase v1.VirtualMachineInstancePhase, conditions ...v1.VirtualMachineInstanceCondition) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))}}
	vmi.Status.Phase, vmi.Status.Conditions = phase, conditions
	return vmi
}

func says(kind v1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus, reason string) v1.VirtualMachineInstanceCondition {
	return v1.VirtualMachineInstanceCondition{Type: kind, Status: status, Reason: reason}
}

func running() Fact[Guest] { return Known(Guest{RunState: runstate.Of("running")}) }

// finishedPod is a launcher pod with virt-launcher's message about QEMU's exit.
func finishedPod(phase corev1.PodPhase, exit *launch.Exit) *corev1.Pod {
	state := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1}}
	if exit != nil {
		message, err := json.Marshal(exit)
		if err != nil {
			panic(err)
		}
		state.Terminated.Message = string(message)
	}
	return &corev1.Pod{Status: corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: layout.ComputeContainer, State: state}}}}
}

// The same exit of QEMU must give the same status, whether virt-handler hears it from virt-launcher or virt-controller
// reads it in the pod.
func TestAnEndIsTheSameWhoeverReportsIt(t *testing.T) {
	ready, paused, agent := v1.VirtualMachineInstanceReady, v1.VirtualMachineInstancePaused, v1.VirtualMachineInstanceAgentConnected
	credentials := v1.VirtualMachineInstanceAccessCredentialsSynchronized
	for _, reason := range []launch.Reason{
		launch.ReasonGuestShutdown, launch.ReasonHostShutdown, launch.ReasonKilled, launch.ReasonGuestPanicked,
		launch.ReasonWatchdog, launch.ReasonCrashed, launch.ReasonInternalError, launch.ReasonStartFailed,
	} {
		for _, phase := range []v1.VirtualMachineInstancePhase{v1.Scheduled, v1.Running} {
			vmi := instance(phase, says(ready, "True", ""), says(paused, "True", "PausedByUser"), says(agent, "True", ""), says(credentials, "True", ""),
				says(v1.VirtualMachineInstanceSynchronized, "False", ReasonSyncFailed))
			exit := launch.Exit{Reason: reason, Message: "signal 11"}
			heard := Project(vmi, Handler, Facts{Now: now, Failure: Known("no disk"), Guest: running(), End: EndOfQEMU(vmi, exit, Disruption{})})
			read := Project(vmi, Controller, Facts{Now: now, End: EndOfPod(vmi, finishedPod(corev1.PodFailed, &exit))})
			if diff := cmp.Diff(heard, read); diff != "" {
				t.Errorf("%s in %s: virt-handler and virt-controller differ:\n%s", reason, phase, diff)
			}
			if len(read.Conditions) != 1 || read.Conditions[0].Type != ready || read.Conditions[0].Status != "False" || read.Conditions[0].Message == "" {
				t.Errorf("%s in %s: the conditions are %+v", reason, phase, read.Conditions)
			}
		}
	}
}

func TestEndsThatOnlyThePodTells(t *testing.T) {
	shut := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: shutdownReason, Message: shutdownMessage, Conditions: []corev1.PodCondition{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: shutdownMessage}}}}
	refused := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfmemory", Message: "Node didn't have enough resource: memory"}}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want End
	}{
		"its node was shut down":                      {shut, End{Failed: true, Reason: "NodeShutdown", Message: shutdownMessage}},
		"the kubelet refused it":                      {refused, End{Failed: true, Reason: "OutOfmemory", Message: "Node didn't have enough resource: memory"}},
		"the container was killed":                    {finishedPod(corev1.PodFailed, nil), End{Failed: true, Reason: "LauncherPodFailed", Message: "The launcher's container ended with Error (exit code 1)."}},
		"nobody knows of a container":                 {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, End{Failed: true, Reason: "LauncherPodFailed", Message: "The launcher pod has failed: LauncherPodFailed."}},
		"it succeeded without a message":              {finishedPod(corev1.PodSucceeded, nil), End{Message: "The VirtualMachineInstance was shut down."}},
		"its message is not virt-launcher's":          {finishedPod(corev1.PodFailed, &launch.Exit{Message: "x"}), End{Failed: true, Reason: "LauncherPodFailed", Message: "The launcher's container ended with Error (exit code 1)."}},
		"it was deleted before the guest ran":         {finishedPod(corev1.PodSucceeded, &launch.Exit{Reason: launch.ReasonHostShutdown}), End{Failed: true, Reason: "LauncherPodEnded", Message: "The launcher pod was ended before the guest ran."}},
		"the guest powered itself off while it began": {finishedPod(corev1.PodSucceeded, &launch.Exit{Reason: launch.ReasonGuestShutdown}), End{Reason: "GuestShutdown", Message: "The VirtualMachineInstance was shut down."}},
	} {
		if got := *EndOfPod(instance(v1.Scheduled), c.pod); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Each component must set its parts of Ready and Synchronized, and leave the others alone.
func TestWhoSaysWhat(t *testing.T) {
	ready, synchronized := v1.VirtualMachineInstanceReady, v1.VirtualMachineInstanceSynchronized
	const unscheduled = v1.VirtualMachineInstanceConditionType(corev1.PodScheduled)
	obstacle := Known(&Obstacle{"ErrImagePull", "not found"})
	for name, c := range map[string]struct {
		vmi  *v1.VirtualMachineInstance
		by   Writer
		f    Facts
		kind v1.VirtualMachineInstanceConditionType
		want string
	}{
		"nothing is known: it stays": {
			instance(v1.Running, says(ready, "True", "")), Controller, Facts{}, ready, "True : "},
		"the container does not start": {
			instance(v1.Scheduled), Controller, Facts{Obstacle: obstacle}, synchronized, "False ErrImagePull: not found"},
		"the container does not start, so the guest is not ready": {
			instance(v1.Scheduled), Controller, Facts{Obstacle: obstacle}, ready, "False GuestNotRunning: not found"},
		"the container starts: what was said of it goes": {
			instance(v1.Scheduled, says(synchronized, "False", "ErrImagePull")), Controller, Facts{Obstacle: Known[*Obstacle](nil)}, synchronized, ""},
		"the container starts: virt-handler's failure stays": {
			instance(v1.Scheduled, says(synchronized, "False", ReasonSyncFailed)), Controller, Facts{Obstacle: Known[*Obstacle](nil)}, synchronized, "False " + ReasonSyncFailed + ": "},
		"virt-handler's steps succeed: the container's obstacle stays": {
			instance(v1.Scheduled, says(synchronized, "False", "ErrImagePull")), Handler, Facts{Failure: Known("")}, synchronized, "False ErrImagePull: "},
		"the guest runs: every obstacle is over": {
			instance(v1.Scheduled, says(synchronized, "False", "ErrImagePull")), Handler, Facts{Failure: Known(""), Guest: running()}, synchronized, ""},
		"the guest runs": {
			instance(v1.Scheduled, says(ready, "False", v1.GuestNotRunningReason)), Handler, Facts{Guest: running()}, ready, "True : "},
		"the guest runs in a pod of which virt-controller reports something": {
			instance(v1.Running, says(ready, "False", ReasonNodeLost)), Handler,
			Facts{Guest: running(), Pod: Known(Pod{State: PodReportedByController})}, ready, "False NodeLost: "},
		"the guest runs in a pod that was said to be deleted": {
			instance(v1.Running, says(ready, "False", v1.PodTerminatingReason)), Handler, Facts{Guest: running()}, ready, "False PodTerminating: "},
		"the node of a guest answers again: virt-handler says so": {
			instance(v1.Running, says(ready, "False", ReasonNodeLost)), Controller, Facts{Pod: Known(Pod{})}, ready, "False NodeLost: "},
		"the node answers that prepares the pod": {
			instance(v1.Scheduled, says(ready, "False", ReasonNodeLost)), Controller, Facts{Pod: Known(Pod{})}, ready, "False GuestNotRunning: " + MessageNotRunning},
		"virt-controller knows that no obstacle is left, and none was the kubelet's: it stays": {
			instance(v1.Scheduled, says(synchronized, "False", ReasonSyncFailed), says(ready, "False", "x")), Controller, Facts{Obstacle: Known[*Obstacle](nil)}, ready, "False x: "},
		"the kubelet's obstacle is over": {
			instance(v1.Scheduled, says(synchronized, "False", "ErrImagePull"), says(ready, "False", "x")), Controller, Facts{Obstacle: Known[*Obstacle](nil)}, ready, "False GuestNotRunning: " + MessageNotRunning},
		"nothing is known of the kubelet's obstacle: it stays": {
			instance(v1.Scheduled, says(synchronized, "False", "ErrImagePull"), says(ready, "False", "x")), Handler, Facts{Failure: Known("")}, ready, "False x: "},
		"the pod is well, and was not said to be lost: it stays": {
			instance(v1.Scheduled, says(ready, "False", "x")), Controller, Facts{Pod: Known(Pod{})}, ready, "False x: "},
		"nothing is known of a pod that was said to be lost: it stays": {
			instance(v1.Scheduled, says(ready, "False", ReasonNodeLost)), Controller, Facts{}, ready, "False NodeLost: "},
		"what a VMI waits for": {
			instance(v1.Pending), Controller, Facts{Wait: Wait{For: "waiting for a node"}}, ready, "False GuestNotRunning: waiting for a node"},
		"a VMI that waits for nothing that is known": {
			instance(v1.Pending, says(ready, "False", "x")), Controller, Facts{}, ready, "False x: "},
		"what a VMI waits for is not said of one that was handed over": {
			instance(v1.Scheduled, says(ready, "False", "x")), Controller, Facts{Wait: Wait{For: "waiting for a node"}}, ready, "False x: "},
		"its claims are being bound": {
			instance(v1.Pending), Controller, Facts{Wait: Wait{Provisioning: Known("finding a node")}}, v1.VirtualMachineInstanceProvisioning, "True : finding a node"},
		"its claims are bound": {
			instance(v1.Pending, says(v1.VirtualMachineInstanceProvisioning, "True", "")), Controller, Facts{Wait: Wait{Provisioning: Known("")}}, v1.VirtualMachineInstanceProvisioning, ""},
		"the scheduler finds no node": {
			instance(v1.Scheduling), Controller, Facts{Wait: Wait{Unscheduled: Known(&Obstacle{"Unschedulable", "0/2 nodes"})}}, unscheduled, "False Unschedulable: 0/2 nodes"},
		"nothing speaks against a node": {
			instance(v1.Scheduling, says(unscheduled, "False", "Unschedulable")), Controller, Facts{Wait: Wait{Unscheduled: Known[*Obstacle](nil)}}, unscheduled, ""},
		"a guest that runs with KVM": {
			instance(v1.Scheduled), Handler, Facts{Guest: Known(Guest{RunState: runstate.Of("running"), Accelerated: true})}, Accelerated, "True KVM: "},
		"a guest that is emulated": {
			instance(v1.Scheduled), Handler, Facts{Guest: running()}, Accelerated, "False Emulated: The guest is emulated, and can migrate to nodes that emulate guests only."},
		"nothing is known of a guest with KVM: it stays": {
			instance(v1.Running, says(Accelerated, "True", "x")), Handler, Facts{}, Accelerated, "True x: "},
		"a guest has ended: what it has run with stays": {
			instance(v1.Running, says(Accelerated, "True", "x")), Handler, Facts{Guest: running(), End: EndOfGuestLost()}, Accelerated, "True x: "},
		"the target of a migration says nothing": {
			instance(v1.Running, says(ready, "True", "")), TargetHandler, Facts{Failure: Known("x"), End: EndOfGuestLost()}, ready, "True : "},
		"an end is final": {
			instance(v1.Failed, says(ready, "False", "x")), Handler, Facts{Guest: running()}, ready, "False x: "},
	} {
		t.Run(name, func(t *testing.T) {
			c.f.Now = now
			got := ""
			for _, condition := range Project(c.vmi, c.by, c.f).Conditions {
				if condition.Type == c.kind {
					got = string(condition.Status) + " " + condition.Reason + ": " + condition.Message
				}
			}
			if got != c.want {
				t.Errorf("%s is %q, want %q", c.kind, got, c.want)
			}
		})
	}
}

func TestWhatIsKnownOfAnAccelerator(t *testing.T) {
	for name, c := range map[string]struct {
		says       []v1.VirtualMachineInstanceCondition
		kvm, known bool
	}{
		"it says KVM":           {[]v1.VirtualMachineInstanceCondition{says(Accelerated, "True", "")}, true, true},
		"it says emulation":     {[]v1.VirtualMachineInstanceCondition{says(Accelerated, "False", "")}, false, true},
		"it says nothing":       {nil, false, false},
		"it does not know":      {[]v1.VirtualMachineInstanceCondition{says(Accelerated, "Unknown", "")}, false, false},
		"it says something odd": {[]v1.VirtualMachineInstanceCondition{says(Accelerated, "yes", "")}, false, false},
	} {
		if kvm, known := RunsWithKVM(instance(v1.Running, c.says...)); kvm != c.kvm || known != c.known {
			t.Errorf("%s: KVM %v, known %v", name, kvm, known)
		}
	}
}

// Ready must report a launcher pod that no longer serves.
func TestWhatBecomesOfTheLauncherPodIsSaid(t *testing.T) {
	const silent, dark = "node n does not answer (no word)", "; if the node is off, give it the taint node.kubernetes.io/out-of-service"
	since := now.Add(-time.Hour)
	for name, c := range map[string]struct {
		pod   Pod
		want  string
		since time.Time
	}{
		"its node does not answer":                      {Pod{State: PodSilent, Silent: "no word"}, "False NodeLost: " + silent + "; how the guest is, is not known", time.Time{}},
		"its node does not answer, and never said more": {Pod{State: PodUnseen, Silent: "no word"}, "False NodeLost: " + silent + "; whether it has started the launcher pod p is not known" + dark, time.Time{}},
		"it is being deleted":                           {Pod{State: PodTerminating}, "False PodTerminating: the launcher pod p is being deleted", time.Time{}},
		"it is being deleted from a node that does not answer": {Pod{State: PodTerminating, Silent: "no word"},
			"Unknown PodTerminating: the launcher pod p is being deleted, and " + silent + "; how the guest is, is not known", time.Time{}},
		"it is gone": {Pod{State: PodGone}, "False PodNotExists: the launcher pod is gone; its guest is given the time to end on node n", since},
		"it is gone from a node that does not answer": {Pod{State: PodGone, Silent: "no word"},
			"Unknown PodNotExists: the launcher pod is gone, and " + silent + ": whether the guest runs is not known" + dark, since},
	} {
		c.pod.Name, c.pod.Node, c.pod.Since = "p", "n", since
		conditions := Project(instance(v1.Running), Controller, Facts{Now: now, Pod: Known(c.pod)}).Conditions
		if len(conditions) != 1 || conditions[0].Type != v1.VirtualMachineInstanceReady {
			t.Errorf("%s: the conditions are %+v, want Ready", name, conditions)
			continue
		}
		got := conditions[0]
		if text := string(got.Status) + " " + got.Reason + ": " + got.Message; text != c.want || !got.LastProbeTime.Time.Equal(c.since) {
			t.Errorf("%s: Ready is %q since %s, want %q since %s", name, text, got.LastProbeTime, c.want, c.since)
		}
	}
}

// Others read in Ready whether the guest is ending, and whether anybody knows its state.
func TestWhatReadySaysOfAGuest(t *testing.T) {
	ready := v1.VirtualMachineInstanceReady
	for name, c := range map[string]struct {
		phase                   v1.VirtualMachineInstancePhase
		conditions              []v1.VirtualMachineInstanceCondition
		interrupted, unanswered bool
	}{
		"nothing":                              {v1.Running, nil, false, false},
		"something else":                       {v1.Running, []v1.VirtualMachineInstanceCondition{says(v1.VirtualMachineInstancePaused, "Unknown", ReasonNodeLost)}, false, false},
		"that it is ready":                     {v1.Running, []v1.VirtualMachineInstanceCondition{says(ready, "True", "")}, false, false},
		"that it is paused":                    {v1.Running, []v1.VirtualMachineInstanceCondition{says(ready, "False", "Paused")}, false, false},
		"that its pod is being deleted":        {v1.Running, []v1.VirtualMachineInstanceCondition{says(ready, "False", "PodTerminating")}, true, false},
		"that its pod is gone":                 {v1.Running, []v1.VirtualMachineInstanceCondition{says(ready, "False", "PodNotExists")}, true, false},
		"that its node is lost":                {v1.Running, []v1.VirtualMachineInstanceCondition{says(ready, "False", ReasonNodeLost)}, false, true},
		"that it is not known":                 {v1.Running, []v1.VirtualMachineInstanceCondition{says(ready, "Unknown", "PodTerminating")}, true, true},
		"that its node was lost when it ended": {v1.Failed, []v1.VirtualMachineInstanceCondition{says(ready, "False", ReasonNodeLost)}, false, false},
		"that it was not known when it ended":  {v1.Failed, []v1.VirtualMachineInstanceCondition{says(ready, "Unknown", "PodNotExists")}, true, false},
	} {
		vmi := instance(c.phase, c.conditions...)
		if Interrupted(vmi) != c.interrupted || Unanswered(vmi) != c.unanswered {
			t.Errorf("it says %s: interrupted %v, unanswered %v", name, Interrupted(vmi), Unanswered(vmi))
		}
	}
}

func TestSinceWhenAPodIsMissed(t *testing.T) {
	before := now.Add(-time.Hour)
	since := func(kind v1.VirtualMachineInstanceConditionType, reason string, at time.Time) v1.VirtualMachineInstanceCondition {
		c := says(kind, "False", reason)
		c.LastProbeTime = metav1.NewTime(at)
		return c
	}
	ready := v1.VirtualMachineInstanceReady
	for name, c := range map[string]struct {
		conditions []v1.VirtualMachineInstanceCondition
		want       time.Time
	}{
		"nobody has missed it yet":           {nil, now},
		"it was missed before":               {[]v1.VirtualMachineInstanceCondition{since(ready, "PodNotExists", before)}, before},
		"it was missed, nobody says when":    {[]v1.VirtualMachineInstanceCondition{says(ready, "False", "PodNotExists")}, now},
		"the time is that of something else": {[]v1.VirtualMachineInstanceCondition{since(ready, ReasonNodeLost, before)}, now},
		"another condition says so":          {[]v1.VirtualMachineInstanceCondition{since(v1.VirtualMachineInstancePaused, "PodNotExists", before)}, now},
	} {
		if got := MissedSince(instance(v1.Running, c.conditions...), now); !got.Equal(c.want) {
			t.Errorf("%s: since %s, want %s", name, got, c.want)
		}
	}
}

func TestSinceWhenAVMIIsInItsPhase(t *testing.T) {
	vmi := instance(v1.Running)
	for i, phase := range []v1.VirtualMachineInstancePhase{v1.Pending, v1.Scheduled, v1.Running} {
		vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps, v1.VirtualMachineInstancePhaseTransitionTimestamp{
			Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(now.Add(time.Duration(i) * time.Minute))})
	}
	if got := PhaseSince(vmi); !got.Equal(now.Add(2 * time.Minute)) {
		t.Errorf("it runs since %s, want %s", got, now.Add(2*time.Minute))
	}
	if vmi.Status.Phase = v1.Failed; !PhaseSince(vmi).IsZero() {
		t.Errorf("a phase of which no time is known began at %s", PhaseSince(vmi))
	}
}

// A deleted pod has its QEMU shut down. The VMI must fail only if nobody wanted it to end.
func TestWhatAShutdownByTheHostMeans(t *testing.T) {
	ended := func(when string) End {
		return End{Failed: true, Reason: "LauncherPodEnded", Message: "The launcher pod was ended" + when}
	}
	shutDown := End{Reason: "HostShutdown", Message: "The VirtualMachineInstance was shut down."}
	for name, c := range map[string]struct {
		phase   v1.VirtualMachineInstancePhase
		deleted bool
		reason  launch.Reason
		want    End
	}{
		"before the guest ran":                         {v1.Scheduled, false, launch.ReasonHostShutdown, ended(" before the guest ran.")},
		"before the guest ran, of a VMI that is to go": {v1.Scheduled, true, launch.ReasonHostShutdown, shutDown},
		"while the guest ran":                          {v1.Running, false, launch.ReasonHostShutdown, ended(", and the guest was shut down.")},
		"while the guest ran, of a VMI that is to go":  {v1.Running, true, launch.ReasonHostShutdown, shutDown},
		"of a VMI that has ended":                      {v1.Succeeded, false, launch.ReasonHostShutdown, shutDown},
		"another reason":                               {v1.Scheduled, false, launch.ReasonGuestShutdown, End{Reason: "GuestShutdown", Message: shutDown.Message}},
	} {
		vmi := instance(c.phase)
		if c.deleted {
			vmi.DeletionTimestamp = &metav1.Time{Time: now}
		}
		if got := *EndOfQEMU(vmi, launch.Exit{Reason: c.reason}, Disruption{Reason: ReasonPodEnded}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// controllerKnows and handlerKnows draw the component's possible facts.
func controllerKnows(t *rapid.T, stage Stage) Facts {
	f := Facts{Now: now}
	some := &Obstacle{rapid.SampledFrom([]string{"ErrImagePull", ReasonPVCNotFound}).Draw(t, "obstacle"), "x"}
	if rapid.Bool().Draw(t, "knows of obstacles") {
		f.Obstacle = Known(rapid.SampledFrom([]*Obstacle{nil, some}).Draw(t, "known"))
	}
	if stage == HandedOver && rapid.Bool().Draw(t, "knows of a migration") {
		f.Migration = migrationOfController(t)
	}
	switch {
	case rapid.Bool().Draw(t, "the pod ends"):
		f.End = rapid.SampledFrom([]*End{EndOfPodGone(), {Message: "x"}}).Draw(t, "end")
	case stage == HandedOver && rapid.Bool().Draw(t, "knows of the pod"):
		f.Pod = Known(Pod{State: PodState(rapid.IntRange(int(PodThere), int(PodUnseen)).Draw(t, "pod")), Silent: "x", Since: now})
	case stage == Waiting && rapid.Bool().Draw(t, "hands over"):
		f.HandOver = &HandOver{Pod: "pod", Node: "node", Created: now, Image: "image", User: 107, QOS: corev1.PodQOSBurstable}
	case stage == Waiting:
		f.Wait = Wait{
			Phase: rapid.SampledFrom([]v1.VirtualMachineInstancePhase{"", v1.Pending, v1.Scheduling}).Draw(t, "phase"), For: "x",
			DataVolumes: Known(DataVolumes{Exist: true}), Provisioning: Known("x"), Unscheduled: Known(some),
		}
	}
	return f
}

// uids are the migrations' possible UIDs.
var uids = []types.UID{"m", "n"}

func migrationOfController(t *rapid.T) Migration {
	m := Migration{Of: rapid.SampledFrom(uids).Draw(t, "migration"), Abort: rapid.Bool().Draw(t, "abort"), Failure: rapid.SampledFrom([]string{"", "x"}).Draw(t, "why")}
	// No decision gives one migration up and begins another.
	if m.Failure == "" && !m.Abort && rapid.Bool().Draw(t, "another begins") {
		m.Begin = &MigrationBegin{UID: rapid.SampledFrom(uids).Draw(t, "which"), TargetPodUID: "q", TargetNode: "target", PolicyName: "policy"}
	}
	if rapid.Bool().Draw(t, "it has arrived") {
		m.Arrived = &Arrival{Image: "image"}
	}
	m.Ended = rapid.SampledFrom([][]types.UID{nil, {"p"}}).Draw(t, "ended pods")
	return m
}

// migrating draws a possible state of a migration, or nil.
func migrating(t *rapid.T) *v1.VirtualMachineInstanceMigrationState {
	if rapid.Bool().Draw(t, "there was no migration") {
		return nil
	}
	m := &v1.VirtualMachineInstanceMigrationState{MigrationUID: rapid.SampledFrom(uids).Draw(t, "uid"), TargetNode: "target", AbortRequested: rapid.Bool().Draw(t, "abort requested")}
	if rapid.Bool().Draw(t, "begun") {
		m.StartTimestamp = second(now)
		m.Completed = rapid.Bool().Draw(t, "completed")
	}
	m.Failed = !m.Completed && rapid.Bool().Draw(t, "failed")
	return m
}

func targetKnows(t *rapid.T) Facts {
	return Facts{Now: now, End: EndOfGuestLost(), Guest: running(), Target: Known(TargetMigration{
		UID: rapid.SampledFrom(uids).Draw(t, "migration"), Address: rapid.SampledFrom([]string{"", "10.0.0.2:1"}).Draw(t, "address"), Runs: rapid.Bool().Draw(t, "runs")})}
}

func handlerKnows(t *rapid.T) Facts {
	f := Facts{Now: now, Failure: Known(rapid.SampledFrom([]string{"", "x"}).Draw(t, "failure"))}
	if rapid.Bool().Draw(t, "has a guest") {
		f.Guest = Known(Guest{
			RunState:       runstate.Of(rapid.SampledFrom([]string{"running", "paused", "io-error", "prelaunch"}).Draw(t, "run state")),
			AgentConnected: rapid.Bool().Draw(t, "agent"), Credentials: Known(rapid.SampledFrom([]string{"", "x"}).Draw(t, "credentials")), Accelerated: rapid.Bool().Draw(t, "KVM"),
			Details: Details{Frozen: rapid.Bool().Draw(t, "frozen"), Machine: &v1.Machine{Type: "q35"}, SELinuxContext: "x", MigrationMethod: v1.LiveMigration,
				Interfaces: []v1.VirtualMachineInstanceNetworkInterface{{Name: "x"}}, Volumes: []v1.VolumeStatus{{Name: "x"}}},
		})
	}
	if rapid.Bool().Draw(t, "it ends") {
		f.End = EndOfGuestLost()
	}
	if rapid.Bool().Draw(t, "it migrates") {
		f.Source = Known(SourceMigration{
			UID: rapid.SampledFrom(uids).Draw(t, "migration"), Begins: rapid.Bool().Draw(t, "begins"), Failure: rapid.SampledFrom([]string{"", "x"}).Draw(t, "why"),
			Mode:     rapid.SampledFrom([]v1.MigrationMode{"", v1.MigrationPreCopy, v1.MigrationPostCopy}).Draw(t, "mode"),
			Abort:    rapid.SampledFrom([]v1.MigrationAbortStatus{"", v1.MigrationAbortSucceeded}).Draw(t, "abort"),
			Progress: Progress{Stage: rapid.SampledFrom([]ProgressStage{"", SendingMemory, GuestSent}).Draw(t, "progress")},
		})
	}
	return f
}

// aWriter draws a writer and its facts.
func aWriter(t *rapid.T, stage Stage) (Writer, Facts) {
	if stage != Waiting {
		switch by := rapid.SampledFrom([]Writer{Controller, Handler, TargetHandler}).Draw(t, "by"); by {
		case Handler:
			return by, handlerKnows(t)
		case TargetHandler:
			return by, targetKnows(t)
		}
	}
	return Controller, controllerKnows(t, stage)
}

// anInstance draws a possible VMI of its stage.
func anInstance(t *rapid.T) *v1.VirtualMachineInstance {
	vmi := instance(rapid.SampledFrom(phases).Draw(t, "phase"))
	for _, rule := range conditionRules {
		if mayBeThere(rule.kind, StageOf(vmi.Status.Phase)) && rapid.Bool().Draw(t, "has "+string(rule.kind)) {
			reason := rapid.SampledFrom([]string{"", "ErrImagePull", ReasonSyncFailed, ReasonNodeLost, v1.PodTerminatingReason}).Draw(t, "reason")
			vmi.Status.Conditions = append(vmi.Status.Conditions, says(rule.kind, "False", reason))
		}
	}
	if StageOf(vmi.Status.Phase) != Waiting {
		vmi.Status.MigrationState = migrating(t)
		vmi.Status.ActivePods = map[types.UID]string{"p": "source"}
	}
	return vmi
}

// Whatever a component knows, it must change only its fields in the table; the phase must not go back, an end must
// stay, and the same report again must change nothing.
func TestAWriterChangesOnlyItsFields(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		vmi := anInstance(t)
		stage := StageOf(vmi.Status.Phase)
		by, f := aWriter(t, stage)
		to := Project(vmi, by, f)
		for _, name := range changed(t, &vmi.Status, &to) {
			at := slices.IndexFunc(Fields, func(f Field) bool { return f.Name == name })
			if !Fields[at].MayWrite(by, stage) && !replaced(t, by, name, &vmi.Status, &to) {
				t.Fatalf("%s changes %s, %s", by, name, stage)
			}
		}
		if m := to.MigrationState; m != nil && m.Failed && vmi.Status.MigrationState != nil && switchover.Completed(vmi.Status.MigrationState) {
			t.Fatalf("a migration that has completed has failed: %+v", m)
		}
		left := vmi.Status.Phase == lock.Phase && to.Phase == v1.Pending
		if slices.Index(phases, to.Phase) < slices.Index(phases, vmi.Status.Phase) && !left {
			t.Fatalf("the phase went back from %s to %s", vmi.Status.Phase, to.Phase)
		}
		if stage == Ended && !cmp.Equal(to, vmi.Status) {
			t.Fatalf("a status that has ended changed:\n%s", cmp.Diff(vmi.Status, to))
		}
		vmi.Status = to
		if StageOf(to.Phase) == stage {
			if again := Project(vmi, by, f); !cmp.Equal(again, to) {
				t.Fatalf("saying it again changes it:\n%s", cmp.Diff(to, again))
			}
		}
	})
}

// mayBeThere reports whether somebody may have set a condition by a stage.
func mayBeThere(kind v1.VirtualMachineInstanceConditionType, by Stage) bool {
	return slices.ContainsFunc(Fields, func(f Field) bool {
		return f.Name == string(kind) && (f.Owners[Waiting].Owner != Nobody || by != Waiting)
	})
}

// replaced reports whether virt-controller drops another's facts about a migration that is over, because another one
// begins.
func replaced(t *rapid.T, by Writer, name string, from, to *v1.VirtualMachineInstanceStatus) bool {
	_, said := fieldsOf(t, to)[name]
	return by == Controller && strings.HasPrefix(name, migrationState) && !said &&
		from.MigrationState.MigrationUID != to.MigrationState.MigrationUID && ActiveMigration(from) == nil
}

// fieldsOf returns the fields of a status as JSON, including each of migrationState.
func fieldsOf(t *rapid.T, status *v1.VirtualMachineInstanceStatus) map[string]json.RawMessage {
	data, err := json.Marshal(status)
	out, migration := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if m, migrates := out["migrationState"]; err == nil && migrates {
		err = json.Unmarshal(m, &migration)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range migration {
		out[migrationState+name] = value
	}
	return out
}

// changed lists the different fields, and the types of the different conditions.
func changed(t *rapid.T, from, to *v1.VirtualMachineInstanceStatus) []string {
	var names []string
	before, after := fieldsOf(t, from), fieldsOf(t, to)
	for i := range Fields {
		name := Fields[i].Name
		if Fields[i].Condition {
			kind := func(c v1.VirtualMachineInstanceCondition) bool { return string(c.Type) == name }
			a, b := slices.IndexFunc(from.Conditions, kind), slices.IndexFunc(to.Conditions, kind)
			if (a < 0) != (b < 0) || a >= 0 && !cmp.Equal(from.Conditions[a], to.Conditions[b]) {
				names = append(names, name)
			}
		} else if string(before[name]) != string(after[name]) {
			names = append(names, name)
		}
	}
	return names
}

func TestWhichPhaseAVMIEnters(t *testing.T) {
	created, made := now.Add(-time.Minute), now.Add(-time.Second)
	handOver := &HandOver{Pod: "pod", Node: "node", Created: made}
	for name, c := range map[string]struct {
		from  v1.VirtualMachineInstancePhase
		f     Facts
		to    v1.VirtualMachineInstancePhase
		times map[v1.VirtualMachineInstancePhase]time.Time
	}{
		"it waits for the first time":                        {v1.VmPhaseUnset, Facts{Wait: Wait{Phase: v1.Pending}}, v1.Pending, map[v1.VirtualMachineInstancePhase]time.Time{v1.Pending: now}},
		"its first phase is a later one":                     {v1.VmPhaseUnset, Facts{Wait: Wait{Phase: v1.Scheduling}}, v1.Scheduling, map[v1.VirtualMachineInstancePhase]time.Time{v1.Pending: created, v1.Scheduling: now}},
		"it goes on":                                         {v1.Pending, Facts{Wait: Wait{Phase: v1.Scheduling}}, v1.Scheduling, map[v1.VirtualMachineInstancePhase]time.Time{v1.Scheduling: now}},
		"it does not go back":                                {v1.Scheduling, Facts{Wait: Wait{Phase: v1.Pending}}, v1.Scheduling, nil},
		"nothing is said of its phase":                       {v1.Pending, Facts{}, v1.Pending, nil},
		"it is handed over at once":                          {v1.VmPhaseUnset, Facts{HandOver: handOver}, v1.Scheduled, map[v1.VirtualMachineInstancePhase]time.Time{v1.Pending: created, v1.Scheduling: made, v1.Scheduled: now}},
		"what is waited for counts before it is handed over": {v1.Unknown, Facts{Wait: Wait{Phase: v1.Pending}}, v1.Unknown, nil},
		"its guest runs":                                     {v1.Scheduled, Facts{Guest: running()}, v1.Running, map[v1.VirtualMachineInstancePhase]time.Time{v1.Running: now}},
		"it has ended":                                       {v1.Running, Facts{Guest: running(), End: &End{}}, v1.Succeeded, map[v1.VirtualMachineInstancePhase]time.Time{v1.Succeeded: now}},
		"it has failed":                                      {v1.Running, Facts{Guest: running(), End: &End{Failed: true}}, v1.Failed, map[v1.VirtualMachineInstancePhase]time.Time{v1.Failed: now}},
	} {
		t.Run(name, func(t *testing.T) {
			c.f.Now = now
			status := Project(instance(c.from), Controller, c.f)
			if status.Phase != c.to || len(status.PhaseTransitionTimestamps) != len(c.times) {
				t.Errorf("it is in %q with %v, want %q with %v", status.Phase, status.PhaseTransitionTimestamps, c.to, c.times)
			}
			for _, stamped := range status.PhaseTransitionTimestamps {
				if want := c.times[stamped.Phase]; !stamped.PhaseTransitionTimestamp.Time.Equal(want) {
					t.Errorf("it entered %s at %s, want %s", stamped.Phase, stamped.PhaseTransitionTimestamp, want)
				}
			}
		})
	}
}

func TestAFrozenGuestIsShownAsLongAsItIs(t *testing.T) {
	vmi := instance(v1.Running)
	for _, frozen := range []bool{true, false} {
		vmi.Status = Project(vmi, Handler, Facts{Now: now, Guest: Known(Guest{RunState: runstate.Of("running"), Details: Details{Frozen: frozen}})})
		if got := vmi.Status.FSFreezeStatus; (got == "frozen") != frozen || got != "" && !frozen {
			t.Errorf("frozen %v: the status says %q", frozen, got)
		}
	}
}

func TestAGuestIsDescribedWhileItRuns(t *testing.T) {
	before, after := &v1.Machine{Type: "before"}, &v1.Machine{Type: "after"}
	memory := &v1.MemoryStatus{GuestCurrent: new(resource.MustParse("1Gi"))}
	guest := func(d Details) Fact[Guest] { return Known(Guest{RunState: runstate.Of("running"), Details: d}) }
	for name, c := range map[string]struct {
		f       Facts
		machine *v1.Machine
		memory  *v1.MemoryStatus
		context string
	}{
		"it runs":                              {Facts{Guest: guest(Details{Machine: after, Memory: memory, SELinuxContext: "x"})}, after, memory, "x"},
		"it runs, and its machine was said":    {Facts{Guest: guest(Details{SELinuxContext: "x"})}, before, nil, "x"},
		"nothing is known of it":               {Facts{}, before, nil, ""},
		"it has ended, and stays as it was":    {Facts{Guest: guest(Details{Machine: after, Memory: memory, SELinuxContext: "x"}), End: &End{}}, before, nil, ""},
		"nothing is known of it, it has ended": {Facts{End: &End{}}, before, nil, ""},
	} {
		vmi := instance(v1.Running)
		vmi.Status.Machine = before
		c.f.Now = now
		status := Project(vmi, Handler, c.f)
		if !cmp.Equal(status.Machine, c.machine) || !cmp.Equal(status.Memory, c.memory) || status.SelinuxContext != c.context {
			t.Errorf("%s: machine %v, memory %v, context %q; want %v, %v, %q", name, status.Machine, status.Memory, status.SelinuxContext, c.machine, c.memory, c.context)
		}
	}
}

func TestWhatQEMUSaidIsPassedOnWhenItFailed(t *testing.T) {
	for name, c := range map[string]struct {
		exit launch.Exit
		want string
	}{
		"it crashed and said why":      {launch.Exit{Reason: launch.ReasonCrashed, Message: "signal 11"}, "The VirtualMachineInstance crashed. QEMU said: signal 11"},
		"it crashed without a word":    {launch.Exit{Reason: launch.ReasonCrashed}, "The VirtualMachineInstance crashed."},
		"it was shut down, and talked": {launch.Exit{Reason: launch.ReasonGuestShutdown, Message: "bye"}, "The VirtualMachineInstance was shut down."},
	} {
		if got := EndOfQEMU(instance(v1.Running), c.exit, Disruption{}).Message; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A VMI that is to have no guest must keep nothing of its last guest's status; its next guest must be reported like the
// first.
func TestAVMIThatIsToHaveNoGuestBeginsAnew(t *testing.T) {
	from := instance(v1.Failed, says(v1.VirtualMachineInstanceReady, "False", v1.GuestNotRunningReason), says(v1.VirtualMachineInstanceIsMigratable, "True", ""))
	from.Status.Reason, from.Status.NodeName, from.Status.ActivePods = "x", "node", map[types.UID]string{"pod": "node"}
	from.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstancePhaseTransitionTimestamp{{Phase: v1.Running}, {Phase: v1.Failed}}
	waits := Facts{Now: now, Maintain: &Maintain{For: "waits"}}
	from.Status = Project(from, Controller, waits)
	begun := v1.VirtualMachineInstanceStatus{Phase: v1.Pending, PhaseTransitionTimestamps: []v1.VirtualMachineInstancePhaseTransitionTimestamp{
		{Phase: v1.Pending, PhaseTransitionTimestamp: metav1.NewTime(now)}}, Conditions: from.Status.Conditions}
	if diff := cmp.Diff(begun, from.Status); diff != "" || len(from.Status.Conditions) != 1 || from.Status.Conditions[0].Message != "waits" {
		t.Errorf("it says %+v\n%s", from.Status.Conditions, diff)
	}
	for _, c := range []struct {
		facts Facts
		want  v1.VirtualMachineInstancePhase
	}{
		{Facts{Now: now, Maintain: &Maintain{Locked: true, For: "locked"}}, lock.Phase},
		{waits, v1.Pending},
		{Facts{Now: now, Maintain: &Maintain{Locked: true, For: "locked"}}, lock.Phase},
		{Facts{Now: now, Wait: Wait{Phase: v1.Pending}}, v1.Pending},
		{Facts{Now: now, Wait: Wait{Phase: v1.Scheduling}}, v1.Scheduling},
	} {
		from.Status = Project(from, Controller, c.facts)
		if from.Status.Phase != c.want || len(from.Status.PhaseTransitionTimestamps) > 2 {
			t.Errorf("the phase is %s, want %s: %+v", from.Status.Phase, c.want, from.Status.PhaseTransitionTimestamps)
		}
	}
}
