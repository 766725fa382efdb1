package vmcontroller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/machine/firmware"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const uuid = types.UID("5d307ca9-b3ef-428c-8861-06e72d69f223")

type vmEdit func(*v1.VirtualMachine)

func newVM(strategy v1.VirtualMachineRunStrategy, edits ...vmEdit) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Name: "vm", Namespace: "ns", UID: "vm-uid", Generation: 3,
			Finalizers: []string{v1.VirtualMachineControllerFinalizer},
		},
		Spec: v1.VirtualMachineSpec{RunStrategy: &strategy, Template: &v1.VirtualMachineInstanceTemplateSpec{}},
	}
	firmware.Set(&vm.Spec.Template.Spec, uuid)
	for _, e := range edits {
		e(vm)
	}
	return vm
}

func deleting(finalizers ...string) vmEdit {
	return func(vm *v1.VirtualMachine) {
		vm.DeletionTimestamp = &metav1.Time{Time: now}
		vm.Finalizers = append(vm.Finalizers, finalizers...)
	}
}

func was(strategy v1.VirtualMachineRunStrategy) vmEdit {
	return func(vm *v1.VirtualMachine) { vm.Status.RunStrategy = strategy }
}

func requests(r ...v1.VirtualMachineStateChangeRequest) vmEdit {
	return func(vm *v1.VirtualMachine) { vm.Status.StateChangeRequests = r }
}

func failures(count int, uid types.UID, retry time.Duration) vmEdit {
	return func(vm *v1.VirtualMachine) {
		vm.Status.StartFailure = &v1.VirtualMachineStartFailure{
			ConsecutiveFailCount: count, LastFailedVMIUID: uid, RetryAfterTimestamp: &metav1.Time{Time: now.Add(retry)},
		}
	}
}

var (
	start       = v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest}
	startPaused = v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest,
		Data: map[string]string{v1.StartRequestDataPausedKey: v1.StartRequestDataPausedTrue}}
)

func stop(uid types.UID) v1.VirtualMachineStateChangeRequest {
	return v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest, UID: &uid}
}

type vmiEdit func(*v1.VirtualMachineInstance)

func newTestVMI(phases []v1.VirtualMachineInstancePhase, edits ...vmiEdit) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Name: "vm", Namespace: "ns", UID: "vmi-uid", Labels: map[string]string{v1.VirtualMachineLabel: "vm"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(newVM(v1.RunStrategyAlways), v1.VirtualMachineGroupVersionKind)},
	}}
	for _, p := range phases {
		vmi.Status.Phase = p
		vmi.Status.PhaseTransitionTimestamps = append(vmi.Status.PhaseTransitionTimestamps,
			v1.VirtualMachineInstancePhaseTransitionTimestamp{Phase: p})
	}
	for _, e := range edits {
		e(vmi)
	}
	return vmi
}

var (
	starting    = []v1.VirtualMachineInstancePhase{v1.Scheduling}
	running     = []v1.VirtualMachineInstancePhase{v1.Scheduled, v1.Running}
	succeeded   = []v1.VirtualMachineInstancePhase{v1.Scheduled, v1.Running, v1.Succeeded}
	crashed     = []v1.VirtualMachineInstancePhase{v1.Scheduled, v1.Running, v1.Failed}
	failedEarly = []v1.VirtualMachineInstancePhase{v1.Scheduled, v1.Failed}
)

func vmiDeleting(vmi *v1.VirtualMachineInstance) { vmi.DeletionTimestamp = &metav1.Time{Time: now} }

