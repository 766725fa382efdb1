package verb

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/propertytest"
)

func machine(strategy v1.VirtualMachineRunStrategy, pending ...v1.VirtualMachineStateChangeRequest) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm-cirros"}}
	vm.Spec.RunStrategy = &strategy
	vm.Status.StateChangeRequests = pending
	return vm
}

func instance(phase v1.VirtualMachineInstancePhase) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vm-cirros", UID: "uid-1"}}
	vmi.Status.Phase = phase
	vmi.Spec.TerminationGracePeriodSeconds = new(int64(30))
	return vmi
}

var (
	uid1      = types.UID("uid-1")
	stopUID1  = v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest, UID: &uid1}
	startNow  = v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest}
	startHeld = v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest, Data: map[string]string{"paused": "true"}}
)

func requests(r ...v1.VirtualMachineStateChangeRequest) Plan { return Plan{Requests: r} }

// refusal is a conflict in the words that virtctl shows.
func refusal(sentence string) string {
	return `Operation cannot be fulfilled on virtualmachine.kubevirt.io "vm-cirros": ` + sentence
}

func TestStart(t *testing.T) {
	for name, test := range map[string]struct {
		vm     *v1.VirtualMachine
		vmi    *v1.VirtualMachineInstance
		paused bool
		want   Plan
		err    string
	}{
		"a halted VM becomes Always":                        {vm: machine(v1.RunStrategyHalted), want: Plan{RunStrategy: v1.RunStrategyAlways}},
		"a halted VM starts paused":                         {vm: machine(v1.RunStrategyHalted), paused: true, want: Plan{RunStrategy: v1.RunStrategyAlways, Requests: []v1.VirtualMachineStateChangeRequest{startHeld}}},
		"a halted VM whose start was half written":          {vm: machine(v1.RunStrategyHalted, startHeld), paused: true, want: Plan{RunStrategy: v1.RunStrategyAlways, Requests: []v1.VirtualMachineStateChangeRequest{startHeld}}},
		"a halted VM whose paused start was given up":       {vm: machine(v1.RunStrategyHalted, startHeld), want: Plan{RunStrategy: v1.RunStrategyAlways, Requests: []v1.VirtualMachineStateChangeRequest{}}},
		"a manual VM is asked to start":                     {vm: machine(v1.RunStrategyManual), want: requests(startNow)},
		"a manual VM is asked to start paused":              {vm: machine(v1.RunStrategyManual), paused: true, want: requests(startHeld)},
		"a manual VM's ended guest makes room":              {vm: machine(v1.RunStrategyManual), vmi: instance(v1.Succeeded), want: requests(stopUID1, startNow)},
		"a VM that ran to success is run again":             {vm: machine(v1.RunStrategyRerunOnFailure), vmi: instance(v1.Succeeded), want: requests(stopUID1, startNow)},
		"a VM that runs":                                    {vm: machine(v1.RunStrategyManual), vmi: instance(v1.Running), err: refusal("VM is already running")},
		"a VM that is being scheduled":                      {vm: machine(v1.RunStrategyHalted), vmi: instance(v1.Scheduling), err: refusal("VM is already running")},
		"a VM that always runs":                             {vm: machine(v1.RunStrategyAlways), err: refusal("Always does not support manual start requests")},
		"a VM that runs once":                               {vm: machine(v1.RunStrategyOnce), vmi: instance(v1.Failed), err: refusal("Once does not support manual start requests")},
		"a VM that is about to start":                       {vm: machine(v1.RunStrategyManual, startNow), err: refusal("unable to complete request: stop/start already underway")},
		"a VM that is being restored":                       {vm: restored(), err: refusal(`Cannot update VM runStrategy until restore "back" completes: start it then`)},
		"a VM whose disks may be incomplete copies":         {vm: incomplete(corev1.ConditionTrue), err: refusal("VM recovery required: name the old claims")},
		"one whose disks were":                              {vm: incomplete(corev1.ConditionFalse), want: requests(startNow)},
		"a VM whose strategy contradicts its field running": {vm: contradictory(), err: refusal("running and runstrategy are mutually exclusive")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Start(test.vm, test.vmi, v1.StartOptions{Paused: test.paused})
			check(t, got, err, test.want, test.err)
		})
	}
}

func restored() *v1.VirtualMachine {
	vm := machine(v1.RunStrategyHalted)
	vm.Status.RestoreInProgress = new("back")
	return vm
}

func incomplete(status corev1.ConditionStatus) *v1.VirtualMachine {
	vm := machine(v1.RunStrategyManual)
	vm.Status.Conditions = []v1.VirtualMachineCondition{{Type: v1.VirtualMachineManualRecoveryRequired, Status: status, Message: "name the old claims"}}
	return vm
}

// copying is a guest whose disks are being copied to other claims, or were to be.
func copying(status corev1.ConditionStatus) *v1.VirtualMachineInstance {
	vmi := instance(v1.Running)
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{Type: v1.VirtualMachineInstanceVolumesChange, Status: status}}
	return vmi
}

func contradictory() *v1.VirtualMachine {
	vm := machine(v1.RunStrategyAlways)
	vm.Spec.Running = new(true)
	return vm
}

