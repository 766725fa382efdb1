package subresource

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/condition"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

// Plan is what a verb on a VirtualMachine changes, in this order.
type Plan struct {
	// GracePeriod is written into the running VMI, for a stop that is shorter
	// than the VM's own; nil leaves it.
	GracePeriod *int64
	// Requests replace status.stateChangeRequests; nil leaves them, an empty
	// list takes them away.
	Requests []v1.VirtualMachineStateChangeRequest
	// RunStrategy is what the VM is to have; empty leaves it.
	RunStrategy v1.VirtualMachineRunStrategy
}

// apply edits the VM's spec and status as planned. A VM that uses the older
// field running keeps using it.
func (p Plan) apply(vm *v1.VirtualMachine) {
	if p.Requests != nil {
		vm.Status.StateChangeRequests = p.Requests
	}
	if p.RunStrategy == "" {
		return
	}
	if vm.Spec.Running != nil {
		running := p.RunStrategy == v1.RunStrategyAlways
		vm.Spec.Running = &running
		return
	}
	strategy := p.RunStrategy
	vm.Spec.RunStrategy = &strategy
}

// Start plans to start vm; vmi is its VMI, nil when there is none.
func Start(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, options v1.StartOptions) (Plan, error) {
	strategy, err := vm.RunStrategy()
	if err != nil {
		return Plan{}, conflict(vm, "%v", err)
	}
	if active(vmi) {
		return Plan{}, conflict(vm, "VM is already running")
	}
	if by := vm.Status.RestoreInProgress; by != nil {
		return Plan{}, conflict(vm, "the VM is being restored by the VirtualMachineRestore %s; start it when that is complete", *by)
	}
	if _, locked := lock.Of(vm); locked {
		return Plan{}, conflict(vm, "%s", lock.Refusal(vm))
	}
	start := v1.VirtualMachineStateChangeRequest{Action: v1.StartRequest}
	if options.Paused {
		start.Data = map[string]string{v1.StartRequestDataPausedKey: v1.StartRequestDataPausedTrue}
	}
	switch strategy {
	case v1.RunStrategyHalted:
		// What may be pending is a start like this one, of which the second
		// write did not come about; it is replaced, not waited for.
		plan := Plan{RunStrategy: v1.RunStrategyAlways, Requests: forget(vm)}
		if options.Paused {
			plan.Requests = []v1.VirtualMachineStateChangeRequest{start}
		}
		return plan, nil
	case v1.RunStrategyManual, v1.RunStrategyRerunOnFailure:
		if underway(vm) {
			return Plan{}, conflict(vm, "unable to complete request: stop/start already underway")
		}
		return Plan{Requests: after(vmi, start)}, nil
	default:
		return Plan{}, conflict(vm, "%s does not support manual start requests", strategy)
	}
}

// Stop plans to stop vm.
func Stop(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, options v1.StopOptions) (Plan, error) {
	strategy, err := vm.RunStrategy()
	if err != nil {
		return Plan{}, conflict(vm, "%v", err)
	}
	if err := validGrace(vmi, options.GracePeriod); err != nil {
		return Plan{}, err
	}
	var plan Plan
	if exists(vmi) {
		plan.GracePeriod = options.GracePeriod
	}
	switch strategy {
	case v1.RunStrategyAlways:
		// Also without a VMI: a VM that is about to start, or waits in a crash
		// loop, is stopped by this.
		plan.RunStrategy = v1.RunStrategyHalted
		// A start that was asked for and has not happened must not wait for
		// the next one.
		plan.Requests = forget(vm)
		return plan, nil
	case v1.RunStrategyManual, v1.RunStrategyOnce, v1.RunStrategyRerunOnFailure:
		if strategy == v1.RunStrategyRerunOnFailure && !active(vmi) && rerun(vm, vmi) {
			return takeBack(vmi), nil
		}
		if !active(vmi) && startWaits(vm) {
			return takeBack(vmi), nil
		}
		if !active(vmi) {
			return Plan{}, conflict(vm, "VM is not running")
		}
		plan.Requests = []v1.VirtualMachineStateChangeRequest{stop(vmi)}
		return plan, nil
	case v1.RunStrategyHalted:
		if !active(vmi) {
			return Plan{}, conflict(vm, "VM is not running")
		}
		if options.GracePeriod == nil {
			return Plan{}, conflict(vm, "%s only supports manual stop requests with a shorter graceperiod", strategy)
		}
		// It is being stopped already; only sooner.
		return plan, nil
	default:
		return Plan{}, conflict(vm, "%s does not support manual stop requests", strategy)
	}
}