func vmiSays(kind v1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus, reason, message string) vmiEdit {
	return func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.Conditions = append(vmi.Status.Conditions,
			v1.VirtualMachineInstanceCondition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

func ownerless(vmi *v1.VirtualMachineInstance) { vmi.OwnerReferences = nil }

// ofAnother makes another VM the VMI's owner.
func ofAnother(vmi *v1.VirtualMachineInstance) { vmi.OwnerReferences[0].UID = "another-vm" }

// outcome is a formatted plan.
type outcome struct {
	create, remove, adopt, freed bool
	paused                       bool
	printable                    v1.VirtualMachinePrintableStatus
	recorded                     v1.VirtualMachineRunStrategy
	requests                     []v1.StateChangeRequestAction
	fails                        int
	after                        time.Duration
}

func outcomeOf(p Plan) outcome {
	out := outcome{
		create: p.Create != nil, remove: p.Delete, adopt: p.Adopt, freed: !slices.Contains(p.VM.Finalizers, v1.VirtualMachineControllerFinalizer),
		printable: p.VM.Status.PrintableStatus, recorded: p.VM.Status.RunStrategy, after: p.After,
	}
	out.paused = p.Create != nil && p.Create.Spec.StartStrategy != nil && *p.Create.Spec.StartStrategy == v1.StartStrategyPaused
	for _, r := range p.VM.Status.StateChangeRequests {
		out.requests = append(out.requests, r.Action)
	}
	if f := p.VM.Status.StartFailure; f != nil {
		out.fails = f.ConsecutiveFailCount
	}
	return out
}

// decide returns the plan when the API server confirms the observations.
func decide(o Observed) Plan {
	o.VMConfirmed, o.VMIAsked = true, true
	if o.Destinations == nil {
		// All but this one exist.
		o.Destinations = claims(slices.DeleteFunc(DestinationNames(&o), func(name string) bool { return name == "z" })...)
	}
	return Decide(o)
}

func TestWhatIsAskedFirst(t *testing.T) {
	always, rerun := v1.RunStrategyAlways, v1.RunStrategyRerunOnFailure
	unfinished := func(vm *v1.VirtualMachine) { vm.Finalizers = nil }
	nameless := func(vm *v1.VirtualMachine) { vm.Spec.Template.Spec.Domain.Firmware = nil }
	for name, test := range map[string]struct {
		o    Observed
		want Question
	}{
		"a VM that has all and runs":                    {Observed{VM: newVM(always), VMI: newTestVMI(running)}, ""},
		"a VM that does not run":                        {Observed{VM: newVM(v1.RunStrategyHalted)}, ""},
		"a VM without the finalizer":                    {Observed{VM: newVM(always, unfinished)}, NeedStored},
		"a VM without a UUID, though its guest runs":    {Observed{VM: newVM(always, nameless), VMI: newTestVMI(running)}, NeedStored},
		"a VM whose VMI is to be made":                  {Observed{VM: newVM(always)}, NeedVM},
		"and that is the newest":                        {Observed{VM: newVM(always), VMConfirmed: true}, ""},
		"a VM that adopts its guest":                    {Observed{VM: newVM(always), VMI: newTestVMI(running, ownerless)}, NeedVM},
		"a VM that adopts its disk":                     {Observed{VM: newVM(v1.RunStrategyHalted, withDisk), DataVolumes: []DataVolume{disk(cdiv1.Succeeded, owned())}}, NeedVM},
		"and that is the newest, which nobody deletes":  {Observed{VM: newVM(always), VMI: newTestVMI(running, ownerless), VMConfirmed: true}, ""},
		"a VM that is to wait before it starts":         {Observed{VM: newVM(always, failures(1, "vmi-uid", time.Minute))}, ""},
		"a VM that runs again after a failure":          {Observed{VM: newVM(rerun, was(rerun)), VMI: newTestVMI(crashed)}, NeedVMI},
		"and whose VMI the API server has, too":         {Observed{VM: newVM(rerun, was(rerun)), VMI: newTestVMI(crashed), VMIAsked: true}, ""},
		"a VM that always runs, whatever its VMI was":   {Observed{VM: newVM(always), VMI: newTestVMI(crashed)}, ""},
		"a VM that goes when its VMI has gone":          {Observed{VM: newVM(always, deleting())}, NeedStored},
		"and that only others keep":                     {Observed{VM: newVM(always, unfinished, deleting("example.com/backup"))}, ""},
		"a VM that goes, as long as its VMI is there":   {Observed{VM: newVM(always, deleting()), VMI: newTestVMI(running)}, ""},
		"a VM that goes is not completed any more":      {Observed{VM: newVM(always, unfinished, nameless, deleting("example.com/backup"))}, ""},
		"of two questions, the one that changes the VM": {Observed{VM: newVM(always, unfinished, nameless), VMI: newTestVMI(crashed)}, NeedStored},
	} {
		t.Run(name, func(t *testing.T) {
			test.o.Now = now
			if got := Decide(test.o).Needs; got != test.want {
				t.Errorf("asks for %q, want %q", got, test.want)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	always, halted, manual := v1.RunStrategyAlways, v1.RunStrategyHalted, v1.RunStrategyManual
	once, rerun := v1.RunStrategyOnce, v1.RunStrategyRerunOnFailure
	asked := []v1.StateChangeRequestAction{v1.StartRequest}
	tests := map[string]struct {
		vm   *v1.VirtualMachine
		vmi  *v1.VirtualMachineInstance
		want outcome
	}{
		"Always starts": {
			newVM(always), nil, outcome{create: true, printable: "Starting", recorded: always}},
		"not while its disks are being snapshotted": {
			newVM(always, func(vm *v1.VirtualMachine) { vm.Status.SnapshotInProgress = new("s") }), nil, outcome{printable: "Starting", recorded: always}},
		"nor while they are being restored": {
			newVM(always, func(vm *v1.VirtualMachine) { vm.Status.RestoreInProgress = new("r") }), nil, outcome{printable: "Starting", recorded: always}},
		"nor while its state is": {
			newVM(always, func(vm *v1.VirtualMachine) { vm.Annotations = map[string]string{stateclaim.AwaitedAnnotation: "r-r1"} }), nil, outcome{printable: "Starting", recorded: always}},
		"Always starts a VM again whose guest powered off": {
			newVM(always), newTestVMI(succeeded), outcome{remove: true, printable: "Starting", recorded: always}},
		"Always starts a VM again whose guest crashed, at once": {
			newVM(always), newTestVMI(crashed), outcome{remove: true, printable: "Starting", recorded: always}},
		"Always waits before it starts a VM again that did not come up": {
			newVM(always), newTestVMI(failedEarly), outcome{printable: "CrashLoopBackOff", recorded: always, fails: 1, after: 10 * time.Second}},
		"the pause grows": {
			newVM(always, failures(3, "earlier", -time.Second)), newTestVMI(failedEarly),
			outcome{printable: "CrashLoopBackOff", recorded: always, fails: 4, after: 160 * time.Second}},
		"the pause has a limit": {
			newVM(always, failures(1000, "earlier", -time.Second)), newTestVMI(failedEarly),
			outcome{printable: "CrashLoopBackOff", recorded: always, fails: 1001, after: 5 * time.Minute}},
		"a failure is counted once": {
			newVM(always, failures(1, "vmi-uid", 3*time.Second)), newTestVMI(failedEarly),
			outcome{printable: "CrashLoopBackOff", recorded: always, fails: 1, after: 3 * time.Second}},
		"the pause is over": {
			newVM(always, failures(1, "vmi-uid", -time.Second)), newTestVMI(failedEarly),
			outcome{remove: true, printable: "Starting", recorded: always, fails: 1}},
		"a VM whose VMI is gone waits for the end of the pause": {
			newVM(always, failures(1, "vmi-uid", time.Minute)), nil,
			outcome{printable: "CrashLoopBackOff", recorded: always, fails: 1, after: time.Minute}},
		"a failure without an end of its pause is not waited for": {
			newVM(always, func(vm *v1.VirtualMachine) {
				vm.Status.StartFailure = &v1.VirtualMachineStartFailure{ConsecutiveFailCount: 2}
			}), nil, outcome{create: true, printable: "Starting", recorded: always, fails: 2}},
		"a VMI that is on its way out does not count as a failure again": {
			newVM(always, failures(1, "earlier", -time.Second)), newTestVMI(failedEarly, vmiDeleting),
			outcome{printable: "Starting", recorded: always, fails: 1}},
		"a VMI that has not come up yet is no failure": {
			newVM(always), newTestVMI(starting), outcome{printable: "Starting", recorded: always}},
		"a guest that ended well goes at once, though the next one has to wait": {
			newVM(always, failures(1, "earlier", time.Minute)), newTestVMI([]v1.VirtualMachineInstancePhase{v1.Scheduled, v1.Succeeded}),
			outcome{remove: true, printable: "CrashLoopBackOff", recorded: always, fails: 1}},
		"a guest of which nothing but its phase is known to have run": {
			newVM(always, failures(1, "earlier", -time.Second)), newTestVMI(nil, func(vmi *v1.VirtualMachineInstance) { vmi.Status.Phase = v1.Running }),
			outcome{printable: "Running", recorded: always}},
		"RerunOnFailure waits before it starts a VM again that did not come up": {
			newVM(rerun, was(rerun)), newTestVMI(failedEarly), outcome{printable: "CrashLoopBackOff", recorded: rerun, fails: 1, after: 10 * time.Second}},
		"Manual forgets the failures of another run strategy": {
			newVM(manual, failures(1, "vmi-uid", time.Minute)), nil, outcome{printable: "Stopped", recorded: manual}},
		"Always makes the next VMI when the one that ended is gone": {
			newVM(always), newTestVMI(succeeded, vmiDeleting), outcome{printable: "Starting", recorded: always}},
		"Manual makes none after one that somebody deletes": {
			newVM(manual), newTestVMI(succeeded, vmiDeleting), outcome{printable: "Stopping", recorded: manual}},
		"a guest that runs ends the row of failures": {
			newVM(always, failures(1, "earlier", -time.Second)), newTestVMI(running), outcome{printable: "Running", recorded: always}},
		"Halted stops": {
			newVM(halted), newTestVMI(running), outcome{remove: true, printable: "Stopping", recorded: halted}},
		"Halted says Stopping until the VMI is gone": {
			newVM(halted), newTestVMI(succeeded, vmiDeleting), outcome{printable: "Stopping", recorded: halted}},
		"Halted cleans up what has ended": {
			newVM(halted), newTestVMI(succeeded), outcome{remove: true, printable: "Stopping", recorded: halted}},
		"Halted forgets a request to start": {
			newVM(halted, requests(start)), nil, outcome{printable: "Stopped", recorded: halted}},
		"a paused start waits for the run strategy that comes with it": {
			newVM(halted, requests(startPaused)), nil, outcome{printable: "Stopped", recorded: halted, requests: asked}},
		"and is paused then": {
			newVM(always, requests(startPaused)), nil, outcome{create: true, paused: true, printable: "Starting", recorded: always}},
		"Manual waits": {
			newVM(manual), nil, outcome{printable: "Stopped", recorded: manual}},
		"Manual starts on request": {
			newVM(manual, requests(start)), nil, outcome{create: true, printable: "Starting", recorded: manual}},
		"Manual stops on request": {
			newVM(manual, requests(stop("vmi-uid"))), newTestVMI(running),
			outcome{remove: true, printable: "Stopping", recorded: manual, requests: []v1.StateChangeRequestAction{v1.StopRequest}}},
		"a request to stop another VMI is done": {
			newVM(manual, requests(stop("another"))), newTestVMI(running), outcome{printable: "Running", recorded: manual}},
		"a request to stop whatever VMI there is": {
			newVM(manual, requests(v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest})), newTestVMI(running),
			outcome{remove: true, printable: "Stopping", recorded: manual, requests: []v1.StateChangeRequestAction{v1.StopRequest}}},
		"a request to start what runs is done": {
			newVM(manual, requests(start)), newTestVMI(running), outcome{printable: "Running", recorded: manual}},
		"a request to start waits for the VMI that somebody deletes": {
			newVM(manual, requests(start)), newTestVMI(running, vmiDeleting),
			outcome{printable: "Stopping", recorded: manual, requests: asked}},
		"a request to stop that came after the start stays": {
			newVM(manual, requests(start, stop("vmi-uid"))), nil,
			outcome{create: true, printable: "Starting", recorded: manual, requests: []v1.StateChangeRequestAction{v1.StopRequest}}},
		"a restart deletes first": {
			newVM(manual, requests(stop("vmi-uid"), start)), newTestVMI(running),
			outcome{remove: true, printable: "Stopping", recorded: manual, requests: []v1.StateChangeRequestAction{v1.StopRequest, v1.StartRequest}}},
		"a restart then waits": {
			newVM(manual, requests(stop("vmi-uid"), start)), newTestVMI(succeeded, vmiDeleting),
			outcome{printable: "Starting", recorded: manual, requests: []v1.StateChangeRequestAction{v1.StopRequest, v1.StartRequest}}},
		"a restart then starts": {
			newVM(manual, requests(stop("vmi-uid"), start)), nil, outcome{create: true, printable: "Starting", recorded: manual}},
		"a restart under Always": {
			newVM(always, requests(stop("vmi-uid"), start)), newTestVMI(running),
			outcome{remove: true, printable: "Stopping", recorded: always, requests: []v1.StateChangeRequestAction{v1.StopRequest, v1.StartRequest}}},
		"Manual keeps what has ended": {
			newVM(manual), newTestVMI(succeeded), outcome{printable: "Stopped", recorded: manual}},
		"Manual starts again after the guest powered off, on request": {
			newVM(manual, requests(start)), newTestVMI(succeeded), outcome{remove: true, printable: "Starting", recorded: manual, requests: asked}},
		"Once starts": {
			newVM(once), nil, outcome{create: true, printable: "Starting", recorded: once}},
		"Once starts a VM that was halted": {
			newVM(once, was(halted)), nil, outcome{create: true, printable: "Starting", recorded: once}},
		"Once is content with a VMI that runs already": {
			newVM(once, was(halted)), newTestVMI(running), outcome{printable: "Running", recorded: once}},
		"Once never starts again": {
			newVM(once, was(once)), newTestVMI(crashed), outcome{printable: "Stopped", recorded: once}},
		"Once never starts again, not even when its VMI is deleted": {
			newVM(once, was(once)), nil, outcome{printable: "Stopped", recorded: once}},
		"Once waits until the VMI of before is gone": {
			newVM(once, was(halted)), newTestVMI(succeeded, vmiDeleting), outcome{printable: "Starting", recorded: halted}},
		"RerunOnFailure starts": {
			newVM(rerun), nil, outcome{create: true, printable: "Starting", recorded: rerun}},
		"RerunOnFailure is content with success": {
			newVM(rerun, was(rerun)), newTestVMI(succeeded), outcome{printable: "Stopped", recorded: rerun}},
		"RerunOnFailure runs again after a failure, and remembers it": {
			newVM(rerun, was(rerun)), newTestVMI(crashed), outcome{remove: true, printable: "Starting", recorded: rerun, requests: asked}},
		"RerunOnFailure runs again on request after a success": {
			newVM(rerun, was(rerun), requests(start)), newTestVMI(succeeded), outcome{remove: true, printable: "Starting", recorded: rerun, requests: asked}},
		"RerunOnFailure remembers a failure once, also one after which somebody asked for a start": {
			newVM(rerun, was(rerun), requests(start)), newTestVMI(crashed), outcome{remove: true, printable: "Starting", recorded: rerun, requests: asked}},
		"RerunOnFailure runs again though the controller died in between": {
			newVM(rerun, was(rerun), requests(start)), nil, outcome{create: true, printable: "Starting", recorded: rerun}},
		"RerunOnFailure leaves a VMI deleted that somebody deleted": {
			newVM(rerun, was(rerun)), nil, outcome{printable: "Stopped", recorded: rerun}},
		"a VM that is deleted takes its VMI with it": {
			newVM(always, deleting()), newTestVMI(running), outcome{remove: true, printable: "Terminating"}},
		"and waits for it": {
			newVM(always, deleting()), newTestVMI(running, vmiDeleting), outcome{printable: "Terminating"}},
		"and goes": {
			newVM(always, deleting()), nil, outcome{freed: true, printable: "Terminating"}},
		"a VM that is deleted alone leaves its VMI": {
			newVM(always, deleting(metav1.FinalizerOrphanDependents)), newTestVMI(running), outcome{printable: "Terminating"}},
		"and goes once the VMI is not its own any more": {
			newVM(always, deleting(metav1.FinalizerOrphanDependents)), newTestVMI(running, ownerless), outcome{freed: true, printable: "Terminating"}},
		"an orphan of the same name is adopted": {
			newVM(always), newTestVMI(running, ownerless), outcome{adopt: true, printable: "Running", recorded: always}},
		"an orphan that is being deleted is not adopted": {
			newVM(always), newTestVMI(running, ownerless, vmiDeleting), outcome{printable: "Starting", recorded: always}},
		"the VMI of another VM is not adopted": {
			newVM(always), newTestVMI(running, ofAnother), outcome{printable: "Starting", recorded: always}},
		"a stranger of the same name is left alone": {
			newVM(once), newTestVMI(running, ownerless, func(vmi *v1.VirtualMachineInstance) { vmi.Labels = nil }),
			outcome{printable: "Starting"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := outcomeOf(decide(Observed{VM: test.vm, VMI: test.vmi, Now: now}))
			if !slices.Equal(got.requests, test.want.requests) {
				t.Errorf("requests %v, want %v", got.requests, test.want.requests)
			}
			got.requests, test.want.requests = nil, nil
			if a, b := got, test.want; a.create != b.create || a.remove != b.remove || a.adopt != b.adopt || a.freed != b.freed ||
				a.paused != b.paused || a.printable != b.printable || a.recorded != b.recorded || a.fails != b.fails || a.after != b.after {
				t.Errorf("\n got %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// A deleted VM must lose its own finalizer, and keep those of others.
func TestAVMThatGoesTakesOnlyItsOwnFinalizerAway(t *testing.T) {
	if p := decide(Observed{VM: newVM(v1.RunStrategyAlways, deleting()), Now: now}); p.VM.Finalizers != nil {
		t.Errorf("the finalizers are %#v, want none", p.VM.Finalizers)
	}
	p := decide(Observed{VM: newVM(v1.RunStrategyAlways, deleting("example.com/backup")), Now: now})
	if !slices.Equal(p.VM.Finalizers, []string{"example.com/backup"}) {
		t.Errorf("the finalizers are %q, want that of the backup", p.VM.Finalizers)
	}
}

// Admission did not see the spec: nothing may be done, and the VM must say why.
func TestAVMThatSaysNothingSensibleStaysAsItIs(t *testing.T) {
	both := newVM(v1.RunStrategyAlways, was(v1.RunStrategyManual), failures(1, "earlier", time.Minute),
		func(vm *v1.VirtualMachine) { vm.Spec.Running = new(true) })
	empty := newVM(v1.RunStrategyAlways, was(v1.RunStrategyManual), func(vm *v1.VirtualMachine) { vm.Spec.Template = nil })
	for name, test := range map[string]struct {
		vm    *v1.VirtualMachine
		vmi   *v1.VirtualMachineInstance
		want  outcome
		fails bool
	}{
		"two run strategies":                     {both, nil, outcome{printable: "Stopped", recorded: v1.RunStrategyManual, fails: 1}, true},
		"two run strategies, and its guest runs": {both, newTestVMI(running), outcome{printable: "Running", recorded: v1.RunStrategyManual, fails: 1}, true},
		"no template":                            {empty, nil, outcome{printable: "Stopped", recorded: v1.RunStrategyManual}, false},
		"no template, and its guest runs":        {empty, newTestVMI(running), outcome{printable: "Running", recorded: v1.RunStrategyManual}, false},
	} {
		p := decide(Observed{VM: test.vm, VMI: test.vmi, Started: &v1.VirtualMachineInstanceSpec{}, Now: now})
		if diff := cmp.Diff(test.want, outcomeOf(p), cmp.AllowUnexported(outcome{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		failure := condition.Find(p.VM.Status.Conditions, v1.VirtualMachineFailure)
		if (failure != nil) != test.fails || failure != nil && (failure.Reason != ReasonInvalidSpec || failure.Message == "") {
			t.Errorf("%s: Failure is %+v", name, failure)
		}
	}
}

// Hotpluggable volumes of the template must reach a guest that runs on, and no other.
func TestWhichVMIsGetTheVolumesOfTheirTemplate(t *testing.T) {
	withVolume := func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
				PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}, Hotpluggable: true,
			},
		}}}
		vm.Spec.Template.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}}}
	}
	has := func(vmi *v1.VirtualMachineInstance) {
		spec := newVM(v1.RunStrategyAlways, withVolume).Spec.Template.Spec
		vmi.Spec.Volumes, vmi.Spec.Domain.Devices.Disks = spec.Volumes, spec.Domain.Devices.Disks
	}
	migrates := func(failed bool) func(*v1.VirtualMachineInstance) {
		return func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{TargetNode: "two", Failed: failed}
		}
	}
	always, manual := v1.RunStrategyAlways, v1.RunStrategyManual
	for name, test := range map[string]struct {
		vm   *v1.VirtualMachine
		vmi  *v1.VirtualMachineInstance
		want bool
	}{
		"one that runs":                       {newVM(always, withVolume), newTestVMI(running), true},
		"one that has them":                   {newVM(always, withVolume), newTestVMI(running, has), false},
		"one that has a volume too many":      {newVM(always), newTestVMI(running, has), true},
		"none":                                {newVM(manual, withVolume), nil, false},
		"one that is to be adopted first":     {newVM(always, withVolume), newTestVMI(running, ownerless), false},
		"another VM's":                        {newVM(always, withVolume), newTestVMI(running, ofAnother), false},
		"one that is to be deleted":           {newVM(v1.RunStrategyHalted, withVolume), newTestVMI(running), false},
		"one that is being deleted":           {newVM(always, withVolume), newTestVMI(running, vmiDeleting), false},
		"one that has ended":                  {newVM(manual, withVolume), newTestVMI(succeeded), false},
		"one that is being migrated":          {newVM(always, withVolume), newTestVMI(running, migrates(false)), false},
		"one whose migration has failed":      {newVM(always, withVolume), newTestVMI(running, migrates(true)), true},
		"that of a VM which is being deleted": {newVM(always, withVolume, deleting(metav1.FinalizerOrphanDependents)), newTestVMI(running), false},
	} {
		p := decide(Observed{VM: test.vm, VMI: test.vmi, Now: now})
		if (p.Sync != nil) != test.want {
			t.Errorf("%s: it is to become %+v", name, p.Sync)
			continue
		}
		if p.Sync != nil && len(p.Sync.Spec.Volumes) != len(test.vm.Spec.Template.Spec.Volumes) {
			t.Errorf("%s: its volumes are to be %+v", name, p.Sync.Spec.Volumes)
		}
	}
}

func TestPrintableOfAVMIOnItsWay(t *testing.T) {
	synchronized, ready := v1.VirtualMachineInstanceSynchronized, v1.VirtualMachineInstanceReady
	tests := map[string]struct {
		vmi  *v1.VirtualMachineInstance
		want v1.VirtualMachinePrintableStatus
	}{
		"waiting for a node":       {newTestVMI(starting), "Starting"},
		"no node fits":             {newTestVMI(starting, vmiSays("PodScheduled", "False", "Unschedulable", "0/2 nodes")), "ErrorUnschedulable"},
		"a claim is not bound":     {newTestVMI(starting, vmiSays("PodScheduled", "False", "Unschedulable", "pod has unbound immediate PersistentVolumeClaims")), "WaitingForVolumeBinding"},
		"a claim is missing":       {newTestVMI(starting, vmiSays(synchronized, "False", "FailedPvcNotFound", "x")), "ErrorPvcNotFound"},
		"the image is not there":   {newTestVMI(starting, vmiSays(synchronized, "False", "ErrImagePull", "x")), "ErrImagePull"},
		"the image is tried again": {newTestVMI(starting, vmiSays(synchronized, "False", "ImagePullBackOff", "x")), "ImagePullBackOff"},
		"running":                  {newTestVMI(running), "Running"},
		"paused":                   {newTestVMI(running, vmiSays(v1.VirtualMachineInstancePaused, "True", "PausedByUser", "")), "Paused"},
		"migrating": {newTestVMI(running, func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{StartTimestamp: &metav1.Time{Time: now}}
		}), "Migrating"},
		"it has migrated": {newTestVMI(running, func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{StartTimestamp: &metav1.Time{Time: now}, Completed: true}
		}), "Running"},
		"its migration has failed": {newTestVMI(running, func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{StartTimestamp: &metav1.Time{Time: now}, Failed: true}
		}), "Running"},
		"its migration has not begun": {newTestVMI(running, func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{}
		}), "Running"},
		"its pod is being deleted before its guest runs":          {newTestVMI(starting, vmiSays(ready, "False", "PodTerminating", "x")), "Starting"},
		"its claim was missing":                                   {newTestVMI(starting, vmiSays(synchronized, "True", "FailedPvcNotFound", "x")), "Starting"},
		"its phase is not known":                                  {newTestVMI([]v1.VirtualMachineInstancePhase{v1.Unknown}), "Unknown"},
		"its node does not answer":                                {newTestVMI(running, vmiSays(ready, "False", vmistatus.ReasonNodeLost, "x")), "Unknown"},
		"its pod is being deleted":                                {newTestVMI(running, vmiSays(ready, "False", "PodTerminating", "x")), "Stopping"},
		"its pod is being deleted on a node that does not answer": {newTestVMI(running, vmiSays(ready, "Unknown", "PodTerminating", "x")), "Unknown"},
		"its pod was deleted by force, and its guest ends":        {newTestVMI(running, vmiSays(ready, "False", "PodNotExists", "x")), "Stopping"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := decide(Observed{VM: newVM(v1.RunStrategyAlways), VMI: test.vmi, Now: now})
			if got := p.VM.Status.PrintableStatus; got != test.want {
				t.Errorf("it says %s, want %s", got, test.want)
			}
		})
	}
}