func TestStop(t *testing.T) {
	for name, test := range map[string]struct {
		vm    *v1.VirtualMachine
		vmi   *v1.VirtualMachineInstance
		grace *int64
		want  Plan
		err   string
	}{
		"a VM that always runs becomes Halted":        {vm: machine(v1.RunStrategyAlways), vmi: instance(v1.Running), want: Plan{RunStrategy: v1.RunStrategyHalted}},
		"a VM in a crash loop has no VMI":             {vm: machine(v1.RunStrategyAlways), want: Plan{RunStrategy: v1.RunStrategyHalted}},
		"a start that has not happened is forgotten":  {vm: machine(v1.RunStrategyAlways, startHeld), want: Plan{RunStrategy: v1.RunStrategyHalted, Requests: []v1.VirtualMachineStateChangeRequest{}}},
		"a VM that is rerun is asked to stop":         {vm: machine(v1.RunStrategyRerunOnFailure), vmi: instance(v1.Running), want: requests(stopUID1)},
		"a VM that has failed is not rerun":           {vm: machine(v1.RunStrategyRerunOnFailure), vmi: instance(v1.Failed), want: requests(stopUID1)},
		"a VM that is about to be rerun stays off":    {vm: machine(v1.RunStrategyRerunOnFailure, startNow), want: Plan{Requests: []v1.VirtualMachineStateChangeRequest{}}},
		"a VM that would be rerun does not run":       {vm: machine(v1.RunStrategyRerunOnFailure), err: refusal("VM is not running")},
		"a VM that would be rerun has ended":          {vm: machine(v1.RunStrategyRerunOnFailure), vmi: instance(v1.Succeeded), err: refusal("VM is not running")},
		"a manual VM is asked to stop":                {vm: machine(v1.RunStrategyManual), vmi: instance(v1.Running), want: requests(stopUID1)},
		"a manual VM that is about to restart stops":  {vm: machine(v1.RunStrategyManual, stopUID1, startNow), vmi: instance(v1.Running), want: requests(stopUID1)},
		"a manual VM whose start waits stays off":     {vm: machine(v1.RunStrategyManual, startHeld), want: Plan{Requests: []v1.VirtualMachineStateChangeRequest{}}},
		"a manual VM whose next start waits":          {vm: machine(v1.RunStrategyManual, stopUID1, startNow), vmi: instance(v1.Succeeded), want: requests(stopUID1)},
		"a manual VM whose guest is to be gone only":  {vm: machine(v1.RunStrategyManual, stopUID1), vmi: instance(v1.Succeeded), err: refusal("VM is not running")},
		"a VM that runs once is asked to stop":        {vm: machine(v1.RunStrategyOnce), vmi: instance(v1.Running), want: requests(stopUID1)},
		"at once":                                     {vm: machine(v1.RunStrategyAlways), vmi: instance(v1.Running), grace: new(int64(0)), want: Plan{RunStrategy: v1.RunStrategyHalted, GracePeriod: new(int64(0))}},
		"at once, though it is shutting down already": {vm: machine(v1.RunStrategyHalted), vmi: instance(v1.Running), grace: new(int64(0)), want: Plan{GracePeriod: new(int64(0))}},
		"a halted VM":                          {vm: machine(v1.RunStrategyHalted), err: refusal("VM is not running")},
		"a halted VM whose guest has ended":    {vm: machine(v1.RunStrategyHalted), vmi: instance(v1.Succeeded), grace: new(int64(0)), err: refusal("VM is not running")},
		"a VM that is shutting down already":   {vm: machine(v1.RunStrategyHalted), vmi: instance(v1.Running), err: refusal("Halted only supports manual stop requests with a shorter graceperiod")},
		"a manual VM that does not run":        {vm: machine(v1.RunStrategyManual), err: refusal("VM is not running")},
		"a manual VM whose guest has ended":    {vm: machine(v1.RunStrategyManual), vmi: instance(v1.Succeeded), err: refusal("VM is not running")},
		"a grace period that is none":          {vm: machine(v1.RunStrategyAlways), vmi: instance(v1.Running), grace: new(int64(-1)), err: "grace period is -1 s; it must not be negative"},
		"a grace period longer than the VMI's": {vm: machine(v1.RunStrategyAlways), vmi: instance(v1.Running), grace: new(int64(31)), err: "grace period is 31 s; it can only shorten the VirtualMachineInstance's own, which is 30 s"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Stop(test.vm, test.vmi, v1.StopOptions{GracePeriod: test.grace})
			check(t, got, err, test.want, test.err)
		})
	}
}