// rerun reports whether a VM that has failed is about to run again.
func rerun(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) bool {
	return underway(vm) || exists(vmi) && vmi.Status.Phase == v1.Failed
}

// startWaits reports whether a start was asked for that has not happened: it waits for the VM's disks, for example.
func startWaits(vm *v1.VirtualMachine) bool {
	return slices.ContainsFunc(vm.Status.StateChangeRequests, func(r v1.VirtualMachineStateChangeRequest) bool { return r.Action == v1.StartRequest })
}

// takeBack leaves a VM off that is about to run. The VMI before, if it is there, goes.
func takeBack(vmi *v1.VirtualMachineInstance) Plan {
	if exists(vmi) {
		return Plan{Requests: []v1.VirtualMachineStateChangeRequest{stop(vmi)}}
	}
	return Plan{Requests: []v1.VirtualMachineStateChangeRequest{}}
}

// Restart plans to restart vm.
func Restart(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance, options v1.RestartOptions) (Plan, error) {
	strategy, err := vm.RunStrategy()
	if err != nil {
		return Plan{}, conflict(vm, "%v", err)
	}
	if strategy == v1.RunStrategyHalted || strategy == v1.RunStrategyOnce {
		return Plan{}, conflict(vm, "%s does not support manual restart requests", strategy)
	}
	if !active(vmi) {
		return Plan{}, conflict(vm, "VM is not running")
	}
	if underway(vm) {
		return Plan{}, conflict(vm, "unable to complete request: stop/start already underway")
	}
	if err := validGrace(vmi, options.GracePeriodSeconds); err != nil {
		return Plan{}, err
	}
	return Plan{
		GracePeriod: options.GracePeriodSeconds,
		Requests: []v1.VirtualMachineStateChangeRequest{
			stop(vmi), {Action: v1.StartRequest},
		},
	}, nil
}

// after is a start that first puts an ended VMI out of its way.
func after(vmi *v1.VirtualMachineInstance, start v1.VirtualMachineStateChangeRequest) []v1.VirtualMachineStateChangeRequest {
	if exists(vmi) {
		return []v1.VirtualMachineStateChangeRequest{stop(vmi), start}
	}
	return []v1.VirtualMachineStateChangeRequest{start}
}

func stop(vmi *v1.VirtualMachineInstance) v1.VirtualMachineStateChangeRequest {
	uid := vmi.UID
	return v1.VirtualMachineStateChangeRequest{Action: v1.StopRequest, UID: &uid}
}

func exists(vmi *v1.VirtualMachineInstance) bool {
	return vmi != nil && vmi.DeletionTimestamp == nil
}

// active reports whether there is a guest, or will be one, that was not told to
// end.
func active(vmi *v1.VirtualMachineInstance) bool { return exists(vmi) && !vmi.IsFinal() }

// forget takes away requests that have not been done, where there are any.
func forget(vm *v1.VirtualMachine) []v1.VirtualMachineStateChangeRequest {
	if !underway(vm) {
		return nil
	}
	return []v1.VirtualMachineStateChangeRequest{}
}

// underway reports whether an earlier request has not been done yet.
func underway(vm *v1.VirtualMachine) bool { return len(vm.Status.StateChangeRequests) > 0 }

// validGrace refuses a grace period that is none, or longer than the VMI's
// own: its launcher pod would not live that long.
func validGrace(vmi *v1.VirtualMachineInstance, seconds *int64) error {
	if seconds == nil {
		return nil
	}
	if *seconds < 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("grace period is %d s; it must not be negative", *seconds))
	}
	if vmi != nil && vmi.Spec.TerminationGracePeriodSeconds != nil && *seconds > *vmi.Spec.TerminationGracePeriodSeconds {
		return apierrors.NewBadRequest(fmt.Sprintf(
			"grace period is %d s; it can only shorten the VirtualMachineInstance's own, which is %d s",
			*seconds, *vmi.Spec.TerminationGracePeriodSeconds))
	}
	return nil
}

// conflict is the refusal of a verb in the VM's present state, in the words
// that users of virtctl know.
func conflict(vm *v1.VirtualMachine, format string, args ...any) error {
	return apierrors.NewConflict(v1.Resource("virtualmachine"), vm.Name, fmt.Errorf(format, args...))
}