func TestConditionsAreTheVMIsAndComeToRest(t *testing.T) {
	vmi := newTestVMI(running, vmiSays(v1.VirtualMachineInstanceReady, "True", "", ""),
		vmiSays(v1.VirtualMachineInstanceAgentConnected, "True", "", ""), vmiSays(vmistatus.MigrationProgress, "True", "", ""))
	first := decide(Observed{VM: newVM(v1.RunStrategyAlways), VMI: vmi, Now: now}).VM
	if !first.Status.Ready || !first.Status.Created {
		t.Errorf("ready %v, created %v", first.Status.Ready, first.Status.Created)
	}
	if condition.Find(first.Status.Conditions, "AgentConnected") == nil {
		t.Error("the VMI's conditions are not copied")
	}
	if condition.Find(first.Status.Conditions, v1.VirtualMachineConditionType(vmistatus.MigrationProgress)) != nil {
		t.Error("a migration costs writes of the VM, too")
	}
	second := decide(Observed{VM: first, VMI: vmi, Now: now.Add(time.Hour)}).VM
	if len(second.Status.Conditions) != len(first.Status.Conditions) {
		t.Fatalf("conditions %+v became %+v", first.Status.Conditions, second.Status.Conditions)
	}
	for i := range second.Status.Conditions {
		if second.Status.Conditions[i] != first.Status.Conditions[i] {
			t.Errorf("%+v became %+v", first.Status.Conditions[i], second.Status.Conditions[i])
		}
	}
	gone := decide(Observed{VM: newHaltedAfter(first), Now: now}).VM
	if condition.Find(gone.Status.Conditions, "AgentConnected") != nil {
		t.Error("a condition outlives its VMI")
	}
	if c := condition.Find(gone.Status.Conditions, v1.VirtualMachineReady); c == nil || c.Reason != ReasonVMINotExists {
		t.Errorf("Ready is %+v", c)
	}
}