func TestRestart(t *testing.T) {
	for name, test := range map[string]struct {
		vm    *v1.VirtualMachine
		vmi   *v1.VirtualMachineInstance
		grace *int64
		want  Plan
		err   string
	}{
		"a VM that runs": {vm: machine(v1.RunStrategyAlways), vmi: instance(v1.Running), want: requests(stopUID1, startNow)},
		"one whose disks are copied": {vm: machine(v1.RunStrategyAlways), vmi: copying(corev1.ConditionTrue), err: refusal("VM recovery required: its disks are being copied to other claims, " +
			"and the copies would be incomplete: restart it when the migration has ended, or have the template name the old claims again first")},
		"one whose disks are not":       {vm: machine(v1.RunStrategyAlways), vmi: copying(corev1.ConditionFalse), want: requests(stopUID1, startNow)},
		"at once":                       {vm: machine(v1.RunStrategyManual), vmi: instance(v1.Running), grace: new(int64(0)), want: Plan{GracePeriod: new(int64(0)), Requests: []v1.VirtualMachineStateChangeRequest{stopUID1, startNow}}},
		"a halted VM":                   {vm: machine(v1.RunStrategyHalted), err: refusal("Halted does not support manual restart requests")},
		"a VM that runs once":           {vm: machine(v1.RunStrategyOnce), vmi: instance(v1.Running), err: refusal("Once does not support manual restart requests")},
		"a VM that does not run":        {vm: machine(v1.RunStrategyAlways), err: refusal("VM is not running")},
		"a VM whose guest has ended":    {vm: machine(v1.RunStrategyManual), vmi: instance(v1.Failed), err: refusal("VM is not running")},
		"a VM that is being restarted":  {vm: machine(v1.RunStrategyAlways, stopUID1, startNow), vmi: instance(v1.Running), err: refusal("unable to complete request: stop/start already underway")},
		"a grace period that is longer": {vm: machine(v1.RunStrategyAlways), vmi: instance(v1.Running), grace: new(int64(60)), err: "grace period is 60 s; it can only shorten the VirtualMachineInstance's own, which is 30 s"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Restart(test.vm, test.vmi, v1.RestartOptions{GracePeriodSeconds: test.grace})
			check(t, got, err, test.want, test.err)
		})
	}
}

func check(t *testing.T, got Plan, err error, want Plan, wantErr string) {
	t.Helper()
	sentence := ""
	if err != nil {
		sentence = err.Error()
	}
	if sentence != wantErr {
		t.Errorf("error is %q, want %q", sentence, wantErr)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A VM must keep the field that its owner uses.
func TestRunningIsWrittenWhereItIsUsed(t *testing.T) {
	older := &v1.VirtualMachine{}
	older.Spec.Running = new(false)
	Plan{RunStrategy: v1.RunStrategyAlways}.Apply(older)
	if older.Spec.RunStrategy != nil || !*older.Spec.Running {
		t.Errorf("spec is %+v, want running: true alone", older.Spec)
	}
	newer := machine(v1.RunStrategyAlways)
	Plan{RunStrategy: v1.RunStrategyHalted}.Apply(newer)
	if newer.Spec.Running != nil || *newer.Spec.RunStrategy != v1.RunStrategyHalted {
		t.Errorf("spec is %+v, want runStrategy: Halted alone", newer.Spec)
	}
}

// A stop request must name the VMI that is meant, and nothing may ask for two guests.
func TestRequestsAreSafe(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		vm := machine(rapid.SampledFrom([]v1.VirtualMachineRunStrategy{
			v1.RunStrategyAlways, v1.RunStrategyHalted, v1.RunStrategyManual, v1.RunStrategyOnce, v1.RunStrategyRerunOnFailure,
		}).Draw(t, "strategy"))
		var vmi *v1.VirtualMachineInstance
		if rapid.Bool().Draw(t, "has VMI") {
			vmi = instance(rapid.SampledFrom([]v1.VirtualMachineInstancePhase{
				"", v1.Pending, v1.Scheduling, v1.Scheduled, v1.Running, v1.Succeeded, v1.Failed,
			}).Draw(t, "phase"))
		}
		var plan Plan
		var err error
		switch rapid.IntRange(0, 2).Draw(t, "verb") {
		case 0:
			plan, err = Start(vm, vmi, v1.StartOptions{})
		case 1:
			plan, err = Stop(vm, vmi, v1.StopOptions{})
		case 2:
			plan, err = Restart(vm, vmi, v1.RestartOptions{})
		}
		if err != nil {
			if len(plan.Requests) > 0 || plan.RunStrategy != "" {
				t.Fatalf("refused (%v), and yet changed: %+v", err, plan)
			}
			return
		}
		safe(t, plan, vmi)
	})
}

// safe fails for requests that stop a VMI other than the present one, or lead to two guests.
func safe(t *rapid.T, plan Plan, vmi *v1.VirtualMachineInstance) {
	starts := 0
	for i, r := range plan.Requests {
		switch {
		case r.Action == v1.StopRequest && (vmi == nil || *r.UID != vmi.UID):
			t.Fatalf("stop of a VMI that is not there: %+v", r)
		case r.Action == v1.StartRequest:
			starts++
			if Active(vmi) && (i == 0 || plan.Requests[i-1].Action != v1.StopRequest) {
				t.Fatalf("start beside a guest that runs: %+v", plan.Requests)
			}
		}
	}
	if starts > 1 || starts == 1 && plan.RunStrategy == v1.RunStrategyHalted {
		t.Fatalf("plan contradicts itself: %+v", plan)
	}
}