// ready refuses a verb on a VMI whose guest does not run.
func ready(vmi *v1.VirtualMachineInstance) error {
	if !vmi.IsRunning() || vmi.DeletionTimestamp != nil {
		return vmiConflict(vmi, "VMI is not running")
	}
	return nil
}

// Pause refuses to pause a guest that can't be.
func Pause(vmi *v1.VirtualMachineInstance) error {
	if err := ready(vmi); err != nil {
		return err
	}
	if vmi.Spec.LivenessProbe != nil {
		return apierrors.NewForbidden(v1.Resource("virtualmachineinstance"), vmi.Name,
			fmt.Errorf("%s", "Pausing VMIs with LivenessProbe is currently not supported"))
	}
	paused := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstancePaused)
	if paused != nil && paused.Status == corev1.ConditionTrue && paused.Reason != runstate.ReasonPausedIOError {
		return vmiConflict(vmi, "VMI is already paused")
	}
	return nil
}

// Unpause refuses to resume a guest that runs. One that has suspended itself is
// woken up.
func Unpause(vmi *v1.VirtualMachineInstance) error {
	if err := ready(vmi); err != nil {
		return err
	}
	told := condition.Find(vmi.Status.Conditions, v1.VirtualMachineInstanceReady)
	suspended := told != nil && told.Reason == runstate.ReasonSuspended
	if !suspended && !condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstancePaused) {
		return vmiConflict(vmi, "VMI is not paused")
	}
	return nil
}

// SoftReboot refuses what the guest would not hear.
func SoftReboot(vmi *v1.VirtualMachineInstance) error {
	if err := ready(vmi); err != nil {
		return err
	}
	if condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstancePaused) {
		return vmiConflict(vmi, "VMI is paused")
	}
	features := vmi.Spec.Domain.Features
	noACPI := features != nil && features.ACPI.Enabled != nil && !*features.ACPI.Enabled
	if noACPI && !condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceAgentConnected) {
		return vmiConflict(vmi, "VMI neither have the agent connected nor the ACPI feature enabled")
	}
	return nil
}

// Reset refuses to reset what does not run.
func Reset(vmi *v1.VirtualMachineInstance) error { return ready(vmi) }

// Agent refuses questions to a guest whose agent is silent.
func Agent(vmi *v1.VirtualMachineInstance) error {
	if err := ready(vmi); err != nil {
		return err
	}
	if !condition.IsTrue(vmi.Status.Conditions, v1.VirtualMachineInstanceAgentConnected) {
		return vmiConflict(vmi, "VMI does not have guest agent connected")
	}
	return nil
}

// Freeze refuses to freeze the file systems of a guest whose agent is silent, by the code that KubeVirt has for it.
func Freeze(vmi *v1.VirtualMachineInstance) error {
	if err := ready(vmi); err != nil {
		return err
	}
	if err := Agent(vmi); err != nil {
		return apierrors.NewInternalError(err)
	}
	return nil
}

// Console refuses a serial console that the guest does not have. 400 is what
// clients take for 'not yet' and try again on.
func Console(vmi *v1.VirtualMachineInstance) error {
	if attach := vmi.Spec.Domain.Devices.AutoattachSerialConsole; attach != nil && !*attach {
		return apierrors.NewBadRequest("No serial consoles are present.")
	}
	return connectable(vmi)
}

// VNC refuses a screen that the guest does not have.
func VNC(vmi *v1.VirtualMachineInstance) error {
	if attach := vmi.Spec.Domain.Devices.AutoattachGraphicsDevice; attach != nil && !*attach {
		return apierrors.NewBadRequest("No graphics devices are present.")
	}
	return connectable(vmi)
}

// PortForward refuses ports of a guest that does not run.
func PortForward(vmi *v1.VirtualMachineInstance) error { return connectable(vmi) }

func connectable(vmi *v1.VirtualMachineInstance) error {
	if !vmi.IsRunning() || vmi.DeletionTimestamp != nil {
		phase := string(vmi.Status.Phase)
		switch {
		case vmi.DeletionTimestamp != nil:
			phase = "Terminating"
		case phase == "":
			phase = string(v1.Pending)
		}
		return apierrors.NewBadRequest(fmt.Sprintf(
			"Unable to connect to VirtualMachineInstance because phase is %s instead of %s", phase, v1.Running))
	}
	return nil
}

func vmiConflict(vmi *v1.VirtualMachineInstance, sentence string) error {
	return apierrors.NewConflict(v1.Resource("virtualmachineinstance"), vmi.Name, fmt.Errorf("%s", sentence))
}