func newHaltedAfter(vm *v1.VirtualMachine) *v1.VirtualMachine {
	out := vm.DeepCopy()
	out.Spec.RunStrategy = new(v1.RunStrategyHalted)
	return out
}

func TestWhatCouldNotBeDoneIsNotRecorded(t *testing.T) {
	o := Observed{VM: newVM(v1.RunStrategyOnce, requests(start)), Now: now}
	undone := CreateFailed(o, decide(o), "failed to create the virtual machine instance: quota exceeded")
	if undone.Status.RunStrategy != "" || len(undone.Status.StateChangeRequests) != 1 || undone.Status.Created {
		t.Errorf("recorded %q, requests %v, created %v", undone.Status.RunStrategy, undone.Status.StateChangeRequests, undone.Status.Created)
	}
	c := condition.Find(undone.Status.Conditions, v1.VirtualMachineFailure)
	if c == nil || c.Reason != ReasonFailedCreate || c.Message != "failed to create the virtual machine instance: quota exceeded" {
		t.Fatalf("Failure is %+v", c)
	}
	o.VM, o.Now = undone, now.Add(time.Minute)
	again := CreateFailed(o, decide(o), "failed to create the virtual machine instance: quota exceeded")
	if *condition.Find(again.Status.Conditions, v1.VirtualMachineFailure) != *c {
		t.Error("the same failure is written again")
	}
	if p := decide(o); condition.Find(p.VM.Status.Conditions, v1.VirtualMachineFailure) != nil || p.Create == nil {
		t.Error("a success would keep the condition")
	}
}

// `kubectl wait` and the columns of `kubectl get vm` depend on these.
func TestWhatAVMSaysOfItsVMI(t *testing.T) {
	ready := v1.VirtualMachineInstanceReady
	for name, test := range map[string]struct {
		vm      *v1.VirtualMachine
		vmi     *v1.VirtualMachineInstance
		created bool
		// says has the conditions as "type status reason".
		says []string
	}{
		"there is none":          {newVM(v1.RunStrategyHalted), nil, false, []string{"Ready False VMINotExists"}},
		"it is made":             {newVM(v1.RunStrategyAlways), nil, true, []string{"Ready False GuestNotRunning"}},
		"it is waited for":       {newVM(v1.RunStrategyAlways, failures(1, "x", time.Minute)), nil, false, []string{"Ready False VMINotExists"}},
		"its guest starts":       {newVM(v1.RunStrategyAlways), newTestVMI(starting, vmiSays(ready, "True", "Early", "")), true, []string{"Ready False GuestNotRunning"}},
		"its guest runs":         {newVM(v1.RunStrategyAlways), newTestVMI(running, vmiSays(ready, "True", "", "")), true, []string{"Ready True "}},
		"its guest is not ready": {newVM(v1.RunStrategyAlways), newTestVMI(running, vmiSays(ready, "False", "Probe", "")), true, []string{"Ready False Probe"}},
		"it says nothing":        {newVM(v1.RunStrategyAlways), newTestVMI(running), true, []string{"Ready False GuestNotRunning"}},
		"it is to go":            {newVM(v1.RunStrategyHalted), newTestVMI(running, vmiSays(ready, "True", "", "")), true, []string{"Ready False Stopping"}},
		"it goes":                {newVM(v1.RunStrategyManual), newTestVMI(running, vmiDeleting), true, []string{"Ready False Stopping"}},
		"it is another VM's":     {newVM(v1.RunStrategyAlways), newTestVMI(running, ofAnother), false, []string{"Failure True VirtualMachineInstanceNameTaken", "Ready False VMINotExists"}},
		"it is another VM's, and this one does not run": {newVM(v1.RunStrategyHalted), newTestVMI(running, ofAnother), false, []string{"Ready False VMINotExists"}},
	} {
		status := decide(Observed{VM: test.vm, VMI: test.vmi, Now: now}).VM.Status
		var says []string
		for _, c := range status.Conditions {
			says = append(says, string(c.Type)+" "+string(c.Status)+" "+c.Reason)
		}
		if status.Created != test.created || !slices.Equal(says, test.says) || status.Ready != strings.HasPrefix(test.says[0], "Ready True") {
			t.Errorf("%s: created %v, ready %v, %q; want %v and %q", name, status.Created, status.Ready, says, test.created, test.says)
		}
	}
}

func TestAStrangersNameIsSaidToBeTaken(t *testing.T) {
	conflicting := newTestVMI(running, ownerless)
	conflicting.Labels = nil
	vm := decide(Observed{VM: newVM(v1.RunStrategyAlways), VMI: conflicting, Now: now}).VM
	if c := condition.Find(vm.Status.Conditions, v1.VirtualMachineFailure); c == nil || c.Reason != ReasonNameTaken {
		t.Errorf("Failure is %+v", c)
	}
}

func TestTheVMIIsMadeOfTheTemplate(t *testing.T) {
	vm := newVM(v1.RunStrategyAlways)
	vm.Spec.Template.ObjectMeta.Labels = map[string]string{"a": "b"}
	vm.Spec.Template.ObjectMeta.Annotations = map[string]string{"c": "d"}
	vmi := decide(Observed{VM: vm, Now: now}).Create
	if vmi.Name != "vm" || vmi.Namespace != "ns" || !metav1.IsControlledBy(vmi, vm) {
		t.Errorf("%s/%s, owners %+v", vmi.Namespace, vmi.Name, vmi.OwnerReferences)
	}
	if vmi.Labels["a"] != "b" || vmi.Labels[v1.VirtualMachineLabel] != "vm" || vmi.Annotations["c"] != "d" ||
		vmi.Annotations[v1.VirtualMachineGenerationAnnotation] != "3" || len(vmi.Annotations) != 2 {
		t.Errorf("labels %v, annotations %v", vmi.Labels, vmi.Annotations)
	}
	if vmi.Spec.Domain.Firmware.UUID != uuid || vmi.Status.VirtualMachineRevisionName != RevisionName(vm) {
		t.Errorf("UUID %s, revision %s", vmi.Spec.Domain.Firmware.UUID, vmi.Status.VirtualMachineRevisionName)
	}
}

// The VM must name an end that nobody requested as long as the VMI exists, and a VM that reruns on failure must run
// again.
func TestAVMSaysHowItsGuestFailed(t *testing.T) {
	const why = "The launcher pod was evicted, and the guest was shut down."
	ended := newTestVMI([]v1.VirtualMachineInstancePhase{v1.Pending, v1.Running, v1.Failed}, vmiSays(v1.VirtualMachineInstanceReady, "False", v1.GuestNotRunningReason, why))
	for strategy, again := range map[v1.VirtualMachineRunStrategy]bool{v1.RunStrategyRerunOnFailure: true, v1.RunStrategyManual: false} {
		p := decide(Observed{VM: newVM(strategy), VMI: ended.DeepCopy(), VMIAsked: true, Now: now})
		if p.Delete != again {
			t.Errorf("%s: the VMI makes room for another: %t", strategy, p.Delete)
		}
		c := condition.Find(p.VM.Status.Conditions, v1.VirtualMachineReady)
		if c == nil || !again && c.Message != why {
			t.Errorf("%s: Ready says %+v, want %q", strategy, c, why)
		}
	}
}
